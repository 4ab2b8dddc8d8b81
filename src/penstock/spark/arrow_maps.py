"""Functions over Arrow batches, without a word from PySpark about pandas, which they do not use."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What runs in a task: the batches of a partition to others."""


@contextmanager
def without_pandas() -> Iterator[None]:
    """PySpark warns of pandas 3 wherever a function could use pandas."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        yield


def map_in_arrow(frame: DataFrame, function: ArrowFunction, schema: StructType | str) -> DataFrame:
    """What `DataFrame.mapInArrow` gives."""
    with without_pandas():
        return frame.mapInArrow(function, schema)
