"""Lands rows in a table with one row for each key: newer rows replace older ones.

    batch ──▶ newest row of each key ──┐
    files that have one of the keys  ──┴──▶ newest rows of both ──▶ new files ─┐ one commit
                     └────────────────────────────── removed ──────────────────┘

Files without any of the keys stay unchanged: the cost of a batch depends on the files that have its
keys. The table is the whole state, and says where the next batch begins, as any table does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from penstock.spark.derived.last_known import LastKnown, have_common_key
from penstock.spark.parquet_files import NewFile, write_files
from penstock.spark.plain_types import read_rows
from penstock.spark.ranges import MessageRanges
from penstock.spark.tables.columns import with_missing_columns
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.landed_table import (
    ROWS,
    Contents,
    Landed,
    Outcome,
    PlannedBatch,
    Selection,
)
from penstock.spark.tables.landing_target import LandingResult
from penstock.stream.rows import STREAM_SCHEMA

FILE_ROWS_MAX: Final = 100_000
"""Most rows of one file, in order of keys: a smaller file is rewritten by fewer batches."""


class ReplaceTarget:
    """The target of a derivation of the newest rows. For one thread at a time.

    Args:
        table: the table.
        derivation: computes the rows, and finds the newest ones.
        after_commit: called after each commit.

    Attributes:
        columns: the columns of messages that the derivation reads.
    """

    columns: Sequence[str] = STREAM_SCHEMA.names

    def __init__(
        self,
        table: DeltaMessageTable,
        derivation: LastKnown,
        after_commit: Callable[[], None] = lambda: None,
        before_batch: Callable[[], None] = lambda: None,
    ) -> None:
        self._before_batch = before_batch
        self._table = table
        self._derivation = derivation
        self._after_commit = after_commit
        self._keys: dict[str, pa.Table] = {}  # the keys of each file that was read

    def prepare(self, selection: Selection) -> None:
        """Add missing columns to the table; raise ConfigError if it has another selection."""
        self._table.prepare(selection)

    def landed(self, selection: Selection) -> Landed | None:
        """Return what has landed; None if landing has not begun."""
        return self._table.landed(selection)

    def epochs(self) -> tuple[str, ...]:
        """Return the epochs that the table has received, in that order; see `LandedTable`."""
        return self._table.epochs()

    def contents(self) -> Contents | None:
        """Return the contents of the table; None if it does not exist."""
        return self._table.contents()

    def reached(self, selection: Selection) -> Landed | None:
        """Return what has landed: a batch is one commit."""
        return self._table.landed(selection)

    def drop_unlanded(self, former: Selection) -> None:
        """Do nothing: a batch is one commit."""

    def move_end(self, batch: PlannedBatch) -> None:
        """Move the landed end over a range without messages, or to where landing begins."""
        self._table.commit(batch, [])

    def land(self, messages: MessageRanges, batch: PlannedBatch) -> LandingResult:
        """Replace older rows by the rows of one batch, in one attempt.

        Raises:
            TableError: the table cannot be written.
        """
        self._before_batch()
        found = self._derivation.derive(messages.messages()).toArrow()
        newest = self._derivation.newest(found.cast(self._derivation.rows_schema))
        replaced = self._files_with_keys(newest)
        files = self._write(newest, replaced, batch.seen)
        if not files and not replaced:  # no rows, or only removals of missing rows
            return LandingResult(None)
        outcome = self._table.commit(batch, files, replaced)
        if outcome is not Outcome.LANDED:
            return LandingResult(outcome)
        self._after_commit()
        return LandingResult(outcome, newest.num_rows)

    def _files_with_keys(self, newest: pa.Table) -> list[str]:
        """Return the paths of the files that have a key of these rows."""
        keys = self._derivation.newest.keys
        present = self._table.present_files()
        self._keys = {
            path: self._keys[path] if path in self._keys else self._read(path, keys)
            for path in present
        }
        return [path for path in present if have_common_key(self._keys[path], newest, keys)]

    def _write(self, newest: pa.Table, replaced: list[str], number: int) -> list[NewFile]:
        schema = newest.schema
        older = [
            with_missing_columns(
                with_missing_columns(self._read(path), self._table.layout.schema), schema
            )
            for path in replaced
        ]
        present = pa.concat_tables(older) if older else newest.slice(0, 0)
        merge_partials = self._derivation.to_table_rows(
            self._derivation.newest.after(present, newest)
        )
        layouts = {ROWS: self._table.layout}
        return [
            file
            for start in range(0, merge_partials.num_rows, FILE_ROWS_MAX)
            for file in write_files(
                layouts,
                f"part-{number:010d}",
                [{ROWS: merge_partials.slice(start, FILE_ROWS_MAX)}],
            )
        ]

    def _read(self, path: str, columns: tuple[str, ...] | None = None) -> pa.Table:
        found = read_rows(self._table.location / path, columns)
        return found if columns is None else found.select(columns)
