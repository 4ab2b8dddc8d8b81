"""Splits: which messages become rows of which table. They run in Spark's workers.

Here are those that need no decoder, so that workers which land messages as they are import none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.parquet_files import Split
from penstock.spark.tables.api import DEAD_LETTERS, ROWS
from penstock.spark.tables.columns import DATE
from penstock.stream.rows import STREAM_SCHEMA


def with_date(messages: pa.Table) -> pa.Table:
    """The messages with the column `date`."""
    return messages.append_column(DATE, messages.column("received_at").cast(pa.date32()))


def undecoded(messages: pa.Table) -> dict[str, pa.Table]:
    """The split of a table that takes messages as they are."""
    return {ROWS: with_date(messages.cast(STREAM_SCHEMA))}


@dataclass(frozen=True, slots=True)
class Later:
    """A split that leaves out dead letters before an offset."""

    split: Split
    dead_letters_from: int

    def __call__(self, messages: pa.Table) -> Mapping[str, pa.Table]:
        """The rows of each table."""
        parts = dict(self.split(messages))
        if self.dead_letters_from and DEAD_LETTERS in parts:
            dead = parts[DEAD_LETTERS]
            is_new = pc.greater_equal(dead.column("offset"), self.dead_letters_from)
            parts[DEAD_LETTERS] = dead.filter(is_new)
        return parts
