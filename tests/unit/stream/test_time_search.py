"""From a time to an offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigError, EpochMismatch
from penstock.store.secondary import LogFollower
from penstock.store.time_search import first_received_at
from penstock.stream.client import StreamClient
from tests.contract.archived import ALARMS, ALL, SECOND_US, START_US, publish_mixed, writing
from tests.spark.log_writer import FIRST_RECEIVED_AT_US, LogWriter
from tests.spark.service_process import serving
from tests.support.deadline import DEADLINE_S


def found(follower: LogFollower, time_us: int) -> int | None:
    return first_received_at(follower, follower.extent(ALL), time_us, ALL)


def test_the_first_offset_at_or_after_a_time_is_found_wherever_it_is(tmp_path: Path) -> None:
    follower = LogFollower(tmp_path)
    with LogWriter(tmp_path) as log:
        assert found(follower, 0) is None
        for count in (1, 7, 1, 30, 2):
            log.append(count)
        for n in range(log.end):
            time_us = FIRST_RECEIVED_AT_US + n * SECOND_US
            assert (found(follower, time_us - 1), found(follower, time_us)) == (n, n)
        assert found(follower, time_us + 1) is None
        log.trim(8)
        follower.close()
        assert found(follower, 0) == 8


def test_of_messages_of_one_time_the_first_is_found(tmp_path: Path) -> None:
    follower = LogFollower(tmp_path)
    with LogWriter(tmp_path) as log:
        for _ in range(9):
            log.append(3, step_us=0)
        assert found(follower, FIRST_RECEIVED_AT_US) == 0
        assert found(follower, FIRST_RECEIVED_AT_US + 1) is None


def test_a_place_is_found_where_the_log_passes_the_time_though_the_clock_was_set_back(
    tmp_path: Path,
) -> None:
    with writing(tmp_path) as writer:
        times = []
        for jump_s in (0, -6, 2, -3):
            writer.wait(jump_s)
            later_s = writer._later_s
            for _ in range(10):
                times.append(START_US + (writer.end + later_s) * SECOND_US)
                writer.publish("a")
        follower = LogFollower(tmp_path)
        for time_us in range(START_US - SECOND_US, max(times), SECOND_US // 2):
            place = found(follower, time_us)
            assert place is not None
            assert times[place] >= time_us
            assert place == 0 or times[place - 1] < time_us


def test_an_archive_is_searched_too(tmp_path: Path) -> None:
    with writing(tmp_path) as writer, serving(tmp_path, ALL, ALARMS) as process:
        alarms = publish_mixed(writer, 20)
        writer.leave(45)
        with StreamClient(process.address, connect_timeout_s=DEADLINE_S) as client:
            epoch = client.offsets("alarms").epoch
            for n in range(60):
                place = client.offset_at("alarms", epoch, START_US + n * SECOND_US)
                assert place == (n if n >= 45 else min(m for m in [*alarms, 45] if m >= n))
            assert client.offset_at("messages", epoch, START_US) == 45


def test_holes_are_passed_over(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as log:
        log.append(10)
        log.append(10)
        follower = LogFollower(tmp_path)
        extent = follower.extent()
        lost = type(extent)(extent.epoch, 0, 20, ((0, 5), (7, 13)))
        for n, expected in ((0, 5), (6, 6), (7, 13), (12, 13), (15, 15)):
            time_us = FIRST_RECEIVED_AT_US + n * SECOND_US
            assert first_received_at(follower, lost, time_us, ALL) == expected


@pytest.mark.parametrize(
    ("stream", "epoch", "time", "kind", "sentence"),
    [
        ("nothing", "", 0, ConfigError, "there is no stream 'nothing'"),
        ("messages", "old", 0, EpochMismatch, "belong to epoch old"),
        ("messages", "", -1, ConfigError, "received_at must be given, in µs since 1970"),
    ],
)
def test_a_time_that_cannot_be_looked_up_is_refused(
    tmp_path: Path, stream: str, epoch: str, time: int, kind: type[Exception], sentence: str
) -> None:
    with (
        LogWriter(tmp_path) as log,
        serving(tmp_path, ALL) as process,
        StreamClient(process.address, connect_timeout_s=DEADLINE_S) as client,
        pytest.raises(kind, match=sentence),
    ):
        client.offset_at(stream, epoch or log.epoch, time)
