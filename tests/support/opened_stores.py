"""Stores opened in a process of their own, which can be ended where RocksDB does not come back.

As a program it opens the store in each directory it is given, one after the other, and prints a
line of JSON for each.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.errors import StoreError
from penstock.store.rocks import RocksStore
from tests.support.deadline import DEADLINE_S
from tests.support.environment import environment


@dataclass(frozen=True, slots=True)
class Opened:
    """What a start found.

    Attributes:
        messages: how many are in the log.
        end: where the log ends.
        refusal: why it did not start; empty where it did.
    """

    messages: int
    end: int
    refusal: str = ""


def open_each(directories: Sequence[Path]) -> list[Opened]:
    """Open the stores in ``directories``; AssertionError names the one that does not come back."""
    opener = subprocess.Popen(
        [sys.executable, "-m", __name__, *map(str, directories)],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    try:
        told, _ = opener.communicate(timeout=DEADLINE_S + len(directories))
    except subprocess.TimeoutExpired:
        opener.kill()
        told, _ = opener.communicate()
    found = [Opened(**json.loads(line)) for line in told.splitlines()]
    assert len(found) == len(directories), f"{directories[len(found)]} was not opened in time"
    return found


def _open(data_dir: Path) -> Opened:
    try:
        store = RocksStore(data_dir)
    except StoreError as error:
        return Opened(0, 0, str(error))
    end = store.recover().next_offset
    messages = len(store.read(range(end)))
    store.close()
    return Opened(messages, end)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(json.dumps(asdict(_open(Path(name)))), flush=True)
