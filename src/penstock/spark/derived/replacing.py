"""A table with one row for each key, which newer rows replace.

    batch ──▶ newest row of each key ──┐
    files that have one of the keys  ──┴──▶ newest rows of both ──▶ new files ─┐ one commit
                     └────────────────────────────── taken out ────────────────┘

Files without any of the keys stay as they are: the cost of a batch follows the files it touches. A
commit is recognised by query and batch, as that of any landing, and repeating it would change
nothing, because the newest row stays the newest. The table is the whole state, so a query continues
from it even with a new checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.checkpoints import read_checkpoint
from penstock.spark.derived.last_known import LastKnown, share_keys
from penstock.spark.parquet_files import NewFile, write_files
from penstock.spark.plain_types import read_rows
from penstock.spark.tables.api import ROWS, Batch, Outcome, Selection, TableCommitFailed
from penstock.spark.tables.columns import filled
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.landing_target import REWRITES_MAX, LandingResult

FILE_ROWS_MAX: Final = 100_000
"""Most rows of one file, in order of the keys: smaller files are touched by fewer batches."""


class ReplacedTable:
    """The target for the newest rows. For one thread at a time.

    Args:
        table: the table.
        derivation: gives the rows, and tells which is newer.
        checkpoint: the directory of the query's checkpoint.
        after_commit: called when a batch has landed.
    """

    def __init__(
        self,
        table: DeltaMessageTable,
        derivation: LastKnown,
        checkpoint: Path,
        after_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self._table = table
        self._derivation = derivation
        self._checkpoint = checkpoint
        self._after_commit = after_commit
        self._keys: dict[str, pa.Table] = {}  # the keys of each file that was read

    def query(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Return the derivation of the messages."""
        messages = spark.readStream.format("penstock").options(**options).load()
        return self._derivation.derive(messages)

    def prepare(self, selection: Selection) -> None:
        """Refuse a table of something else; add columns that the table does not have yet."""
        self._table.prepare(selection)

    def landed_end(self, selection: Selection) -> int:
        """Return the offset after the last in the table; 0 if there is none."""
        return self._table.landed_end(selection)

    def land(self, rows: DataFrame, batch: Batch) -> LandingResult:
        """Replace older rows by the rows of one batch, unless that was done.

        Raises:
            TableError: the table cannot be written.
        """
        if self._table.has_landed(batch):
            return LandingResult(is_replay=True)
        planned = read_checkpoint(self._checkpoint).planned
        end = 0 if planned is None else planned.only.offset
        found = rows.toArrow()
        newest = self._derivation.newest(found.cast(self._derivation.rows_schema))
        for _ in range(REWRITES_MAX):
            seen = self._table.landed_end(batch.selection)
            replaced = self._touched(newest)
            files = self._write(newest, replaced, batch.batch_id)
            if not files and not replaced:  # no rows, or only removals of rows that are not there
                return LandingResult(end=end)
            outcome = self._table.commit(batch, files, seen, max(seen, end), replaced=replaced)
            if outcome is not Outcome.OVERTAKEN:
                self._after_commit()
                return LandingResult(newest.num_rows, end=end)
        raise TableCommitFailed(
            f"batch {batch.batch_id} was overtaken {REWRITES_MAX} times by other jobs that change"
            f" {self._table.path}; run one of them only"
        )

    def _touched(self, newest: pa.Table) -> list[str]:
        """Return the files that have any of the keys."""
        keys = self._derivation.newest.keys
        present = self._table.present_files()
        self._keys = {
            path: self._keys[path] if path in self._keys else self._read(path, keys)
            for path in present
        }
        return [path for path in present if share_keys(self._keys[path], newest, keys)]

    def _write(self, newest: pa.Table, replaced: list[str], batch_id: int) -> list[NewFile]:
        schema = newest.schema
        older = (filled(self._read(path), self._table.layout.schema) for path in replaced)
        every = [*(filled(rows, schema) for rows in older), newest]
        merged = self._derivation.shown(self._derivation.newest(pa.concat_tables(every)))
        layouts = {ROWS: self._table.layout}
        return [
            file
            for start in range(0, merged.num_rows, FILE_ROWS_MAX)
            for file in write_files(
                layouts, f"part-{batch_id:010d}", [{ROWS: merged.slice(start, FILE_ROWS_MAX)}]
            )
        ]

    def _read(self, path: str, columns: tuple[str, ...] | None = None) -> pa.Table:
        found = read_rows(self._table.path / path, columns)
        return found if columns is None else found.select(columns)
