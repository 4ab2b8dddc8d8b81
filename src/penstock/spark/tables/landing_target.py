"""Lands messages in two tables at once: rows, and dead letters.

    messages of a batch ──one pass──▶ files of rows          ─┐
                                  └─▶ files of dead letters ──┴─▶ commit dead letters, then rows

The invariant: *messages with rows + dead letters = messages*. Each message that the pass reads has
one row or several in the first table, or one row in the second, and never both. The invariant holds
at all times below the offset that `landed_end` returns, because:

* the pass assigns each message to exactly one of the two, and always to the same one; * dead
letters are committed first, rows second, and only the second commit moves `landed_end`. It is
  made for each batch with messages, even if all of them are dead letters (if an interrupted attempt
  has committed those, the commit of the next batch moves `landed_end`);
* each table recognises a commit by query and batch, and by offset. After a crash between the two
  commits the batch is replayed: dead letters that are in the table are left out, and the other
  messages land.
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
from penstock.spark.ranges import MessageRanges
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
from penstock.spark.tables.rewriting import copy_files
from penstock.stream.rows import STREAM_SCHEMA

REWRITES_MAX: Final = 10
"""Most times that a batch is written because other jobs have landed a part of it first."""


@dataclass(frozen=True, slots=True)
class LandingResult:
    """The result of landing a batch.

    Attributes:
        rows: the number of rows that were added.
        dead_letters: the number of dead letters that were added.
        end: the offset after the last message of the batch; 0 if there was no commit.
        is_replay: whether the table had the batch already.
    """

    rows: int = 0
    dead_letters: int = 0
    end: int = 0
    is_replay: bool = False


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
        self._columns = columns
        self._stream: MessageRanges | None = None
        self.rows = tables[ROWS]
        self.dead_letters = tables.get(DEAD_LETTERS)
        self._tables = tables
        self._split = split
        self._repeats = repeats
        self._after_commit = after_commit

    def query(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Return the streaming query of ranges of messages, which the tasks read themselves."""
        self._stream = MessageRanges.stream(spark, options, self._columns)
        return self._stream.frame

    def adopt_query(self, earlier: LandingTarget) -> None:
        """Land the batches of another target's query instead of an own one."""
        self._stream = earlier._stream

    def prepare(self, selection: Selection) -> None:
        """Check the tables and add missing columns; see `LandedTable`."""
        for table in self._tables.values():
            table.prepare(selection)

    def landed_end(self, selection: Selection) -> int:
        """Return the offset after the last landed message; 0 if none has landed."""
        return self.rows.landed_end(selection)

    def land(self, frame: DataFrame, batch: Batch) -> LandingResult:
        """Land one batch of the query in the tables, unless it has landed already.

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
                messages = messages.from_offset(landed)
            files = (
                self.write(
                    self._without_dead_letters(messages, batch.selection.epoch, landed),
                    batch.batch_id,
                )
                if dead_end > landed
                else self.write(messages, batch.batch_id)
            )
            if not files:  # no message matched, or all have landed
                return LandingResult()
            rows, dead_files = (files_of_table(files, name) for name in (ROWS, DEAD_LETTERS))
            start = min(file.first_offset for file in files)
            end = max(file.last_offset for file in files) + 1
            if (
                dead_files
                and self._commit_dead_letters(batch, dead_files, landed, dead_end)
                is Outcome.OVERTAKEN
            ):
                continue
            if self.rows.commit(batch, rows, landed, end, start) is Outcome.LANDED:
                self._after_commit()
                return LandingResult(
                    sum(f.rows for f in rows), sum(f.rows for f in dead_files), end
                )
        raise TableCommitFailed(
            f"batch {batch.batch_id} was overtaken {REWRITES_MAX} times by other jobs that land"
            f" the same messages in {self.rows.path}; run one of them only"
        )

    def write(
        self, messages: MessageRanges | DataFrame, batch_id: int, replaced: Span | None = None
    ) -> list[NewFile]:
        """Write messages to files of both tables, and return the files, which no commit names yet.

        Args:
            messages: the messages to write.
            batch_id: the number of the batch, which is in the files' names.
            replaced: the range whose rows a backfill will replace by these files; else None.

        Raises:
            ConfigError: a table would get files in too many partitions.
        """
        self._before_write()
        if self._repeats is not None:
            found = messages.messages() if isinstance(messages, MessageRanges) else messages
            messages = self._repeats.with_seen_at(found, self.rows, replaced)
        layouts = {name: table.layout for name, table in self._tables.items()}
        writer = file_writer(layouts, self._split, batch_id)
        if isinstance(messages, MessageRanges):
            files = messages.map_in_arrow(writer, FILES_DDL)
        else:
            files = map_in_arrow(messages, writer, FILES_DDL)
        written = [NewFile(**row.asDict()) for row in files.collect()]
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
            batch = Batch(f"backfill/{span.start}", 0, selection)
            if self.dead_letters.commit(batch, dead_files, 0, span.end) is Outcome.LANDED:
                return  # this created the table; else a landing has just created it
        self.dead_letters.replace(Span(span.epoch, span.start, span.start), dead_files)

    def _commit_dead_letters(
        self, batch: Batch, dead_files: list[NewFile], landed: int, dead_end: int
    ) -> Outcome:
        """Commit those dead letters of a batch that the table does not have yet."""
        assert self.dead_letters is not None
        end = max(dead_end, *(file.last_offset + 1 for file in dead_files))
        outcome = self.dead_letters.commit(batch, dead_files, dead_end, end)
        if outcome is Outcome.REPLAYED:  # an earlier attempt has committed others of the batch
            second_batch = replace(batch, query_id=f"{batch.query_id}/{landed}/{dead_end}")
            outcome = self.dead_letters.commit(second_batch, dead_files, dead_end, end)
        return outcome

    def _without_dead_letters(self, ranges: MessageRanges, epoch: str, landed: int) -> DataFrame:
        """Return the messages without those whose dead letters were committed, but no rows.

        Such a message stays a dead letter, even if the declaration has changed since.
        """
        assert self.dead_letters is not None
        messages = ranges.messages()
        files = self.dead_letters.recent_files(timedelta.max)
        dead_files = messages.sparkSession.read.schema("epoch string, offset long").parquet(
            *map(str, files)
        )
        is_in_question = (col("epoch") == lit(epoch)) & (col("offset") >= lit(landed))
        offsets = dead_files.where(is_in_question).select("offset")
        return messages.join(offsets, "offset", "left_anti").select(*messages.columns)


def files_of_table(files: Iterable[NewFile], name: str) -> list[NewFile]:
    """Return the files of the table with this name."""
    return [file for file in files if file.table == name]
