"""Adds the rows of a stateful query to a table, each batch once.

    stream of messages ──operators, state──▶ rows of a batch ──▶ files ──▶ one commit

Spark stores the state of each batch in the checkpoint before the batch is done. A batch that is
repeated starts from the same state, reads the same messages, and so gives the same rows: the table
recognises the batch by query and number, and does not add its rows again. The batch must still be
computed, for the state that the next batch needs.

That holds only for the state which the table was computed with. With one that is missing, older
than the table (a copy that was put back, or a power cut: Spark does not sync it), or another
query's, a batch of the same number has other rows. So `check_state` compares before a query starts:

    table       query, last batch with rows, its end
    checkpoint  query, batches that were planned, the end of each; the last batch that the table had
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ConfigError
from penstock.spark.arrow_maps import ArrowFunction
from penstock.spark.checkpoints import (
    last_planned,
    note_batch,
    read_checkpoint,
    read_noted_batch,
    read_planned_end,
    read_query_id,
)
from penstock.spark.parquet_files import NewFile, file_writer
from penstock.spark.tables.landed_table import (
    ROWS,
    Contents,
    Landed,
    LandedTable,
    Outcome,
    PlannedBatch,
    QueryBatch,
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


class QueryRows(Protocol):
    """The rows of one micro-batch; `penstock.spark.ranges` has those of Spark."""

    def write(self, writer: ArrowFunction) -> list[NewFile]:
        """Run `writer` over the rows, and return the files that it has written."""

    def compute(self) -> None:
        """Compute all rows, for the state that comes of it, and write none."""


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
        """Move the landed end to where landing begins.

        Raises:
            ConfigError: the table has rows of messages that the log no longer has.
        """
        lost_from = [one.parts_at for one in batch.formers if one.parts_at is not None]
        if lost_from:
            raise self._refusal(
                f"it counts messages from offset {min(lost_from)} on that the log no longer"
                " has (an older copy of the data directory was put back?)"
            )
        self._table.commit(batch, [])

    def check_state(self, selection: Selection) -> None:
        """Compare the state of the query with the table.

        Raises:
            ConfigError: the state does not fit the table; the message says what to do.
        """
        landed = self._table.landed(selection)
        has_rows = landed is not None and landed.start != landed.end
        query_id = read_query_id(self._checkpoint)
        last = None if query_id is None else self._table.last_batch(query_id)
        noted = read_noted_batch(self._checkpoint)
        if read_checkpoint(self._checkpoint).planned is None:
            if has_rows:
                raise self._refusal(f"the state of its query is lost: {self._checkpoint} has none")
        elif noted > (-1 if last is None else last):
            raise self._refusal(
                f"it is older than the state of its query in {self._checkpoint}, and lacks rows"
                f" that the query added up to batch {noted}"
            )
        elif last is None:
            if has_rows:
                raise self._refusal(f"the state in {self._checkpoint} is that of another query")
        elif last > last_planned(self._checkpoint):
            raise self._refusal(
                f"the state of its query in {self._checkpoint} is older than it: the table has rows"
                f" of batch {last}, and the state is of batch {last_planned(self._checkpoint)}"
            )
        else:
            end = read_planned_end(self._checkpoint, last)
            if end is not None and landed is not None and end.single_log.offset != landed.end:
                raise self._refusal(
                    f"the state in {self._checkpoint} is not the one that it was computed with:"
                    f" batch {last} ends at offset {end.single_log.offset} there, and at"
                    f" {landed.end} in the table"
                )

    def _refusal(self, reason: str) -> ConfigError:
        return ConfigError(
            f"the table in {self._table.location} cannot be continued, because {reason}. Put back"
            f" the newest copy of both, or remove {self._table.location} to compute the table anew"
            " from what is in the log"
        )

    def land(self, rows: QueryRows, selection: Selection, query: QueryBatch) -> LandingResult:
        """Add the rows of one micro-batch to the table, unless the table has them already.

        Raises:
            TableError: the table cannot be written.
        """
        self._before_batch()
        last = self._table.last_batch(query.query_id)
        if last is not None and last >= query.batch_id:
            rows.compute()  # for the state
            return LandingResult(Outcome.REPLAYED)
        landed = self._table.landed(selection)
        seen = 0 if landed is None else landed.end
        planned = read_checkpoint(self._checkpoint).planned
        end = seen if planned is None else planned.single_log.offset
        writer = file_writer({ROWS: self._table.layout}, _all_rows, query.batch_id)
        files = rows.write(writer)
        if not files:
            return LandingResult(None)
        batch = PlannedBatch(selection, seen, end, query=query)
        if self._table.commit(batch, files) is not Outcome.LANDED:
            raise TableCommitFailed(
                f"batch {query.batch_id} was overtaken by another job that fills"
                f" {self._table.location}; run one of them only"
            )
        note_batch(self._checkpoint, query.batch_id)
        self._after_commit()
        return LandingResult(Outcome.LANDED, sum(file.rows for file in files))


def _all_rows(rows: pa.Table) -> Mapping[str, pa.Table]:
    return {ROWS: rows}
