"""The writers of the sink, called as Spark calls them, with a real broker and without Spark."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import final

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from penstock.errors import ConfigError
from penstock.spark.sink import StagedRows, StreamWriter
from penstock.spark.sink_options import parse_sink_options
from penstock.stream.client import StreamClient
from tests.support.broker import Broker
from tests.support.fixtures import running_broker
from tests.support.staged import staged_files

SCHEMA = StructType([StructField(name, StringType()) for name in ("topic", "payload")])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path, {"stream.bind": "127.0.0.1:0"}, stream=True) as started:
        yield started


def writer(broker: Broker, **options: str) -> StreamWriter:
    """Spark makes one for the tasks of a batch, and another one to commit or abort it."""
    given = {"server": "{}:{}".format(*broker.stream_address), **options}
    return StreamWriter(SCHEMA, parse_sink_options(given, True), False)


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


def test_the_rows_that_a_batch_staged_go_when_spark_aborts_it(
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


@final
class Query:
    """A query with a checkpoint, whose batches have the rows of its source that are new to it.

    Its files are Spark's: what a batch reads is planned in `offsets`, and done once it is in
    `commits`.
    """

    def __init__(self, broker: Broker, checkpoint: Path, patch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.checkpoint = checkpoint
        self._patch = patch
        for name in ("offsets", "commits"):
            (checkpoint / name).mkdir(parents=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": "the-query"}))

    def run(self, end: int, *, dies: bool = False, **options: str) -> None:
        """Publish the rows up to `end` that no batch of the checkpoint has; maybe die before the
        batch is done there."""
        planned = sorted(int(path.name) for path in (self.checkpoint / "offsets").iterdir())
        batch = planned[-1] if planned else -1
        if not planned or (self.checkpoint / "commits" / str(batch)).exists():
            batch += 1
            plan = {"end": end, "batchTimestampMs": time.time_ns()}
            (self.checkpoint / "offsets" / str(batch)).write_text(json.dumps(plan))
        begin = self._end_of(batch - 1)
        in_task(self._patch, batch, 0, attempt=batch)
        given = {"checkpointLocation": str(self.checkpoint), **options}
        messages = rows_between(begin, self._end_of(batch))
        tasks = [writer(self.broker, **given).write(messages)]
        try:
            writer(self.broker, **given).commit(list(tasks), batch)
        except ConfigError:
            writer(self.broker, **given).abort(list(tasks), batch)
            raise
        if not dies:
            (self.checkpoint / "commits" / str(batch)).write_text("v1")

    def _end_of(self, batch: int) -> int:
        if batch < 0:
            return 0
        plan = json.loads((self.checkpoint / "offsets" / str(batch)).read_text())
        return int(plan["end"])

    def published(self) -> list[int]:
        """The rows in the log, in its order."""
        with StreamClient("{}:{}".format(*self.broker.stream_address)) as client:
            log = client.offsets("messages")
            parts = client.read("messages", log.epoch, 0, log.latest, columns=["payload"])
            return [int(value.as_py()) for part in parts for value in part.column(0)]


@pytest.fixture
def query(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(broker, tmp_path / "checkpoint", monkeypatch)


def rows_between(begin: int, end: int) -> Iterator[pa.RecordBatch]:
    if begin < end:
        numbers = [str(n) for n in range(begin, end)]
        yield pa.RecordBatch.from_pydict({"topic": ["t"] * len(numbers), "payload": numbers})


def copied(path: Path) -> Path:
    copy = path.with_name(f"{path.name}-copy")
    shutil.copytree(path, copy)
    return copy


def put_back(copy: Path, path: Path) -> None:
    shutil.rmtree(path)
    copy.rename(path)


def test_a_batch_that_spark_planned_anew_under_a_published_number_is_refused(query: Query) -> None:
    """A power cut took Spark's files of batch 1, which are not synced, and its rows count as
    published; the batch that has its number now has more rows, and these were lost in silence."""
    query.run(10)
    copy = copied(query.checkpoint)
    query.run(20, dies=True)
    put_back(copy, query.checkpoint)
    with pytest.raises(ConfigError, match="Spark has planned another batch 1: its checkpoint"):
        query.run(30)
    with pytest.raises(ConfigError, match="Spark has planned another batch 1: its checkpoint"):
        query.run(30, failOnDataLoss="false")
    assert query.published() == list(range(20))
    assert staged_files(query.broker.data_dir, ".arrow") == []


def test_a_batch_that_spark_repeats_is_published_once(query: Query) -> None:
    query.run(10)
    query.run(20, dies=True)
    query.run(30)  # repeats batch 1, whose plan the checkpoint has
    query.run(30)
    assert query.published() == list(range(30))


def test_batches_that_an_older_data_directory_lacks_end_the_query_and_can_be_published_again(
    query: Query,
) -> None:
    query.run(10)
    query.broker.stop()
    copy = copied(query.broker.data_dir)
    query.broker.start()
    for end in (20, 30):
        query.run(end)
    query.broker.stop()
    put_back(copy, query.broker.data_dir)
    query.broker.start()
    with pytest.raises(ConfigError, match="batches of this query up to 0, and Spark runs batch 3"):
        query.run(40)
    for name in ("offsets", "commits"):  # as the sentence says
        for path in (query.checkpoint / name).iterdir():
            if int(path.name) >= 1:
                path.unlink()
    query.run(40)
    assert query.published() == list(range(40))


def test_a_query_that_the_broker_does_not_know_continues_only_when_that_is_accepted(
    query: Query,
) -> None:
    query.run(10)
    query.run(20)
    query.broker.stop()
    shutil.rmtree(query.broker.data_dir)
    query.broker.start()
    with pytest.raises(ConfigError, match="knows no batch of this query, and Spark runs batch 2"):
        query.run(30)
    query.run(30, failOnDataLoss="false")
    query.run(40)
    assert query.published() == list(range(20, 40))


def test_a_batch_without_rows_leaves_no_gap(query: Query) -> None:
    for end in (10, 10, 10, 20):
        query.run(end)
    assert query.published() == list(range(20))


def test_another_past_under_the_same_numbers_is_refused(query: Query) -> None:
    """Broker and checkpoint were put back from copies of different times."""
    query.run(10)
    query.broker.stop()
    older = copied(query.broker.data_dir)
    query.broker.start()
    checkpoint = copied(query.checkpoint)
    query.run(20)
    query.broker.stop()
    newer = query.broker.data_dir.rename(query.broker.data_dir.with_name("newer"))
    older.rename(query.broker.data_dir)
    put_back(checkpoint, query.checkpoint)
    query.broker.start()
    query.run(15)  # batch 1, planned anew; the broker lacks the first one
    query.broker.stop()
    shutil.rmtree(query.broker.data_dir)
    newer.rename(query.broker.data_dir)
    query.broker.start()
    with pytest.raises(ConfigError, match="another batch 1 of this query than the one before"):
        query.run(40)
    assert query.published() == list(range(20))
