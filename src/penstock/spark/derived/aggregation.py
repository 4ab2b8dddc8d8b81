"""Aggregates over windows of time, and over sessions, by the time of receipt.

Spark's own operators compute them. A row of the table is written once, when its window is over:
when the watermark, the newest time seen minus the time that rows may be late, has passed its end.
Until then it is in the state, in the checkpoint. By time of receipt no row is late; for times in
the messages there is `keyed_aggregation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.config.derived import RECEIVED_AT, Aggregate, DerivedDefinition, Function
from penstock.spark.derived.aggregates import result_types
from penstock.spark.derived.source_rows import SourceRows
from penstock.spark.tables.declared import DeclaredTable

_WINDOW: Final = "_window"
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


class Aggregation:
    """The derivation of kinds `windowed` and `sessions`, by `received_at`.

    Raises:
        ConfigError: a column does not exist, or has no type for its function.
    """

    def __init__(self, definition: DerivedDefinition, source: DeclaredTable) -> None:
        self._definition = definition
        self._aggregates = aggregates_of(definition)
        self.schema = aggregated_schema(definition, source)
        columns = dict.fromkeys(
            [
                *("epoch", "offset", RECEIVED_AT, *definition.keys),
                *(one.column for one in self._aggregates.values() if one.column),
            ]
        )
        self._rows = SourceRows(source, [*columns])

    @property
    def wording(self) -> str:
        """The computation in words, without its lateness."""
        it = self._definition
        return f"{windows_wording(it)} by {', '.join(it.keys)}: {aggregates_wording(it)}"

    def derive(self, messages: DataFrame) -> DataFrame:
        """Return the windows that are over, of a stream of messages."""
        it = self._definition
        rows = self._rows.of(messages)
        found = (
            rows.withWatermark(RECEIVED_AT, _interval(it.watermark_s))
            .groupBy(self._window().alias(_WINDOW), *map(quoted, it.keys))
            .agg(
                F.max("epoch").alias("epoch"),
                F.max("offset").alias("offset"),
                *(_expression(one).alias(name) for name, one in self._aggregates.items()),
            )
        )
        start, end = F.col(f"{_WINDOW}.start"), F.col(f"{_WINDOW}.end")
        if it.kind == "sessions":
            end = end - F.expr(f"INTERVAL {_interval(it.gap_s or 0)}")
        bounds = dict(zip(bounds_of(it), (start, end), strict=True))
        return found.select(
            *(
                bounds[name].alias(name) if name in bounds else quoted(name)
                for name in self.schema.names
            )
        )

    def _window(self) -> Column:
        it = self._definition
        if it.kind == "sessions":
            return F.session_window(RECEIVED_AT, _interval(it.gap_s or 0))
        slide_s = it.slide_s or it.window_s or 0
        return F.window(RECEIVED_AT, _interval(it.window_s or 0), _interval(slide_s))


def aggregates_of(definition: DerivedDefinition) -> dict[str, Aggregate]:
    """Return the aggregates of a declaration, by column."""
    return {name: Aggregate.parse(text) for name, text in definition.aggregates.items()}


def aggregated_schema(
    definition: DerivedDefinition, source: DeclaredTable, *more: pa.Field
) -> pa.Schema:
    """Return the columns of a table of aggregates.

    Raises:
        ConfigError: a column has no type for its function.
    """
    types = result_types(definition.name, aggregates_of(definition), source.schema)
    return pa.schema(
        [
            source.schema.field("epoch"),
            source.schema.field("offset"),
            *(pa.field(name, _TIMESTAMP) for name in bounds_of(definition)),
            *(source.schema.field(key).remove_metadata() for key in definition.keys),
            *(pa.field(name, kind) for name, kind in types.items()),
            *more,
        ]
    )


def bounds_of(definition: DerivedDefinition) -> tuple[str, str]:
    """Return the names of the columns with the begin and end of a window or session."""
    if definition.kind == "sessions":
        return "session_start", "session_end"
    return "window_start", "window_end"


def windows_wording(definition: DerivedDefinition) -> str:
    """Describe the windows or sessions in words."""
    it = definition
    if it.kind == "sessions":
        return f"sessions with gaps of {it.gap_s:g} s of {it.event_time}"
    return f"windows of {it.window_s:g} s every {it.slide_s or it.window_s:g} s of {it.event_time}"


def aggregates_wording(definition: DerivedDefinition) -> str:
    """Describe the aggregates of their rows in words."""
    return ", ".join(f"{name} = {text}" for name, text in definition.aggregates.items())


def quoted(name: str) -> Column:
    """Return a column whose name may have dots."""
    return F.col(f"`{name}`")


def _interval(seconds: float) -> str:
    return f"{round(seconds * 1_000_000)} microseconds"


def _expression(aggregate: Aggregate) -> Column:
    value = quoted(aggregate.column) if aggregate.column else F.lit(1)
    order = F.when(value.isNotNull(), F.struct(RECEIVED_AT, "offset"))
    functions: Mapping[Function, Callable[[], Column]] = {
        "count": lambda: F.count(value),
        "min": lambda: F.min(value),
        "max": lambda: F.max(value),
        "mean": lambda: F.mean(value),
        "sum": lambda: F.sum(value),
        "first": lambda: F.min_by(value, order),
        "last": lambda: F.max_by(value, order),
    }
    return functions[aggregate.function]()
