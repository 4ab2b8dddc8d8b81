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

from penstock.engine.routing.prepared_sessions import PreparedSessions
from penstock.engine.values.limits import EngineLimits
from penstock.protocol.encode import encode
from penstock.protocol.packets import Packet, Puback, Publish, Pubrec
from penstock.protocol.reasons import NO_MATCHING_SUBSCRIBERS, QUOTA_EXCEEDED
from penstock.store.memory import MemoryStore
from penstock.store.port import Store
from penstock.store.rocks import RocksStore
from penstock.store.stored_sessions import StoredSessionsMirror
from tests.model.seeds import TIMEOUT_S, play_seeds, replay
from tests.model.shell import refusals
from tests.model.world import TRACE_LENGTH, Disk, World
from tests.support.noted_changes import note_changes
from tests.support.waiting import forget_who_waits

STEPS: Final = 400
_FAST: Final = Path("/dev/shm")


@final
class MemoryDisk:
    """A disk that keeps what a memory store was given."""

    def __init__(self) -> None:
        self._store = MemoryStore("epoch")

    def open(self) -> Store:
        """Return the same store, with everything that was committed, and nothing else."""
        forget_who_waits(self._store)
        return self._store

    def take_prepared(self, limits: EngineLimits) -> None:
        """There is no standby."""

    def remove(self) -> None:
        """Do nothing: it goes with the run."""


@final
class RocksDisk:
    """A directory, in memory where the machine has that: the effect of a sync is not tested
    here."""

    def __init__(self) -> None:
        parent = _FAST if _FAST.is_dir() else None
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-model-", dir=parent)

    def open(self) -> RocksStore:
        """Return a new store on the same files."""
        return RocksStore(Path(self._directory.name))

    def take_prepared(self, limits: EngineLimits) -> None:
        """There is no standby."""

    def remove(self) -> None:
        """Remove the directory."""
        self._directory.cleanup()


@final
class FollowedDisk:
    """The same with a standby, which prepares the sessions as commits are written, and takes over
    at each crash and stop."""

    def __init__(self) -> None:
        self._disk = RocksDisk()
        self._store: RocksStore | None = None
        self._following: PreparedSessions | None = None

    def open(self) -> Store:
        """Return a new store on the same files."""
        self._store = self._disk.open()
        return self._store

    def take_prepared(self, limits: EngineLimits) -> PreparedSessions | None:
        """Return what the standby prepared since the last start, and follow with the next."""
        assert self._store is not None
        prepared = self._following
        if prepared is not None:
            assert prepared.covers(self._store.recover(subscriptions=False).sessions)
        self._following = PreparedSessions(limits, ("#",))
        mirror = StoredSessionsMirror(self._following)
        mirror.load(self._store._database)
        note_changes(self._store, mirror.apply)
        return prepared

    def remove(self) -> None:
        """Remove the directory."""
        self._disk.remove()


def play(seed: int, make: Callable[[], Disk]) -> None:
    """Play one run; a failure names its seed and shows what led to it."""
    disk = make()
    try:
        _play(seed, disk)
    finally:
        disk.remove()


def _play(seed: int, disk: Disk) -> None:
    world = World(seed, disk)
    try:
        world.run(STEPS)
    except Exception as failure:
        trace = "\n".join(world.trace[-TRACE_LENGTH:])
        raise AssertionError(f"{trace}\n{replay(seed)}: {failure}") from failure
    finally:
        world.close()


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(("make", "count"), [(MemoryDisk, 60), (RocksDisk, 60), (FollowedDisk, 25)])
def test_every_promise_is_kept(make: Callable[[], Disk], count: int) -> None:
    play_seeds(partial(play, make=make), count)


def test_a_refused_message_may_come_late_when_the_answer_is_lost() -> None:
    """Seeds in which 0x97 was lost with its connection, and the client sent the message again."""
    for seed in (3005984, 3011677, 3019580):
        play(seed, MemoryDisk)


def test_refusals_are_found_among_other_packets() -> None:
    packets: list[Packet] = [
        Publish("t", b"x" * 300, 1, packet_id=9),
        Puback(1),
        Puback(2, QUOTA_EXCEEDED),
        Pubrec(3, NO_MATCHING_SUBSCRIBERS),
        Pubrec(4, QUOTA_EXCEEDED),
    ]
    assert list(refusals(b"".join(encode(packet, 5) for packet in packets))) == [2, 4]
    assert list(refusals(b"".join(encode(packet, 4) for packet in packets[:2]))) == []
