"""The Delta table of messages, and its commit: each batch once, each offset once.

The driver commits with the `deltalake` package; no Spark extension and no jar takes part. One
commit holds the batch's files and two application transactions, which Delta keeps in the table's
own log:

    penstock-query:<query id>                    version = batch id            (0 is a version)
    penstock-log:<epoch>/<stream>/<topics>       version = offset after the last row landed

The first answers "is this batch in the table already?" when Spark replays one after a crash; the
first commit, which creates the table, carries it too. The second answers "which offsets are?"
whoever asks: a job with a new checkpoint, or a second job on the same table. Rows below it are
never landed again.

    not landed ──commit──▶ landed
         │ ▲                  ▲
         │ └─conflict: reload─┤        another writer came first: look again, then try again
         └────error───────────┴──?──▶ unknown: the commit may or may not have happened

A commit that failed and a commit whose fate is unknown are different errors. Neither deletes a
file: if the commit did happen, its files are part of the table. On restart Spark replays the batch
and the table itself says whether it is there.

What the table says is believed only once it is on disk: the deltalake package syncs nothing, and a
commit seen here may have been written by an attempt that was killed a moment later. Spark, told
that its batch has landed, would never send it again. So every look at the table first syncs what is
new in its log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions

from penstock.errors import ConfigError, PenstockError
from penstock.spark.parquet_files import PARTITION_COLUMN, NewFile, sync
from penstock.stream.rows import STREAM_SCHEMA

TABLE_SCHEMA: Final = STREAM_SCHEMA.append(pa.field(PARTITION_COLUMN, pa.date32()))
"""The columns of the table: those of the stream, and the UTC date of `received_at`."""

COMMIT_ATTEMPTS_MAX: Final = 10
"""Times a batch's files are offered to the table while other writers come first."""

_LOG_DIRECTORY: Final = "_delta_log"
_MISREAD: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\\#?]")


class TableError(PenstockError):
    """The table cannot do what was asked."""


class TableCommitFailed(TableError):
    """The batch was not committed. It is safe to try again."""


class TableCommitUnknown(TableError):
    """Nobody can tell now whether the batch was committed; the table will say, once readable."""


class Outcome(Enum):
    """What became of a commit that ended without an error."""

    LANDED = "the batch is in the table, by this commit"
    REPLAYED = "the batch was in the table before"
    OVERTAKEN = "another job has landed some of the batch's offsets: leave those rows out"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages a table holds: those of a stream, or of some topics of it, of one epoch."""

    epoch: str
    stream: str
    topics: tuple[str, ...] = ()

    @property
    def transaction_id(self) -> str:
        """Names the landed offsets in the table's log."""
        return f"penstock-log:{self.epoch}/{self.stream}/{_topics_text(self.topics)}"

    @property
    def description(self) -> str:
        """What the table says about itself; the same for every epoch."""
        return f"MQTT messages of stream {self.stream}, topics {_topics_text(self.topics)}"


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of one Spark query."""

    query_id: str
    batch_id: int
    selection: Selection

    @property
    def transaction_id(self) -> str:
        """Names the query in the table's log. Its id is in the checkpoint and survives restarts."""
        return f"penstock-query:{self.query_id}"


def table_directory(path: Path) -> Path:
    """The absolute form of `path`.

    Raises:
        ConfigError: the deltalake package would look for the table elsewhere: it takes some
            characters of a path as it would in a URL.
    """
    absolute = path.absolute()
    misread = _MISREAD.search(str(absolute))
    if misread is not None:
        raise ConfigError(
            f"the table's directory {absolute} has {misread.group()} in its path, which the Delta"
            " library reads as part of a URL; choose another directory"
        )
    return absolute


