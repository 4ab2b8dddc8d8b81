"""The last good row of each key: the equivalent of retained messages, as a table.

MQTT calls the value of a topic that a broker retains "retained or Last Known Good" (v3.1 §2.1,
Retain). A row is good if it decodes: a broken payload replaces nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from penstock.config.derived import RECEIVED_AT, DerivedDefinition
from penstock.spark.derived.source_rows import GONE, SourceRows
from penstock.spark.tables.declared import DeclaredTable

_INDEX: Final = "_index"
_HAS_TIME: Final = "_has_time"
_SIDE: Final = "_side"
_OWN: Final = (_INDEX, _HAS_TIME)


class LastKnown:
    """The derivation of kind `last_known`. The table is its state: Spark stores none."""

    def __init__(self, definition: DerivedDefinition, source: DeclaredTable) -> None:
        self._definition = definition
        self.schema = source.schema
        self.newest = Newest(definition)
        self._rows = SourceRows(
            source, source.schema.names, self.newest, retained_only=definition.retained_only
        )
        self.rows_schema = self._rows.schema

    @property
    def wording(self) -> str:
        """The computation in words."""
        it = self._definition
        which = "the last retained row" if it.retained_only else "the last row"
        return f"{which} by {it.event_time} of each {', '.join(it.keys)}"

    def derive(self, messages: DataFrame) -> DataFrame:
        """Return the newest rows of parts of a stream of messages: `newest` merges them."""
        return self._rows.of(messages)

    def shown(self, rows: pa.Table) -> pa.Table:
        """Return the newest rows as the table has them, without removed ones."""
        if GONE in rows.column_names:
            is_gone = pc.fill_null(rows.column(GONE), fill_value=False)  # null: a row of the table
            rows = rows.filter(pc.invert(is_gone))
        return rows.select(self.schema.names).cast(self.schema)


class Newest:
    """Keeps the last row of each key.

    Rows are ordered by their event time, if one is declared, and by offset; of the rows of one
    message the last one counts.

    Args:
        definition: names keys and event time.
    """

    def __init__(self, definition: DerivedDefinition) -> None:
        self.keys = definition.keys
        self._time = "" if definition.event_time == RECEIVED_AT else definition.event_time

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Return the last row of each key, ordered by key."""
        rows = _numbered(rows)
        order = ["epoch", "offset", _INDEX]
        if self._time:  # rows without a time come first
            rows = rows.append_column(_HAS_TIME, pc.is_valid(rows.column(self._time)))
            order = [_HAS_TIME, self._time, *order]
        rows = rows.take(pc.sort_indices(rows, [(name, "ascending") for name in order]))
        rows = _numbered(rows.drop_columns([name for name in order if name in _OWN]))
        last = rows.group_by(self.keys, use_threads=False).aggregate([(_INDEX, "max")])
        chosen = rows.take(last.column(f"{_INDEX}_max")).drop_columns(_INDEX)
        return chosen.sort_by([(name, "ascending") for name in self.keys])


def share_keys(one: pa.Table, other: pa.Table, keys: Sequence[str]) -> bool:
    """Return whether a key is in both; null is a key like others."""
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


def _numbered(rows: pa.Table) -> pa.Table:
    numbers = pc.indices_nonzero(pa.repeat(True, rows.num_rows)).cast(pa.int64())
    return rows.append_column(_INDEX, numbers)
