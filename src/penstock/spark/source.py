"""`spark.read.format("penstock")` and `spark.readStream.format("penstock")`.

    planner, one process for a query                 executors, one reader for a task
    ────────────────────────────────                 ────────────────────────────────
    initialOffset   the start of a new query         read   reads a sub-range as Arrow batches,
    latestOffset    the end of the next batch               directly from the stream service
    partitions      the ranges of a batch, split

The source relies on one rule of the log: the same range of offsets of the same epoch always gives
the same rows. A task that is run again, or a batch that is replayed, reads the same rows again.

In a cluster `server` names several replicas of one log, each of which gives these rows
(`penstock.stream.client`). The planner uses no replica whose log ends before the position in the
checkpoint. It hands each task the addresses of all replicas, first the one that answered it last.

A log may be new to a running query: a server that was added, or an epoch that the user accepts.
Then the current batch ends at the start of that log and reads nothing of it; the next batch begins
there. So the start of the log is in the checkpoint before a row of the log is read. A server that
is no longer named keeps its position, because it may be named again.

Peculiarities of Spark's Python API: options arrive as text; readers and ranges are pickled;
`initialOffset` is called more than once (`penstock.spark.initial_offsets`); after a restart Spark
may ask for a range that was planned in an earlier run. `commit` is called late or never, so it is
not used: `latestOffset` gets the progress of the query, and a group reports it to the brokers
(`penstock.spark.groups`). A query with timers runs batches without data, but the first batch of a
run only if the position changes: with `batchAtStart` the position counts the starts.
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

from penstock.errors import (
    ConfigError,
    EpochMismatch,
    OffsetOutOfRange,
    PenstockError,
    StoreUnavailable,
)
from penstock.spark.brokers import BrokerConnections, connect, server_prefix
from penstock.spark.groups import ReaderGroup
from penstock.spark.initial_offsets import load_or_pin_position
from penstock.spark.offsets import (
    BEHIND,
    SINGLE_SERVER,
    LogPosition,
    Position,
    check_selection,
)
from penstock.spark.options import SourceOptions, parse_options
from penstock.spark.pushdown import QuietPushFilters, push_down
from penstock.spark.range_limits import is_moving
from penstock.spark.schema import choose_columns, stream_schema
from penstock.spark.splitting import count_parts, divide_limit, split_range
from penstock.spark.topics import selection_text
from penstock.store.mark import NO_MARK, Mark
from penstock.store.ranges import subtract_ranges
from penstock.stream.client import StreamOffsets
from penstock.stream.pushed_filters import IntRange, PushedFilters, spans_to_read
from penstock.telemetry.logs import get_logger

if TYPE_CHECKING:  # a planner must start within ten seconds, and one that reads needs no sink
    from penstock.spark.sink import BatchWriter, StreamWriter

_ACCEPT: Final = (
    "to continue without them set failOnDataLoss to false (penstock table run: --accept-data-loss)"
)
_ACCEPT_EPOCH: Final = (
    "start the query with a new checkpoint, or set failOnDataLoss to false to continue at the start"
    " of the new log"
)
_ACCEPT_SERVERS: Final = "to continue without it set failOnDataLoss to false"

logger = get_logger(__name__)


class PenstockDataSource(DataSource):
    """The `penstock` format."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format, for `spark.readStream.format`."""
        return "penstock"

    def schema(self) -> StructType:
        """Return all columns; Spark asks for them if the user selects none with `.schema(…)`."""
        options = parse_options(self.options)  # a mistake is reported before anything runs
        levels = None if options.pattern is None else options.pattern.schema
        return stream_schema(include_properties=options.include_properties, levels=levels)

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader behind `spark.read`."""
        options = parse_options(self.options)
        options.check_batch()
        return BatchReader(options, choose_columns(schema, self.schema()))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return the reader behind `spark.readStream`."""
        try:
            options = parse_options(self.options)
            options.check_stream()
            return StreamReader(options, choose_columns(schema, self.schema()))
        except PenstockError as mistake:
            return RefusedStreamReader(mistake)

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

    `address` has the addresses of the services, separated by commas, first the one that answered
    the planner last. `before` is an offset with its mark: rows of another history are not read.
    """

    def __init__(
        self,
        address: str,
        epoch: str,
        start: int,
        end: int,
        before: tuple[int, Mark] = (0, NO_MARK),
    ) -> None:
        super().__init__(None)
        self.address = address
        self.epoch = epoch
        self.start = start
        self.end = end
        self.before = before


class RangeReader:
    """The base of both readers. Readers are pickled, so connections are opened where they are
    used."""

    task_offsets_min = 1
    """The fewest offsets of a task, if the batch has so many."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        names = () if options.pattern is None else options.pattern.schema.names
        self._columns_read = [name for name in columns if name not in names]
        if len(self._columns_read) < len(columns) and "topic" not in self._columns_read:
            self._columns_read.append("topic")
        self._pushed = PushedFilters(topics=options.topics)
        self._brokers = BrokerConnections(options)
        self._warned: set[str] = set()  # the texts of warnings that were logged

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one `Range`."""
        if not isinstance(partition, Range) or partition.start >= partition.end:
            return
        ranges = [(partition.start, partition.end)]
        with connect(partition.address, self._options) as client:
            while ranges:
                start, end = ranges.pop(0)
                try:
                    batches = client.read(
                        self._options.stream,
                        partition.epoch,
                        start,
                        end,
                        topic_filters=self._pushed.topics,
                        columns=self._columns_read,
                        since_us=self._pushed.since_us,
                        until_us=self._pushed.until_us,
                        before=partition.before,
                        on_damage=self._on_damage,
                    )
                    yield from map(self._with_levels, batches)
                except EpochMismatch as error:  # the epoch changed after the batch was planned
                    if not partition.before[1].is_empty:
                        raise  # planned again, the batch has the rows that the log has
                    self._accept_loss(error, _ACCEPT_EPOCH)
                    return
                except OffsetOutOfRange as error:  # raised before any row: retention, or lost rows
                    log = client.offsets(self._options.stream, at_least=(partition.epoch, 0))
                    remaining = subtract_ranges(
                        max(start, min(log.earliest, end)), end, log.given_up
                    )
                    if remaining == [(start, end)] or log.epoch != partition.epoch:
                        raise
                    self._accept_loss(error, _ACCEPT)
                    ranges = remaining + ranges

    def _on_damage(self, _begin: int, _end: int, failure: StoreUnavailable) -> None:
        self._accept_loss(failure, _ACCEPT)

    def _with_levels(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Return messages with the columns for the named levels of their topics, if chosen."""
        if self._columns_read == self._columns or self._options.pattern is None:
            return messages
        levels, _, _ = self._options.pattern.columns(messages.column("topic"))
        for name in levels.column_names:
            messages = messages.append_column(name, levels.column(name).combine_chunks())
        return messages.select(self._columns)

    def _skip_lost_rows(self, server: str, position: LogPosition, log: StreamOffsets) -> int:
        """Return the offset; or the start of the log if rows are lost and the user accepts that."""
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
        """Raise the loss, or log a warning if the user accepts losses (failOnDataLoss)."""
        if self._options.fail_on_data_loss:
            raise type(loss)(f"{loss}; {remedy}") from loss
        if str(loss) not in self._warned:
            self._warned.add(str(loss))
            logger.warning("%s; the query continues, because failOnDataLoss is false", loss)

    def _range(
        self,
        server: str,
        epoch: str,
        start: int,
        end: int,
        before: tuple[int, Mark] = (0, NO_MARK),
    ) -> Range:
        return Range(self._brokers.client(server).addresses, epoch, start, end, before)

    def _split(self, ranges: Iterable[Range]) -> list[InputPartition]:
        """Split ranges into one for each task; leave out empty ones."""
        options = self._options
        ranges = [part for part in ranges if part.start < part.end]
        counts = count_parts(
            [part.end - part.start for part in ranges],
            options.partitions_min,
            options.partition_offsets_max,
            self.task_offsets_min,
        )
        return [
            Range(part.address, part.epoch, first, last, part.before)
            for part, count in zip(ranges, counts, strict=True)
            for first, last in split_range(part.start, part.end, count)
        ]


