"""What Spark's planner is told of two brokers, and what its tasks then read. No Spark."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
)

from penstock.errors import ConfigError, OffsetOutOfRange
from penstock.spark.options import parse_options
from penstock.spark.ranges import RangePlanner, ReadRanges
from penstock.spark.source import BatchReader, Range, StreamReader
from penstock.stream.client import StreamOffsets
from tests.spark.log_writer import FIRST_RECEIVED_AT_US, LogWriter
from tests.spark.positions import unmarked
from tests.spark.service_process import ServiceProcess


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[list[LogWriter]]:
    with LogWriter(tmp_path / "one", "e1") as one, LogWriter(tmp_path / "two", "e2") as two:
        yield [one, two]


@pytest.fixture
def addresses(logs: list[LogWriter]) -> Iterator[list[str]]:
    services = [ServiceProcess(log.data_dir) for log in logs]
    for service in services:
        service.start()
    yield [service.address for service in services]
    for service in services:
        service.stop()


EVERYTHING = {"selection": "stream messages, all topics"}


def reader(*servers: str, **options: str) -> StreamReader:
    given = {"servers": ",".join(servers), "minPartitions": "4", **options}
    return StreamReader(parse_options(given), ["epoch", "offset"])


def test_a_planned_batch_is_read_by_copies_of_the_reader(
    logs: list[LogWriter], addresses: list[str]
) -> None:
    logs[0].append(10)
    logs[1].append(30)
    planner = reader(*addresses, maxOffsetsPerTrigger="20", maxRecordsPerPartition="4")
    start = planner.initialOffset()
    end = planner.latestOffset(start, planner.getDefaultReadLimit())
    one, two = addresses
    assert unmarked(end) == {
        one: {"0": 5, "epoch": "e1"}, two: {"0": 15, "epoch": "e2"}, **EVERYTHING,
    }  # fmt: skip
    assert list(end) == sorted(end)
    parts = planner.partitions(start, end)
    spans = [(p.address, p.start, p.end) for p in parts if isinstance(p, Range)]
    assert spans == [
        (one, 0, 2), (one, 2, 5), (two, 0, 3), (two, 3, 7), (two, 7, 11), (two, 11, 15),
    ]  # fmt: skip
    copies = [pickle.loads(pickle.dumps((planner, part))) for part in parts]
    rows = [
        (row["epoch"], row["offset"])
        for copy, part in copies
        for batch in copy.read(part)
        for row in batch.to_pylist()
    ]
    assert rows == [*(("e1", n) for n in range(5)), *(("e2", n) for n in range(15))]
    assert unmarked(planner.reportLatestOffset()) == {
        one: {"0": 10, "epoch": "e1"}, two: {"0": 30, "epoch": "e2"}, "behind": 20,
    }  # fmt: skip
    planner.stop()


def test_a_task_that_is_told_ranges_reads_what_the_planner_meant(
    logs: list[LogWriter], addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs[1].append(30)
    options = {"server": addresses[1], "minPartitions": "3"}
    log = StreamOffsets("messages", "e2", 0, 30)
    assert len(RangePlanner(options).plan(log, 0, 30)) == 1  # so few are not worth three tasks
    monkeypatch.setattr(RangePlanner, "task_offsets_min", 1)
    ranges = RangePlanner(options).plan(log, 4, 30)
    assert [(part.start, part.end) for part in ranges] == [(4, 12), (12, 21), (21, 30)]
    read = pickle.loads(pickle.dumps(ReadRanges(options, ranges, ["epoch", "offset"])))
    numbers = pa.RecordBatch.from_pydict({"id": [2, 0]})  # as a task of Spark is told
    rows = [(row["epoch"], row["offset"]) for b in read(iter([numbers])) for row in b.to_pylist()]
    assert rows == [("e2", n) for n in (*range(21, 30), *range(4, 12))]


def test_a_range_that_the_log_has_lost_in_part_is_planned_only_if_that_is_accepted() -> None:
    log = StreamOffsets("messages", "e1", 10, 30)
    with pytest.raises(OffsetOutOfRange, match="the offsets 4 to 9 were not read before"):
        RangePlanner({}).plan(log, 4, 30)
    (part,) = RangePlanner({"failOnDataLoss": "false"}).plan(log, 4, 30)
    assert (part.start, part.end) == (10, 30)
    assert RangePlanner({"failOnDataLoss": "false"}).plan(log, 4, 8) == []


def test_each_start_plans_a_batch_where_that_is_asked(
    logs: list[LogWriter], addresses: list[str]
) -> None:
    logs[0].append(10)
    first = StreamReader(parse_options({"server": addresses[0], "batchAtStart": "true"}), [])
    start = first.initialOffset()
    limit = first.getDefaultReadLimit()
    end = first.latestOffset(start, limit)
    assert unmarked(end) == {"0": 10, "epoch": "e1", **EVERYTHING, "starts": 1}
    assert first.latestOffset(start, limit) == end
    assert first.latestOffset(end, limit) == end  # once
    first.stop()
    second = StreamReader(parse_options({"server": addresses[0], "batchAtStart": "true"}), [])
    again = second.latestOffset(end, limit)
    assert unmarked(again) == {"0": 10, "epoch": "e1", **EVERYTHING, "starts": 2}
    assert second.latestOffset(again, limit) == again
    assert second.partitions(end, again) == []
    second.stop()
    other = StreamReader(parse_options({"server": addresses[0]}), [])
    assert other.latestOffset(again, limit) == again  # it stays where it is
    other.stop()


def test_topics_changed_under_a_checkpoint_are_refused_and_both_are_named(
    logs: list[LogWriter], addresses: list[str]
) -> None:
    logs[0].append(9)
    first = reader(*addresses, topics="b/#,a/#")
    start = first.initialOffset()
    limit = first.getDefaultReadLimit()
    end = first.latestOffset(start, limit)
    first.stop()
    same = reader(*addresses, topics="a/#,b/#,a/#")
    assert same.latestOffset(end, limit) == end
    same.stop()
    for options in ({"topics": "c/#"}, {"topics": ""}, {"topics": "a/#,b/#", "stream": "other"}):
        other = reader(*addresses, **options)
        with pytest.raises(ConfigError, match="was made for stream messages, topics a/#,b/#, and"):
            other._read_position(end, {})  # a batch that was planned before, and next
        other.stop()
    older = {name: value for name, value in end.items() if name != "selection"}
    upgraded = reader(*addresses, topics="c/#")
    assert upgraded.latestOffset(older, limit) == {
        **older, "selection": "stream messages, topics c/#",
    }  # fmt: skip
    upgraded.stop()


def test_a_batch_reads_only_what_its_filters_may_let_through(
    logs: list[LogWriter], addresses: list[str]
) -> None:
    """Offset n was received n seconds after 22:13:20; every third topic is plant/1/pressure."""
    for log in logs:
        log.append(20)
        log.append(10)
    options = {"servers": ",".join(addresses), "minPartitions": "1", "topics": "plant/1/#"}

    def spans_of(*filters: Filter) -> list[tuple[int, int]]:
        reader = BatchReader(parse_options(options), ["offset"])
        assert list(reader.pushFilters([*filters])) == []
        parts = [part for part in reader.partitions() if isinstance(part, Range)]
        return [(part.start, part.end) for part in parts]

    def rows_of(*filters: Filter) -> list[int]:
        reader = BatchReader(parse_options(options), ["offset"])
        assert list(reader.pushFilters([*filters])) == []
        copies = [pickle.loads(pickle.dumps((reader, part))) for part in reader.partitions()]
        batches = [batch for copy, part in copies for batch in copy.read(part)]
        return [row["offset"] for batch in batches for row in batch.to_pylist()]

    second = [datetime.fromtimestamp(FIRST_RECEIVED_AT_US // 10**6 + n, UTC) for n in range(40)]
    offset, at, topic = ("offset",), ("received_at",), ("topic",)
    between = [GreaterThanOrEqual(offset, 5), LessThan(offset, 9)]
    assert spans_of(*between) == [(5, 9), (5, 9)]
    assert rows_of(*between) == [5, 6, 8] * 2
    assert rows_of(EqualTo(topic, "plant/1/pressure"), *between) == [5, 8] * 2
    assert spans_of(EqualTo(topic, "plant/2/temperature")) == []
    minute = [GreaterThanOrEqual(at, second[7]), LessThan(at, second[10])]
    assert rows_of(*minute) == [8, 9] * 2
    assert spans_of(GreaterThan(at, second[29])) == []
    assert spans_of(LessThan(at, second[0])) == []
    assert spans_of(GreaterThan(offset, 20), LessThan(offset, 5)) == []
    assert spans_of(GreaterThan(offset, 1000)) == []


def test_a_loss_that_is_accepted_is_told_once(
    addresses: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    start = reader(*addresses).initialOffset()
    one, two = addresses
    with pytest.raises(OffsetOutOfRange, match=f"also made for {one}, and servers no longer na"):
        reader(two).partitions(start, start)
    planner = reader(two, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert planner.latestOffset(start, planner.getDefaultReadLimit()) == start
            assert planner.partitions(start, start) == []
    assert len(caplog.records) == 1
    assert "the query continues, because failOnDataLoss is false" in caplog.text
    planner.stop()
