"""Computes aggregates over windows and sessions by a time in the messages.

Spark has one watermark for the whole query: with it, all rows of last year's log would be late, and
so would those of a device that was offline for a month while other devices were not. Here each key
has its own watermark (`penstock.spark.derived.key_windows`), in a stateful processor:

    no state ──a row──▶ open windows, a timer ──rows──▶ closed windows are written
        ▲                     │
        └──no row of the key was received for idle_s: open windows are written, the state removed

Rows are processed in order of offset, and those of one message in order of time: so whether a row
is late does not depend on how the log was split into batches and tasks.

The timer uses the time of receipt, so the query needs a watermark of that time. Spark drops rows
behind its watermark, which would be all rows after the broker's clock was set back. So the rows
have null in the column of the watermark. Each batch of rows gets one more row, a *tick*, that has
only the newest time of receipt; Spark may drop it.

The name of the state and the names of its fields are in checkpoints: they must not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import ArrayType, DoubleType, LongType, StringType, StructField, StructType

from penstock.config.derived import RECEIVED_AT, DerivedDefinition, Function
from penstock.errors import ConfigError
from penstock.spark.arrow_maps import without_pandas_warning
from penstock.spark.derived.aggregates import PartialAggregate, final_value, partial_of_row
from penstock.spark.derived.aggregation import (
    aggregate_schema,
    column_named,
    describe_aggregates,
    describe_windows,
    parse_aggregates,
)
from penstock.spark.derived.key_windows import (
    KeyWindows,
    OpenWindow,
    SessionWindows,
    SlidingWindows,
    WindowAssigner,
    sort_windows,
)
from penstock.spark.derived.source_rows import SourceRows
from penstock.spark.tables.declared import DeclaredTable

LATE: Final = "late"
"""The column with the number of rows that were not aggregated, because their time is missing, too
old or in the future."""

_TICK: Final = "_tick"
_EVENT_TIME: Final = "_at_us"
_RECEIPT_TIME: Final = "_received_us"


class KeyedAggregation:
    """The derivation of kinds `windowed` and `sessions` by a time column of the source.

    Raises:
        ConfigError: an aggregate cannot be computed of its source column.
    """

    def __init__(self, definition: DerivedDefinition, source: DeclaredTable) -> None:
        self._definition = definition
        self._aggregates = parse_aggregates(definition)
        self._types = source.schema
        self.schema = aggregate_schema(definition, source, pa.field(LATE, pa.int64()))
        self._value_names = [*dict.fromkeys(one.column for one in self._aggregates.values())]
        for name in filter(None, self._value_names):
            if name in self._types.names and pa.types.is_nested(self._types.field(name).type):
                raise ConfigError(
                    f"table {definition.name} has an event_time, and an aggregate of {name}, which"
                    f" is {self._types.field(name).type}; only single values are possible"
                )
        columns = dict.fromkeys(
            [
                *("epoch", "offset", RECEIVED_AT, definition.event_time, *definition.keys),
                *filter(None, self._value_names),
            ]
        )
        self._rows = SourceRows(source, [*columns], append_tick)

    @property
    def description(self) -> str:
        """The computation in words, without the allowed lateness, which may change."""
        definition = self._definition
        keys = ", ".join(definition.keys)
        windows, aggregates = describe_windows(definition), describe_aggregates(definition)
        return f"{windows}, each {keys} at its pace: {aggregates}"

    def derive(self, messages: DataFrame) -> DataFrame:
        """Return a stream with a row for each closed window of a stream of messages."""
        definition = self._definition
        rows = (
            self._rows.decode(messages)
            .select(
                F.when(F.col("offset").isNull(), F.col(RECEIVED_AT)).alias(_TICK),
                F.unix_micros(RECEIVED_AT).alias(_RECEIPT_TIME),
                F.unix_micros(column_named(definition.event_time)).alias(_EVENT_TIME),
                "epoch",
                "offset",
                *(
                    self._input_column(key).alias(f"_key{n}")
                    for n, key in enumerate(definition.keys)
                ),
                *(
                    self._input_column(name).alias(f"_value{n}")
                    for n, name in enumerate(self._value_names)
                ),
            )
            .withWatermark(_TICK, "0 seconds")
        )
        names = self._output_names()
        with without_pandas_warning():
            found = rows.groupBy(
                *(f"_key{n}" for n in range(len(definition.keys)))
            ).transformWithState(
                self.processor(),
                from_arrow_schema(
                    pa.schema(
                        [
                            pa.field(names[one.name], _processor_type(one.type))
                            for one in self.schema
                        ]
                    )
                ),
                "append",
                "EventTime",
            )
        return found.select(
            *(_output_column(names[one.name], one.type).alias(one.name) for one in self.schema)
        )

    def processor(self) -> WindowProcessor:
        """Return the processor that Spark runs for each key."""
        definition = self._definition
        assigner: WindowAssigner
        if definition.kind == "sessions":
            assigner = SessionWindows(_micros(definition.gap_s or 0))
        else:
            assigner = SlidingWindows(
                _micros(definition.window_s or 0),
                _micros(definition.slide_s or definition.window_s or 0),
            )
        return WindowProcessor(
            assigner,
            [
                (one.function, self._value_names.index(one.column))
                for one in self._aggregates.values()
            ],
            _micros(definition.watermark_s),
            _micros(definition.idle_s),
            [self._output_names()[name] for name in self.schema.names],
            self._state(),
        )

    def _output_names(self) -> dict[str, str]:
        """Return a name without dots for each column of the table: Spark parses dots in names."""
        names = {name: name for name in self.schema.names}
        names |= {key: f"_key{n}" for n, key in enumerate(self._definition.keys)}
        return names | {name: f"_result{n}" for n, name in enumerate(self._aggregates)}

    def _input_column(self, name: str) -> Column:
        """Return a source column with times and dates as whole numbers, for the processor."""
        if not name:
            return F.lit(True)
        kind = self._types.field(name).type
        if pa.types.is_timestamp(kind):
            return F.unix_micros(column_named(name))
        return F.unix_date(column_named(name)) if pa.types.is_date(kind) else column_named(name)

    def _state(self) -> StructType:
        """Return the schema of a key's state."""
        parts = []
        for number, (name, one) in enumerate(self._aggregates.items()):
            kind = from_arrow_type(_processor_type(self.schema.field(name).type))
            value = DoubleType() if one.function == "mean" else kind
            part = _struct(number=LongType(), at_us=LongType(), offset=LongType(), value=value)
            parts.append(StructField(f"part{number}", part))
        window = _struct(
            start_us=LongType(),
            end_us=LongType(),
            epoch=StringType(),
            offset=LongType(),
            parts=StructType(parts),
        )
        return _struct(
            received_us=LongType(),
            newest_us=LongType(),
            closed_us=LongType(),
            open=ArrayType(window),
        )


