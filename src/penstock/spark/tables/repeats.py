"""Finds messages that were sent twice, so that each lands once; the table has the earlier ids.

    batch ──id of each──▶ joined with the ids of recent rows ──by id, in order──▶ the writing pass

A message is a repeat if the table has a row of a message with the same id that was received at most
`within_s` before. The pass makes the repeat a dead letter, and always lands the first message.
Spark's own `dropDuplicatesWithinWatermark` drops repeats silently, keeps any message of a batch
instead of the first, and loses the ids with its checkpoint.

The cost: each batch reads the ids of the rows that were received within `within_s` before the
newest row, one column of the latest files.
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

from penstock.spark.file_rows import rows_of_files
from penstock.spark.schema import SPARK_SCHEMA
from penstock.spark.tables.decoding_split import MESSAGE_ID, SEEN_AT, DecodingSplit
from penstock.spark.tables.landed_table import LandedTable, Span


class Repeats:
    """Adds to each message of a batch its id, and when a message with that id has landed.

    Args:
        split: finds the id of a message.
        column: the table's column with the id.
        within_s: the time after the first message in which others with its id are repeats, in
            seconds.
    """

    def __init__(self, split: DecodingSplit, column: str, within_s: int) -> None:
        self._split = split
        self._column = column
        self._within = timedelta(seconds=within_s)

    def with_seen_at(
        self, messages: DataFrame, rows: LandedTable, replaced: Span | None = None
    ) -> DataFrame:
        """Return the messages with the columns `MESSAGE_ID` and `SEEN_AT`.

        Messages with one id are in one task, in order of offset.

        Args:
            messages: the messages of a batch.
            rows: the table in which they will land.
            replaced: the range that a backfill will replace: rows from its start on are not
                compared; None without a backfill.
        """
        schema = StructType([*SPARK_SCHEMA.fields, StructField(MESSAGE_ID, StringType())])
        identified = messages.mapInArrow(_AddMessageIds(self._split), schema)
        landed_ids = self._landed_ids(messages, rows, replaced)
        joined = (
            identified.withColumn(SEEN_AT, lit(None).cast("timestamp"))
            if landed_ids is None
            else identified.join(landed_ids, MESSAGE_ID, "left")
        )
        partition_key = coalesce(
            col(MESSAGE_ID), col("offset").cast("string")
        )  # without an id: any task
        return joined.repartition(partition_key).sortWithinPartitions("offset")

    def _landed_ids(
        self, messages: DataFrame, rows: LandedTable, replaced: Span | None
    ) -> DataFrame | None:
        """Return the ids of landed rows, each with its latest time of receipt; None for no rows.

        They are read from files of the time in which a repeat counts; for a backfill from all
        files, without the rows from the start of the range ``replaced`` on.
        """
        files = rows.recent_files(self._within if replaced is None else timedelta.max)
        if not files:
            return None
        kind = from_arrow_type(rows.layout.schema.field(self._column).type)
        row_schema = StructType(
            [
                StructField("epoch", StringType()),
                StructField("offset", SPARK_SCHEMA["offset"].dataType),
                StructField("received_at", TimestampType()),
                StructField(self._column, kind),
            ]
        )
        found = rows_of_files(messages.sparkSession, files, row_schema)
        if replaced is not None:
            is_inside = (col("epoch") == replaced.epoch) & (col("offset") >= replaced.start)
            found = found.where(~is_inside)
        by_id = found.groupBy(col(self._column).cast("string").alias(MESSAGE_ID))
        return by_id.agg(newest("received_at").alias(SEEN_AT))


class _AddMessageIds:
    """Adds the column `MESSAGE_ID` to messages; a task runs it."""

    def __init__(self, split: DecodingSplit) -> None:
        self._split = split

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids = self._split.message_ids(pa.Table.from_batches([batch]))
            yield batch.append_column(MESSAGE_ID, ids)
