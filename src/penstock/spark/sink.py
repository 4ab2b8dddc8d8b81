"""`df.write.format("penstock")` and `df.writeStream.format("penstock")`: rows become messages.

    executors, a task for each partition           driver
    ────────────────────────────────────           ──────
    write   stages some rows at a time in the      commit   publishes the files of all tasks, once:
            broker's data directory, and                    they are published when it returns
            returns the files to the driver         abort    removes the staged files

1. A staged file means nothing until the driver names it: tasks that are run again, or twice at the
   same time, leave files that are never published. A failing task removes its files: a query that
   is restarted repeatedly would fill the staging area.
2. (sink, batch) identifies a batch for ever. The broker decides once which files belong to it; a
   commit that is repeated, because its answer was lost or Spark runs the batch again, publishes
   nothing more.
3. For a streaming query the sink is the query's id, which is in its checkpoint, and the batch is
   Spark's number with the *plan* that the checkpoint has for it (`penstock.spark.batch_plans`).
   Spark repeats the last batch only, with the same plan. Another plan, an earlier number, and a
   number behind a gap come from a checkpoint or a broker that was put back from an older copy: they
   end the query (`penstock.engine.publishing.sink_positions`). So that there are no other gaps, a
   batch without rows is published, too. For `df.write` sink and batch are options; without them
   every run is a sink of its own.
4. When `commit` raises, Spark calls `abort`, while the broker may be publishing: only the broker
   knows, and it ignores `abort` once it has decided (`penstock.services.staged_rows`).

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
from penstock.spark.batch_plans import BatchPlan, read_plan
from penstock.spark.sink_options import SinkOptions, check_columns
from penstock.spark.sink_rows import rows_to_publish
from penstock.stream.client import StreamClient
from penstock.stream.requests import PublishBatchRequest, StageRowsRequest
from penstock.telemetry.logs import get_logger

STAGED_BYTES: Final = 8 * 1_048_576
"""Bytes of a task's rows that are staged in one request: they are in memory, to be sent again."""

STAGED_ROWS: Final = 65_536
"""Most rows that are staged in one request."""

logger = get_logger(__name__)

UNPLANNED: Final = BatchPlan()

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass
class StagedRows(WriterCommitMessage):
    """The staged rows of one task, which Spark hands from the task to the writer that commits.

    Attributes:
        sink: the sink.
        batch: the number of the batch in the sink.
        run: the random id of the writer.
        partition: the Spark partition of the task.
        files: the staged files, as `StreamClient.stage` returns them.
    """

    sink: str
    batch: int
    run: str
    partition: int
    files: list[tuple[str, int, int]]


