"""Aggregates over windows of time, and over sessions, by Spark's own operators.

A row of the table is written once, when its window is over: when the watermark, the newest time
that was seen less the time that rows may be late, has passed its end. Until then it is in the
state, in the checkpoint.

Spark drops without a word what comes behind its watermark. So that nothing does, a row is placed by
what it says itself, before Spark looks at it:

    more than watermark_s before it was received,
    more than watermark_s after it, or no time     ─▶ late: counted as such when it was received
    else                                           ─▶ by its own time

Two rows of which the second was received later can then be at most twice watermark_s the wrong way
round, and that is what Spark is told to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.config.derived import RECEIVED_AT, Aggregate, DerivedDefinition, Function
from penstock.errors import ConfigError
from penstock.spark.derived.source_rows import SourceRows
from penstock.spark.tables.declared import DeclaredTable

LATE: Final = "late"
"""How many rows were not aggregated as their time is missing, too long ago or in the future."""

_TIME: Final = "_time"
_LATE: Final = "_late"
_WINDOW: Final = "_window"

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


class Aggregation:
    """The derivation of kinds `windowed` and `sessions`.

    Raises:
        ConfigError: a column is not there, or has no type for its function.
    """

    def __init__(self, definition: DerivedDefinition, source: DeclaredTable) -> None:
        self._definition = definition
        self._has_own_time = definition.event_time != RECEIVED_AT
        self._aggregates = {
            name: Aggregate.parse(text) for name, text in definition.aggregates.items()
        }
        self.schema = pa.schema(
            [
                source.schema.field("epoch"),
                source.schema.field("offset"),
                *(pa.field(name, _TIMESTAMP) for name in self._bounds),
                *(source.schema.field(key).remove_metadata() for key in definition.keys),
                *(
                    pa.field(name, _result_type(definition.name, one, source.schema))
                    for name, one in self._aggregates.items()
                ),
                *([pa.field(LATE, pa.int64())] if self._has_own_time else []),
            ]
        )
        columns = dict.fromkeys(
            [
                *("epoch", "offset", RECEIVED_AT, definition.event_time, *definition.keys),
                *(one.column for one in self._aggregates.values() if one.column),
            ]
        )
        self._rows = SourceRows(source, [*columns])

    @property
    def wording(self) -> str:
        """What it computes, but for how long it waits."""
        it = self._definition
        if it.kind == "sessions":
            bounds = f"sessions with gaps of {it.gap_s:g} s"
        else:
            bounds = f"windows of {it.window_s:g} s every {it.slide_s or it.window_s:g} s"
        aggregates = ", ".join(f"{name} = {text}" for name, text in it.aggregates.items())
        return f"{bounds} of {it.event_time} by {', '.join(it.keys)}: {aggregates}"

    def derive(self, messages: DataFrame) -> DataFrame:
        """The windows that are over, of a stream of messages."""
        it = self._definition
        rows = self._placed(self._rows.of(messages))
        delay_s = it.watermark_s * (2 if self._has_own_time else 1)
        found = (
            rows.withWatermark(_TIME, _interval(delay_s))
            .groupBy(self._window().alias(_WINDOW), *map(quoted, it.keys))
            .agg(
                F.max("epoch").alias("epoch"),
                F.max("offset").alias("offset"),
                *(_expression(one).alias(name) for name, one in self._aggregates.items()),
                *([F.count(F.when(F.col(_LATE), 1)).alias(LATE)] if self._has_own_time else []),
            )
        )
        start, end = F.col(f"{_WINDOW}.start"), F.col(f"{_WINDOW}.end")
        if it.kind == "sessions":
            end = end - F.expr(f"INTERVAL {_interval(it.gap_s or 0)}")
        bounds = dict(zip(self._bounds, (start, end), strict=True))
        return found.select(
            *(
                bounds[name].alias(name) if name in bounds else quoted(name)
                for name in self.schema.names
            )
        )

    @property
    def _bounds(self) -> tuple[str, str]:
        if self._definition.kind == "sessions":
            return "session_start", "session_end"
        return "window_start", "window_end"

    def _window(self) -> Column:
        it = self._definition
        if it.kind == "sessions":
            return F.session_window(_TIME, _interval(it.gap_s or 0))
        slide_s = it.slide_s or it.window_s or 0
        return F.window(_TIME, _interval(it.window_s or 0), _interval(slide_s))

    def _placed(self, rows: DataFrame) -> DataFrame:
        received, own = F.col(RECEIVED_AT), quoted(self._definition.event_time)
        if not self._has_own_time:
            return rows.withColumn(_TIME, received).withColumn(_LATE, F.lit(False))
        wait = F.expr(f"INTERVAL {_interval(self._definition.watermark_s)}")
        is_late = own.isNull() | (own < received - wait) | (own > received + wait)
        return rows.withColumn(_LATE, is_late).withColumn(
            _TIME, F.when(F.col(_LATE), received).otherwise(own)
        )


def quoted(name: str) -> Column:
    """A column whose name may have dots."""
    return F.col(f"`{name}`")


def _interval(seconds: float) -> str:
    return f"{round(seconds * 1_000_000)} microseconds"


def _expression(aggregate: Aggregate) -> Column:
    value = quoted(aggregate.column) if aggregate.column else F.lit(1)
    counted = F.when(~F.col(_LATE), value)
    order = F.when(counted.isNotNull(), F.struct(_TIME, "offset"))
    functions: Mapping[Function, Callable[[], Column]] = {
        "count": lambda: F.count(counted),
        "min": lambda: F.min(counted),
        "max": lambda: F.max(counted),
        "mean": lambda: F.mean(counted),
        "sum": lambda: F.sum(counted),
        "first": lambda: F.min_by(counted, order),
        "last": lambda: F.max_by(counted, order),
    }
    return functions[aggregate.function]()


def _result_type(table: str, aggregate: Aggregate, schema: pa.Schema) -> pa.DataType:
    if aggregate.function == "count":
        return pa.int64()
    kind = schema.field(aggregate.column).type
    is_decimal = pa.types.is_decimal(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or is_decimal
    if aggregate.function in ("mean", "sum") and not is_number:
        raise ConfigError(
            f"table {table} has the {aggregate.function} of {aggregate.column}, which is {kind};"
            " only numbers have one"
        )
    if aggregate.function in ("min", "max") and pa.types.is_nested(kind):
        raise ConfigError(
            f"table {table} has the {aggregate.function} of {aggregate.column}, which is {kind}"
            " and has no order"
        )
    if aggregate.function == "mean":
        return pa.float64()
    if aggregate.function == "sum" and pa.types.is_integer(kind):
        return pa.int64()
    if aggregate.function == "sum" and is_decimal:
        return pa.decimal128(min(38, kind.precision + 10), kind.scale)
    if aggregate.function == "sum":
        return pa.float64()
    return kind
