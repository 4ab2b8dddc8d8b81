"""A standby believes that its view is ahead of the log only when it has heard so for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cluster.database import open_cluster_database
from penstock.cluster.follower import AHEAD_S, Follower, Progress
from penstock.cluster.memory_log import MemoryCluster, MemoryLog
from penstock.cluster.reading import ViewAhead
from penstock.cluster.record import Claim, Position, encode_claim
from penstock.cluster.role import Standby
from penstock.cluster.view import View
from penstock.cluster.writer import LogWriter

CLAIM = Claim("a")


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def follower(cluster: MemoryCluster, view: View, clock: Clock) -> Follower:
    standby = Standby("a", 1.5, clock())
    return Follower(
        MemoryLog(cluster), view, standby, CLAIM, lambda: LogWriter(MemoryLog(cluster), 5), clock
    )


def test_a_view_is_ahead_of_the_log_only_after_a_while(tmp_path: Path) -> None:
    clock = Clock()
    cluster = MemoryCluster()
    LogWriter(MemoryLog(cluster), 5).claim(Position(), encode_claim(CLAIM))
    database = open_cluster_database(tmp_path)
    try:
        view = View(database)
        assert follower(cluster, view, clock).step(0) is Progress.READ
        deposed = follower(MemoryCluster(), view, clock)
        assert deposed.step(0) is Progress.UNREACHABLE
        assert "ends at 0" in deposed.note
        clock.now_s += AHEAD_S - 1
        assert deposed.step(0) is Progress.UNREACHABLE
        clock.now_s += 1
        with pytest.raises(ViewAhead):
            deposed.step(0)
    finally:
        database.close()
