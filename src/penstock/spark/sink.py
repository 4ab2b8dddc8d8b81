"""`df.write.format("penstock")` and `df.writeStream.format("penstock")`: rows become messages.

    executors, a task for each partition           driver
    ────────────────────────────────────           ──────
    write   some rows at a time are staged in      commit   all files of all tasks are the batch:
            the broker's data directory; what               published, once, when this returns
            is staged is told to the driver         abort    what was staged is given up

1. A staged file means nothing until the driver names it: tasks that are run again, or twice at the
   same time, leave files that are never published. A failing task removes its files: a query that
   is restarted repeatedly would fill the staging area.
2. (sink, batch) names a batch for ever. The broker decides once which files it has; a commit that
   is repeated, because its answer was lost or Spark runs the batch again, publishes nothing more.
3. A streaming query is the sink: its id, which is in its checkpoint, and Spark's number of the
   batch. Spark repeats the last batch only: one before it comes from a checkpoint that was set
   back, where the same number may stand for other rows, and ends the query. For `df.write` they
   are options; without them every run is a sink of its own.
4. When `commit` raises, Spark calls `abort`, while the broker may be publishing: only the broker
   can tell, and it keeps what it has decided (`penstock.services.staged_rows`).

Messages are published in the order of the rows within a partition, partition after partition.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.errors import ConfigError, PenstockError
from penstock.spark.sink_options import SinkOptions, check_columns
from penstock.spark.sink_rows import rows_to_publish
from penstock.stream.client import StreamClient
from penstock.stream.requests import PutRequest, SetRequest
from penstock.telemetry.logs import get_logger

STAGED_BYTES: Final = 8 * 1_048_576
"""Bytes of a task's rows that are staged at a time: they are in memory, and may be sent again."""

STAGED_ROWS: Final = 65_536

logger = get_logger(__name__)

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass
class StagedRows(WriterCommitMessage):
    """The rows that one task staged: sink, batch, attempt, partition and files.

    Spark makes one writer for the tasks of a streaming batch, and another one that commits it: this
    has what the second must know of the first.
    """

    sink: str
    batch: int
    run: str
    partition: int
    files: list[tuple[str, int, int]]


class _Writer:
    """The common base of both writers. It is pickled, so it connects where it is used."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        check_columns(schema, options)
        self._names = schema.fieldNames()
        self._options = options
        self._run = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        sink, batch = self._identity(context)
        staged = StagedRows(sink, batch, self._run, context.partitionId(), [])
        attempt = f"{self._run}-{context.taskAttemptId()}"
        first_row = 0
        with self._client() as client:
            try:
                for rows in _portions(iterator, self._names, self._options):
                    request = PutRequest(sink, batch, attempt, staged.partition, first_row)
                    staged.files.append(client.stage(request, rows))
                    first_row += rows.num_rows
            except BaseException:  # the driver never hears of it: Spark forgets a task that fails
                if staged.files:
                    _give_up(client, SetRequest(sink, batch, attempt))
                raise
        return staged

    def _identity(self, context: TaskContext) -> tuple[str, int]:
        """Return the sink, and the number of its batch."""
        raise NotImplementedError

    def _publish(self, messages: list[WriterCommitMessage | None]) -> int:
        """Publish the staged rows of all tasks; return a later batch of the sink, or 0."""
        staged = _task_results(messages)
        files = tuple(file for task in staged for file in task.files)
        if not files:
            return 0
        with self._client() as client:
            return client.publish(self._set_of(staged[0], files))

    def _abandon(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = _task_results(messages)
        if staged:
            with self._client() as client:
                _give_up(client, self._set_of(staged[0], ()))

    def _set_of(self, staged: StagedRows, files: tuple[tuple[str, int, int], ...]) -> SetRequest:
        client_id = self._options.client_id or f"spark-{staged.sink}"
        return SetRequest(staged.sink, staged.batch, staged.run, client_id, files)

    def _client(self) -> StreamClient:
        options = self._options
        return StreamClient(options.server, options.connect_timeout_s, options.credentials)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Publishes a DataFrame once."""

    def __init__(self, schema: StructType, options: SinkOptions, overwrite: bool) -> None:
        super().__init__(schema, options)
        if overwrite:
            raise ConfigError("published messages cannot be overwritten: use mode append")
        self._sink = options.sink_id or uuid.uuid4().hex

    def _identity(self, _context: TaskContext) -> tuple[str, int]:
        return self._sink, self._options.batch

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the staged rows of all tasks."""
        later = self._publish(messages)
        if later:
            logger.warning(
                "batch %d of the sink %s publishes nothing, for batch %d was published already",
                self._options.batch,
                self._sink,
                later,
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give up the staged rows."""
        self._abandon(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Publishes the batches of a query, each once."""

    def __init__(self, schema: StructType, options: SinkOptions, overwrite: bool) -> None:
        super().__init__(schema, options)
        if overwrite:
            raise ConfigError(
                "outputMode complete would publish all results again with each batch: use append"
                " or update"
            )

    def _identity(self, context: TaskContext) -> tuple[str, int]:
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise ConfigError("Spark does not say which query and batch this task is of")
        return query, int(batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Publish the staged rows of a batch."""
        wrong = {task.batch for task in _task_results(messages)} - {batchId}
        if wrong:
            raise ConfigError(
                f"Spark commits batch {batchId} with results of batch {min(wrong)}: start the query"
                " again"
            )
        later = self._publish(messages)
        if later:  # Spark repeats the last batch, and none before it
            raise ConfigError(
                f"the broker has published batch {later} of this query already, and Spark runs"
                f" batch {batchId}: its checkpoint was set back, or two queries use it, and it is"
                " not known which rows of this batch were published; start the query with a new"
                " checkpoint, and say with startingOffsets where it continues"
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Give up the staged rows of a batch."""
        del batchId  # the tasks have it
        self._abandon(messages)


def _give_up(client: StreamClient, request: SetRequest) -> None:
    """Remove the staged rows of an attempt; if that fails they expire."""
    with contextlib.suppress(PenstockError, pa.ArrowException):
        client.abandon(request)


def _task_results(messages: list[WriterCommitMessage | None]) -> list[StagedRows]:
    """Return the results of the tasks, by partition; a task that failed has none."""
    staged = [message for message in messages if isinstance(message, StagedRows)]
    return sorted(staged, key=lambda task: task.partition)


def _portions(
    iterator: Iterator[pa.RecordBatch], names: list[str], options: SinkOptions
) -> Iterator[pa.Table]:
    """Yield the rows to publish, in portions that are staged together."""
    gathered: list[Any] = []
    rows = size_bytes = 0
    for batch in iterator:
        for part in _halves(batch):
            gathered.append(rows_to_publish(part, names, options))
            rows += part.num_rows
            size_bytes += gathered[-1].nbytes
            if rows >= STAGED_ROWS or size_bytes >= STAGED_BYTES:
                yield pa.concat_tables(gathered).combine_chunks()
                gathered, rows, size_bytes = [], 0, 0
    if rows:
        yield pa.concat_tables(gathered).combine_chunks()


def _halves(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in pieces not much larger than a portion."""
    if batch.nbytes <= STAGED_BYTES or batch.num_rows < 2:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _halves(batch.slice(0, middle))
    yield from _halves(batch.slice(middle))
