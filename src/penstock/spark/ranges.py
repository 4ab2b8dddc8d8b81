"""A format whose rows are ranges of offsets: the task that writes messages reads them itself.

    planner ──ranges──▶ Spark ──some for each task──▶ task ◀──Flight── stream service
                                                        └──Parquet──▶ files

Rows that pass through Spark on their way from a source to a function of Python cross four borders
between Python and Java, and are converted at three of them: from Arrow to Spark's rows, and back. A
job that needs the rows as Arrow columns does not need these conversions; with this format only the
ranges pass through Spark. The format has the guarantees of the source, because it plans and reads
with the same readers: the same range of offsets always gives the same rows.

Penstock's own jobs `register` the format with their session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.functions import col, greatest, lit
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.spark.arrow_maps import ArrowFunction, map_in_arrow
from penstock.spark.options import parse_options
from penstock.spark.schema import SPARK_SCHEMA
from penstock.spark.source import (
    BatchReader,
    PenstockDataSource,
    Range,
    RangeReader,
    StreamReader,
)
from penstock.stream.rows import STREAM_SCHEMA

FORMAT: Final = "penstock_ranges"

TASK_OFFSETS_MIN: Final = 20_000
"""The fewest offsets of a task, if the batch has so many: starting a task costs as much as reading
these, and each task writes a file."""

_SPARK_SCHEMA: Final = StructType(
    [
        StructField("address", StringType()),
        StructField("epoch", StringType()),
        StructField("start", LongType()),
        StructField("end", LongType()),
    ]
)
_SCHEMA: Final = pa.schema(
    [
        pa.field("address", pa.string()),
        pa.field("epoch", pa.string()),
        pa.field("start", pa.int64()),
        pa.field("end", pa.int64()),
    ]
)

Batches = Iterator[pa.RecordBatch]


def register(spark: SparkSession) -> None:
    """Register the format with a session, which becomes the active one of this thread.

    Spark registers a format with the active session, and looks it up in the session that reads.
    """
    java_class = SparkSession._get_j_spark_session_class(spark._jvm)  # noqa: SLF001
    java_class.setActiveSession(spark._jsparkSession)  # noqa: SLF001
    spark.dataSource.register(RangeSource)


class RangeSource(PenstockDataSource):
    """The `penstock_ranges` format: the options of `penstock`, and a row for each task."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns: address, epoch, and offsets `start` to `end` (excluded)."""
        parse_options(self.options)
        return _SPARK_SCHEMA

    def reader(self, schema: StructType) -> BatchReader:  # noqa: ARG002
        """Return the reader behind `spark.read`."""
        options = parse_options(self.options)
        options.check_batch()
        return _BatchRanges(options, [])

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: ARG002, N802  # Spark's name
        """Return the reader behind `spark.readStream`."""
        options = parse_options(self.options)
        options.check_stream()
        return _StreamRanges(options, [])


class _BatchRanges(BatchReader):
    task_offsets_min = TASK_OFFSETS_MIN

    def read(self, partition: InputPartition) -> Batches:
        return _range_as_batch(partition)


class _StreamRanges(StreamReader):
    task_offsets_min = TASK_OFFSETS_MIN

    def read(self, partition: InputPartition) -> Batches:
        return _range_as_batch(partition)


def _range_as_batch(partition: InputPartition) -> Batches:
    """Yield a range as a batch of one row; nothing for the partition that Spark adds to an empty
    plan."""
    if isinstance(partition, Range):
        fields = [{name: getattr(partition, name) for name in _SCHEMA.names}]
        yield pa.RecordBatch.from_pylist(fields, _SCHEMA)


class MessageRanges:
    """Messages that Spark knows only by their ranges of offsets.

    Args:
        frame: a row for each range, as the format returns it.
        options: the options of the format.
        columns: the columns of the messages that `map_in_arrow` reads.

    Attributes:
        frame: a row for each range.
    """

    def __init__(
        self,
        frame: DataFrame,
        options: Mapping[str, str],
        columns: Sequence[str] = STREAM_SCHEMA.names,
    ) -> None:
        self.frame = frame
        self._options = options
        self._columns = columns

    @classmethod
    def stream(
        cls, spark: SparkSession, options: Mapping[str, str], columns: Sequence[str]
    ) -> MessageRanges:
        """Return the ranges of a streaming query over the messages that the options select."""
        register(spark)
        return cls(spark.readStream.format(FORMAT).options(**options).load(), options, columns)

    @classmethod
    def read(
        cls, spark: SparkSession, options: Mapping[str, str], columns: Sequence[str]
    ) -> MessageRanges:
        """Return the ranges of the present messages that the options select."""
        register(spark)
        return cls(spark.read.format(FORMAT).options(**options).load(), options, columns)

    def batch(self, frame: DataFrame) -> MessageRanges:
        """Return the ranges in one batch of the streaming query."""
        return MessageRanges(frame, self._options, self._columns)

    def with_columns(self, columns: Sequence[str]) -> MessageRanges:
        """Return the same ranges, for reading these columns of the messages."""
        return MessageRanges(self.frame, self._options, columns)

    def from_offset(self, offset: int) -> MessageRanges:
        """Return the ranges without the messages before an offset."""
        later = self.frame.where(col("end") > lit(offset)).withColumn(
            "start", greatest("start", lit(offset))
        )
        return self.batch(later)

    def map_in_arrow(self, function: ArrowFunction, schema: str) -> DataFrame:
        """Return the rows that `function` makes of the messages, in each task in order of
        offset."""
        read = ReadRanges(self._options, self._columns)
        return map_in_arrow(self.frame, lambda ranges: function(read(ranges)), schema)

    def messages(self) -> DataFrame:
        """Return the messages as a DataFrame with all columns, for joins and other queries."""
        read = ReadRanges(self._options, STREAM_SCHEMA.names)
        return map_in_arrow(self.frame, read, SPARK_SCHEMA)


class ReadRanges:
    """Reads columns of the messages of ranges; a task runs it."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns

    def __call__(self, ranges: Batches) -> Batches:
        """Yield the messages, range by range."""
        reader = RangeReader(parse_options(self._options), [*self._columns])
        for batch in ranges:
            for fields in batch.to_pylist():
                yield from reader.read(Range(**fields))
