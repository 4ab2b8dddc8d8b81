"""The writers of the sink, called as Spark calls them, with a real broker and without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from penstock.errors import ConfigError
from penstock.spark.sink import StagedRows, StreamWriter
from penstock.spark.sink_options import parse_sink_options
from tests.support.broker import Broker
from tests.support.fixtures import running_broker
from tests.support.staged import staged_files

SCHEMA = StructType([StructField(name, StringType()) for name in ("topic", "payload")])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path, {"stream.bind": "127.0.0.1:0"}, stream=True) as started:
        yield started


def writer(broker: Broker) -> StreamWriter:
    """Spark makes one for the tasks of a batch, and another one to commit or abort it."""
    server = "{}:{}".format(*broker.stream_address)
    return StreamWriter(SCHEMA, parse_sink_options({"server": server}, True), False)


def in_task(monkeypatch: pytest.MonkeyPatch, batch: int, partition: int, attempt: int) -> None:
    """What follows is done by an attempt at a task of the query."""
    context = TaskContext.__new__(TaskContext)
    context._partitionId, context._taskAttemptId = partition, attempt
    context._localProperties = {
        "sql.streaming.queryId": "the-query",
        "streaming.sql.batchId": str(batch),
    }
    monkeypatch.setattr(TaskContext, "get", lambda: context)


def rows(count: int, topic: str = "t") -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict(
        {"topic": [topic] * count, "payload": [str(n) for n in range(count)]}
    )


def test_what_a_batch_staged_goes_when_spark_aborts_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = writer(broker)
    messages: list[StagedRows | None] = [None]  # of a task that failed
    for partition in range(2):
        in_task(monkeypatch, 0, partition, attempt=partition)
        messages.append(tasks.write(rows(3)))
    assert len(staged_files(broker.data_dir)) == 2
    writer(broker).abort(list(messages), 0)
    assert staged_files(broker.data_dir) == []


def test_a_task_that_fails_takes_its_own_files_and_no_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.sink.STAGED_ROWS", 2)
    tasks = writer(broker)
    in_task(monkeypatch, 0, 0, attempt=1)
    kept = tasks.write(rows(3))

    def broken() -> Iterator[pa.RecordBatch]:
        yield from rows(3)
        yield from rows(1, topic="no/+/topic")

    in_task(monkeypatch, 0, 0, attempt=11)
    with pytest.raises(ConfigError, match="row 3 of its task"):
        tasks.write(broken())
    names = {path.name for path in staged_files(broker.data_dir)}
    assert names == {name for name, _, _ in kept.files}
    writer(broker).commit([kept], 0)
    assert staged_files(broker.data_dir) == []


def test_a_checkpoint_that_was_set_back_ends_the_query_and_loses_nothing_unsaid(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what now has the number of a batch that was published would count as published."""

    def run(batch: int, count: int) -> None:
        in_task(monkeypatch, batch, 0, attempt=batch)
        writer(broker).commit([writer(broker).write(rows(count))], batch)

    for batch in (0, 1, 2):
        run(batch, 3)
    run(2, 3)  # as after a crash
    with pytest.raises(
        ConfigError, match="published batch 2 of this query already, and Spark runs batch 1"
    ):
        run(1, 300)
    assert staged_files(broker.data_dir) == []
