"""Penstock: an MQTT broker with a durable log, and a pipeline from it to tables on Apache Spark.

Acknowledged means on disk; on disk means in the table, exactly once. The packages below this
one are layers, and imports point down only: docs/architecture.md has the picture.
"""

from typing import Final

__version__: Final = "0.1.0"

__all__ = ["__version__"]