class MessageTable:
    """A Delta table of messages at `path`, which need not exist yet. For one thread at a time.

    Raises:
        ConfigError: no table can be at `path`.
    """

    def __init__(self, path: Path) -> None:
        self.path = table_directory(path)
        self._delta: DeltaTable | None = None
        self._synced: set[tuple[str, int, int]] = set()
        """Files of the table's log that are on disk: name, size, time of change (ns)."""

    def exists(self) -> bool:
        """Whether the table has been created."""
        return self._refresh() is not None

    def check_holds(self, selection: Selection) -> None:
        """Raise ConfigError when the table was made for other messages than `selection`."""
        self._check_holds(self._refresh(), selection)

    def _check_holds(self, delta: DeltaTable | None, selection: Selection) -> None:
        if delta is None:
            return
        found = delta.metadata().description or "something that Penstock did not land"
        if found != selection.description:
            raise ConfigError(
                f"the table in {self.path} holds {found}; land {selection.description} in another"
                " one"
            )

    def has_landed(self, batch: Batch) -> bool:
        """Whether the batch is in the table, on disk."""
        return _has_landed(self._refresh(), batch)

    def landed_end(self, selection: Selection) -> int:
        """The offset after the last row landed, and on disk; 0 when none is."""
        return _landed_end(self._refresh(), selection)

    def commit(self, batch: Batch, files: Sequence[NewFile]) -> Outcome:
        """Make `files` part of the table, in one step, unless the batch is in it already.

        Raises:
            ConfigError: another job has made the table, for other messages.
            TableCommitFailed: it did not happen.
            TableCommitUnknown: it may have happened.
        """
        first = min(file.first_offset for file in files)
        error: Exception | None = None
        for _ in range(COMMIT_ATTEMPTS_MAX):
            # One look, and the commit is refused if anything came after it.
            delta = self._refresh()
            self._check_holds(delta, batch.selection)  # who creates the table says what it holds
            if _has_landed(delta, batch):
                return Outcome.REPLAYED
            if _landed_end(delta, batch.selection) > first:
                return Outcome.OVERTAKEN
            try:
                self._write(batch, files)
            except DeltaError as conflict:  # refused by the table's log, or by the disk below it
                error = conflict
                continue
            except Exception as failure:
                return self._settle(batch, failure)
            try:
                self._sync_log()
            except OSError as failure:
                raise self._unknown(batch, failure) from failure
            return Outcome.LANDED
        raise TableCommitFailed(
            f"batch {batch.batch_id} could not be committed to {self.path}: {error}"
        ) from error

    def _settle(self, batch: Batch, failure: Exception) -> Outcome:
        """After an error that does not say whether the commit happened: ask the table."""
        try:
            landed = self.has_landed(batch)
        except TableError:
            landed = False
        if landed:
            return Outcome.LANDED
        raise self._unknown(batch, failure) from failure

    def _unknown(self, batch: Batch, failure: Exception) -> TableCommitUnknown:
        return TableCommitUnknown(
            f"it is not known whether batch {batch.batch_id} was committed to {self.path}"
            f" ({failure}); run the job again, it will find out"
        )

    def _write(self, batch: Batch, files: Sequence[NewFile]) -> None:
        selection = batch.selection
        end = max(file.last_offset for file in files) + 1
        properties = CommitProperties(
            # No retries below us: deltalake would repeat the commit that creates a table on top
            # of another writer's without looking at transactions.
            max_commit_retries=0,
            app_transactions=[
                Transaction(batch.transaction_id, batch.batch_id),
                Transaction(selection.transaction_id, end),
            ],
            custom_metadata={
                "penstock.queryId": batch.query_id,
                "penstock.batchId": batch.batch_id,
                "penstock.epoch": selection.epoch,
                "penstock.stream": selection.stream,
                "penstock.endOffset": end,
            },
        )
        actions = [_add_action(file) for file in files]
        schema = Schema.from_arrow(TABLE_SCHEMA)
        if self._delta is None:
            create_table_with_add_actions(
                str(self.path),
                schema,
                actions,
                mode="error",
                partition_by=[PARTITION_COLUMN],
                name=self.path.name,
                description=selection.description,
                commit_properties=properties,
            )
        else:
            self._delta.create_write_transaction(
                [*actions], "append", schema, [PARTITION_COLUMN], commit_properties=properties
            )

    def _refresh(self) -> DeltaTable | None:
        """The table as it is now, on disk; None when there is none yet."""
        try:
            if self._delta is not None:
                self._delta.update_incremental()
            elif (self.path / _LOG_DIRECTORY).is_dir():
                self._delta = DeltaTable(self.path)
            if self._delta is not None:
                self._sync_log()
        except TableNotFoundError:
            return None
        except Exception as error:  # deltalake raises OSError, DeltaError and others
            raise TableError(f"the table in {self.path} cannot be read: {error}") from error
        return self._delta

    def _sync_log(self) -> None:
        """Have the table's log on disk, whoever wrote it, as far as it is not known to be."""
        log = self.path / _LOG_DIRECTORY
        found: set[tuple[str, int, int]] = set()
        with os.scandir(log) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another writer's, unfinished, or cleaned up
                    stat = entry.stat()
                    found.add((entry.name, stat.st_size, stat.st_mtime_ns))
        new = found - self._synced
        for name, _, _ in sorted(new):
            with suppress(FileNotFoundError):
                sync(log / name)
        if new:
            sync(log)
        if not self._synced:
            sync(self.path)
            sync(self.path.parent)
        self._synced = found


def _has_landed(delta: DeltaTable | None, batch: Batch) -> bool:
    version = None if delta is None else delta.transaction_version(batch.transaction_id)
    return version is not None and version >= batch.batch_id


def _landed_end(delta: DeltaTable | None, selection: Selection) -> int:
    return (delta.transaction_version(selection.transaction_id) or 0) if delta else 0


def _add_action(file: NewFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values={PARTITION_COLUMN: file.date},
        modification_time=file.modified_at_ms,
        data_change=True,
        stats=file.stats,
    )


def _topics_text(topics: Sequence[str]) -> str:
    return ",".join(sorted(topics)) or "#"
