"""`spark.read.format("penstock")` and `spark.readStream.format("penstock")`.

    planner, one process for a query                 executors, one reader for a task
    ────────────────────────────────                 ────────────────────────────────
    initialOffset   where a new query begins         read   a sub-range, as Arrow batches,
    latestOffset    how far this batch goes                 straight from the stream service
    partitions      a range → sub-ranges

All of it rests on one rule of the log: the same range of offsets of the same epoch always gives the
same rows. A task that is run again, or a batch that is replayed, reads what it read before.

What is peculiar to Spark's Python API here: options arrive as text; readers and ranges are pickled;
`initialOffset` is asked more than once (`penstock.spark.pins`); after a restart Spark may ask for a
range that was planned in an earlier run. `commit` is a hint that comes late or never: it is not
used. How far a query is, which a group tells the broker, `latestOffset` learns
(`penstock.spark.groups`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.errors import ConfigError, OffsetOutOfRange, PenstockError
from penstock.spark.groups import Group
from penstock.spark.offsets import Position, WantedPosition, check_epoch, split_range
from penstock.spark.options import Edge, SourceOptions, parse_options
from penstock.spark.pins import pinned
from penstock.spark.schema import SPARK_SCHEMA, choose_columns
from penstock.spark.sink import BatchWriter, StreamWriter
from penstock.spark.sink_options import parse_sink_options
from penstock.store.ranges import without
from penstock.stream.client import StreamClient, StreamOffsets

_ACCEPT: Final = (
    "to go on without them set failOnDataLoss to false (penstock table run: --accept-data-loss)"
)


class PenstockDataSource(DataSource):
    """The `penstock` format."""

    @classmethod
    def name(cls) -> str:
        """What comes after `format`."""
        return "penstock"

    def schema(self) -> StructType:
        """The columns, unless the user chooses some with `.schema(…)`."""
        parse_options(self.options)  # a mistake is told before anything runs
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> BatchReader:
        """The reader behind `spark.read`."""
        return BatchReader(parse_options(self.options), choose_columns(schema))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802  # Spark's name
        """The reader behind `spark.readStream`."""
        return StreamReader(parse_options(self.options), choose_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """The writer behind `df.write`."""
        return BatchWriter(schema, parse_sink_options(self.options, False), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802  # Spark's name
        """The writer behind `df.writeStream`."""
        return StreamWriter(schema, parse_sink_options(self.options, True), overwrite)


class Range(InputPartition):
    """The rows one task reads: offsets `start` to `end` (excluded) of `epoch`."""

    def __init__(self, epoch: str, start: int, end: int) -> None:
        super().__init__(None)
        self.epoch = epoch
        self.start = start
        self.end = end


class _RangeReader:
    """What both readers share. It is pickled, so connections are made where they are used."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one `Range`."""
        if not isinstance(partition, Range) or partition.start >= partition.end:
            return
        ranges = [(partition.start, partition.end)]
        with self._client() as client:
            while ranges:
                start, end = ranges.pop(0)
                try:
                    yield from client.read(
                        self._options.stream,
                        partition.epoch,
                        start,
                        end,
                        topic_filters=self._options.topics,
                        columns=self._columns,
                    )
                except OffsetOutOfRange as error:  # before any row arrived: retention, or a hole
                    log = client.offsets(self._options.stream)
                    left = without(max(start, min(log.earliest, end)), end, log.given_up)
                    if left == [(start, end)]:
                        raise
                    if self._options.fail_on_data_loss:
                        raise OffsetOutOfRange(f"{error}; {_ACCEPT}") from error
                    ranges = left + ranges

    def _client(self) -> StreamClient:
        return StreamClient(self._options.server, self._options.connect_timeout_s)

    def _ranges(self, epoch: str, start: int, end: int) -> list[InputPartition]:
        parts = split_range(start, end, self._options.partitions_max)
        return [Range(epoch, first, last) for first, last in parts]


class BatchReader(_RangeReader, DataSourceReader):
    """Reads a range once. Its ends are looked up when Spark plans the query."""

    def partitions(self) -> Sequence[InputPartition]:
        """The range between startingOffsets and endingOffsets, split."""
        if self._options.group is not None:
            raise ConfigError("option groupId is for readStream; spark.read reads what there is")
        with self._client() as client:
            log = client.offsets(self._options.stream)
        start = _resolve(self._options.starting, log)
        end = _resolve(self._options.ending, log)
        first = _after_retention(start.offset, log, self._options)
        if first > end.offset:
            raise ConfigError(f"the range ends at offset {end.offset}, before it starts at {first}")
        # Spark makes a partition of its own when there is none, which `read` finds empty.
        return self._ranges(log.epoch, first, end.offset)


class StreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the log as it grows.

    Held by the planner for the life of the query; copies of it, which only `read`, go to executors.
    """

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        super().__init__(options, columns)
        if options.starting == "latest" and not (options.checkpoint or options.group):
            raise ConfigError(
                'startingOffsets "latest" must mean the same after a restart: give readStream a'
                " groupId, and the broker remembers it, or the query's checkpointLocation too"
            )
        if options.ending != "latest":
            raise ConfigError("option endingOffsets is for spark.read; a stream has no end")
        self._planner: StreamClient | None = None
        self._group: Group | None = None
        if options.group is not None:
            self._group = Group(
                options.group, options.stream, options.topics, options.group_lease_s
            )
        self._initial: Position | None = None
        self._target: Position | None = None  # where Trigger.AvailableNow stops

    def __getstate__(self) -> dict[str, Any]:
        """Executors get the reader without the planner's connection."""
        return {**self.__dict__, "_planner": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Where a query without history begins; the same answer for as long as it has none."""
        if self._initial is None:
            options = self._options
            if options.checkpoint is None:
                self._initial = self._find_start()
            else:
                source = "|".join((options.server, options.stream, *options.topics))
                self._initial = pinned(options.checkpoint, source, self._find_start)
            if self._group is not None and options.starting != "latest":
                self._group.begin(self._client_of_planner(), self._initial, resume=False)
        return self._initial.to_spark()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """`maxOffsetsPerTrigger`."""
        limit = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Fix where Trigger.AvailableNow stops: at what is there now."""
        log = self._log()
        self._target = Position(log.epoch, log.latest)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """How far the next batch goes: what is committed, within the limit and the target."""
        position = Position.from_spark(start)
        log = self._log()
        check_epoch(position, log.epoch)
        if position.offset > log.latest:
            raise OffsetOutOfRange(
                f"the query stands at offset {position.offset}, and the log ends at {log.latest}:"
                " messages that were read are missing from it"
            )
        if self._group is not None:
            self._group.renew(self._client_of_planner(), position)
        end = log.latest
        if self._target is not None:
            end = min(end, max(self._target.offset, position.offset))
        if isinstance(limit, ReadMaxRows):
            end = min(end, position.offset + limit.max_rows)
        return Position(log.epoch, end).to_spark()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """The end of the log, for the query's progress; None while the service is away."""
        try:
            log = self._client_of_planner().offsets(self._options.stream, connect_timeout_s=0)
        except PenstockError:
            return None
        return Position(log.epoch, log.latest).to_spark()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The range of one batch, split. It may have been planned in an earlier run."""
        first, last = Position.from_spark(start), Position.from_spark(end)
        if first.offset >= last.offset and first.epoch == last.epoch:
            return []
        log = self._log()
        check_epoch(first, log.epoch)
        check_epoch(last, log.epoch)
        return self._ranges(
            log.epoch,
            min(_after_retention(first.offset, log, self._options), last.offset),
            last.offset,
        )

    def stop(self) -> None:
        """Close the planner's connection. Spark does not always call this."""
        if self._planner is not None:
            self._planner.close()

    def _find_start(self) -> Position:
        position = _resolve(self._options.starting, self._log())
        if self._group is not None and self._options.starting == "latest":
            return self._group.begin(self._client_of_planner(), position, resume=True)
        return position

    def _log(self) -> StreamOffsets:
        return self._client_of_planner().offsets(self._options.stream)

    def _client_of_planner(self) -> StreamClient:
        if self._planner is None:
            self._planner = self._client()
        return self._planner


def _resolve(wanted: Edge | WantedPosition, log: StreamOffsets) -> Position:
    if wanted == "earliest":
        return Position(log.epoch, log.earliest)
    if wanted == "latest":
        return Position(log.epoch, log.latest)
    position = wanted.resolve(log.epoch)
    if position.offset > log.latest:
        raise OffsetOutOfRange(
            f"offset {position.offset} is not in the log yet, which ends at {log.latest}"
        )
    return position


def _after_retention(offset: int, log: StreamOffsets, options: SourceOptions) -> int:
    """`offset`, or the log's beginning where rows are gone and the user accepts the loss."""
    if offset >= log.earliest:
        return offset
    if options.fail_on_data_loss:
        raise OffsetOutOfRange(
            f"the offsets {offset} to {log.earliest - 1} were not read before retention removed"
            f" them from the log; {_ACCEPT}"
        )
    return log.earliest