class BatchReader(RangeReader, DataSourceReader):
    """Reads a range of each log once; start and end are looked up when Spark plans the query."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        super().__init__(options, columns)
        self.pushFilters = QuietPushFilters(self._push)  # type: ignore[method-assign]

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges from the start to the end of the query, split into tasks.

        Raises:
            ConfigError: the end is before the start.
        """
        ranges = []
        for server, log in self._brokers.read_all_offsets().items():
            start = self._brokers.find_position(server, self._options.starting_limits[server], log)
            end = self._brokers.find_position(server, self._options.ending_limits[server], log)
            if end.offset > log.latest:  # another replica has more of the log
                log = self._brokers.read_offsets(server, at_least=end)
            first = self._skip_lost_rows(server, start, log)
            if first > end.offset:
                raise ConfigError(
                    f"{server_prefix(server)}the range ends at offset {end.offset}, before it"
                    f" starts at {first}"
                )
            spans = self._ranges_to_read(server, log, IntRange(first, end.offset))
            ranges += [self._range(server, log.epoch, *span) for span in spans]
        # For an empty list Spark adds a partition of its own, for which `read` yields nothing.
        return self._split(ranges)

    def _push(self, filters: list[Filter]) -> Iterable[Filter]:
        self._pushed, remaining = push_down(self._pushed, filters, self._options.pattern)
        return remaining

    def _ranges_to_read(
        self, server: str, log: StreamOffsets, span: IntRange
    ) -> list[tuple[int, int]]:
        """Return the parts of a range that may have rows that pass the query's filters."""
        offsets = self._pushed.offsets.cut(span.low, span.high)
        pushed = replace(self._pushed, offsets=offsets)
        return spans_to_read(self._brokers.client(server), log, pushed)


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises a mistake in the options of a stream from the first method that Spark calls.

    What `streamReader` itself raised would be replaced by an UnboundLocalError of Spark, whose
    worker stops a reader that it never got (pyspark/sql/streaming/python_streaming_source_runner).
    """

    def __init__(self, mistake: PenstockError) -> None:
        self._mistake = mistake

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Raise the mistake."""
        raise self._mistake

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Raise the mistake."""
        raise self._mistake

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002, N802  # Spark's name
        """Raise the mistake."""
        raise self._mistake

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002
        """Raise the mistake."""
        raise self._mistake

    def getDefaultReadLimit(self) -> Any:  # noqa: N802  # Spark's name
        """Raise the mistake."""
        raise self._mistake


class StreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the logs as they grow.

    The planner keeps one reader for the life of the query; executors get copies, which only `read`.
    """

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        super().__init__(options, columns)
        self._selection = selection_text(options.stream, options.topics)
        self._groups: Mapping[str, ReaderGroup] = {}  # by server
        if options.group is not None:
            self._groups = {
                server: ReaderGroup(
                    options.group, options.stream, options.topics, options.group_lease_s
                )
                for server in options.servers
            }
        self._initial: Position | None = None
        self._available_now_ends: Mapping[str, LogPosition] = {}  # the end of Trigger.AvailableNow
        self._planned_ends: Mapping[str, LogPosition] = {}  # the end of the last batch
        self._checked: dict[str, object] = {}  # by server, a position of the log's history
        self._starts = 0  # of the query, this one included; known once the first batch is planned

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return the start of a query without a checkpoint; always the same for that query."""
        if self._initial is None:
            starts = {server: self._start_position(server) for server in self._options.servers}
            self._initial = Position(starts, selection=self._selection)
        return self._initial.to_spark()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return the limit of a batch, by option `maxOffsetsPerTrigger`."""
        limit = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Set the end of a query with Trigger.AvailableNow to the present ends of the logs."""
        self._available_now_ends = _ends(self._brokers.read_all_offsets())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return the end of the next batch, within the limit and before the end of AvailableNow.

        The start is the end of the committed batch; a group reports it to its broker.
        """
        logs = self._brokers.read_all_offsets(at_least=Position.from_spark(start).logs)
        position = self._read_position(start, logs)
        after = dict(position.logs)
        backlogs = {}
        for server, log in logs.items():
            reached = position.logs.get(server)
            if reached is None:
                after[server] = self._start_position(server)
                continue
            after[server] = self._continue_at(server, reached, log) or LogPosition(
                log.epoch, log.earliest
            )
            if after[server] == reached:
                backlogs[server] = self._end_of_batch(server, reached, log) - reached.offset
                if server in self._groups:
                    self._groups[server].renew(self._brokers.client(server), reached)
        offsets_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        for server, count in divide_limit(backlogs, offsets_max).items():
            if count:
                end = LogPosition(after[server].epoch, after[server].offset + count)
                after[server] = self._brokers.marked(server, end, logs[server])
        if self._options.batch_at_start and not self._starts:
            self._starts = position.starts + 1
        starts = max(self._starts, position.starts)
        self._planned_ends = after
        return Position(after, starts, self._selection).to_spark()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """Return the ends of the logs and the query's lag, for its progress.

        None if a service does not answer.
        """
        try:
            ends = _ends(self._brokers.read_all_offsets(connect_timeout_s=0))
        except PenstockError:
            return None
        behind = [
            max(0, end.offset - self._planned_ends[server].offset)
            for server, end in ends.items()
            if server in self._planned_ends and self._planned_ends[server].epoch == end.epoch
        ]
        known = {BEHIND: sum(behind)} if len(behind) == len(ends) else {}
        return {**Position(ends).to_spark(), **known}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges of one batch for the tasks; an earlier run may have planned the
        batch."""
        logs = self._brokers.read_all_offsets(at_least=Position.from_spark(end).logs)
        first, last = self._read_position(start, logs), self._read_position(end, logs)
        ranges = []
        for server, log in logs.items():
            from_, to = first.logs.get(server), last.logs.get(server)
            if from_ is None or to is None or from_.epoch != to.epoch:
                continue  # the log is new to the query: it is read from the next batch on
            if from_.offset < to.offset:
                ranges += self._planned_range(server, from_, to, log)
        return self._split(ranges)

    def _planned_range(
        self, server: str, from_: LogPosition, to: LogPosition, log: StreamOffsets
    ) -> list[Range]:
        """Return the range between two positions of a log: a part of it where the log parts from
        the history that it was planned in, and none where that is lost."""
        end = self._continue_at(server, to, log)
        if end is None:
            return []
        if end.epoch != log.epoch:
            log = self._brokers.read_offsets(server, at_least=end)
        is_former = dict(log.lineage).get(from_.epoch, -1) >= end.offset
        epoch = from_.epoch if is_former else end.epoch
        begin = min(self._skip_lost_rows(server, from_, log), end.offset)
        return [self._range(server, epoch, begin, end.offset, (end.offset, end.mark))]

    def stop(self) -> None:
        """Close the planner's connections. Spark does not always call this."""
        self._brokers.close()

    def _start_position(self, server: str) -> LogPosition:
        """Return the start of the query in a log that is new to it."""
        options = self._options
        wanted_limit = options.starting_limits[server]
        group = self._groups.get(server)

        def find() -> LogPosition:
            log = self._brokers.read_offsets(server)
            position = self._brokers.find_position(server, wanted_limit, log)
            if group is not None and is_moving(
                wanted_limit
            ):  # the broker stores the first position
                position = group.register(self._brokers.client(server), position)
            return self._brokers.marked(server, position, log)

        if options.checkpoint is None:
            return find()
        address = options.servers[server].partition(",")[0]  # machines may join the cluster
        source = "|".join((address, options.stream, *options.topics))
        return load_or_pin_position(options.checkpoint, source, find)

    def _read_position(self, fields: dict[str, Any], logs: Mapping[str, StreamOffsets]) -> Position:
        """Return the position in a checkpoint, checked against the query's selection and servers.

        Raises:
            ConfigError: the checkpoint is for another selection or kind of query.
            EpochMismatch: no server has the log of the checkpoint.
            OffsetOutOfRange: a server is no longer named, and the user does not accept that.
        """
        position = Position.from_spark(fields)
        check_selection(position, self._selection)
        position = position.with_server_key(
            {server: (log.epoch, *dict(log.lineage)) for server, log in logs.items()}
        )
        unnamed_servers = position.logs.keys() - logs.keys()
        if SINGLE_SERVER in unnamed_servers:
            raise EpochMismatch(
                f"the checkpoint was made with option server for a log of epoch"
                f" {position.single_log.epoch}, and none of servers has it: name that broker too,"
                " or start the query with a new checkpoint"
            )
        if unnamed_servers and SINGLE_SERVER in logs:
            raise ConfigError(
                "the checkpoint was made with option servers, for"
                f" {', '.join(sorted(unnamed_servers))}; give servers again"
            )
        if unnamed_servers:
            self._accept_loss(
                OffsetOutOfRange(
                    f"the checkpoint was also made for {', '.join(sorted(unnamed_servers))}, and"
                    " servers no longer names it: later messages of that broker are not read"
                ),
                _ACCEPT_SERVERS,
            )
        return position

    def _continue_at(
        self, server: str, reached: LogPosition, log: StreamOffsets
    ) -> LogPosition | None:
        """Return the position at which the query goes on that has read up to `reached`.

        It is `reached` itself where the log has that history under the same epoch. None if the log
        is another one, and the user accepts that its rows are lost (`_accept_loss`).
        """
        known = (reached, log.epoch, log.mark.path[-1:])
        if self._checked.get(server) == known:
            return reached
        client, stream = self._brokers.client(server), self._options.stream
        prefix = server_prefix(server)
        try:
            found = client.check_position(stream, reached.epoch, reached.offset, reached.mark)
        except EpochMismatch as error:
            why = (
                f"{prefix}the query is at offset {reached.offset} of epoch {reached.epoch}: {error}"
            )
            self._accept_loss(EpochMismatch(why), _ACCEPT_EPOCH)
            return None
        except OffsetOutOfRange as error:
            raise behind_query(prefix, reached, log) from error
        if found.parts_at is not None and found.why not in self._warned:
            self._warned.add(found.why)
            logger.warning("%s%s: the query goes on from there", prefix, found.why)
        if (found.epoch, found.offset) == (reached.epoch, reached.offset):
            self._checked[server] = known
            return reached
        position = LogPosition(found.epoch, found.offset)
        return self._brokers.marked(server, position, log)

    def _end_of_batch(self, server: str, reached: LogPosition, log: StreamOffsets) -> int:
        """Return the offset up to which the query may read a log now.

        Raises:
            OffsetOutOfRange: the log ends before the query's position.
        """
        if reached.offset > log.latest:
            raise behind_query(server_prefix(server), reached, log)
        target = self._available_now_ends.get(server)
        if target is None or target.epoch != log.epoch:
            return log.latest
        return max(reached.offset, min(target.offset, log.latest))


def behind_query(prefix: str, reached: LogPosition, log: StreamOffsets) -> OffsetOutOfRange:
    """Return the error for a log that ends before the query's position."""
    return OffsetOutOfRange(
        f"{prefix}the query is at offset {reached.offset}, and the log ends at {log.latest}:"
        " messages that were read are missing from it"
    )


def _ends(logs: Mapping[str, StreamOffsets]) -> dict[str, LogPosition]:
    return {server: LogPosition(log.epoch, log.latest, log.mark) for server, log in logs.items()}
