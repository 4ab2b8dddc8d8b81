"""Assigns messages to a table without decoding them, in Spark's workers.

This module imports no decoder, so that workers that land messages unchanged start faster.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.spark.tables.columns import DATE
from penstock.spark.tables.landed_table import ROWS
from penstock.stream.rows import STREAM_SCHEMA


def with_date(messages: pa.Table) -> pa.Table:
    """Return the messages with the column `date`."""
    return messages.append_column(DATE, messages.column("received_at").cast(pa.date32()))


def unchanged_rows(messages: pa.Table) -> dict[str, pa.Table]:
    """Return the rows of messages that land unchanged, with their date."""
    return {ROWS: with_date(messages.cast(STREAM_SCHEMA))}
