"""Lands a range of the log again, in a table that has landed beyond the range.

A backfill is for a declaration that has changed since the range landed (a new column, a better
decoder), and for messages before the offset at which the table began.

Afterwards the tables have, exactly once, the rows or dead letter that each message of the range
becomes now, and for all other messages what they had before. The rows of the range are replaced in
one commit; new dead letters of the range are added in a commit before that, and its old ones
removed in a commit after that. If a backfill is interrupted, some messages are in the tables twice
and none is missing; running it again repairs this. The range ends at the latest at the position of
the landing job, which lands all later messages: the two never write the same range. If the table
has landed in several epochs of the log, as after a restore, the range begins where landing began in
the present one: the messages before that have their rows under another epoch.

Rows of messages that the log has lost, to retention or a repair, stay in the table. Rows that were
deleted from the table are not added again, although the log still has their messages, such as those
of a device whose rows were erased (`penstock.spark.tables.erased`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.errors import ConfigError
from penstock.spark.failures import translate_spark_error
from penstock.spark.jobs.settings import LOG_NAME
from penstock.spark.jobs.tables import RunSettings, landing_target
from penstock.spark.options import service_options
from penstock.spark.ranges import MessageRanges, RangePlanner
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.erased import ErasedMessages, summarize
from penstock.spark.tables.evolving import with_present_types
from penstock.spark.tables.landed_table import DEAD_LETTERS, ROWS, Selection, Span
from penstock.spark.tables.landing_target import files_of_table
from penstock.spark.topics import topics_text
from penstock.store.ranges import subtract_ranges
from penstock.stream.client import StreamClient, StreamOffsets

OffsetOrTime = int | datetime
"""The start or end of a range: an offset, or a time of receipt."""

_OFFSETS_AND_TOPICS_DDL: Final = "offset long, topic string"


@dataclass(frozen=True, slots=True)
class BackfilledRange:
    """The result of a backfill of one range.

    Attributes:
        span: the range.
        rows: the number of rows that the range has now.
        dead_letters: the number of dead letters that the range has now.
        erased: messages of the range whose rows were deleted, and then left out or restored; None
            if there are none.
    """

    span: Span
    rows: int
    dead_letters: int
    erased: ErasedMessages | None = None


def backfill(
    spark: SparkSession,
    table: DeclaredTable,
    settings: RunSettings,
    start: OffsetOrTime,
    end: OffsetOrTime,
    *,
    restores_erased: bool = False,
) -> list[BackfilledRange]:
    """Replace the rows of a table for the messages from `start` up to, not including, `end`.

    Args:
        spark: the session.
        table: the table.
        settings: the settings for reading the log.
        start: the first message.
        end: the message after the last.
        restores_erased: whether messages whose rows were deleted from the table land again.

    Returns:
        The replaced ranges: one, or several if a repair has given up messages in between and
        `fail_on_data_loss` is false.

    Raises:
        ConfigError: no message of the range is in the log and has landed in the table.
        OffsetOutOfRange: the log has lost messages of the range.
        TableError: a table cannot be written, or another job wrote to it at the same time.
        SparkFailed: a query of Spark failed.
    """
    table = with_present_types(table)
    definition = table.definition
    target = landing_target(table, settings)
    with settings.connect() as client:
        log = client.offsets(definition.stream)
        selection = Selection(log.epoch, definition.stream, (table.topic_filter,))
        target.prepare(selection)
        landed = target.landed(selection)
        landed_end = 0 if landed is None else landed.end
        log = client.offsets(definition.stream, at_least=(log.epoch, landed_end))
        begin = log.earliest
        if landed is not None and {*target.epochs()} - {log.epoch}:
            begin = max(begin, landed.start or 0)
        first = max(begin, _find_offset(client, log, start))
        last = min(landed_end, _find_offset(client, log, end))
    parts = [(first, last)] if first < last else []
    if not settings.fail_on_data_loss:
        parts = subtract_ranges(first, last, log.given_up)
    if not parts:
        raise ConfigError(
            f"there is nothing to fill in: in epoch {log.epoch} table {definition.name} can be"
            f" filled from offset {begin} on, and has landed all before offset {landed_end}"
        )
    results = []
    for start_offset, end_offset in parts:
        span = Span(log.epoch, start_offset, end_offset)
        messages = _messages(spark, table, settings, log, span)
        offsets_and_topics = messages.with_columns(["offset", "topic"])
        try:
            erased_offsets = target.erased(
                offsets_and_topics.map_in_arrow(_offsets_and_topics, _OFFSETS_AND_TOPICS_DDL),
                selection,
                span,
            )
            erased = summarize(erased_offsets)
            remaining = (
                messages if erased is None or restores_erased else messages.without(erased_offsets)
            )
            files = target.write(remaining, span.start, replaced=span)
        except (PySparkException, Py4JError) as error:
            raise translate_spark_error(error, table.job_dir / LOG_NAME) from error
        target.replace(span, selection, files)
        rows, dead_letters = (files_of_table(files, name) for name in (ROWS, DEAD_LETTERS))
        rows_count, dead_count = (
            sum(file.rows for file in found) for found in (rows, dead_letters)
        )
        results.append(BackfilledRange(span, rows_count, dead_count, erased))
    return results


def _messages(
    spark: SparkSession,
    table: DeclaredTable,
    settings: RunSettings,
    log: StreamOffsets,
    span: Span,
) -> MessageRanges:
    """Return the messages of a range; reading fails if the log loses one of them."""
    options = {
        **service_options(settings.server, settings.credentials),
        "stream": table.definition.stream,
        "topics": topics_text([table.topic_filter]),
    }
    ranges = RangePlanner(options).plan(log, span.start, span.end)
    return MessageRanges(spark, options, ranges, table.split.columns)


def _offsets_and_topics(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(["offset", "topic"])


def _find_offset(client: StreamClient, log: StreamOffsets, point: OffsetOrTime) -> int:
    if isinstance(point, int):
        return point
    found = client.offset_at(log.stream, log.epoch, int(point.timestamp() * 1_000_000), log.latest)
    return log.latest if found is None else found
