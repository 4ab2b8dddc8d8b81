"""A streaming query over several brokers: restarts, brokers that come, go and are made anew."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.spark.log_writer import LogWriter
from tests.spark.positions import unmarked
from tests.spark.service_process import ServiceProcess
from tests.spark.waiting import run_available, wait_until

NEW_EPOCH = "20270101T000000-00000002"

Stream = Callable[..., DataStreamWriter]


class Collected:
    """A sink that keeps epoch and offset of each row, by batch."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[str, int]]] = []

    def __call__(self, rows: DataFrame, _batch_id: int) -> None:
        self.batches.append([(row.epoch, row.offset) for row in rows.collect()])

    def of(self, log: LogWriter) -> list[int]:
        """Offsets read from a log, sorted."""
        return sorted(n for batch in self.batches for epoch, n in batch if epoch == log.epoch)


@pytest.fixture
def sink() -> Collected:
    return Collected()


@pytest.fixture
def stream(spark: SparkSession, sink: Collected, tmp_path: Path) -> Stream:
    def build(*services: ServiceProcess, **options: str) -> DataStreamWriter:
        if "server" not in options:
            options["servers"] = ",".join(service.address for service in services)
        return (
            spark.readStream.format("penstock")
            .options(**options)
            .load()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )

    return build


def end_of(query: StreamingQuery) -> Any:
    assert query.lastProgress is not None
    return unmarked(json.loads(query.lastProgress.sources[0].endOffset))


@pytest.fixture
def restored(tmp_path: Path, service: ServiceProcess) -> Iterator[Callable[[], LogWriter]]:
    """Puts another log in the place of the first broker's, as a restore of a backup does."""
    opened: list[tuple[LogWriter, ServiceProcess]] = []

    def restore() -> LogWriter:
        service.kill()
        writer = LogWriter(tmp_path / "restored", NEW_EPOCH)
        process = ServiceProcess(writer.data_dir)
        process.address = service.address
        process.start()
        opened.append((writer, process))
        return writer

    yield restore
    for writer, process in opened:
        process.stop()
        writer.close()


def test_a_limit_is_shared_in_proportion_and_a_restart_goes_on_in_each_log(
    log: LogWriter,
    other_log: LogWriter,
    service: ServiceProcess,
    other_service: ServiceProcess,
    stream: Stream,
    sink: Collected,
) -> None:
    log.append(10)
    other_log.append(30)
    query = run_available(stream(service, other_service, maxOffsetsPerTrigger="20"))
    assert [len(batch) for batch in sink.batches] == [20, 20]
    assert [sum(epoch == log.epoch for epoch, _ in batch) for batch in sink.batches] == [5, 5]
    expected = {
        service.address: {"0": 10, "epoch": log.epoch},
        other_service.address: {"0": 30, "epoch": other_log.epoch},
        "selection": "stream messages, all topics",
    }
    assert end_of(query) == expected

    log.append(3)
    run_available(stream(other_service, service))  # their order says nothing
    assert sink.of(log) == list(range(13))
    assert sink.of(other_log) == list(range(30))


@pytest.mark.torture("waits for a broker that is away")
def test_a_broker_that_is_away_for_a_while_delays_the_query(
    log: LogWriter,
    other_log: LogWriter,
    service: ServiceProcess,
    other_service: ServiceProcess,
    stream: Stream,
    sink: Collected,
) -> None:
    log.append(5)
    other_log.append(5)
    query = stream(service, other_service).start()
    try:
        wait_until(lambda: sink.of(log) == sink.of(other_log) == list(range(5)), "the first rows")
        other_service.kill()
        log.append(5)
        other_log.reopen()
        other_log.append(5)
        assert not query.awaitTermination(1)
        other_service.start()
        wait_until(lambda: sink.of(log) == sink.of(other_log) == list(range(10)), "the others")
    finally:
        query.stop()


def test_a_broker_is_added_and_one_that_is_taken_away_keeps_its_position(
    log: LogWriter,
    other_log: LogWriter,
    service: ServiceProcess,
    other_service: ServiceProcess,
    stream: Stream,
    sink: Collected,
) -> None:
    log.append(10)
    other_log.append(10)
    run_available(stream(service))
    log.append(1)
    starting = {service.address: {"0": -2}, other_service.address: {"0": 6}}
    run_available(stream(service, other_service, startingOffsets=json.dumps(starting)))
    assert sink.of(log) == list(range(11))
    assert sink.of(other_log) == list(range(6, 10))

    log.append(1)
    with pytest.raises(StreamingQueryException, match=f"made for {service.address}, and servers"):
        run_available(stream(other_service))
    other_log.append(1)
    run_available(stream(other_service, failOnDataLoss="false"))
    assert sink.of(log) == list(range(11))
    assert sink.of(other_log) == list(range(6, 11))
    run_available(stream(other_service, service))
    assert sink.of(log) == list(range(12))


@pytest.mark.torture("runs four queries")
def test_a_query_of_one_broker_becomes_one_of_several_and_not_back(
    log: LogWriter,
    other_log: LogWriter,
    service: ServiceProcess,
    other_service: ServiceProcess,
    stream: Stream,
    sink: Collected,
) -> None:
    log.append(10)
    other_log.append(10)
    run_available(stream(server=service.address))
    with pytest.raises(StreamingQueryException, match="and none of servers has it"):
        run_available(stream(other_service))
    log.append(1)
    run_available(stream(other_service, service))
    assert sink.of(log) == list(range(11))
    assert sink.of(other_log) == list(range(10))
    with pytest.raises(StreamingQueryException, match="was made with option servers, for 127"):
        run_available(stream(server=service.address, failOnDataLoss="false"))


@pytest.mark.torture("runs three queries over three logs")
def test_a_restored_log_is_read_from_its_beginning_where_the_user_accepts_it(
    log: LogWriter,
    other_log: LogWriter,
    service: ServiceProcess,
    other_service: ServiceProcess,
    stream: Stream,
    sink: Collected,
    restored: Callable[[], LogWriter],
) -> None:
    log.append(10)
    other_log.append(10)
    run_available(stream(service, other_service))
    new_log = restored()
    new_log.append(2)
    new_log.append(5)
    new_log.trim(2)
    other_log.append(1)
    with pytest.raises(StreamingQueryException, match=f"{service.address}: the query is at"):
        run_available(stream(service, other_service))
    query = run_available(stream(service, other_service, failOnDataLoss="false"))
    assert sink.of(log) == list(range(10))
    assert sink.of(new_log) == list(range(2, 7))
    assert sink.of(other_log) == list(range(11))
    assert end_of(query)[service.address] == {"0": 7, "epoch": NEW_EPOCH}


@pytest.mark.torture("runs two queries over two logs")
def test_a_batch_that_was_planned_in_a_lost_log_is_passed_over_where_the_user_accepts_it(
    log: LogWriter,
    service: ServiceProcess,
    stream: Stream,
    sink: Collected,
    restored: Callable[[], LogWriter],
    tmp_path: Path,
) -> None:
    log.append(10)
    run_available(stream(server=service.address))
    (tmp_path / "checkpoint/commits/0").unlink()
    (tmp_path / "checkpoint/commits/.0.crc").unlink(missing_ok=True)
    sink.batches.clear()
    new_log = restored()
    new_log.append(4)
    run_available(stream(server=service.address, failOnDataLoss="false"))
    assert sink.of(log) == []
    assert sink.of(new_log) == list(range(4))
