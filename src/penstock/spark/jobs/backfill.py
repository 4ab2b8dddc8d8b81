"""Reads a range of the log again, into a table that has landed beyond it.

It is for a declaration that has changed since the range landed (a new column, a better decoder),
and for messages before the offset at which the table began.

Exactly once means here: afterwards the tables have for each message of the range what landing it
now would give, once, and for all others what they had. The rows of the range are replaced in one
commit; its new dead letters are added in another before it, and the earlier ones taken out in a
third. Interrupted in between, some messages are there twice and none is missing, and running it
once more repairs it. The range ends at most where the landing job is: that job lands all later
messages, and the two never meet.

No row is removed from a table unless its message was read again: rows of messages that the log
lost, to retention or a repair, stay in the table. And no row is added that was deleted from the
table: the log still has the messages of a device whose rows were erased
(`penstock.spark.tables.erased`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ConfigError
from penstock.spark.failures import own_error
from penstock.spark.jobs.landing import CHECKPOINT_NAME, LOG_NAME
from penstock.spark.jobs.tables import RunSettings, landing_target
from penstock.spark.offsets import Position
from penstock.spark.options import service_options
from penstock.spark.ranges import Ranges
from penstock.spark.tables.api import DEAD_LETTERS, ROWS, Selection, Span
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.erased import ErasedMessages, summarize
from penstock.spark.tables.evolving import with_present_types
from penstock.spark.tables.landing_target import of_table
from penstock.spark.topics import topics_text
from penstock.store.ranges import subtract_ranges
from penstock.stream.client import StreamClient, StreamOffsets

Point = int | datetime
"""An offset, or a time."""

_NAMED: Final = "offset long, topic string"


@dataclass(frozen=True, slots=True)
class BackfilledRange:
    """The result of a backfill of one range.

    Attributes:
        span: the range that it replaced.
        rows: the number of its rows now.
        dead_letters: the number of its dead letters now.
        erased: messages of it that were deleted from the table, which are left out or restored.
    """

    span: Span
    rows: int
    dead_letters: int
    erased: ErasedMessages | None = None


def backfill(
    spark: SparkSession,
    table: DeclaredTable,
    settings: RunSettings,
    start: Point,
    end: Point,
    *,
    restores_erased: bool = False,
) -> list[BackfilledRange]:
    """Replace the rows of a table for the messages from `start` up to, not including, `end`.

    Args:
        spark: the session.
        table: the table.
        settings: how the log is reached.
        start: an offset, or a time.
        end: the same.
        restores_erased: whether messages that landed and were deleted from the table come back.

    Returns:
        The replaced ranges: one, or several if a repair has given up messages in between and
        `fail_on_data_loss` is false.

    Raises:
        ConfigError: no message of the range is in the log and has landed in the table.
        OffsetOutOfRange: the log has lost messages of the range, before or while it was read.
        TableError: a table cannot be written, or another job wrote it meanwhile.
        SparkFailed: Spark gave up.
    """
    table = with_present_types(table)
    definition = table.definition
    target = landing_target(table)
    with StreamClient(settings.server, settings.connect_timeout_s, settings.credentials) as client:
        log = client.offsets(definition.stream)
        selection = Selection(log.epoch, definition.stream, (table.topic_filter,))
        target.prepare(selection)
        landed_end = target.landed_end(selection)
        log = client.offsets(definition.stream, at_least=(log.epoch, landed_end))
        first = max(log.earliest, _offset(client, log, start))
        last = min(landed_end, _offset(client, log, end))
    parts = [(first, last)] if first < last else []
    if not settings.fail_on_data_loss:
        parts = subtract_ranges(first, last, log.given_up)
    if not parts:
        raise ConfigError(
            f"there is nothing to fill in: the log begins at offset {log.earliest}, and table"
            f" {definition.name} has landed all before offset {landed_end}"
        )
    filled = []
    for begin, stop in parts:
        span = Span(log.epoch, begin, stop)
        messages = _messages(spark, table, settings, span)
        named = messages.with_columns(["offset", "topic"])
        try:
            gone = target.erased(named.map_in_arrow(_offsets_and_topics, _NAMED), selection, span)
            erased = summarize(gone)
            rest = messages if erased is None or restores_erased else _without(messages, gone)
            files = target.write(rest, batch_id=0, replaced=span)
        except PySparkException as error:
            raise own_error(error, table.path / CHECKPOINT_NAME / LOG_NAME) from error
        target.replace(span, selection, files)
        rows, dead = (of_table(files, name) for name in (ROWS, DEAD_LETTERS))
        rows_count, dead_count = (sum(file.rows for file in found) for found in (rows, dead))
        filled.append(BackfilledRange(span, rows_count, dead_count, erased))
    return filled


def _messages(
    spark: SparkSession, table: DeclaredTable, settings: RunSettings, span: Span
) -> Ranges:
    """Return all messages of a range; one that has left the log meanwhile is an error."""
    options = {
        **service_options(settings.server, settings.credentials),
        "stream": table.definition.stream,
        "topics": topics_text([table.topic_filter]),
        "startingOffsets": Position.of_one(span.epoch, span.start).to_json(),
        "endingOffsets": Position.of_one(span.epoch, span.end).to_json(),
    }
    return Ranges.read(spark, options, table.split.columns)


def _without(messages: Ranges, gone: DataFrame) -> DataFrame:
    every = messages.messages()
    return every.join(gone, "offset", "left_anti").select(*every.columns)


def _offsets_and_topics(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(["offset", "topic"])


def _offset(client: StreamClient, log: StreamOffsets, point: Point) -> int:
    if isinstance(point, int):
        return point
    found = client.offset_at(log.stream, log.epoch, int(point.timestamp() * 1_000_000), log.latest)
    return log.latest if found is None else found
