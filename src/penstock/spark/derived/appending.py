"""Adds the rows of a stateful query to a table, each batch once.

    stream of messages ──operators, state──▶ rows of a batch ──▶ files ──▶ one commit

Spark stores the state of each batch in the checkpoint before the batch is done. A batch that is
repeated starts from the same state, reads the same messages, and so gives the same rows: the table
recognises the batch by query and number, and does not add its rows again. The batch must still be
computed, for the state that the next batch needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ConfigError
from penstock.spark.arrow_maps import map_in_arrow
from penstock.spark.checkpoints import read_checkpoint
from penstock.spark.parquet_files import FILES_DDL, NewFile, file_writer
from penstock.spark.tables.api import (
    ROWS,
    Batch,
    LandedTable,
    Outcome,
    Selection,
    TableCommitFailed,
)
from penstock.spark.tables.landing_target import LandingResult

STATE_SETTINGS: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
"""Spark's settings for stateful queries: RocksDB has their state, most of it on disk."""


class AppendTarget:
    """The target of a derivation that adds rows. For one thread at a time.

    Args:
        table: the table.
        derive: returns the stream of rows for a stream of messages.
        checkpoint: the directory of the query's checkpoint, with its state.
        after_commit: called after each commit of rows.
        before_batch: called before each batch is decoded, for what that needs of the log.
    """

    def __init__(
        self,
        table: LandedTable,
        derive: Callable[[DataFrame], DataFrame],
        checkpoint: Path,
        after_commit: Callable[[], None] = lambda: None,
        before_batch: Callable[[], None] = lambda: None,
    ) -> None:
        self._before_batch = before_batch
        self._derive = derive
        self._table = table
        self._checkpoint = checkpoint
        self._after_commit = after_commit

    def query(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Return the stream of rows, of the messages that these options of the source select."""
        messages = spark.readStream.format("penstock").options(**options).load()
        return self._derive(messages)

    def prepare(self, selection: Selection) -> None:
        """Prepare the table.

        Raises:
            ConfigError: the table has another selection, or rows although the state is missing.
        """
        self._table.prepare(selection)
        has_state = read_checkpoint(self._checkpoint).planned is not None
        if self._table.contents() is not None and not has_state:
            raise ConfigError(
                f"the table in {self._table.path} was computed by a query whose state is lost:"
                f" {self._checkpoint} is empty; remove {self._table.path} to compute it anew from"
                " the log"
            )

    def landed_end(self, selection: Selection) -> int:
        """Return the offset after the last landed message; 0 if none has landed."""
        return self._table.landed_end(selection)

    def land(self, rows: DataFrame, batch: Batch) -> LandingResult:
        """Add the rows of one batch to the table, unless the table has them already.

        Raises:
            TableError: the table cannot be written.
        """
        self._before_batch()
        if self._table.has_landed(batch):
            rows.write.format("noop").mode("overwrite").save()  # only to compute the state
            return LandingResult(is_replay=True)
        seen = self._table.landed_end(batch.selection)
        planned = read_checkpoint(self._checkpoint).planned
        end = seen if planned is None else planned.single_log.offset
        writer = file_writer({ROWS: self._table.layout}, _all_rows, batch.batch_id)
        written = map_in_arrow(rows, writer, FILES_DDL).collect()
        files = [NewFile(**row.asDict()) for row in written]
        if not files:
            return LandingResult(end=end)
        if self._table.commit(batch, files, seen, end) is not Outcome.LANDED:
            raise TableCommitFailed(
                f"batch {batch.batch_id} was overtaken by another job that fills"
                f" {self._table.path}; run one of them only"
            )
        self._after_commit()
        return LandingResult(sum(file.rows for file in files), end=end)


def _all_rows(rows: pa.Table) -> Mapping[str, pa.Table]:
    return {ROWS: rows}
