"""Reading a range of the log again, into a table that is past it.

For what a declaration has gained since the range landed (a column, a decoder that can do more), and
for messages before the offset at which the table began.

Exactly once means here: afterwards the tables have for each message of the range what landing it
now would give, once, and for all others what they had. The rows of the range are replaced in one
commit, and its dead letters in another before it; each can be done again, so that a backfill that
was cut off is mended by running it once more. The range ends where the landing job has come to at
the most: that job lands what is behind, and the two never meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import SparkSession

from penstock.errors import ConfigError
from penstock.spark import ranges
from penstock.spark.jobs.tables import RunSettings, landing_place
from penstock.spark.offsets import Position
from penstock.spark.options import service_options
from penstock.spark.tables.api import DEAD_LETTERS, ROWS, Selection, Span
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.landing_place import of_table
from penstock.stream.client import StreamClient, StreamOffsets

Point = int | datetime
"""An offset, or a time."""


@dataclass(frozen=True, slots=True)
class Filled:
    """What a backfill did: the range it replaced, and what it has now."""

    span: Span
    rows: int
    dead_letters: int


def backfill(
    spark: SparkSession, table: DeclaredTable, settings: RunSettings, start: Point, end: Point
) -> Filled:
    """Replace what a table has of the messages from `start` up to and without `end`.

    Raises:
        ConfigError: nothing of the range is in the log and behind what the table has landed.
        TableError: a table cannot be written, or another job wrote it meanwhile.
    """
    definition = table.definition
    place = landing_place(table)
    with StreamClient(settings.server, settings.connect_timeout_s, settings.credentials) as client:
        log = client.offsets(definition.stream)
        selection = Selection(log.epoch, definition.stream, (table.topic_filter,))
        place.prepare(selection)
        landed_end = place.landed_end(selection)
        first = max(log.earliest, _offset(client, log, start))
        last = min(landed_end, _offset(client, log, end))
    if first >= last:
        raise ConfigError(
            f"there is nothing to fill in: the log begins at offset {log.earliest}, and table"
            f" {definition.name} has landed all before offset {landed_end}"
        )
    span = Span(log.epoch, first, last)
    options = {
        **service_options(settings.server, settings.credentials),
        "stream": definition.stream,
        "topics": table.topic_filter,
        "startingOffsets": Position.of_one(log.epoch, first).to_json(),
        "endingOffsets": Position.of_one(log.epoch, last).to_json(),
        "failOnDataLoss": str(settings.fail_on_data_loss),
    }
    ranges.register(spark)
    frame = spark.read.format(ranges.FORMAT).options(**options).load()
    messages = ranges.Ranges(frame, options, place.columns)
    files = place.write(messages, batch_id=0, replaced=span)
    place.replace(span, selection, files)
    rows, dead = (of_table(files, name) for name in (ROWS, DEAD_LETTERS))
    return Filled(span, sum(f.rows for f in rows), sum(f.rows for f in dead))


def _offset(client: StreamClient, log: StreamOffsets, point: Point) -> int:
    if isinstance(point, int):
        return point
    found = client.offset_at(log.stream, log.epoch, int(point.timestamp() * 1_000_000))
    return log.latest if found is None else found
