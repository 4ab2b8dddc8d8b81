"""`spark.readStream.format("penstock")`: limits, restarts, and a service that comes and goes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.stream.client import StreamClient
from tests.spark.log_writer import LogWriter
from tests.spark.positions import unmarked
from tests.spark.service_process import ServiceProcess
from tests.spark.waiting import DEADLINE_S, run_available, wait_until

OTHER_EPOCH = "20270101T000000-00000002"


class Collected:
    """A sink that keeps the offsets of each batch; `fail` makes the next batches fail."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        self.fail = False

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        if self.fail:
            raise RuntimeError("the sink is out of order")
        found = rows.select("offset").orderBy("offset").collect()
        self.batches[batch_id] = [row.offset for row in found]

    @property
    def offsets(self) -> list[int]:
        return [offset for batch in self.batches.values() for offset in batch]


@pytest.fixture
def stream(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> Callable[..., DataStreamWriter]:
    def build(sink: Collected, **options: str) -> DataStreamWriter:
        return (
            spark.readStream.format("penstock")
            .option("server", service.address)
            .options(**options)
            .load()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )

    return build


def test_available_now_takes_what_is_there_within_the_limit_and_goes_on_later(
    log: LogWriter, stream: Callable[..., DataStreamWriter]
) -> None:
    log.append(70)
    log.append(30)
    sink = Collected()

    query = run_available(stream(sink, maxOffsetsPerTrigger="40"))
    assert [len(batch) for batch in sink.batches.values()] == [40, 40, 20]
    last = query.lastProgress
    assert last is not None
    newest = unmarked(json.loads(last.sources[0].latestOffset))
    assert newest == {"0": 100, "epoch": log.epoch, "behind": 0}
    behind = [json.loads(it.sources[0].latestOffset)["behind"] for it in query.recentProgress]
    assert behind[:3] == [60, 20, 0]

    log.append(5)
    run_available(stream(sink))
    assert sink.offsets == list(range(105))


def test_latest_means_the_same_after_a_restart_before_the_first_batch_is_done(
    log: LogWriter, stream: Callable[..., DataStreamWriter], tmp_path: Path
) -> None:
    sink = Collected()
    latest = {"startingOffsets": "latest", "checkpointLocation": str(tmp_path / "checkpoint")}
    log.append(10)
    query = stream(sink, **latest).start()
    wait_until(lambda: list(tmp_path.glob("checkpoint/penstock-start-*.json")), "the pin")
    sink.fail = True
    log.append(10)
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(DEADLINE_S)

    log.append(10)  # "latest" asked again would be 30, and 10 to 29 in no batch
    sink.fail = False
    run_available(stream(sink, **latest))

    assert sink.offsets == list(range(10, 30))


def test_latest_without_a_place_to_remember_it_is_refused(
    spark: SparkSession, service: ServiceProcess
) -> None:
    source = spark.readStream.format("penstock").option("server", service.address)
    writer = source.option("startingOffsets", "latest").load().writeStream.foreachBatch(Collected())
    with pytest.raises(PySparkException, match="give readStream a groupId, then the brokers"):
        run_available(writer)


def test_a_mistake_in_an_option_of_a_stream_shows_its_sentence(
    spark: SparkSession, service: ServiceProcess
) -> None:
    source = spark.readStream.format("penstock").option("server", service.address)
    writer = source.option("endingTimestamp", "0").load().writeStream.foreachBatch(Collected())
    with pytest.raises(
        PySparkException, match=r"endingTimestamp is for spark\.read; a stream has no"
    ):
        run_available(writer)


def test_a_log_of_another_epoch_ends_the_query_with_a_clear_sentence(
    log: LogWriter,
    service: ServiceProcess,
    stream: Callable[..., DataStreamWriter],
    tmp_path: Path,
) -> None:
    log.append(10)
    sink = Collected()
    run_available(stream(sink))
    service.kill()
    with LogWriter(tmp_path / "restored", OTHER_EPOCH) as restored:
        restored.append(20)
        other = ServiceProcess(restored.data_dir)
        other.address = service.address
        other.start()
        try:
            with pytest.raises(StreamingQueryException, match="restored or created anew"):
                run_available(stream(sink))
        finally:
            other.stop()
    assert sink.offsets == list(range(10))


@pytest.mark.torture("runs the query four times")
def test_topics_changed_under_a_checkpoint_leave_nothing_out_silently(
    log: LogWriter, stream: Callable[..., DataStreamWriter]
) -> None:
    log.append(9)
    sink = Collected()
    run_available(stream(sink, topics="plant/+/pressure"))
    assert sink.offsets == [2, 5, 8]
    with pytest.raises(StreamingQueryException) as caught:
        run_available(stream(sink, topics="plant/#"))
    for part in (
        "topics plant/+/pressure, and the",
        "topics plant/#: messages",
        '{"0": 9, "epoch"',
    ):
        assert part in str(caught.value)
    log.append(3)
    run_available(stream(sink, topics="plant/+/pressure"))
    assert sink.offsets == [2, 5, 8, 11]


def test_a_service_that_is_away_for_a_while_only_delays_the_query(
    log: LogWriter, service: ServiceProcess, stream: Callable[..., DataStreamWriter]
) -> None:
    log.append(10)
    sink = Collected()
    query = stream(sink).start()
    try:
        wait_until(lambda: len(sink.offsets) == 10, "the first rows")
        service.kill()
        log.reopen()  # the broker was restarted with it
        log.append(10)
        assert not query.awaitTermination(2)
        service.start()
        wait_until(lambda: len(sink.offsets) == 20, "the rows after the restart")
    finally:
        query.stop()
    assert sink.offsets == list(range(20))


def test_a_service_that_stays_away_ends_the_query_with_a_clear_sentence(
    service: ServiceProcess, stream: Callable[..., DataStreamWriter]
) -> None:
    service.kill()
    with pytest.raises(StreamingQueryException, match="no stream service answers at 127"):
        run_available(stream(Collected(), connectTimeoutSeconds="0.5"))


@pytest.mark.torture("test_landing loses messages to retention, too")
def test_rows_lost_to_retention_end_the_query_unless_the_user_accepts_it(
    log: LogWriter, service: ServiceProcess, stream: Callable[..., DataStreamWriter]
) -> None:
    log.append(10)
    sink = Collected()
    run_available(stream(sink))
    log.append(10)
    log.append(10)
    log.trim(20)
    with StreamClient(service.address) as client:
        wait_until(lambda: client.offsets("messages").earliest == 20, "the service to notice")
    with pytest.raises(
        StreamingQueryException, match="to continue without them set failOnDataLoss"
    ):
        run_available(stream(sink))
    run_available(stream(sink, failOnDataLoss="false"))
    assert sink.offsets == [*range(10), *range(20, 30)]