def append_tick(rows: pa.Table) -> pa.Table:
    """Return the rows and a tick, which has only their newest time of receipt."""
    if not rows.num_rows:
        return rows
    newest = pc.max(rows.column(RECEIVED_AT))
    tick = pa.Table.from_arrays(
        [
            pa.array([newest.as_py() if field.name == RECEIVED_AT else None], field.type)
            for field in rows.schema
        ],
        schema=rows.schema,
    )
    return pa.concat_tables([rows, tick])


class _InputRow(NamedTuple):
    """A row of the source; `values` has the value for each aggregate."""

    offset: int
    epoch: str
    received_us: int
    at_us: int | None
    values: list[Any]


class WindowProcessor(StatefulProcessor):
    """Aggregates the rows of each key in windows or sessions, as Spark's stateful processor.

    Args:
        assigner: assigns rows to windows or sessions.
        aggregates: the function of each aggregate, and the index of its value in the input.
        lateness_us: the allowed lateness of a row, relative to the newest time of its key.
        idle_us: the time without rows after which the state of a key is removed.
        names: the names of the output: epoch, offset, start, end, keys, aggregates, late.
        state: the schema of a key's state.
    """

    def __init__(
        self,
        assigner: WindowAssigner,
        aggregates: list[tuple[Function, int]],
        lateness_us: int,
        idle_us: int,
        names: list[str],
        state: StructType,
    ) -> None:
        self._assigner = assigner
        self._aggregates = aggregates
        self._functions = [function for function, _ in aggregates]
        self._lateness_us = lateness_us
        self._idle_us = idle_us
        self._row = Row(*names)
        self._schema = state

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state; Spark calls this once in each task."""
        self._handle = handle
        self._state = handle.getValueState("pace", self._schema)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Any,
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        """Add the rows of one key in one batch; yield a row for each closed window.

        The rows may be in any order and include ticks, which are ignored. If rows are late, a last
        row has their number.
        """
        found = self._input_rows(rows)
        if not found:
            return
        stored = windows = self._read_state()
        late, last_late = 0, found[0]
        for row in found:
            received_us, at_us = row.received_us, row.at_us
            if windows is not None and received_us - windows.received_us >= self._idle_us:
                yield from self._output_rows(key, sort_windows(windows.open))
                windows = None
            if windows is None:
                windows = KeyWindows(received_us)
            windows.received_us = max(received_us, windows.received_us)
            closed = None
            if at_us is not None and at_us <= received_us + self._lateness_us:
                single = self._single_row_window(row, at_us)
                closed = windows.add(self._assigner, self._functions, self._lateness_us, single)
            if closed is None:
                late, last_late = late + 1, row
            else:
                yield from self._output_rows(key, closed)
        if late:
            no_values = [final_value(function, PartialAggregate()) for function in self._functions]
            yield self._row(last_late.epoch, last_late.offset, None, None, *key, *no_values, late)
        assert windows is not None
        if stored is None:
            self._set_timer(windows, timerValues)
        self._write_state(windows)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803, ARG002
    ) -> Iterator[Row]:
        """Yield the open windows of an idle key and remove its state; else set its timer again."""
        windows = self._read_state()
        assert windows is not None, "a timer is set when there is a row"
        if self._due_ms(windows) > timerValues.getCurrentWatermarkInMs():
            self._set_timer(windows, timerValues)
            return
        self._state.clear()
        yield from self._output_rows(key, sort_windows(windows.open))

    def _input_rows(self, rows: Iterable[Row]) -> list[_InputRow]:
        """Return the rows without ticks, in order of offset and time.

        The positions of columns are looked up only once, because this runs for every row.
        """
        found: list[_InputRow] = []
        names: Any = None
        select: Any = None
        for row in rows:
            if names is None:
                names = row.__fields__
                values = (f"_value{number}" for _, number in self._aggregates)
                input_names = ("offset", "epoch", _RECEIPT_TIME, _EVENT_TIME, *values)
                select = itemgetter(*map(names.index, input_names))
            offset, epoch, received_us, at_us, *row_values = select(tuple(row))
            if offset is not None:
                found.append(_InputRow(offset, epoch, received_us, at_us, row_values))
        found.sort(key=lambda row: (row.offset, row.at_us is not None, row.at_us))
        return found

    def _single_row_window(self, row: _InputRow, at_us: int) -> OpenWindow:
        """Return a window of one row, which starts and ends at the row's time."""
        offset = row.offset
        parts = [
            partial_of_row(function, value, at_us, offset)
            for function, value in zip(self._functions, row.values, strict=True)
        ]
        return OpenWindow(at_us, at_us, row.epoch, offset, parts)

    def _output_rows(self, key: Any, windows: list[OpenWindow]) -> Iterator[Row]:
        for one in windows:
            results = [
                final_value(function, part)
                for function, part in zip(self._functions, one.parts, strict=True)
            ]
            yield self._row(one.epoch, one.offset, one.start_us, one.end_us, *key, *results, 0)

    def _due_ms(self, windows: KeyWindows) -> int:
        """Return the time at which the key becomes idle, in ms since the Unix epoch."""
        return (windows.received_us + self._idle_us) // 1000 + 1

    def _set_timer(self, windows: KeyWindows, values: TimerValues) -> None:
        due_ms = max(self._due_ms(windows), values.getCurrentWatermarkInMs() + 1)
        self._handle.registerTimer(due_ms)

    def _read_state(self) -> KeyWindows | None:
        stored = self._state.get()
        if stored is None:
            return None
        received_us, newest_us, watermark_us, windows = stored
        found = []
        for start_us, end_us, epoch, offset, parts in windows:
            partials = [PartialAggregate(*part) for part in parts]
            found.append(OpenWindow(start_us, end_us, epoch, offset, partials))
        return KeyWindows(received_us, newest_us, watermark_us, found)

    def _write_state(self, windows: KeyWindows) -> None:
        stored = [
            (one.start_us, one.end_us, one.epoch, one.offset, tuple(map(tuple, one.parts)))
            for one in windows.open
        ]
        self._state.update((windows.received_us, windows.newest_us, windows.watermark_us, stored))


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _processor_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the result of `_input_column` for a column of this type."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date(kind) else kind


def _output_column(name: str, kind: pa.DataType) -> Column:
    if pa.types.is_timestamp(kind):
        return F.timestamp_micros(name)
    return F.date_from_unix_date(name) if pa.types.is_date(kind) else F.col(name)


def _struct(**fields: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])
