"""Finds the newest row of each key: a table of last known values, similar to retained messages.

MQTT calls the value of a topic that a broker retains "retained or Last Known Good" (v3.1 §2.1,
Retain). A row is good if its payload decodes: a broken payload replaces no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from penstock.config.derived import RECEIVED_AT, DerivedDefinition
from penstock.spark.derived.source_rows import REMOVED, SourceRows
from penstock.spark.tables.declared import DeclaredTable

_INDEX: Final = "_index"
_HAS_TIME: Final = "_has_time"
_SIDE: Final = "_side"
_HELPER_COLUMNS: Final = (_INDEX, _HAS_TIME)


class LastKnown:
    """The derivation of kind `last_known`. It has no state in Spark: the table is the state."""

    def __init__(self, definition: DerivedDefinition, source: DeclaredTable) -> None:
        self._definition = definition
        self.schema = source.schema
        self.newest = NewestRows(definition)
        self._rows = SourceRows(
            source, source.schema.names, self.newest, retained_only=definition.retained_only
        )
        self.rows_schema = self._rows.schema

    @property
    def description(self) -> str:
        """The computation in words."""
        definition = self._definition
        which = "the last retained row" if definition.retained_only else "the last row"
        return f"{which} by {definition.event_time} of each {', '.join(definition.keys)}"

    def derive(self, messages: DataFrame) -> DataFrame:
        """Return a stream of candidates: the newest rows of each part of a batch.

        `newest` finds the newest rows among the candidates.
        """
        return self._rows.decode(messages)

    def to_table_rows(self, rows: pa.Table) -> pa.Table:
        """Return rows with the columns of the table, without those that mark a removal."""
        if REMOVED in rows.column_names:
            has_ended = pc.fill_null(
                rows.column(REMOVED), fill_value=False
            )  # null: a row of the table
            rows = rows.filter(pc.invert(has_ended))
        return rows.select(self.schema.names).cast(self.schema)


class NewestRows:
    """Finds the newest row of each key.

    Rows are ordered by their event time, if one is declared, then as the table receives them: rows
    of messages of one batch by offset and by their order in the message, and rows of the table come
    before those of a batch. Epochs are not compared: of a log whose older copy was put back, their
    names do not tell the order.

    Args:
        definition: the declaration, which names keys and event time.
    """

    def __init__(self, definition: DerivedDefinition) -> None:
        self.keys = definition.keys
        self._time = "" if definition.event_time == RECEIVED_AT else definition.event_time

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Return the newest row of each key, ordered by key, of rows of one epoch."""
        return self._newest(rows, "offset", _INDEX)

    def after(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        """Return the newest row of each key of two tables, which each have one of a key."""
        return self._newest(pa.concat_tables([older, newer]), _INDEX)

    def _newest(self, rows: pa.Table, *order_by: str) -> pa.Table:
        rows = _with_row_index(rows)
        order = [*order_by]
        if self._time:  # rows without a time come first
            rows = rows.append_column(_HAS_TIME, pc.is_valid(rows.column(self._time)))
            order = [_HAS_TIME, self._time, *order]
        rows = rows.take(pc.sort_indices(rows, [(name, "ascending") for name in order]))
        rows = _with_row_index(
            rows.drop_columns([name for name in order if name in _HELPER_COLUMNS])
        )
        last = rows.group_by(self.keys, use_threads=False).aggregate([(_INDEX, "max")])
        newest = rows.take(last.column(f"{_INDEX}_max")).drop_columns(_INDEX)
        return newest.sort_by([(name, "ascending") for name in self.keys])


def have_common_key(one: pa.Table, other: pa.Table, keys: Sequence[str]) -> bool:
    """Return whether a key is in both tables; null is a key, too."""
    sides = [
        rows.select(keys).append_column(_SIDE, pa.repeat(pa.scalar(side, pa.int8()), rows.num_rows))
        for side, rows in enumerate((one, other))
    ]
    found = (
        pa.concat_tables(sides)
        .group_by(keys, use_threads=False)
        .aggregate([(_SIDE, "min"), (_SIDE, "max")])
    )
    is_shared = pc.not_equal(found.column(f"{_SIDE}_min"), found.column(f"{_SIDE}_max"))
    return bool(pc.any(is_shared).as_py())


def _with_row_index(rows: pa.Table) -> pa.Table:
    numbers = pc.indices_nonzero(pa.repeat(True, rows.num_rows)).cast(pa.int64())
    return rows.append_column(_INDEX, numbers)
