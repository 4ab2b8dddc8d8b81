"""Lands messages in two tables at once: rows, and dead letters.

    messages of a batch ──one pass──▶ files of rows          ─┐
                                  └─▶ files of dead letters ──┴─▶ commit dead letters, then rows

The invariant: *messages with rows + dead letters = messages*. Each message that the pass reads has
one row or several in the first table, or one row in the second, and never both. The invariant holds
at all times below the landed end of the table of rows, because:

* the pass assigns each message to exactly one of the two, and always to the same one; * dead
letters are committed first, rows second, and only the second commit moves that landed end. It is
  made for each batch with messages, even if all of them are dead letters;
* each table takes a batch only if it still ends where it did when the batch was planned. After a
  crash between the two commits the range is planned again, perhaps with another end: messages whose
  dead letters are in the table are left out, and the others land.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

from pyspark.sql import DataFrame

from penstock.spark.arrow_maps import ArrowFunction
from penstock.spark.parquet_files import NewFile, Split, file_writer
from penstock.spark.ranges import WritableFrame
from penstock.spark.storage.location import Location
from penstock.spark.tables.erased import erased_messages
from penstock.spark.tables.landed_table import (
    DEAD_LETTERS,
    ROWS,
    Contents,
    Landed,
    LandedTable,
    Outcome,
    PlannedBatch,
    Selection,
    Span,
    TableError,
)
from penstock.spark.tables.repeats import Repeats
from penstock.spark.tables.rewriting import copy_files
from penstock.stream.rows import STREAM_SCHEMA


class Messages(Protocol):
    """Messages that a pass can write; `penstock.spark.ranges` has those that Spark reads."""

    def write(self, writer: ArrowFunction) -> list[NewFile]:
        """Run `writer` over the messages, and return the files that it has written."""

    def messages(self) -> DataFrame:
        """Return the messages as a DataFrame with all columns."""


class RangeOfMessages(Messages, Protocol):
    """The messages of a range of the log."""

    def without_rows_of(self, files: Sequence[Location], epoch: str, start: int) -> Messages:
        """Return the messages without those from offset `start` on of which `files` have a row."""


@dataclass(frozen=True, slots=True)
class LandingResult:
    """The result of landing a batch.

    Attributes:
        outcome: the outcome of the commit; None if no message matched, and nothing was committed.
        rows: the number of rows that were added.
        dead_letters: the number of dead letters that were added.
    """

    outcome: Outcome | None
    rows: int = 0
    dead_letters: int = 0


class LandingTarget:
    """The target of messages: a table of rows and, for decoded rows, one of dead letters.

    For one thread at a time.

    Args:
        tables: the tables `ROWS` and, unless all messages become rows, `DEAD_LETTERS`.
        split: assigns messages to these tables.
        repeats: finds repeated messages; None to land them like others.
        after_commit: called after each commit of rows, for example to merge small files.
        columns: the columns of messages that the split reads.
        before_write: called before each pass over messages, for what the split needs of the log.

    Attributes:
        columns: the columns of messages that the pass reads.
    """

    def __init__(
        self,
        tables: Mapping[str, LandedTable],
        split: Split,
        repeats: Repeats | None = None,
        after_commit: Callable[[], None] = lambda: None,
        columns: Sequence[str] = STREAM_SCHEMA.names,
        before_write: Callable[[], None] = lambda: None,
    ) -> None:
        self._before_write = before_write
        self.columns = columns
        self.rows = tables[ROWS]
        self.dead_letters = tables.get(DEAD_LETTERS)
        self._tables = tables
        self._split = split
        self._repeats = repeats
        self._after_commit = after_commit

    def prepare(self, selection: Selection) -> None:
        """Check the tables and add missing columns; see `LandedTable`."""
        for table in self._tables.values():
            table.prepare(selection)

    def landed(self, selection: Selection) -> Landed | None:
        """Return what has landed; None if landing has not begun.

        Raises:
            TableError: the table of dead letters lacks some that had landed.
        """
        landed = self.rows.landed(selection)
        if landed is not None and self.dead_letters is not None:
            end = self._dead_end(selection)
            if end < landed.dead_letters_end:
                raise TableError(
                    f"the dead letters in {self.dead_letters.location} are older than the rows"
                    f" in {self.rows.location}: those of offsets {end} to"
                    f" {landed.dead_letters_end - 1} may be missing. Put back the newest copy of"
                    " both tables, or remove both to land them anew from what is in the log"
                )
        return landed

    def epochs(self) -> tuple[str, ...]:
        """Return the epochs that the table has received, in that order; see `LandedTable`."""
        return self.rows.epochs()

    def contents(self) -> Contents | None:
        """Return the contents of the table of rows; None if it does not exist."""
        return self.rows.contents()

    def move_end(self, batch: PlannedBatch) -> None:
        """Move the landed end over a range without messages, or to where landing begins.

        If the table has moved since the batch was planned, nothing happens.
        """
        self.rows.commit(batch, [])

    def land(self, messages: RangeOfMessages, batch: PlannedBatch) -> LandingResult:
        """Land the messages of a batch, in one attempt.

        Raises:
            TableError: a table cannot be written.
        """
        selection = batch.selection
        dead = None if self.dead_letters is None else self.dead_letters.landed(selection)
        dead_end = 0 if dead is None else dead.end
        remaining: Messages = messages
        if self.dead_letters is not None and dead_end > batch.seen:
            # An attempt was interrupted. Its dead letters stay what they are, even if the
            # declaration has changed since.
            files_before = self.dead_letters.recent_files(timedelta.max)
            remaining = messages.without_rows_of(files_before, selection.epoch, batch.seen)
        files = self.write(remaining, batch.seen)
        if not files and dead_end <= batch.seen:
            return LandingResult(None)
        rows, dead_files = (files_of_table(files, name) for name in (ROWS, DEAD_LETTERS))
        if self.dead_letters is not None and dead_files:
            dead_batch = PlannedBatch(selection, dead_end, batch.end, mark=batch.mark)
            if dead is not None and dead_end > batch.end:
                dead_batch = replace(dead_batch, end=dead_end, mark=dead.mark)
            outcome = self.dead_letters.commit(dead_batch, dead_files)
            dead_end = dead_batch.end
        else:  # another job may have landed dead letters of these messages
            is_overtaken = self._dead_end(selection) != dead_end
            outcome = Outcome.OVERTAKEN if is_overtaken else Outcome.LANDED
        if outcome is Outcome.LANDED:
            outcome = self.rows.commit(
                replace(batch, dead_letters_end=min(dead_end, batch.end)), rows
            )
        if outcome is not Outcome.LANDED:
            return LandingResult(outcome)
        self._after_commit()
        return LandingResult(outcome, sum(f.rows for f in rows), sum(f.rows for f in dead_files))

    def reached(self, selection: Selection) -> Landed | None:
        """Return the furthest that either table has of a selection.

        Dead letters of an interrupted attempt lie beyond the landed end.
        """
        landed = self.rows.landed(selection)
        dead = None if self.dead_letters is None else self.dead_letters.landed(selection)
        if landed is None or dead is None or dead.end <= landed.end:
            return landed
        return dead

    def drop_unlanded(self, former: Selection) -> None:
        """Remove dead letters of a former epoch whose batch never landed.

        An attempt was interrupted. Their messages land, or become dead letters, in the present
        epoch, if the log still has them.
        """
        landed = self.rows.landed(former)
        end, dead_end = 0 if landed is None else landed.end, self._dead_end(former)
        if self.dead_letters is not None and dead_end > end:
            self.dead_letters.replace(Span(former.epoch, end, dead_end), [])
            self.dead_letters.commit(PlannedBatch(former, dead_end, end), [])

    def _dead_end(self, selection: Selection) -> int:
        """Return the offset after the last dead letter that may be in the table; 0 for none."""
        landed = None if self.dead_letters is None else self.dead_letters.landed(selection)
        return 0 if landed is None else landed.end

    def write(self, messages: Messages, number: int, replaced: Span | None = None) -> list[NewFile]:
        """Write messages to files of both tables, and return the files, which no commit names yet.

        Args:
            messages: the messages to write.
            number: the offset at which they begin, which is in the files' names for people.
            replaced: the range whose rows a backfill will replace by these files; else None.

        Raises:
            ConfigError: a table would get files in too many partitions.
        """
        self._before_write()
        if self._repeats is not None:
            identified = self._repeats.with_seen_at(messages.messages(), self.rows, replaced)
            messages = WritableFrame(identified)
        layouts = {name: table.layout for name, table in self._tables.items()}
        written = messages.write(file_writer(layouts, self._split, number))
        for name, layout in layouts.items():
            partitions = {file.partition for file in files_of_table(written, name)}
            layout.check_partitions(len(partitions))
        return written

    def erased(self, messages: DataFrame, selection: Selection, span: Span) -> DataFrame:
        """Return the messages of `span` that landed and whose rows were deleted.

        Args:
            messages: messages of the span, with the columns `offset` and `topic`.
            selection: the selection of the tables.
            span: a range that has landed.
        """
        tables = [table for table in (self.rows, self.dead_letters) if table is not None]
        return erased_messages(messages, tables, selection, span)

    def replace(self, span: Span, selection: Selection, files: list[NewFile]) -> None:
        """Replace the rows and dead letters of `span` by those in `files`.

        New dead letters are added first, then rows are replaced, and then old dead letters removed:
        so each message is in one of the tables at all times. If this is interrupted, some messages
        are in the tables twice, until it is run again.
        """
        rows, dead_files = (files_of_table(files, name) for name in (ROWS, DEAD_LETTERS))
        if self.dead_letters is None:
            self.rows.replace(span, rows, selection)
            return
        if dead_files:
            self._add_dead_letters(
                copy_files(dead_files, self.dead_letters.layout), span, selection
            )
        self.rows.replace(span, rows, selection)
        if self.dead_letters.contents() is not None:
            self.dead_letters.replace(span, dead_files)

    def _add_dead_letters(
        self, dead_files: list[NewFile], span: Span, selection: Selection
    ) -> None:
        assert self.dead_letters is not None
        if self.dead_letters.contents() is None:
            batch = PlannedBatch(selection, 0, span.end)
            if self.dead_letters.commit(batch, dead_files) is Outcome.LANDED:
                return  # this created the table; else a landing has just created it
        self.dead_letters.replace(Span(span.epoch, span.start, span.start), dead_files)


def files_of_table(files: Iterable[NewFile], name: str) -> list[NewFile]:
    """Return the files of the table with this name."""
    return [file for file in files if file.table == name]
