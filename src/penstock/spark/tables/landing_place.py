"""Where one pass over messages lands: rows, and beside them what could not become rows.

    messages of a batch ──one pass──▶ files of rows          ─┐
                                  └─▶ files of dead letters ──┴─▶ commit dead letters, then rows

The invariant: *messages with rows + dead letters = messages*. Every message the pass reads has a
row (or several) in the one table or one line in the other, and never both. It holds at all times
below the offset that `landed_end` names, because:

* the pass puts each message in exactly one of the two, and always in the same one;
* dead letters are committed first, rows second, and only the second says how far the landing has
  come; it is made for every batch that had any message, also where all of them are dead letters;
* each commit is recognised by itself, by query and batch and by offset. After a crash between the
  two the batch is replayed: its dead letters are found to be there, its rows are committed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit

from penstock.spark.parquet_files import FILES_DDL, NewFile, Split, file_writer
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
from penstock.spark.tables.repeats import Repeats
from penstock.spark.tables.splits import Later

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
    """

    def __init__(
        self,
        tables: Mapping[str, LandedTable],
        split: Split,
        repeats: Repeats | None = None,
        after_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self.rows = tables[ROWS]
        self.dead_letters = tables.get(DEAD_LETTERS)
        self._tables = tables
        self._split = split
        self._repeats = repeats
        self._after_commit = after_commit

    def prepare(self, selection: Selection) -> None:
        """Refuse tables of other messages; add columns that they do not have yet."""
        for table in self._tables.values():
            table.prepare(selection)

    def landed_end(self, selection: Selection) -> int:
        """The offset after what has landed; 0 when nothing has."""
        return self.rows.landed_end(selection)

    def land(self, messages: DataFrame, batch: Batch) -> Landed:
        """Put one batch into the tables, unless it is there.

        Raises:
            TableError: a table cannot be written.
        """
        for _ in range(REWRITES_MAX):
            if self.rows.has_landed(batch):
                return Landed(is_replay=True)
            landed = self.rows.landed_end(batch.selection)
            buried = self.dead_letters.landed_end(batch.selection) if self.dead_letters else 0
            files = self.write(_from(messages, landed), batch.batch_id, buried)
            if not files:  # nothing matched, or all of it has landed: no commit
                return Landed()
            start = min(file.first_offset for file in files)
            end = max(file.last_offset for file in files) + 1
            dead = [file for file in files if file.table == DEAD_LETTERS]
            if self._bury(batch, dead) is Outcome.OVERTAKEN:
                continue
            rows = [file for file in files if file.table == ROWS]
            if self.rows.commit(batch, rows, start, end) is Outcome.LANDED:
                self._after_commit()
                return Landed(sum(f.rows for f in rows), sum(f.rows for f in dead), end)
        raise TableCommitFailed(
            f"batch {batch.batch_id} was overtaken {REWRITES_MAX} times by other jobs that land"
            f" the same messages in {self.rows.path}; run one of them only"
        )

    def write(
        self,
        messages: DataFrame,
        batch_id: int,
        dead_letters_from: int = 0,
        replaced: Span | None = None,
    ) -> list[NewFile]:
        """Write files of both tables, which are part of neither yet.

        Args:
            messages: of a batch.
            batch_id: goes into the files' names.
            dead_letters_from: dead letters of offsets before this are there already.
            replaced: what the files will replace, for a backfill.
        """
        if self._repeats is not None:
            messages = self._repeats.marked(messages, self.rows, replaced)
        layouts = {name: table.layout for name, table in self._tables.items()}
        writer = file_writer(layouts, Later(self._split, dead_letters_from), batch_id)
        with warnings.catch_warnings():
            # pyspark warns of pandas 3 here, though mapInArrow has no use for pandas.
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
            found = messages.mapInArrow(writer, FILES_DDL).collect()
        return [NewFile(**row.asDict()) for row in found]

    def _bury(self, batch: Batch, files: list[NewFile]) -> Outcome:
        if self.dead_letters is None or not files:
            return Outcome.LANDED
        start = min(file.first_offset for file in files)
        end = max(file.last_offset for file in files) + 1
        return self.dead_letters.commit(batch, files, start, end)


def _from(messages: DataFrame, offset: int) -> DataFrame:
    return messages.where(col("offset") >= lit(offset)) if offset else messages
