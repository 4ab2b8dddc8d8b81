"""Lets Spark find the `penstock` format by itself, without registration.

Spark looks through top-level packages named `pyspark_…` for a `DefaultSource`. Importing this is
all it does; the source lives in `penstock.spark.source`.
"""

from penstock.spark.source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
