"""Which parts of a log may have messages of a time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from penstock.store import secondary, time_index
from penstock.store.ranges import Ranges
from penstock.store.secondary import LogFollower
from penstock.store.time_index import TimeIndex
from penstock.stream.client import StreamClient
from tests.contract.archived import ALL, SECOND_US, START_US, writing
from tests.spark.service_process import serving

FOREVER_S = time.monotonic() + 10**6


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of ten messages, as if each were a part of a large log."""
    for module in (time_index, secondary):
        monkeypatch.setattr(module, "ROWS_MAX", 10)


def looked_up(index: TimeIndex, log: LogFollower, since: int, until: int) -> Ranges | None:
    """For seconds since the first message."""
    extent = log.extent(ALL)
    times = (START_US + since * SECOND_US, START_US + until * SECOND_US)
    return index.possible_ranges(extent, (extent.earliest, extent.end), *times, FOREVER_S)


@pytest.mark.usefixtures("small_parts")
def test_only_parts_that_may_have_messages_of_the_time_are_named(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        follower = LogFollower(tmp_path)
        index = TimeIndex(follower, ALL)
        for _ in range(20):
            writer.publish(*["a"] * 5)
        assert looked_up(index, follower, 0, 1000) == [(0, 100)]
        assert looked_up(index, follower, 42, 43) == [(40, 50)]
        assert looked_up(index, follower, 49, 51) == [(40, 60)]
        assert looked_up(index, follower, 50, 60) == [(50, 60)]
        assert looked_up(index, follower, 1000, 2000) == []
        writer.publish(*["a"] * 5)
        assert looked_up(index, follower, 102, 103) == [(100, 105)]
        follower.close()


@pytest.mark.usefixtures("small_parts")
def test_a_time_that_the_log_passes_twice_is_found_twice(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        follower = LogFollower(tmp_path)
        for _ in range(10):
            writer.publish("a")
        writer.wait(-10)  # the broker's clock was set back
        for _ in range(10):
            writer.publish("a")
        writer.wait(+100)
        for _ in range(10):
            writer.publish("a")
        index = TimeIndex(follower, ALL)
        assert looked_up(index, follower, 3, 4) == [(0, 20)]
        assert looked_up(index, follower, 110, 200) == [(20, 30)]
        follower.close()


@pytest.mark.usefixtures("small_parts")
def test_messages_that_are_in_no_stream_count_nowhere(tmp_path: Path) -> None:
    """A QoS 2 message that waits for its PUBREL, and a retained one that a session got."""
    with writing(tmp_path) as writer:
        follower = LogFollower(tmp_path)
        for _ in range(10):
            writer.publish("a", internal=True)
        for _ in range(10):
            writer.publish("a")
        assert looked_up(TimeIndex(follower, ALL), follower, 0, 11) == [(10, 20)]
        follower.close()


@pytest.mark.usefixtures("small_parts")
def test_a_caller_without_time_left_is_told_to_ask_again_and_comes_to_an_end(
    tmp_path: Path,
) -> None:
    with writing(tmp_path) as writer:
        follower = LogFollower(tmp_path)
        for _ in range(3):
            writer.publish("a")
        extent = follower.extent(ALL)
        index = TimeIndex(follower, ALL)
        answers = [index.possible_ranges(extent, (0, 3), 0, 2**60, 0.0) for _ in range(2)]
        assert answers[-1] == [(0, 3)]
        follower.close()


@pytest.mark.usefixtures("small_parts")
def test_a_log_of_many_parts_is_remembered_in_larger_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_index, "PARTS_MAX", 4)
    with writing(tmp_path) as writer:
        follower = LogFollower(tmp_path)
        index = TimeIndex(follower, ALL)
        for n in range(12):
            writer.publish(*["a"] * 10)
            found = looked_up(index, follower, 10 * n, 10 * n + 10)
            assert found is not None
            assert found[-1][1] == 10 * n + 10
        assert looked_up(index, follower, 0, 120) == [(0, 120)]
        assert len(index._parts) <= 4
        follower.close()


def test_the_service_names_the_ranges_and_sends_only_rows_of_the_time(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        for _ in range(3):
            writer.publish(*["a", "b"] * 5)
        since, until = START_US + 7 * SECOND_US, START_US + 12 * SECOND_US
        with serving(tmp_path, ALL) as process, StreamClient(process.address) as client:
            log = client.offsets("messages")
            ranges = client.received_between("messages", log.epoch, (5, 30), since, until)
            assert ranges == [(5, 30)]
            nothing = client.received_between("messages", log.epoch, (5, 30), 0, START_US)
            assert nothing == []
            found = client.read(
                "messages",
                log.epoch,
                5,
                30,
                topic_filters=["b"],
                columns=["offset"],
                since_us=since,
                until_us=until,
            )
            assert [row["offset"] for batch in found for row in batch.to_pylist()] == [7, 9, 11]
            later = client.read("messages", log.epoch, 0, 30, columns=["offset"], since_us=until)
            assert [batch.num_rows for batch in later] == [18]
