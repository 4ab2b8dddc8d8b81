"""Aggregates over windows and sessions by a time in the messages, with a watermark for each key.

Spark has one watermark for the whole query: with it, a log of last year would be late as a whole,
and a device that was away for a month would be late because the others were not. Here each key has
its own (`penstock.spark.derived.key_windows`), in a processor of ours:

    no state ──a row──▶ open windows, a timer ──rows──▶ closed windows are written
        ▲                     │
        └──no row of the key was received for idle_s: open windows are written, and forgotten

Rows are taken in order of offset, and those of one message in order of time: whether a row is late
does not depend on how the log was cut into batches and tasks.

The timer goes by the time of receipt, so it needs a watermark of that time. Spark drops rows
behind a watermark, and all would be if the broker's clock was set back. So rows have
no such time: a *tick*, one for each batch of rows, has the time at which the last one was
received and nothing else, and may be dropped.

The name of the state and the names of its fields are in checkpoints: they never change.
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
from penstock.spark.arrow_maps import without_pandas
from penstock.spark.derived.aggregates import Part, part_of, result_of
from penstock.spark.derived.aggregation import (
    aggregated_schema,
    aggregates_of,
    aggregates_wording,
    quoted,
    windows_wording,
)
from penstock.spark.derived.key_windows import (
    KeyWindows,
    OpenWindow,
    SessionWindows,
    SlidingWindows,
    WindowAssigner,
    in_order,
)
from penstock.spark.derived.source_rows import SourceRows
from penstock.spark.tables.declared import DeclaredTable

LATE: Final = "late"
"""The number of rows not aggregated because their time is missing, too old or in the future."""

_TICK: Final = "_tick"
_AT: Final = "_at_us"
_RECEIVED: Final = "_received_us"


class KeyedAggregation:
    """The derivation of kinds `windowed` and `sessions`, by a column of the source.

    Raises:
        ConfigError: a column does not exist, or has no type for its function.
    """

    def __init__(self, definition: DerivedDefinition, source: DeclaredTable) -> None:
        self._definition = definition
        self._aggregates = aggregates_of(definition)
        self._types = source.schema
        self.schema = aggregated_schema(definition, source, pa.field(LATE, pa.int64()))
        self._values = [*dict.fromkeys(one.column for one in self._aggregates.values())]
        for name in filter(None, self._values):
            if name in self._types.names and pa.types.is_nested(self._types.field(name).type):
                raise ConfigError(
                    f"table {definition.name} has an event_time, and an aggregate of {name}, which"
                    f" is {self._types.field(name).type}; only single values will do"
                )
        columns = dict.fromkeys(
            [
                *("epoch", "offset", RECEIVED_AT, definition.event_time, *definition.keys),
                *filter(None, self._values),
            ]
        )
        self._rows = SourceRows(source, [*columns], with_tick)

    @property
    def wording(self) -> str:
        """The computation in words, without its lateness."""
        it = self._definition
        keys = ", ".join(it.keys)
        return f"{windows_wording(it)}, each {keys} at its pace: {aggregates_wording(it)}"

    def derive(self, messages: DataFrame) -> DataFrame:
        """Return a stream of the windows that are closed, from a stream of messages."""
        it = self._definition
        rows = (
            self._rows.of(messages)
            .select(
                F.when(F.col("offset").isNull(), F.col(RECEIVED_AT)).alias(_TICK),
                F.unix_micros(RECEIVED_AT).alias(_RECEIVED),
                F.unix_micros(quoted(it.event_time)).alias(_AT),
                "epoch",
                "offset",
                *(self._value(key).alias(f"_key{n}") for n, key in enumerate(it.keys)),
                *(self._value(name).alias(f"_value{n}") for n, name in enumerate(self._values)),
            )
            .withWatermark(_TICK, "0 seconds")
        )
        names = self._numbered()
        with without_pandas():
            found = rows.groupBy(*(f"_key{n}" for n in range(len(it.keys)))).transformWithState(
                self.processor(),
                from_arrow_schema(
                    pa.schema([pa.field(names[one.name], _plain(one.type)) for one in self.schema])
                ),
                "append",
                "EventTime",
            )
        return found.select(
            *(_restored(names[one.name], one.type).alias(one.name) for one in self.schema)
        )

    def processor(self) -> WindowProcessor:
        """Return the processor that Spark runs for each key."""
        it = self._definition
        assigner: WindowAssigner
        if it.kind == "sessions":
            assigner = SessionWindows(_micros(it.gap_s or 0))
        else:
            assigner = SlidingWindows(
                _micros(it.window_s or 0), _micros(it.slide_s or it.window_s or 0)
            )
        return WindowProcessor(
            assigner,
            [(one.function, self._values.index(one.column)) for one in self._aggregates.values()],
            _micros(it.watermark_s),
            _micros(it.idle_s),
            [self._numbered()[name] for name in self.schema.names],
            self._state(),
        )

    def _numbered(self) -> dict[str, str]:
        """Return names without dots, which Spark would parse, by the names of the columns."""
        names = {name: name for name in self.schema.names}
        names |= {key: f"_key{n}" for n, key in enumerate(self._definition.keys)}
        return names | {name: f"_result{n}" for n, name in enumerate(self._aggregates)}

    def _value(self, name: str) -> Column:
        """Return a column in a form that Python and Spark share: times as whole numbers."""
        if not name:
            return F.lit(True)
        kind = self._types.field(name).type
        if pa.types.is_timestamp(kind):
            return F.unix_micros(quoted(name))
        return F.unix_date(quoted(name)) if pa.types.is_date(kind) else quoted(name)

    def _state(self) -> StructType:
        """Return the schema of a key's state."""
        parts = []
        for number, (name, one) in enumerate(self._aggregates.items()):
            kind = from_arrow_type(_plain(self.schema.field(name).type))
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


