"""Decodes messages to the rows of a declared table, as a DataFrame.

The messages come from the log, and the rows are not read from the table: a table has no order in
which Spark could read new rows, while the log always has the same messages at the same offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.decoding.decoder import in_parts
from penstock.spark.arrow_maps import map_in_arrow
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.landed_table import ROWS

REMOVED: Final = "_gone"
"""The column that is true in a row for a message that removed a retained message."""

Reduce = Callable[[pa.Table], pa.Table]
"""A function that returns only the rows of its argument on which the derived table depends."""


class SourceRows:
    """Decodes messages in the executors.

    Args:
        source: the declared table.
        columns: the columns of the rows.
        reduce: leaves out rows that make no difference, before Spark shuffles them.
        retained_only: decode only messages with the RETAIN flag, and add a row with `REMOVED` for
            each message that removes a retained one: an empty payload [MQTT-3.3.1-6].
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
            self.schema = self._declared.append(pa.field(REMOVED, pa.bool_()))
        self._split = source.split
        self._reduce = reduce
        self._retained_only = retained_only

    def decode(self, messages: DataFrame) -> DataFrame:
        """Return the rows of the messages in a DataFrame, streaming or not."""
        return map_in_arrow(messages, self._decode, from_arrow_schema(self.schema))

    def _decode(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for rows in in_parts(self._rows, pa.Table.from_batches([batch])):
                reduced = rows if self._reduce is None else self._reduce(rows)
                yield from reduced.combine_chunks().to_batches()

    def _rows(self, messages: pa.Table) -> pa.Table:
        if not self._retained_only:
            return self._decode_rows(messages, self.schema)
        messages = messages.filter(messages.column("retain"))
        is_removal = pc.equal(pc.binary_length(messages.column("payload")), 0)
        rows = self._decode_rows(messages.filter(pc.invert(is_removal)), self._declared)
        rows = rows.append_column(self.schema.field(REMOVED), pa.repeat(False, rows.num_rows))
        removals = messages.filter(is_removal)
        removed_rows = pa.Table.from_arrays(
            [
                removals.column(field.name).cast(field.type)
                if field.name in removals.column_names
                else pa.repeat(pa.scalar(True if field.name == REMOVED else None, field.type),
                               removals.num_rows)
                for field in self.schema
            ],
            schema=self.schema,
        )  # fmt: skip
        return pa.concat_tables([rows, removed_rows]).sort_by("offset")

    def _decode_rows(self, messages: pa.Table, schema: pa.Schema) -> pa.Table:
        rows = self._split(messages).get(ROWS)
        if rows is None:
            return schema.empty_table()
        return rows.select(schema.names).cast(schema)
