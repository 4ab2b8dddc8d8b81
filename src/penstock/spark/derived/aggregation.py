"""Computes aggregates over windows and sessions by the time of receipt, with Spark's own operators.

A row of the table is written once, when its window is closed: when the watermark, the newest time
of receipt minus the lateness that is allowed, has passed the end of the window. Until then the
window is in the state, in the checkpoint. By time of receipt no row is late; `keyed_aggregation` is
for times in the messages.
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
    """The derivation of kinds `windowed` and `sessions` by `received_at`.

    Raises:
        ConfigError: a function cannot be applied to the type of its source column.
    """

    def __init__(self, definition: DerivedDefinition, source: DeclaredTable) -> None:
        self._definition = definition
        self._aggregates = parse_aggregates(definition)
        self.schema = aggregate_schema(definition, source)
        columns = dict.fromkeys(
            [
                *("epoch", "offset", RECEIVED_AT, *definition.keys),
                *(aggregate.column for aggregate in self._aggregates.values() if aggregate.column),
            ]
        )
        self._rows = SourceRows(source, [*columns])

    @property
    def description(self) -> str:
        """The computation in words, without the allowed lateness, which may change."""
        definition = self._definition
        keys = ", ".join(definition.keys)
        return f"{describe_windows(definition)} by {keys}: {describe_aggregates(definition)}"

    def derive(self, messages: DataFrame) -> DataFrame:
        """Return a stream with a row for each closed window of a stream of messages."""
        definition = self._definition
        rows = self._rows.decode(messages)
        aggregated = (
            rows.withWatermark(RECEIVED_AT, _interval(definition.watermark_s))
            .groupBy(self._window().alias(_WINDOW), *map(column_named, definition.keys))
            .agg(
                F.max("epoch").alias("epoch"),
                F.max("offset").alias("offset"),
                *(
                    _expression(aggregate).alias(name)
                    for name, aggregate in self._aggregates.items()
                ),
            )
        )
        start, end = F.col(f"{_WINDOW}.start"), F.col(f"{_WINDOW}.end")
        if definition.kind == "sessions":
            end = end - F.expr(f"INTERVAL {_interval(definition.gap_s or 0)}")
        bounds = dict(zip(bound_columns(definition), (start, end), strict=True))
        return aggregated.select(
            *(
                bounds[name].alias(name) if name in bounds else column_named(name)
                for name in self.schema.names
            )
        )

    def _window(self) -> Column:
        definition = self._definition
        if definition.kind == "sessions":
            return F.session_window(RECEIVED_AT, _interval(definition.gap_s or 0))
        slide_s = definition.slide_s or definition.window_s or 0
        return F.window(RECEIVED_AT, _interval(definition.window_s or 0), _interval(slide_s))


def parse_aggregates(definition: DerivedDefinition) -> dict[str, Aggregate]:
    """Return the aggregates of a declaration, by column."""
    return {name: Aggregate.parse(text) for name, text in definition.aggregates.items()}


def aggregate_schema(
    definition: DerivedDefinition, source: DeclaredTable, *extra_fields: pa.Field
) -> pa.Schema:
    """Return the columns of a table of aggregates; ``extra_fields`` are appended.

    Raises:
        ConfigError: a function cannot be applied to the type of its source column.
    """
    types = result_types(definition.name, parse_aggregates(definition), source.schema)
    return pa.schema(
        [
            source.schema.field("epoch"),
            source.schema.field("offset"),
            *(pa.field(name, _TIMESTAMP) for name in bound_columns(definition)),
            *(source.schema.field(key).remove_metadata() for key in definition.keys),
            *(pa.field(name, kind) for name, kind in types.items()),
            *extra_fields,
        ]
    )


def bound_columns(definition: DerivedDefinition) -> tuple[str, str]:
    """Return the names of the columns with the start and end of a window or session."""
    if definition.kind == "sessions":
        return "session_start", "session_end"
    return "window_start", "window_end"


def describe_windows(definition: DerivedDefinition) -> str:
    """Return the windows or sessions in words."""
    time = definition.event_time
    if definition.kind == "sessions":
        return f"sessions with gaps of {definition.gap_s:g} s of {time}"
    slide_s = definition.slide_s or definition.window_s
    return f"windows of {definition.window_s:g} s every {slide_s:g} s of {time}"


def describe_aggregates(definition: DerivedDefinition) -> str:
    """Return the aggregates in words."""
    return ", ".join(f"{name} = {text}" for name, text in definition.aggregates.items())


def column_named(name: str) -> Column:
    """Return the column of this name, which may contain dots."""
    return F.col(f"`{name}`")


def _interval(seconds: float) -> str:
    return f"{round(seconds * 1_000_000)} microseconds"


def _expression(aggregate: Aggregate) -> Column:
    value = column_named(aggregate.column) if aggregate.column else F.lit(1)
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