def with_tick(rows: pa.Table) -> pa.Table:
    """Return the rows, and one with only the time at which the last of them was received."""
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
    """A row of the source; `values` are in the columns that are aggregated."""

    offset: int
    epoch: str
    received_us: int
    at_us: int | None
    values: list[Any]


class WindowProcessor(StatefulProcessor):
    """Aggregates the rows of each key in windows or sessions; Spark runs it.

    Args:
        assigner: assigns rows to windows or sessions.
        aggregates: the function, and the number of its value, of each aggregate.
        lateness_us: how late a row may be, by the newest time of its key.
        idle_us: a key without rows for so long is forgotten.
        names: names of the columns: epoch, offset, start, end, keys, aggregates, late.
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
        """Open the state; called once in each task."""
        self._handle = handle
        self._state = handle.getValueState("pace", self._schema)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Any,
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        """Add the rows of one key in one batch, in any order; yield a row for each closed window.

        Ticks, which may be among them, are left out. One more row has the number of late rows.
        """
        found = self._input_rows(rows)
        if not found:
            return
        stored = windows = self._read()
        late, last_late = 0, found[0]
        for row in found:
            received_us, at_us = row.received_us, row.at_us
            if windows is not None and received_us - windows.received_us >= self._idle_us:
                yield from self._output_rows(key, in_order(windows.open))
                windows = None
            if windows is None:
                windows = KeyWindows(received_us)
            windows.received_us = max(received_us, windows.received_us)
            closed = None
            if at_us is not None and at_us <= received_us + self._lateness_us:
                single = self._window_of(row, at_us)
                closed = windows.add(self._assigner, self._functions, self._lateness_us, single)
            if closed is None:
                late, last_late = late + 1, row
            else:
                yield from self._output_rows(key, closed)
        if late:
            nothing = [result_of(function, Part()) for function in self._functions]
            yield self._row(last_late.epoch, last_late.offset, None, None, *key, *nothing, late)
        assert windows is not None
        if stored is None:
            self._set_timer(windows, timerValues)
        self._write(windows)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803, ARG002
    ) -> Iterator[Row]:
        """Write the open windows of an idle key, and forget it; else set its timer again."""
        windows = self._read()
        assert windows is not None, "a timer is set when there is a row"
        if self._due_ms(windows) > timerValues.getCurrentWatermarkInMs():
            self._set_timer(windows, timerValues)
            return
        self._state.clear()
        yield from self._output_rows(key, in_order(windows.open))

    def _input_rows(self, rows: Iterable[Row]) -> list[_InputRow]:
        """Return the rows except ticks, in order.

        Names are looked up only once, because this is done for every row.
        """
        found: list[_InputRow] = []
        names: Any = None
        choose: Any = None
        for row in rows:
            if names is None:
                names = row.__fields__
                values = (f"_value{number}" for _, number in self._aggregates)
                wanted = ("offset", "epoch", _RECEIVED, _AT, *values)
                choose = itemgetter(*map(names.index, wanted))
            offset, epoch, received_us, at_us, *of_row = choose(tuple(row))
            if offset is not None:
                found.append(_InputRow(offset, epoch, received_us, at_us, of_row))
        found.sort(key=lambda row: (row.offset, row.at_us is not None, row.at_us))
        return found

    def _window_of(self, row: _InputRow, at_us: int) -> OpenWindow:
        """Return a window with one row, from its time to its time."""
        offset = row.offset
        parts = [
            part_of(function, value, at_us, offset)
            for function, value in zip(self._functions, row.values, strict=True)
        ]
        return OpenWindow(at_us, at_us, row.epoch, offset, parts)

    def _output_rows(self, key: Any, windows: list[OpenWindow]) -> Iterator[Row]:
        for one in windows:
            results = [
                result_of(function, part)
                for function, part in zip(self._functions, one.parts, strict=True)
            ]
            yield self._row(one.epoch, one.offset, one.start_us, one.end_us, *key, *results, 0)

    def _due_ms(self, windows: KeyWindows) -> int:
        """Return when the key will have been idle for long enough, in ms since the Unix epoch."""
        return (windows.received_us + self._idle_us) // 1000 + 1

    def _set_timer(self, windows: KeyWindows, values: TimerValues) -> None:
        due_ms = max(self._due_ms(windows), values.getCurrentWatermarkInMs() + 1)
        self._handle.registerTimer(due_ms)

    def _read(self) -> KeyWindows | None:
        stored = self._state.get()
        if stored is None:
            return None
        received_us, newest_us, watermark_us, windows = stored
        found = []
        for start_us, end_us, epoch, offset, parts in windows:
            of_window = [Part(*part) for part in parts]
            found.append(OpenWindow(start_us, end_us, epoch, offset, of_window))
        return KeyWindows(received_us, newest_us, watermark_us, found)

    def _write(self, windows: KeyWindows) -> None:
        stored = [
            (one.start_us, one.end_us, one.epoch, one.offset, tuple(map(tuple, one.parts)))
            for one in windows.open
        ]
        self._state.update((windows.received_us, windows.newest_us, windows.watermark_us, stored))


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the result of `_value` for such a column."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date(kind) else kind


def _restored(name: str, kind: pa.DataType) -> Column:
    if pa.types.is_timestamp(kind):
        return F.timestamp_micros(name)
    return F.date_from_unix_date(name) if pa.types.is_date(kind) else F.col(name)


def _struct(**fields: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])
