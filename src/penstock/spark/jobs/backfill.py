"""Reading a range of the log again, into a table that is past it.

For what a declaration has gained since the range landed (a column, a decoder that can do more), and
for messages before the offset at which the table began.

Exactly once means here: afterwards the tables have for each message of the range what landing it
now would give, once, and for all others what they had. The rows of the range are replaced in one
commit; its new dead letters are added in another before it, and the earlier ones taken out in a
third. Cut off in between, some messages are there twice and none is missing, and running it once
more mends it. The range ends where the landing job has come to at the most: that job lands what is
behind, and the two never meet.

Nothing is taken out of a table that was not read again before: what the log has lost, to retention
or to a repair, stays in the table as it is. And nothing is put in that somebody has taken out: the
log still has the messages of a device whose rows were erased (`penstock.spark.tables.erased`).
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
from penstock.spark.jobs.tables import RunSettings, landing_place
from penstock.spark.offsets import Position
from penstock.spark.options import service_options
from penstock.spark.ranges import Ranges
from penstock.spark.tables.api import DEAD_LETTERS, ROWS, Selection, Span
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.erased import Erased, counted
from penstock.spark.tables.evolving import with_present_types
from penstock.spark.tables.landing_target import of_table
from penstock.spark.topics import topics_text
from penstock.store.ranges import without
from penstock.stream.client import StreamClient, StreamOffsets

Point = int | datetime
"""An offset, or a time."""

_NAMED: Final = "offset long, topic string"


@dataclass(frozen=True, slots=True)
class Filled:
    """What a backfill did to one range.

    Attributes:
        span: the range it replaced.
        rows: what it has now.
        dead_letters: the same of the table beside it.
        erased: messages of it that somebody had taken out, which are left out or restored.
    """

    span: Span
    rows: int
    dead_letters: int
    erased: Erased | None = None


def backfill(
    spark: SparkSession,
    table: DeclaredTable,
    settings: RunSettings,
    start: Point,
    end: Point,
    *,
    restores_erased: bool = False,
) -> list[Filled]:
    """Replace what a table has of the messages from `start` up to and without `end`.

    Args:
        spark: the session.
        table: which.
        settings: where the log is.
        start: an offset, or a time.
        end: the same.
        restores_erased: whether messages that landed and were taken out of the table come back.

    Returns:
        What was replaced: one range, or several where a repair has given up what is between them
        and `fail_on_data_loss` is false.

    Raises:
        ConfigError: nothing of the range is in the log and behind what the table has landed.
        OffsetOutOfRange: the log has lost messages of the range, before or while it was read.
        TableError: a table cannot be written, or another job wrote it meanwhile.
        SparkFailed: Spark gave up.
    """
    table = with_present_types(table)
    definition = table.definition
    place = landing_place(table)
    with StreamClient(settings.server, settings.connect_timeout_s, settings.credentials) as client:
        log = client.offsets(definition.stream)
        selection = Selection(log.epoch, definition.stream, (table.topic_filter,))
        place.prepare(selection)
        landed_end = place.landed_end(selection)
        first = max(log.earliest, _offset(client, log, start))
        last = min(landed_end, _offset(client, log, end))
    parts = [(first, last)] if first < last else []
    if not settings.fail_on_data_loss:
        parts = without(first, last, log.given_up)
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
            gone = place.erased(named.map_in_arrow(_offsets_and_topics, _NAMED), selection, span)
            erased = counted(gone)
            rest = messages if erased is None or restores_erased else _without(messages, gone)
            files = place.write(rest, batch_id=0, replaced=span)
        except PySparkException as error:
            raise own_error(error, table.path / CHECKPOINT_NAME / LOG_NAME) from error
        place.replace(span, selection, files)
        rows, dead = (of_table(files, name) for name in (ROWS, DEAD_LETTERS))
        rows_count, dead_count = (sum(file.rows for file in found) for found in (rows, dead))
        filled.append(Filled(span, rows_count, dead_count, erased))
    return filled


def _messages(
    spark: SparkSession, table: DeclaredTable, settings: RunSettings, span: Span
) -> Ranges:
    """The messages of a range, all of them: one that has left the log meanwhile is an error."""
    options = {
        **service_options(settings.server, settings.credentials),
        "stream": table.definition.stream,
        "topics": topics_text([table.topic_filter]),
        "startingOffsets": Position.of_one(span.epoch, span.start).to_json(),
        "endingOffsets": Position.of_one(span.epoch, span.end).to_json(),
    }
    return Ranges.read(spark, options, table.sorting.columns)


def _without(messages: Ranges, gone: DataFrame) -> DataFrame:
    every = messages.messages()
    return every.join(gone, "offset", "left_anti").select(*every.columns)


def _offsets_and_topics(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(["offset", "topic"])


def _offset(client: StreamClient, log: StreamOffsets, point: Point) -> int:
    if isinstance(point, int):
        return point
    found = client.offset_at(log.stream, log.epoch, int(point.timestamp() * 1_000_000))
    return log.latest if found is None else found
