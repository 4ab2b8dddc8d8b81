"""Where one pass over messages lands: rows, and beside them what could not become rows.

    messages of a batch ──one pass──▶ files of rows          ─┐
                                  └─▶ files of dead letters ──┴─▶ commit dead letters, then rows

The invariant: *messages with rows + dead letters = messages*. Every message the pass reads has a
row (or several) in the one table or one line in the other, and never both. It holds at all times
below the offset that `landed_end` names, because:

* the pass puts each message in exactly one of the two, and always in the same one;
* dead letters are committed first, rows second, and only the second says how far the landing has
  come; it is made for every batch that had any message, also where all of them are dead letters
  (if they were buried by an attempt that was cut off, the next batch's commit says so);
* each commit is recognised by itself, by query and batch and by offset. After a crash between the
  two the batch is replayed: its dead letters are found to be there and left out, the others land.
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
"""Times one batch is written anew because another job landed part of it first."""


@dataclass(frozen=True, slots=True)
class Landed:
    """What became of a batch: rows and dead letters it added, and the offset after its last."""

    rows: int = 0
    dead_letters: int = 0
    end: int = 0
    is_replay: bool = False


class LandingPlace:
    """The tables that messages land in. For one thread at a time.

    Args:
        tables: those named `ROWS` and, unless all messages become rows, `DEAD_LETTERS`.
        split: which messages become rows of which.
        repeats: finds messages that were landed before, where the table wants none.
        after_commit: done when a batch has landed, such as putting small files together.
        columns: of the messages, those that the split looks at.
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
        """The ranges of the messages, which the tasks read themselves."""
        self._stream = Ranges.stream(spark, options, self._columns)
        return self._stream.frame

    def take_over(self, before: LandingPlace) -> None:
        """Land what the query of another place gives."""
        self._stream = before._stream

    def prepare(self, selection: Selection) -> None:
        """Refuse tables of other messages; add columns that they do not have yet."""
        for table in self._tables.values():
            table.prepare(selection)

    def landed_end(self, selection: Selection) -> int:
        """The offset after what has landed; 0 when nothing has."""
        return self.rows.landed_end(selection)

    def land(self, frame: DataFrame, batch: Batch) -> Landed:
        """Put one batch into the tables, unless it is there.

        Raises:
            TableError: a table cannot be written.
        """
        assert self._stream is not None, "a batch is one of the query"
        messages = self._stream.batch(frame)
        for _ in range(REWRITES_MAX):
            if self.rows.has_landed(batch):
                return Landed(is_replay=True)
            landed = self.rows.landed_end(batch.selection)
            buried = self.dead_letters.landed_end(batch.selection) if self.dead_letters else 0
            if landed:
                messages = messages.since(landed)
            files = (
                self.write(
                    self._without_buried(messages, batch.selection.epoch, landed), batch.batch_id
                )
                if buried > landed
                else self.write(messages, batch.batch_id)
            )
            if not files:  # nothing matched, or all of it has landed: no commit
                return Landed()
            rows, dead = (of_table(files, name) for name in (ROWS, DEAD_LETTERS))
            start = min(file.first_offset for file in files)
            end = max(file.last_offset for file in files) + 1
            if dead and self._bury(batch, dead, landed, buried) is Outcome.OVERTAKEN:
                continue
            if self.rows.commit(batch, rows, landed, end, start) is Outcome.LANDED:
                self._after_commit()
                return Landed(sum(f.rows for f in rows), sum(f.rows for f in dead), end)
        raise TableCommitFailed(
            f"batch {batch.batch_id} was overtaken {REWRITES_MAX} times by other jobs that land"
            f" the same messages in {self.rows.path}; run one of them only"
        )

    def write(
        self, messages: Ranges | DataFrame, batch_id: int, replaced: Span | None = None
    ) -> list[NewFile]:
        """Write files of both tables, which are part of neither yet.

        Args:
            messages: of a batch, or those of its rows that are to be written.
            batch_id: goes into the files' names.
            replaced: what the files will replace, for a backfill.
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
        """Those of the messages, which are of `span`, that landed and were taken out since."""
        tables = [table for table in (self.rows, self.dead_letters) if table is not None]
        return erased_messages(messages, tables, selection, span)

    def replace(self, span: Span, selection: Selection, files: list[NewFile]) -> None:
        """Take what the tables have of `span` out and `files` in.

        In this order, so that no message is ever in neither table: new dead letters are added,
        rows replaced, and only then are earlier dead letters taken out. Where it is cut off some
        are there twice, until it is done again.
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
                return  # the first ones, unless a landing has just made the table
        self.dead_letters.replace(Span(span.epoch, span.start, span.start), dead)

    def _bury(self, batch: Batch, dead: list[NewFile], landed: int, buried: int) -> Outcome:
        """Commit dead letters, which are not there yet."""
        assert self.dead_letters is not None
        end = max(buried, *(file.last_offset + 1 for file in dead))
        outcome = self.dead_letters.commit(batch, dead, buried, end)
        if outcome is Outcome.REPLAYED:  # an attempt before this one buried others of the batch
            rest = replace(batch, query_id=f"{batch.query_id}/{landed}/{buried}")
            outcome = self.dead_letters.commit(rest, dead, buried, end)
        return outcome

    def _without_buried(self, ranges: Ranges, epoch: str, landed: int) -> DataFrame:
        """The messages that are not dead letters of a batch whose rows were never committed.

        What is buried stays buried: the declaration may have changed since.
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
    """The files of one of the tables."""
    return [file for file in files if file.table == name]
