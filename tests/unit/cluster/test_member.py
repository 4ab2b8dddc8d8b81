"""A member with its threads: what ends the primary, and what does not."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import final

import pytest

from penstock.cluster.beats import Beat, RoleName, encode_beat
from penstock.cluster.log import Heartbeats, ReplicatedLog
from penstock.cluster.member import Member
from penstock.config.cluster import Cluster
from tests.support.deadline import wait_for
from tests.support.memory_log import MemoryCluster, MemoryLog


@final
class _Wire:
    """The heartbeats of one member, and of whoever the test is."""

    def __init__(self) -> None:
        self._beats: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def send(self, beat: bytes) -> None:
        self._beats.put(beat)

    def received(self, timeout_s: float) -> list[bytes]:
        try:
            return [self._beats.get(timeout=timeout_s)]
        except queue.Empty:
            return []

    def close(self) -> None:
        pass


@final
class _Connect:
    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.wire = _Wire()

    def log(self, purpose: str) -> ReplicatedLog:
        return MemoryLog(self.cluster, purpose)

    def heartbeats(self) -> Heartbeats:
        return self.wire


@pytest.fixture
def connect() -> _Connect:
    return _Connect()


@pytest.fixture
def primary(connect: _Connect, tmp_path: Path) -> Iterator[Member]:
    """A member that has just claimed; its store is not opened yet."""
    settings = Cluster(
        log=("nats://127.0.0.1:4222",), name="unit", node="a", members=("a",), lease_s=0.5
    )
    member = Member(settings, tmp_path, "127.0.0.1:1883", "", connect)
    member.start()
    try:
        opener = member.follow()
        assert opener is not None
        assert member.role == "primary"
        yield member
        opener.close()
    finally:
        member.stop()


def hear(connect: _Connect, member: Member, node: str, role: RoleName, term: int) -> None:
    """Let it hear a heartbeat; those before are dealt with by then."""
    beat = Beat(node=node, role=role, term=term, applied=5000, synced=5000)
    connect.wire.send(encode_beat(beat))
    wait_for("the heartbeat", lambda: node in member.recent_beats())


def test_a_view_that_was_not_compared_with_the_log_ends_no_primary(
    connect: _Connect, primary: Member
) -> None:
    """It may be of a log that is lost: its machine would end each primary by being started."""
    hear(connect, primary, "b", "waiting", term=99)
    hear(connect, primary, "c", "standby", term=1)
    assert primary.role == "primary"


def test_a_primary_that_is_fenced_before_its_broker_runs_ends_it(
    connect: _Connect, primary: Member
) -> None:
    hear(connect, primary, "b", "standby", term=99)
    wait_for("the end of the primary", lambda: primary.role == "fenced")
    told: list[str] = []
    primary.serve_as_primary(told.append)
    assert told == ["the view of b has come to term 99"]
