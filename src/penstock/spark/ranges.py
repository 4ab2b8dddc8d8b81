"""Messages that Spark knows only by their ranges of offsets: the task that writes them reads them.

    driver ──ranges──▶ Spark ──one for each task──▶ task ◀──Flight── stream service
                                                      └──Parquet──▶ files

Rows that pass through Spark on their way from a source to a function of Python cross four borders
between Python and Java, and are converted at three of them: from Arrow to Spark's rows, and back. A
job that needs the rows as Arrow columns does not need these conversions: only the numbers of the
ranges pass through Spark. The ranges are read by the source's own reader: the same range of offsets
always gives the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

from penstock.spark.arrow_maps import ArrowFunction, map_in_arrow
from penstock.spark.file_rows import rows_of_files
from penstock.spark.offsets import SINGLE_SERVER, LogPosition
from penstock.spark.options import parse_options
from penstock.spark.parquet_files import FILES_DDL, NewFile
from penstock.spark.schema import POSITION_SCHEMA, SPARK_SCHEMA
from penstock.spark.source import Range, RangeReader
from penstock.spark.storage.location import Location
from penstock.store.mark import NO_MARK, Mark
from penstock.stream.client import StreamOffsets
from penstock.stream.rows import STREAM_SCHEMA

TASK_OFFSETS_MIN: Final = 20_000
"""The fewest offsets of a task, if the batch has so many: starting a task costs as much as reading
these, and each task writes a file."""

Batches = Iterator[pa.RecordBatch]


class RangePlanner(RangeReader):
    """Splits ranges of one log into one for each task.

    Args:
        options: the options of the source, of one broker.
    """

    task_offsets_min = TASK_OFFSETS_MIN

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(parse_options(options), [])

    def plan(self, log: StreamOffsets, start: int, end: int, mark: Mark = NO_MARK) -> list[Range]:
        """Return the ranges from `start` up to, not including, `end`, whose mark is `mark`.

        Raises:
            OffsetOutOfRange: the log has lost the first of them, and the user does not accept that.
        """
        begin = self._skip_lost_rows(SINGLE_SERVER, LogPosition(log.epoch, start), log)
        parts = self._split(
            [self._range(SINGLE_SERVER, log.epoch, min(begin, end), end, (end, mark))]
        )
        return [part for part in parts if isinstance(part, Range)]

    def close(self) -> None:
        """Close the connections."""
        self._brokers.close()


class MessageRanges:
    """The messages of some ranges, for one session of Spark.

    Args:
        spark: the session.
        options: the options of the source.
        ranges: the ranges, one for each task.
        columns: the columns of the messages that `map_in_arrow` reads.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        ranges: Sequence[Range],
        columns: Sequence[str] = STREAM_SCHEMA.names,
    ) -> None:
        self._spark = spark
        self._options = options
        self._ranges = ranges
        self._columns = columns

    def with_columns(self, columns: Sequence[str]) -> MessageRanges:
        """Return the same ranges, for reading these columns of the messages."""
        return MessageRanges(self._spark, self._options, self._ranges, columns)

    def map_in_arrow(self, function: ArrowFunction, schema: str) -> DataFrame:
        """Return the rows that `function` makes of the messages, in each task in order of
        offset."""
        read = ReadRanges(self._options, self._ranges, self._columns)
        return map_in_arrow(self._numbers(), lambda numbers: function(read(numbers)), schema)

    def write(self, writer: ArrowFunction) -> list[NewFile]:
        """Run `writer` over the messages, and return the files that it has written."""
        return _collect_files(self.map_in_arrow(writer, FILES_DDL))

    def without_rows_of(self, files: Sequence[Location], epoch: str, start: int) -> WritableFrame:
        """Return the messages without those from offset `start` on of which `files` have a row."""
        rows = rows_of_files(self._spark, files, POSITION_SCHEMA)
        is_in_question = (col("epoch") == lit(epoch)) & (col("offset") >= lit(start))
        return self.without(rows.where(is_in_question).select("offset"))

    def without(self, offsets: DataFrame) -> WritableFrame:
        """Return the messages without those at these offsets."""
        messages = self.messages()
        remaining = messages.join(offsets, "offset", "left_anti").select(*messages.columns)
        return WritableFrame(remaining)

    def messages(self) -> DataFrame:
        """Return the messages as a DataFrame with all columns, for joins and other queries."""
        read = ReadRanges(self._options, self._ranges, STREAM_SCHEMA.names)
        return map_in_arrow(self._numbers(), read, SPARK_SCHEMA)

    def _numbers(self) -> DataFrame:
        """Return a DataFrame with the number of each range, in a partition of its own."""
        count = len(self._ranges)
        return self._spark.range(0, count, 1, max(1, count))


class WritableFrame:
    """A DataFrame, of messages or of a query's rows, that a function of Arrow writes."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def messages(self) -> DataFrame:
        """Return the DataFrame."""
        return self._frame

    def compute(self) -> None:
        """Compute all rows, for the state that comes of it, and write none."""
        self._frame.write.format("noop").mode("overwrite").save()

    def write(self, writer: ArrowFunction) -> list[NewFile]:
        """Run `writer` over the messages, and return the files that it has written."""
        return _collect_files(map_in_arrow(self._frame, writer, FILES_DDL))


def _collect_files(frame: DataFrame) -> list[NewFile]:
    return [NewFile(**row.asDict()) for row in frame.collect()]


class ReadRanges:
    """Reads columns of the messages of ranges; a task runs it."""

    def __init__(
        self, options: Mapping[str, str], ranges: Sequence[Range], columns: Sequence[str]
    ) -> None:
        self._options = options
        self._ranges = ranges
        self._columns = columns

    def __call__(self, numbers: Batches) -> Batches:
        """Yield the messages of the ranges with these numbers, range by range."""
        reader = RangeReader(parse_options(self._options), [*self._columns])
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from reader.read(self._ranges[number])
