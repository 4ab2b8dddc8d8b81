"""The delivery contract under cuts, take-overs, crashes and slow commits, seed by seed.

A failure names its seed. To replay it, and nothing else::

      PENSTOCK_SEED=1234 python -m pytest tests/model/test_simulation.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, final

import pytest

from penstock.store.api import Store
from penstock.store.memory import MemoryStore
from penstock.store.rocks import RocksStore
from tests.model.seeds import TIMEOUT_S, play_seeds, replay
from tests.model.world import TRACE_LENGTH, Disk, World

STEPS: Final = 400


@final
class MemoryDisk:
    """Keeps what a memory store was given."""

    def __init__(self, _directory: Path) -> None:
        self._store = MemoryStore("epoch")

    def open(self) -> Store:
        """The same store; everything that was committed, and nothing else, is in it."""
        return self._store


@final
class RocksDisk:
    """A directory; every open is a fresh instance."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self) -> Store:
        """A new store on the same files."""
        return RocksStore(self._directory)


def play(seed: int, make: Callable[[Path], Disk]) -> None:
    """One run; a failure names its seed and shows what led to it."""
    with tempfile.TemporaryDirectory(prefix="penstock-model-") as directory:
        world = World(seed, make(Path(directory)))
        try:
            world.run(STEPS)
        except Exception as failure:
            trace = "\n".join(world.trace[-TRACE_LENGTH:])
            raise AssertionError(f"{trace}\n{replay(seed)}: {failure}") from failure
        finally:
            world.close()


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("make", [MemoryDisk, RocksDisk])
def test_every_promise_is_kept(make: Callable[[Path], Disk]) -> None:
    play_seeds(partial(play, make=make), 150)
