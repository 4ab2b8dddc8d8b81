"""`spark.read.format("penstock")` and `spark.readStream.format("penstock")`.

    planner, one process for a query                 executors, one reader for a task
    ────────────────────────────────                 ────────────────────────────────
    initialOffset   the begin of a new query         read   a sub-range, as Arrow batches,
    latestOffset    the end of this batch                   straight from the stream service
    partitions      ranges → sub-ranges

All of it relies on one rule of the log: the same range of offsets of the same epoch always gives
the same rows. A task that is run again, or a batch that is replayed, reads what it read before.

In a cluster `server` names several replicas of one log, of which any gives these rows
(`penstock.stream.client`): the planner never believes one that has less than is in the checkpoint,
and hands each task the address that answered it first, and the others to go on at.

A log that is new to a running query (a server that was added, or an epoch with which the user lets
it continue) *enters* it: the current batch ends where that log begins for the query, and reads
nothing of it; the next one starts there. So its begin is in the checkpoint before a row of it is
read. A server that is no longer named keeps its position, because it may come back.

Peculiarities of Spark's Python API: options arrive as text; readers and ranges are pickled;
`initialOffset` is called more than once (`penstock.spark.initial_offsets`); after a restart Spark
may ask for a range that was planned in an earlier run. `commit` comes late or never: it is not
used. `latestOffset` finds the progress of a query, which a group reports to the brokers
(`penstock.spark.groups`). A query with timers runs batches without data, but the first one of a
run only when a position changes: `batchAtStart` counts the starts in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.errors import ConfigError, EpochMismatch, OffsetOutOfRange, PenstockError
from penstock.spark.brokers import Brokers, connect, server_prefix
from penstock.spark.groups import Group
from penstock.spark.initial_offsets import pinned_offset
from penstock.spark.offsets import (
    BEHIND,
    ONLY,
    LogPosition,
    Position,
    check_epoch,
    check_selection,
)
from penstock.spark.options import SourceOptions, parse_options
from penstock.spark.pushdown import QuietPushFilters, push_down
from penstock.spark.range_limits import moves
from penstock.spark.schema import choose_columns, offered_schema
from penstock.spark.splitting import count_parts, shares, split_range
from penstock.spark.topics import selection_text
from penstock.store.ranges import subtract_ranges
from penstock.stream.client import StreamOffsets
from penstock.stream.pushed_filters import IntRange, PushedFilters, spans_to_read
from penstock.telemetry.logs import get_logger

if TYPE_CHECKING:  # a planner that reads has ten seconds to start in, and no use for the sink
    from penstock.spark.sink import BatchWriter, StreamWriter

_ACCEPT: Final = (
    "to go on without them set failOnDataLoss to false (penstock table run: --accept-data-loss)"
)
_ACCEPT_EPOCH: Final = (
    "start the query with a new checkpoint, or set failOnDataLoss to false to go on where the new"
    " log begins"
)
_ACCEPT_SERVERS: Final = "to go on without it set failOnDataLoss to false"

logger = get_logger(__name__)


class PenstockDataSource(DataSource):
    """The `penstock` format."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format, for `spark.readStream.format`."""
        return "penstock"

    def schema(self) -> StructType:
        """Return the columns, unless the user chooses some with `.schema(…)`."""
        options = parse_options(self.options)  # a mistake is reported before anything runs
        return offered_schema(include_properties=options.include_properties)

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader behind `spark.read`."""
        options = parse_options(self.options)
        options.check_batch()
        return BatchReader(options, choose_columns(schema, self.schema()))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802  # Spark's name
        """Return the reader behind `spark.readStream`."""
        options = parse_options(self.options)
        options.check_stream()
        return StreamReader(options, choose_columns(schema, self.schema()))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer behind `df.write`."""
        from penstock.spark.sink import BatchWriter
        from penstock.spark.sink_options import parse_sink_options

        return BatchWriter(schema, parse_sink_options(self.options, False), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802  # Spark's name
        """Return the writer behind `df.writeStream`."""
        from penstock.spark.sink import StreamWriter
        from penstock.spark.sink_options import parse_sink_options

        return StreamWriter(schema, parse_sink_options(self.options, True), overwrite)


class Range(InputPartition):
    """The rows that one task reads: offsets `start` to `end` (excluded) of `epoch`.

    `address` names the services that have them, the one that answered the planner last first.
    """

    def __init__(self, address: str, epoch: str, start: int, end: int) -> None:
        super().__init__(None)
        self.address = address
        self.epoch = epoch
        self.start = start
        self.end = end


class RangeReader:
    """The base of both readers. It is pickled, so it connects where it is used."""

    task_offsets_min = 1
    """The least offsets that are worth a task of their own."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._pushed = PushedFilters(topics=options.topics)
        self._brokers = Brokers(options)
        self._warned: set[str] = set()  # warnings

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one `Range`."""
        if not isinstance(partition, Range) or partition.start >= partition.end:
            return
        ranges = [(partition.start, partition.end)]
        with connect(partition.address, self._options) as client:
            while ranges:
                start, end = ranges.pop(0)
                try:
                    yield from client.read(
                        self._options.stream,
                        partition.epoch,
                        start,
                        end,
                        topic_filters=self._pushed.topics,
                        columns=self._columns,
                        since_us=self._pushed.since_us,
                        until_us=self._pushed.until_us,
                    )
                except EpochMismatch as error:  # since the batch was planned
                    self._accept_loss(error, _ACCEPT_EPOCH)
                    return
                except OffsetOutOfRange as error:  # before any row arrived: retention, or a hole
                    log = client.offsets(self._options.stream, at_least=(partition.epoch, 0))
                    left = subtract_ranges(max(start, min(log.earliest, end)), end, log.given_up)
                    if left == [(start, end)] or log.epoch != partition.epoch:
                        raise
                    self._accept_loss(error, _ACCEPT)
                    ranges = left + ranges

    def _after_retention(self, server: str, position: LogPosition, log: StreamOffsets) -> int:
        """Return the offset, or the log's begin if rows are gone and the user accepts the loss."""
        if position.offset >= log.earliest:
            return position.offset
        self._accept_loss(
            OffsetOutOfRange(
                f"{server_prefix(server)}the offsets {position.offset} to {log.earliest - 1} were"
                " not read before retention removed them from the log"
            ),
            _ACCEPT,
        )
        return log.earliest

    def _accept_loss(self, loss: PenstockError, remedy: str) -> None:
        """Raise the loss, or continue with a warning if the user accepts it."""
        if self._options.fail_on_data_loss:
            raise type(loss)(f"{loss}; {remedy}") from loss
        if str(loss) not in self._warned:
            self._warned.add(str(loss))
            logger.warning("%s; the query goes on, for failOnDataLoss is false", loss)

    def _range(self, server: str, epoch: str, start: int, end: int) -> Range:
        return Range(self._brokers.client(server).addresses, epoch, start, end)

    def _split(self, ranges: Iterable[Range]) -> list[InputPartition]:
        """Return the same rows in a range for each task, none of them empty."""
        options = self._options
        ranges = [part for part in ranges if part.start < part.end]
        counts = count_parts(
            [part.end - part.start for part in ranges],
            options.partitions_min,
            options.partition_offsets_max,
            self.task_offsets_min,
        )
        return [
            Range(part.address, part.epoch, first, last)
            for part, count in zip(ranges, counts, strict=True)
            for first, last in split_range(part.start, part.end, count)
        ]


class BatchReader(RangeReader, DataSourceReader):
    """Reads a range of each log once. The ends are looked up when Spark plans the query."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        super().__init__(options, columns)
        self.pushFilters = QuietPushFilters(self._push)  # type: ignore[method-assign]

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges from the start to the end of the query, split into tasks."""
        ranges = []
        for server, log in self._brokers.logs().items():
            start = self._brokers.find(server, self._options.starting[server], log)
            end = self._brokers.find(server, self._options.ending[server], log)
            if end.offset > log.latest:  # found at another replica, which has more
                log = self._brokers.log(server, at_least=end)
            first = self._after_retention(server, start, log)
            if first > end.offset:
                raise ConfigError(
                    f"{server_prefix(server)}the range ends at offset {end.offset}, before it"
                    f" starts at {first}"
                )
            spans = self._wanted(server, log, IntRange(first, end.offset))
            ranges += [self._range(server, log.epoch, *span) for span in spans]
        # Spark makes a partition of its own when there is none, which `read` finds empty.
        return self._split(ranges)

    def _push(self, filters: list[Filter]) -> Iterable[Filter]:
        self._pushed, left = push_down(self._pushed, filters)
        return left

    def _wanted(self, server: str, log: StreamOffsets, span: IntRange) -> list[tuple[int, int]]:
        """Return the parts of a range that may have rows which pass the query's filters."""
        offsets = self._pushed.offsets.cut(span.low, span.high)
        pushed = replace(self._pushed, offsets=offsets)
        return spans_to_read(self._brokers.client(server), log, pushed)


class StreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the logs as they grow.

    The planner holds it for the life of the query; copies of it, which only `read`, go to
    executors.
    """

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        super().__init__(options, columns)
        self._selection = selection_text(options.stream, options.topics)
        self._groups: Mapping[str, Group] = {}  # by server
        if options.group is not None:
            self._groups = {
                server: Group(options.group, options.stream, options.topics, options.group_lease_s)
                for server in options.servers
            }
        self._initial: Position | None = None
        self._target: Mapping[str, LogPosition] = {}  # the end of Trigger.AvailableNow
        self._planned: Mapping[str, LogPosition] = {}  # the end of the last batch
        self._starts = 0  # of the query, this one included; known once the first batch is planned

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return the begin of a query without history; always the same until it has one."""
        if self._initial is None:
            starts = {server: self._start_of(server) for server in self._options.servers}
            self._initial = Position(starts, selection=self._selection)
        return self._initial.to_spark()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return the limit of `maxOffsetsPerTrigger`."""
        limit = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Fix the end of Trigger.AvailableNow: the present ends of the logs."""
        self._target = _ends(self._brokers.logs())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return the end of the next batch: the committed end, within the limit and the target."""
        logs = self._brokers.logs(at_least=Position.from_spark(start).logs)
        position = self._read_position(start, logs)
        after = dict(position.logs)
        backlogs = {}
        for server, log in logs.items():
            reached = position.logs.get(server)
            if reached is None:
                after[server] = self._start_of(server)
            elif self._is_same_log(server, reached, log):
                backlogs[server] = self._end_of_batch(server, reached, log) - reached.offset
                if server in self._groups:
                    self._groups[server].renew(self._brokers.client(server), reached)
            else:
                after[server] = LogPosition(log.epoch, log.earliest)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        for server, count in shares(backlogs, most).items():
            after[server] = LogPosition(after[server].epoch, after[server].offset + count)
        if self._options.batch_at_start and not self._starts:
            self._starts = position.starts + 1
        starts = max(self._starts, position.starts)
        self._planned = after
        return Position(after, starts, self._selection).to_spark()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """Return the ends of the logs and the query's lag, for its progress; None if a service is
        away."""
        try:
            ends = _ends(self._brokers.logs(connect_timeout_s=0))
        except PenstockError:
            return None
        behind = [
            max(0, end.offset - self._planned[server].offset)
            for server, end in ends.items()
            if server in self._planned and self._planned[server].epoch == end.epoch
        ]
        known = {BEHIND: sum(behind)} if len(behind) == len(ends) else {}
        return {**Position(ends).to_spark(), **known}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges of one batch, split. It may have been planned in an earlier run."""
        logs = self._brokers.logs(at_least=Position.from_spark(end).logs)
        first, last = self._read_position(start, logs), self._read_position(end, logs)
        ranges = []
        for server, log in logs.items():
            from_, to = first.logs.get(server), last.logs.get(server)
            if from_ is None or to is None or from_.epoch != to.epoch:
                continue  # its log enters with this batch, or a later one
            if from_.offset < to.offset and self._is_same_log(server, from_, log):
                begin = min(self._after_retention(server, from_, log), to.offset)
                ranges.append(self._range(server, log.epoch, begin, to.offset))
        return self._split(ranges)

    def stop(self) -> None:
        """Close the planner's connections. Spark does not always call this."""
        self._brokers.close()

    def _start_of(self, server: str) -> LogPosition:
        """Return the begin of the query in the log of a server that is new to it."""
        options = self._options
        wanted = options.starting[server]
        group = self._groups.get(server)

        def find() -> LogPosition:
            position = self._brokers.find(server, wanted, self._brokers.log(server))
            if group is not None and moves(wanted):  # the broker remembers the first answer
                return group.begin(self._brokers.client(server), position)
            return position

        if options.checkpoint is None:
            return find()
        address = options.servers[server].partition(",")[0]  # others may join a cluster
        source = "|".join((address, options.stream, *options.topics))
        return pinned_offset(options.checkpoint, source, find)

    def _read_position(self, fields: dict[str, Any], logs: Mapping[str, StreamOffsets]) -> Position:
        """Return the position in a checkpoint, for the servers that the query has now."""
        position = Position.from_spark(fields)
        check_selection(position, self._selection)
        position = position.named({server: log.epoch for server, log in logs.items()})
        others = position.logs.keys() - logs.keys()
        if ONLY in others:
            raise EpochMismatch(
                f"the checkpoint was made with option server for a log of epoch"
                f" {position.only.epoch}, and none of servers has it: name that broker too, or"
                " start the query with a new checkpoint"
            )
        if others and ONLY in logs:
            raise ConfigError(
                f"the checkpoint was made with option servers, for {', '.join(sorted(others))};"
                " give servers again"
            )
        if others:
            self._accept_loss(
                OffsetOutOfRange(
                    f"the checkpoint was also made for {', '.join(sorted(others))}, and servers no"
                    " longer names it: later messages of that broker are not read"
                ),
                _ACCEPT_SERVERS,
            )
        return position

    def _is_same_log(self, server: str, position: LogPosition, log: StreamOffsets) -> bool:
        """Return whether the log is that of the position; if not, its rows are lost."""
        try:
            check_epoch(position, log.epoch)
        except EpochMismatch as error:
            self._accept_loss(EpochMismatch(f"{server_prefix(server)}{error}"), _ACCEPT_EPOCH)
            return False
        return True

    def _end_of_batch(self, server: str, reached: LogPosition, log: StreamOffsets) -> int:
        """Return the offset in a log up to which the query may read now."""
        if reached.offset > log.latest:
            raise OffsetOutOfRange(
                f"{server_prefix(server)}the query is at offset {reached.offset}, and the log"
                f" ends at {log.latest}: messages that were read are missing from it"
            )
        target = self._target.get(server)
        if target is None or target.epoch != log.epoch:
            return log.latest
        return max(reached.offset, min(target.offset, log.latest))


def _ends(logs: Mapping[str, StreamOffsets]) -> dict[str, LogPosition]:
    return {server: LogPosition(log.epoch, log.latest) for server, log in logs.items()}
