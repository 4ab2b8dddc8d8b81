"""Lands messages that were sent twice only once; the table itself is the memory.

    batch ──id of each──▶ joined with the ids landed lately ──by id, in order──▶ the writing pass

A message is a repeat if one with its id landed at most `within_s` before it was received. The pass
makes it a dead letter, in the same commit as everything else, and the first one always wins.
Spark's own `dropDuplicatesWithinWatermark` drops silently, keeps any one of a batch, and loses its
memory with its checkpoint.

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
from penstock.spark.tables.decoding_split import MESSAGE_ID, SEEN_AT, DecodingSplit


class Repeats:
    """Tells the writing pass which ids have landed.

    Args:
        split: finds the id of a message.
        column: the table's column with the id.
        within_s: how long after the first one a message counts as a repeat.
    """

    def __init__(self, split: DecodingSplit, column: str, within_s: int) -> None:
        self._split = split
        self._column = column
        self._within = timedelta(seconds=within_s)

    def marked(
        self, messages: DataFrame, rows: LandedTable, replaced: Span | None = None
    ) -> DataFrame:
        """Return the messages with `MESSAGE_ID` and `SEEN_AT`; all of one id in one task, in order.

        Args:
            messages: the messages of a batch.
            rows: the table in which they will land.
            replaced: rows from here on do not count, for a backfill.
        """
        schema = StructType([*SPARK_SCHEMA.fields, StructField(MESSAGE_ID, StringType())])
        known = messages.mapInArrow(_Identify(self._split), schema)
        seen = self._seen(messages, rows, replaced)
        joined = (
            known.withColumn(SEEN_AT, lit(None).cast("timestamp"))
            if seen is None
            else known.join(seen, MESSAGE_ID, "left")
        )
        place = coalesce(col(MESSAGE_ID), col("offset").cast("string"))  # no id: any task
        return joined.repartition(place).sortWithinPartitions("offset")

    def _seen(
        self, messages: DataFrame, rows: LandedTable, replaced: Span | None
    ) -> DataFrame | None:
        """Return when each id landed last, of the rows that matter; None if there are none."""
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

    def __init__(self, split: DecodingSplit) -> None:
        self._split = split

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids = self._split.identified(pa.Table.from_batches([batch]))
            yield batch.append_column(MESSAGE_ID, ids)
