"""Messages that were sent twice land once: the table itself is the memory of what has landed.

    batch ──id of each──▶ joined with the ids landed lately ──by id, in order──▶ the writing pass

A message is a repeat when one with its id was landed at most `within_s` before it was received.
The pass keeps it as a dead letter, in the same commit as everything else, and the first one wins,
always. Spark's own `dropDuplicatesWithinWatermark` drops in silence, keeps any one of a batch, and
forgets with its checkpoint what it has seen.

The price: each batch reads the ids of the rows that were received within `within_s` before the
newest, one column of the latest files.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import coalesce, col, lit
from pyspark.sql.functions import max as newest
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from penstock.spark.schema import SPARK_SCHEMA
from penstock.spark.tables.api import LandedTable, Span
from penstock.spark.tables.decoding_split import MESSAGE_ID, SEEN_AT, Sorting


class Repeats:
    """Tells the writing pass what has landed already.

    Args:
        sorting: finds the id of a message.
        column: the table's column with the id.
        within_s: how long after the first one a message counts as a repeat.
    """

    def __init__(self, sorting: Sorting, column: str, within_s: int) -> None:
        self._sorting = sorting
        self._column = column
        self._within = timedelta(seconds=within_s)

    def marked(
        self, messages: DataFrame, rows: LandedTable, replaced: Span | None = None
    ) -> DataFrame:
        """The messages with `MESSAGE_ID` and `SEEN_AT`; those of one id in one task, in order.

        Args:
            messages: of a batch.
            rows: the table they will land in.
            replaced: rows from here on do not count, for a backfill.
        """
        schema = StructType([*SPARK_SCHEMA.fields, StructField(MESSAGE_ID, StringType())])
        known = messages.mapInArrow(_Identify(self._sorting), schema)
        seen = self._seen(messages, rows, replaced)
        joined = (
            known.withColumn(SEEN_AT, lit(None).cast("timestamp"))
            if seen is None
            else known.join(seen, MESSAGE_ID, "left")
        )
        place = coalesce(col(MESSAGE_ID), col("offset").cast("string"))  # no id: anywhere
        return joined.repartition(place).sortWithinPartitions("offset")

    def _seen(
        self, messages: DataFrame, rows: LandedTable, replaced: Span | None
    ) -> DataFrame | None:
        """When each id landed last, of the rows that matter; None when there are none."""
        files = rows.recent_files(self._within if replaced is None else timedelta.max)
        if not files:
            return None
        kind = from_arrow_type(rows.layout.schema.field(self._column).type)
        wanted = StructType(
            [
                StructField("epoch", StringType()),
                StructField("offset", SPARK_SCHEMA["offset"].dataType),
                StructField("received_at", TimestampType()),
                StructField(self._column, kind),
            ]
        )
        found = messages.sparkSession.read.schema(wanted).parquet(*map(str, files))
        if replaced is not None:
            is_inside = (col("epoch") == replaced.epoch) & (col("offset") >= replaced.start)
            found = found.where(~is_inside)
        by_id = found.groupBy(col(self._column).cast("string").alias(MESSAGE_ID))
        return by_id.agg(newest("received_at").alias(SEEN_AT))


class _Identify:
    """Adds `MESSAGE_ID` in a task."""

    def __init__(self, sorting: Sorting) -> None:
        self._sorting = sorting

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids = self._sorting.identified(pa.Table.from_batches([batch]))
            yield batch.append_column(MESSAGE_ID, ids)
