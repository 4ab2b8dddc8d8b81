"""Rows of a table's files as a DataFrame, also where Spark's Java cannot read them.

Java reads files of a disk. For an object store it would need a connector that PySpark does not
bring (hadoop-aws), with credentials of its own; there tasks of Python read the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.spark.arrow_maps import map_in_arrow
from penstock.spark.plain_types import read_rows
from penstock.spark.storage.local import LocalLocation
from penstock.spark.storage.location import Location


def rows_of_files(spark: SparkSession, files: Sequence[Location], schema: StructType) -> DataFrame:
    """Return these columns of Parquet files; a file that lacks one has nulls there.

    Args:
        spark: the session.
        files: the files, at least one.
        schema: the columns, with the types that they have in the files.
    """
    if all(isinstance(file, LocalLocation) for file in files):
        return spark.read.schema(schema).parquet(*map(str, files))
    numbers = spark.range(0, len(files), 1, len(files))
    arrow_schema = to_arrow_schema(schema, timezone=spark.conf.get("spark.sql.session.timeZone"))
    return map_in_arrow(numbers, _FileReader(files, arrow_schema), schema)


class _FileReader:
    """Reads the files with the numbers that it is given."""

    def __init__(self, files: Sequence[Location], schema: pa.Schema) -> None:
        self._files = files
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._rows(self._files[number]).to_batches()

    def _rows(self, file: Location) -> pa.Table:
        found = read_rows(file, self._schema.names)
        columns = [
            found.column(field.name).cast(field.type)
            if field.name in found.column_names
            else pa.nulls(found.num_rows, field.type)
            for field in self._schema
        ]
        return pa.table(columns, schema=self._schema)
