"""Makes the rows of a declared table as a DataFrame, from messages as the landing does.

They come from the log and not from the table: a table has no order in which Spark could read
its new rows, and the log gives the same rows for the same offsets at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.spark.arrow_maps import map_in_arrow
from penstock.spark.tables.api import ROWS
from penstock.spark.tables.declared import DeclaredTable

GONE: Final = "_gone"
"""The column that marks a row as the removal of its retained message."""

Reduce = Callable[[pa.Table], pa.Table]
"""Returns the rows that matter, of those of a few messages."""


class SourceRows:
    """Decodes messages, in the executors.

    Args:
        source: the declared table whose rows are made.
        columns: the wanted columns.
        reduce: leaves out rows that make no difference, before they are shuffled.
        retained_only: take only messages that were published to be retained, and mark as `GONE`
            those that removed one: an empty payload [MQTT-3.3.1-6].
    """

    def __init__(
        self,
        source: DeclaredTable,
        columns: Sequence[str],
        reduce: Reduce | None = None,
        *,
        retained_only: bool = False,
    ) -> None:
        fields = [source.schema.field(name).remove_metadata() for name in columns]
        self._declared = pa.schema(fields)
        self.schema = self._declared
        if retained_only:
            self.schema = self._declared.append(pa.field(GONE, pa.bool_()))
        self._split = source.split
        self._reduce = reduce
        self._retained_only = retained_only

    def of(self, messages: DataFrame) -> DataFrame:
        """Return the rows of messages, of a stream or of a batch."""
        return map_in_arrow(messages, self._decode, from_arrow_schema(self.schema))

    def _decode(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = self._rows(pa.Table.from_batches([batch]))
            if self._reduce is not None:
                rows = self._reduce(rows)
            yield from rows.combine_chunks().to_batches()

    def _rows(self, messages: pa.Table) -> pa.Table:
        if not self._retained_only:
            return self._sorted(messages, self.schema)
        messages = messages.filter(messages.column("retain"))
        is_removal = pc.equal(pc.binary_length(messages.column("payload")), 0)
        rows = self._sorted(messages.filter(pc.invert(is_removal)), self._declared)
        rows = rows.append_column(self.schema.field(GONE), pa.repeat(False, rows.num_rows))
        removals = messages.filter(is_removal)
        gone = pa.Table.from_arrays(
            [
                removals.column(field.name).cast(field.type)
                if field.name in removals.column_names
                else pa.repeat(pa.scalar(True if field.name == GONE else None, field.type),
                               removals.num_rows)
                for field in self.schema
            ],
            schema=self.schema,
        )  # fmt: skip
        return pa.concat_tables([rows, gone]).sort_by("offset")

    def _sorted(self, messages: pa.Table, schema: pa.Schema) -> pa.Table:
        rows = self._split(messages).get(ROWS)
        if rows is None:
            return schema.empty_table()
        return rows.select(schema.names).cast(schema)
