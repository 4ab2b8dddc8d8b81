"""The log's leader is moved off the machine of the primary, and otherwise left where it is."""

from __future__ import annotations

import pytest

from penstock.cluster.log import Bounds, LogNode, LogState
from penstock.cluster.log_leader import LOOK_S, MOVED_S, LeaderMover, servers_elsewhere
from tests.support.memory_log import MemoryCluster, MemoryLog


def state(*nodes: LogNode, has_quorum: bool = True) -> LogState:
    leader = next((node.name for node in nodes if node.is_leader), "")
    return LogState("memory", "", leader, nodes, Bounds(1, 0), 0, has_quorum)


def node(name: str, is_current: bool = True, seen_s: float = 0.1) -> LogNode:
    return LogNode(name, False, is_current, 0, seen_s)


LEADER = LogNode("a", True, True, 0, 0.0)


@pytest.mark.parametrize(
    ("own", "seen", "servers"),
    [
        ("a", state(LEADER, node("b", seen_s=0.9), node("c")), ["c", "b"]),
        ("a", state(LEADER, node("b", is_current=False), node("c")), ["c"]),
        ("a", state(LEADER, node("b", seen_s=9.0), node("c")), ["c"]),
        ("a", state(LEADER, node("b"), node("c"), has_quorum=False), []),
        ("a", state(node("a"), node("b"), node("c")), []),
        ("b", state(LEADER, node("b"), node("c")), []),
        ("not of the log", state(LEADER, node("b"), node("c")), []),
    ],
)
def test_servers_elsewhere(own: str, seen: LogState, servers: list[str]) -> None:
    assert servers_elsewhere(seen, own) == servers


def test_the_leader_is_moved_once_and_looked_at_again_later() -> None:
    now_s = 100.0
    cluster = MemoryCluster()
    log = MemoryLog(cluster)
    mover = LeaderMover("m1", lambda: now_s)
    assert mover.step(log)
    assert cluster.leader == "m2"
    cluster.leader = "m1"
    now_s += MOVED_S - 1
    assert not mover.step(log)
    now_s += LOOK_S
    assert mover.step(log)
    now_s += MOVED_S
    assert not mover.step(log)
    cluster.leader = "m1"
    now_s += LOOK_S - 1
    assert not mover.step(log)
    now_s += 1
    assert mover.step(log)


def test_the_leader_is_told_at_each_look() -> None:
    now_s = 100.0
    told: list[str] = []
    cluster = MemoryCluster()
    mover = LeaderMover("m1", lambda: now_s, told.append)
    for _ in range(3):
        mover.step(MemoryLog(cluster))
        mover.step(MemoryLog(cluster))
        now_s += LOOK_S
    assert told == ["m1", "m2", "m2"]
