"""Functions over Arrow batches, without PySpark's warnings about pandas, which they do not use."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function that a task runs: the batches of a partition to other batches."""


@contextmanager
def without_pandas() -> Iterator[None]:
    """Silence PySpark's warning about pandas 3, which it gives wherever a function could use it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        yield


def map_in_arrow(frame: DataFrame, function: ArrowFunction, schema: StructType | str) -> DataFrame:
    """Return `DataFrame.mapInArrow` of this function."""
    with without_pandas():
        return frame.mapInArrow(function, schema)