class _Writer:
    """The base of both writers. Writers are pickled, so connections are opened where they are
    used."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        check_columns(schema, options)
        self._names = schema.fieldNames()
        self._options = options
        self._run = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of one task; return the staged files."""
        context = TaskContext.get()
        assert context is not None
        sink, batch = self._identity(context)
        staged = StagedRows(sink, batch, self._run, context.partitionId(), [])
        attempt = f"{self._run}-{context.taskAttemptId()}"
        first_row = 0
        with self._client() as client:
            try:
                for rows in _portions(iterator, self._names, self._options):
                    request = StageRowsRequest(sink, batch, attempt, staged.partition, first_row)
                    staged.files.append(client.stage(request, rows))
                    first_row += rows.num_rows
            except BaseException:  # Spark does not call `abort` for a task that fails alone
                if staged.files:
                    _remove_staged(client, PublishBatchRequest(sink, batch, attempt))
                raise
        return staged

    def _identity(self, context: TaskContext) -> tuple[str, int]:
        """Return the sink, and the number of its batch."""
        raise NotImplementedError

    def _publish(self, staged: list[StagedRows], plan: BatchPlan = UNPLANNED) -> int:
        """Publish the staged rows of all tasks, one or more.

        Returns:
            0; or the number of a later batch that the sink has published: then nothing is.
        """
        files = tuple(file for task in staged for file in task.files)
        with self._client() as client:
            return client.publish(self._batch_request(staged[0], files, plan))

    def _abandon(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = _task_results(messages)
        if staged:
            with self._client() as client:
                _remove_staged(client, self._batch_request(staged[0], ()))

    def _batch_request(
        self,
        staged: StagedRows,
        files: tuple[tuple[str, int, int], ...],
        plan: BatchPlan = UNPLANNED,
    ) -> PublishBatchRequest:
        return PublishBatchRequest(
            staged.sink,
            staged.batch,
            staged.run,
            self._options.client_id or f"spark-{staged.sink}",
            files,
            plan.plan,
            plan.previous,
            not self._options.fail_on_data_loss,
        )

    def _client(self) -> StreamClient:
        options = self._options
        return StreamClient(options.server, options.connect_timeout_s, options.credentials)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """The writer behind `df.write`: publishes a DataFrame once."""

    def __init__(self, schema: StructType, options: SinkOptions, overwrite: bool) -> None:
        super().__init__(schema, options)
        if overwrite:
            raise ConfigError("published messages cannot be overwritten: use mode append")
        self._sink = options.sink_id or uuid.uuid4().hex

    def _identity(self, _context: TaskContext) -> tuple[str, int]:
        return self._sink, self._options.batch

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the staged rows of all tasks."""
        staged = [task for task in _task_results(messages) if task.files]
        later = self._publish(staged) if staged else 0
        if later:
            logger.warning(
                "batch %d of the sink %s publishes nothing, for batch %d was published already",
                self._options.batch,
                self._sink,
                later,
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged rows."""
        self._abandon(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The writer behind `df.writeStream`: publishes each batch of a query once."""

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
            raise ConfigError("Spark does not name the query and batch of this task")
        return query, int(batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Publish the staged rows of a batch.

        Raises:
            ConfigError: the query has published a later batch, or another one with this number; or
                the broker lacks batches before it.
        """
        staged = _task_results(messages)
        wrong = {task.batch for task in staged} - {batchId}
        if wrong:
            raise ConfigError(
                f"Spark commits batch {batchId} with results of batch {min(wrong)}: start the query"
                " again"
            )
        plan = read_plan(self._options.checkpoint, batchId)
        if not staged and plan.query:  # no task ran
            staged = [StagedRows(plan.query, batchId, self._run, 0, [])]
        later = self._publish(staged, plan) if staged else 0
        if later:  # Spark repeats the last batch, and none before it
            raise ConfigError(
                f"the broker has published batch {later} of this query already, and Spark runs"
                f" batch {batchId}: its checkpoint was set back, or two queries use it, and it is"
                " not known which rows of this batch were published; start the query with a new"
                " checkpoint, and say with startingOffsets where it continues"
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Remove the staged rows of a batch."""
        del batchId  # the tasks have it
        self._abandon(messages)


def _remove_staged(client: StreamClient, request: PublishBatchRequest) -> None:
    """Remove the staged rows of an attempt; if that fails, the broker removes them by age."""
    with contextlib.suppress(PenstockError, pa.ArrowException):
        client.abandon(request)


def _task_results(messages: list[WriterCommitMessage | None]) -> list[StagedRows]:
    """Return the staged rows of tasks in order of partition; Spark passes None for failed tasks."""
    staged = [message for message in messages if isinstance(message, StagedRows)]
    return sorted(staged, key=lambda task: task.partition)


def _portions(
    iterator: Iterator[pa.RecordBatch], names: list[str], options: SinkOptions
) -> Iterator[pa.Table]:
    """Yield the rows to publish, in portions of about STAGED_BYTES or STAGED_ROWS."""
    gathered: list[Any] = []
    rows = size_bytes = 0
    for batch in iterator:
        for part in _split_large(batch):
            gathered.append(rows_to_publish(part, names, options))
            rows += part.num_rows
            size_bytes += gathered[-1].nbytes
            if rows >= STAGED_ROWS or size_bytes >= STAGED_BYTES:
                yield pa.concat_tables(gathered).combine_chunks()
                gathered, rows, size_bytes = [], 0, 0
    if rows:
        yield pa.concat_tables(gathered).combine_chunks()


def _split_large(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in pieces of at most STAGED_BYTES, or of a single larger row."""
    if batch.nbytes <= STAGED_BYTES or batch.num_rows < 2:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _split_large(batch.slice(0, middle))
    yield from _split_large(batch.slice(middle))
