"""Makes the format `penstock` known to Spark without registration.

Spark imports every top-level package named `pyspark_…` and registers its `DefaultSource`. The data
source itself is defined in `penstock.spark.source`.
"""

from penstock.spark.source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
