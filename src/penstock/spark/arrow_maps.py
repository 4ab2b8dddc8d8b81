"""Functions over Arrow batches, without PySpark's warnings about pandas, which they do not use."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function that a task runs: it takes the batches of a partition, and yields other batches."""


@contextmanager
def without_pandas_warning() -> Iterator[None]:
    """Silence PySpark's warning about pandas 3 for the time of a `with` block."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        yield


def map_in_arrow(frame: DataFrame, function: ArrowFunction, schema: StructType | str) -> DataFrame:
    """Return the DataFrame that `DataFrame.mapInArrow` makes, without the warning about pandas."""
    with without_pandas_warning():
        return frame.mapInArrow(function, schema)
