"""Finds messages that landed and are no longer in the table, because their rows were deleted.

    landed.start            landed.end
        │ all of these landed   │
    ────┼───────────────────────┼────▶ offset
        └ each has a row or a dead letter, unless it was erased

Data of a person may have to be erased by law. When a range is landed again, erased messages are
left out and reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, count, lit
from pyspark.sql.functions import max as largest
from pyspark.sql.functions import min as smallest

from penstock.spark.file_rows import rows_of_files
from penstock.spark.schema import POSITION_SCHEMA
from penstock.spark.tables.landed_table import LandedTable, Selection, Span

TOPICS_NAMED_MAX: Final = 5
"""Most topics of erased messages that are reported by name."""


@dataclass(frozen=True, slots=True)
class ErasedMessages:
    """Messages of a range that were deleted from the tables.

    Attributes:
        messages: the number of messages.
        first: the smallest offset.
        last: the largest offset.
        topics: the topics with most messages, and the number of messages of each.
        topics_count: the number of topics.
    """

    messages: int
    first: int
    last: int
    topics: tuple[tuple[str, int], ...]
    topics_count: int


def erased_messages(
    messages: DataFrame, tables: Sequence[LandedTable], selection: Selection, span: Span
) -> DataFrame:
    """Return the rows of `messages` that landed and are in none of the tables.

    Args:
        messages: the messages of `span`, with the columns `offset` and `topic` at least.
        tables: the table of rows, and that of dead letters if there is one.
        selection: the selection of the tables.
        span: a range that has landed.
    """
    present = _present(messages, tables, span)
    landed = tables[0].landed(selection)
    start = None if landed is None else landed.start
    if start is None:  # a table of an older version: use its first row
        found = [row[0] for row in present.agg(smallest("offset")).collect()]
        start = span.end if found[0] is None else found[0]
    after_start = messages.where(col("offset") >= lit(start))
    return after_start.join(present, "offset", "left_anti")


def summarize(erased: DataFrame) -> ErasedMessages | None:
    """Return a summary of erased messages, which have `offset` and `topic`; None without any."""
    by_topic = erased.groupBy("topic").agg(
        count(lit(1)).alias("messages"),
        smallest("offset").alias("first"),
        largest("offset").alias("last"),
    )
    found = sorted(by_topic.collect(), key=lambda row: (-row["messages"], row["topic"]))
    if not found:
        return None
    return ErasedMessages(
        messages=sum(row["messages"] for row in found),
        first=min(row["first"] for row in found),
        last=max(row["last"] for row in found),
        topics=tuple((row["topic"], row["messages"]) for row in found[:TOPICS_NAMED_MAX]),
        topics_count=len(found),
    )


def _present(messages: DataFrame, tables: Sequence[LandedTable], span: Span) -> DataFrame:
    """Return the offsets of the span that are in any of the tables."""
    files = [file for table in tables for file in table.recent_files(timedelta.max)]
    if not files:
        return messages.select("offset").where(lit(False))
    rows = rows_of_files(messages.sparkSession, files, POSITION_SCHEMA)
    is_inside = (col("epoch") == lit(span.epoch)) & col("offset").between(span.start, span.end - 1)
    return rows.where(is_inside).select("offset").distinct()
