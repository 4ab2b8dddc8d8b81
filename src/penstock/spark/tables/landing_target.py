"""The tables that one pass over messages fills: rows, and beside them dead letters.

    messages of a batch ──one pass──▶ files of rows          ─┐
                                  └─▶ files of dead letters ──┴─▶ commit dead letters, then rows

The invariant: *messages with rows + dead letters = messages*. Every message that the pass reads has
a row (or several) in the one table or one line in the other, and never both. It holds at all times
below the offset that `landed_end` names, because:

* the pass puts each message in exactly one of the two, and always in the same one;
* dead letters are committed first, rows second, and only the second says how far the landing has
  come; it is made for every batch that had any message, also where all of them are dead letters
  (if an interrupted attempt committed them, the next batch's commit says so);
* each commit is recognised by itself, by query and batch and by offset. After a crash between the
  two the batch is replayed: its dead letters are found in the table and left out, the rest lands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

from penstock.spark.arrow_maps import map_in_arrow
from penstock.spark.parquet_files import (
    FILES_DDL,
    NewFile,
    Split,
    file_writer,
)
from penstock.spark.ranges import Ranges
from penstock.spark.tables.api import (
    DEAD_LETTERS,
    ROWS,
    Batch,
    LandedTable,
    Outcome,
    Selection,
    Span,
    TableCommitFailed,
)
from penstock.spark.tables.erased import erased_messages
from penstock.spark.tables.repeats import Repeats
from penstock.spark.tables.rewriting import copied
from penstock.stream.rows import STREAM_SCHEMA

REWRITES_MAX: Final = 10
"""Times that one batch is rewritten because another job landed part of it first."""


@dataclass(frozen=True, slots=True)
class LandingResult:
    """The result of landing a batch: rows and dead letters added, and the offset after its last."""

    rows: int = 0
    dead_letters: int = 0
    end: int = 0
    is_replay: bool = False


class LandingTarget:
    """The tables in which messages land. For one thread at a time.

    Args:
        tables: the tables named `ROWS` and, unless all messages become rows, `DEAD_LETTERS`.
        split: assigns messages to these tables.
        repeats: finds messages that have landed before; None if the table takes them.
        after_commit: called when a batch has landed, for example to merge small files.
        columns: the columns of messages that the split reads.
    """

    def __init__(
        self,
        tables: Mapping[str, LandedTable],
        split: Split,
        repeats: Repeats | None = None,
        after_commit: Callable[[], None] = lambda: None,
        columns: Sequence[str] = STREAM_SCHEMA.names,
    ) -> None:
        self._columns = columns
        self._stream: Ranges | None = None
        self.rows = tables[ROWS]
        self.dead_letters = tables.get(DEAD_LETTERS)
        self._tables = tables
        self._split = split
        self._repeats = repeats
        self._after_commit = after_commit

    def query(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Return the ranges of the messages, which the tasks read themselves."""
        self._stream = Ranges.stream(spark, options, self._columns)
        return self._stream.frame

    def take_over(self, before: LandingTarget) -> None:
        """Land the rows of another target's query."""
        self._stream = before._stream

    def prepare(self, selection: Selection) -> None:
        """Refuse tables of other messages; add missing columns."""
        for table in self._tables.values():
            table.prepare(selection)

    def landed_end(self, selection: Selection) -> int:
        """Return the offset after the last that landed; 0 if none did."""
        return self.rows.landed_end(selection)

    def land(self, frame: DataFrame, batch: Batch) -> LandingResult:
        """Land one batch in the tables, unless it is there.

        Raises:
            TableError: a table cannot be written.
        """
        assert self._stream is not None, "a batch is one of the query"
        messages = self._stream.batch(frame)
        for _ in range(REWRITES_MAX):
            if self.rows.has_landed(batch):
                return LandingResult(is_replay=True)
            landed = self.rows.landed_end(batch.selection)
            dead_end = self.dead_letters.landed_end(batch.selection) if self.dead_letters else 0
            if landed:
                messages = messages.since(landed)
            files = (
                self.write(
                    self._without_dead_letters(messages, batch.selection.epoch, landed),
                    batch.batch_id,
                )
                if dead_end > landed
                else self.write(messages, batch.batch_id)
            )
            if not files:  # no message matched, or all have landed: no commit
                return LandingResult()
            rows, dead = (of_table(files, name) for name in (ROWS, DEAD_LETTERS))
            start = min(file.first_offset for file in files)
            end = max(file.last_offset for file in files) + 1
            if (
                dead
                and self._commit_dead_letters(batch, dead, landed, dead_end) is Outcome.OVERTAKEN
            ):
                continue
            if self.rows.commit(batch, rows, landed, end, start) is Outcome.LANDED:
                self._after_commit()
                return LandingResult(sum(f.rows for f in rows), sum(f.rows for f in dead), end)
        raise TableCommitFailed(
            f"batch {batch.batch_id} was overtaken {REWRITES_MAX} times by other jobs that land"
            f" the same messages in {self.rows.path}; run one of them only"
        )

    def write(
        self, messages: Ranges | DataFrame, batch_id: int, replaced: Span | None = None
    ) -> list[NewFile]:
        """Write files of both tables, not yet part of either, and return them.

        Args:
            messages: the messages of a batch, or the ones to write.
            batch_id: part of the files' names.
            replaced: the range that the files will replace, for a backfill.
        """
        if self._repeats is not None:
            found = messages.messages() if isinstance(messages, Ranges) else messages
            messages = self._repeats.marked(found, self.rows, replaced)
        layouts = {name: table.layout for name, table in self._tables.items()}
        writer = file_writer(layouts, self._split, batch_id)
        if isinstance(messages, Ranges):
            files = messages.map_in_arrow(writer, FILES_DDL)
        else:
            files = map_in_arrow(messages, writer, FILES_DDL)
        written = [NewFile(**row.asDict()) for row in files.collect()]
        for name, layout in layouts.items():
            partitions = {file.partition for file in of_table(written, name)}
            layout.check_partitions(len(partitions))
        return written

    def erased(self, messages: DataFrame, selection: Selection, span: Span) -> DataFrame:
        """Return the messages of `span` that landed and were deleted since."""
        tables = [table for table in (self.rows, self.dead_letters) if table is not None]
        return erased_messages(messages, tables, selection, span)

    def replace(self, span: Span, selection: Selection, files: list[NewFile]) -> None:
        """Remove the rows of `span` from the tables and add `files`.

        In this order, so that no message is ever in neither table: new dead letters are added, rows
        replaced, and only then are earlier dead letters removed. If it is interrupted, some are
        there twice, until it is run again.
        """
        rows, dead = (of_table(files, name) for name in (ROWS, DEAD_LETTERS))
        if self.dead_letters is None:
            self.rows.replace(span, rows, selection)
            return
        if dead:
            self._add_dead_letters(copied(dead, self.dead_letters.layout), span, selection)
        self.rows.replace(span, rows, selection)
        if self.dead_letters.contents() is not None:
            self.dead_letters.replace(span, dead)

    def _add_dead_letters(self, dead: list[NewFile], span: Span, selection: Selection) -> None:
        assert self.dead_letters is not None
        if self.dead_letters.contents() is None:
            batch = Batch(f"backfill/{span.start}", 0, selection)
            if self.dead_letters.commit(batch, dead, 0, span.end) is Outcome.LANDED:
                return  # the first ones, unless a landing has just created the table
        self.dead_letters.replace(Span(span.epoch, span.start, span.start), dead)

    def _commit_dead_letters(
        self, batch: Batch, dead: list[NewFile], landed: int, dead_end: int
    ) -> Outcome:
        """Commit dead letters that are not in the table yet."""
        assert self.dead_letters is not None
        end = max(dead_end, *(file.last_offset + 1 for file in dead))
        outcome = self.dead_letters.commit(batch, dead, dead_end, end)
        if outcome is Outcome.REPLAYED:  # an earlier attempt committed others of the batch
            rest = replace(batch, query_id=f"{batch.query_id}/{landed}/{dead_end}")
            outcome = self.dead_letters.commit(rest, dead, dead_end, end)
        return outcome

    def _without_dead_letters(self, ranges: Ranges, epoch: str, landed: int) -> DataFrame:
        """Return the messages without dead letters of a batch whose rows were never committed.

        A dead letter stays one, even if the declaration has changed since.
        """
        assert self.dead_letters is not None
        messages = ranges.messages()
        files = self.dead_letters.recent_files(timedelta.max)
        dead = messages.sparkSession.read.schema("epoch string, offset long").parquet(
            *map(str, files)
        )
        is_in_question = (col("epoch") == lit(epoch)) & (col("offset") >= lit(landed))
        offsets = dead.where(is_in_question).select("offset")
        return messages.join(offsets, "offset", "left_anti").select(*messages.columns)


def of_table(files: Iterable[NewFile], name: str) -> list[NewFile]:
    """Return the files of one of the tables."""
    return [file for file in files if file.table == name]
