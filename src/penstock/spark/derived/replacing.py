"""Lands rows in a table with one row for each key: newer rows replace older ones.

    batch ──▶ newest row of each key ──┐
    files that have one of the keys  ──┴──▶ newest rows of both ──▶ new files ─┐ one commit
                     └────────────────────────────── removed ──────────────────┘

Files without any of the keys stay unchanged: the cost of a batch depends on the files that have its
keys. A commit is recognised by query and batch, as for any table, and repeating it would change
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
from penstock.spark.derived.last_known import LastKnown, have_common_key
from penstock.spark.parquet_files import NewFile, write_files
from penstock.spark.plain_types import read_rows
from penstock.spark.tables.api import ROWS, Batch, Outcome, Selection, TableCommitFailed
from penstock.spark.tables.columns import with_missing_columns
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.landing_target import REWRITES_MAX, LandingResult

FILE_ROWS_MAX: Final = 100_000
"""Most rows of one file, in order of keys: a smaller file is rewritten by fewer batches."""


class ReplaceTarget:
    """The target of a derivation of the newest rows. For one thread at a time.

    Args:
        table: the table.
        derivation: computes the rows, and finds the newest ones.
        checkpoint: the directory of the query's checkpoint.
        after_commit: called after each commit.
    """

    def __init__(
        self,
        table: DeltaMessageTable,
        derivation: LastKnown,
        checkpoint: Path,
        after_commit: Callable[[], None] = lambda: None,
        before_batch: Callable[[], None] = lambda: None,
    ) -> None:
        self._before_batch = before_batch
        self._table = table
        self._derivation = derivation
        self._checkpoint = checkpoint
        self._after_commit = after_commit
        self._keys: dict[str, pa.Table] = {}  # the keys of each file that was read

    def query(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Return the stream of candidates, of the messages that these options select."""
        messages = spark.readStream.format("penstock").options(**options).load()
        return self._derivation.derive(messages)

    def prepare(self, selection: Selection) -> None:
        """Add missing columns to the table; raise ConfigError if it has another selection."""
        self._table.prepare(selection)

    def landed_end(self, selection: Selection) -> int:
        """Return the offset after the last landed message; 0 if none has landed."""
        return self._table.landed_end(selection)

    def land(self, rows: DataFrame, batch: Batch) -> LandingResult:
        """Replace older rows by the rows of one batch, unless the batch has landed already.

        Raises:
            TableError: the table cannot be written.
        """
        self._before_batch()
        if self._table.has_landed(batch):
            return LandingResult(is_replay=True)
        planned = read_checkpoint(self._checkpoint).planned
        end = 0 if planned is None else planned.single_log.offset
        found = rows.toArrow()
        newest = self._derivation.newest(found.cast(self._derivation.rows_schema))
        for _ in range(REWRITES_MAX):
            seen = self._table.landed_end(batch.selection)
            replaced = self._files_with_keys(newest)
            files = self._write(newest, replaced, batch.batch_id)
            if not files and not replaced:  # no rows, or only removals of missing rows
                return LandingResult(end=end)
            outcome = self._table.commit(batch, files, seen, max(seen, end), replaced=replaced)
            if outcome is not Outcome.OVERTAKEN:
                self._after_commit()
                return LandingResult(newest.num_rows, end=end)
        raise TableCommitFailed(
            f"batch {batch.batch_id} was overtaken {REWRITES_MAX} times by other jobs that change"
            f" {self._table.path}; run one of them only"
        )

    def _files_with_keys(self, newest: pa.Table) -> list[str]:
        """Return the paths of the files that have a key of these rows."""
        keys = self._derivation.newest.keys
        present = self._table.present_files()
        self._keys = {
            path: self._keys[path] if path in self._keys else self._read(path, keys)
            for path in present
        }
        return [path for path in present if have_common_key(self._keys[path], newest, keys)]

    def _write(self, newest: pa.Table, replaced: list[str], batch_id: int) -> list[NewFile]:
        schema = newest.schema
        older = (
            with_missing_columns(self._read(path), self._table.layout.schema) for path in replaced
        )
        tables = [*(with_missing_columns(rows, schema) for rows in older), newest]
        merge_partials = self._derivation.to_table_rows(
            self._derivation.newest(pa.concat_tables(tables))
        )
        layouts = {ROWS: self._table.layout}
        return [
            file
            for start in range(0, merge_partials.num_rows, FILE_ROWS_MAX)
            for file in write_files(
                layouts,
                f"part-{batch_id:010d}",
                [{ROWS: merge_partials.slice(start, FILE_ROWS_MAX)}],
            )
        ]

    def _read(self, path: str, columns: tuple[str, ...] | None = None) -> pa.Table:
        found = read_rows(self._table.path / path, columns)
        return found if columns is None else found.select(columns)
