"""Splits assign messages to tables. They run in Spark's workers.

These need no decoder, so that workers which land messages unchanged import none.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.spark.tables.api import ROWS
from penstock.spark.tables.columns import DATE
from penstock.stream.rows import STREAM_SCHEMA


def with_date(messages: pa.Table) -> pa.Table:
    """Return the messages with the column `date`."""
    return messages.append_column(DATE, messages.column("received_at").cast(pa.date32()))


def undecoded(messages: pa.Table) -> dict[str, pa.Table]:
    """Split messages for a table that takes them unchanged."""
    return {ROWS: with_date(messages.cast(STREAM_SCHEMA))}
