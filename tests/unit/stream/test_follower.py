"""Reading the log beside its writer: what is shown, and what never is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import OffsetOutOfRange, StoreUnavailable
from penstock.store import secondary
from penstock.store.secondary import Extent, LogFollower, StoreNotReady
from tests.spark.log_writer import LogWriter


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogWriter]:
    with LogWriter(tmp_path) as writer:
        yield writer


@pytest.fixture
def follower(log: LogWriter) -> LogFollower:
    return LogFollower(log.data_dir)


def payloads(follower: LogFollower, start: int, end: int) -> list[int]:
    return [
        int(payload)
        for rows in follower.rows(start, end)
        for payload in rows.batch.column("payload").to_pylist()
    ]


def test_a_log_without_chunks_is_empty(log: LogWriter, follower: LogFollower) -> None:
    assert follower.extent() == Extent(log.epoch, 0, 0)


def test_nothing_at_or_above_the_watermark_is_shown(log: LogWriter, follower: LogFollower) -> None:
    log.append(10)
    log.append(10, commit=False)
    assert follower.extent().end == 10
    log.commit(15)  # in the middle of a chunk
    assert follower.extent().end == 15
    log.commit()
    assert follower.extent().end == 20


def test_a_range_may_begin_and_end_inside_chunks(log: LogWriter, follower: LogFollower) -> None:
    for count in (10, 1, 10):
        log.append(count)
    follower.extent()
    assert payloads(follower, 3, 17) == list(range(3, 17))
    assert payloads(follower, 10, 11) == [10]
    assert payloads(follower, 5, 5) == []


def test_small_chunks_are_put_together_up_to_a_gap_or_a_limit(
    log: LogWriter, follower: LogFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(10):
        log.append(10)
    follower.extent()
    spans = [(rows.begin, rows.end) for rows in follower.rows(5, 95)]
    assert spans == [(5, 95)]
    monkeypatch.setattr(secondary, "ROWS_MAX", 30)
    found = list(follower.rows(5, 95))
    assert [(rows.begin, rows.end) for rows in found] == [(5, 40), (40, 70), (70, 95)]
    assert found[1].offsets.to_pylist() == list(range(40, 70))
    log.trim(40, announce=False)
    with pytest.raises(OffsetOutOfRange, match="the offsets 5 to 39 are no longer in the log"):
        list(LogFollower(log.data_dir).rows(5, 95))


def test_a_writer_that_is_restarted_is_followed(log: LogWriter, follower: LogFollower) -> None:
    log.append(10)
    assert follower.extent().end == 10
    log.reopen()
    log.append(10)
    assert payloads(follower, 0, follower.extent().end) == list(range(20))


def test_there_may_be_no_log_yet(tmp_path: Path) -> None:
    follower = LogFollower(tmp_path)
    with pytest.raises(StoreNotReady, match="there is no log in"):
        follower.extent()
    with LogWriter(tmp_path) as log:
        log.append(1)
        assert follower.extent().end == 1


def test_the_log_begins_where_the_broker_says(log: LogWriter, follower: LogFollower) -> None:
    for _ in range(3):
        log.append(10)
    assert follower.extent().earliest == 0
    log.trim(20)
    assert follower.extent() == Extent(log.epoch, 20, 30)


def test_a_gap_left_by_retention_is_an_error_and_is_seen_afterwards(
    log: LogWriter, follower: LogFollower
) -> None:
    """Older stores do not say where the log begins, and a secondary may show deleted chunks."""
    log.append(10)
    follower.extent()
    for _ in range(3):
        log.append(10)
    log.trim(30, announce=False)
    with pytest.raises(OffsetOutOfRange, match="are no longer in the log: retention"):
        payloads(follower, 0, 40)
    assert follower.extent() == Extent(log.epoch, 30, 40)
    assert payloads(follower, 30, 40) == list(range(30, 40))


def test_a_log_that_cannot_be_read_is_not_one_that_retention_shortened(
    log: LogWriter, follower: LogFollower
) -> None:
    log.append(1000)
    log.reopen()  # into a table file
    log.append(1000)
    tables = sorted((log.data_dir / "store").glob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(tables[-1].read_bytes())
    middle = len(data) // 3
    data[middle : middle + 64] = bytes(byte ^ 0xFF for byte in data[middle : middle + 64])
    tables[-1].write_bytes(data)
    end = follower.extent().end
    with pytest.raises(
        StoreUnavailable, match=r"the offsets 0 to 999 cannot be read: .*penstock store"
    ):
        payloads(follower, 0, end)
