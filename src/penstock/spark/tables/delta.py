"""Commits messages to a Delta table: each offset once.

The driver commits with the `deltalake` package, without a Spark extension or jar. One commit has
the batch's files and application transactions, which Delta stores in the table's own log:

    penstock-log:<epoch>/<stream>/<topics>       version = offset after the last landed message
    penstock-start:<epoch>/<stream>/<topics>     version = offset at which landing began
    penstock-query:<query id>                    version = number of the last micro-batch

The first decides what lands: a commit is made only on top of the version in which the table ends
where the batch begins. The second tells where landing began: a message between the two that is in
no file was deleted. The third is only in tables whose query has state.

The table's log is trusted only once it is on disk (`penstock.spark.tables.delta_log`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from penstock.errors import ConfigError
from penstock.spark.parquet_files import Layout, NewFile, touch
from penstock.spark.tables.columns import check_partitions, columns_to_add, is_declared_anew
from penstock.spark.tables.delta_actions import (
    add_action,
    files_of,
    live_files_of,
    overlaps,
    partition_values,
    remove_action,
)
from penstock.spark.tables.delta_log import LOG_DIRECTORY, SyncedLog, oldest_version_at
from penstock.spark.tables.landed_table import (
    Contents,
    FindNumber,
    Landed,
    Outcome,
    PartitionValues,
    PlannedBatch,
    QueryBatch,
    Selection,
    Span,
    TableCommitFailed,
    TableCommitUnknown,
    TableError,
)
from penstock.spark.tables.rewriting import (
    replacement_failed,
    rewrite_files,
    rewrite_without,
    with_columns_of,
)
from penstock.spark.tables.stored_marks import stored_epochs
from penstock.spark.tables.tiers import LiveFile

COMMIT_ATTEMPTS_MAX: Final = 10
"""Most attempts at a commit while other writers commit first."""

_PROPERTIES: Final = {"delta.deletedFileRetentionDuration": "interval 1 hours"}
"""The log names replaced files for an hour, and not for Delta's default of a week, because each
checkpoint repeats their names. Upkeep removes files by their own age (`touch`)."""

_MISREAD_CHARACTERS: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\\#?]")


def table_directory(path: Path) -> Path:
    """Return the absolute form of `path`.

    Raises:
        ConfigError: the deltalake package would look for the table elsewhere, because it reads some
            characters of a path as parts of a URL.
    """
    absolute = path.absolute()
    misread = _MISREAD_CHARACTERS.search(str(absolute))
    if misread is not None:
        raise ConfigError(
            f"the table's directory {absolute} has {misread.group()} in its path, which the Delta"
            " library reads as part of a URL; choose another directory"
        )
    return absolute


class DeltaMessageTable:
    """A Delta table of messages, which need not exist yet. For one thread at a time.

    Args:
        path: the directory of the table.
        schema: the columns of the table.
        partition_by: the columns by which the table is partitioned.

    Raises:
        ConfigError: the path has characters that the Delta library misreads.
    """

    def __init__(self, path: Path, schema: pa.Schema, partition_by: tuple[str, ...]) -> None:
        self.path = table_directory(path)
        self.layout = Layout(str(self.path), schema, partition_by)
        self._schema = Schema.from_arrow(schema)
        self._delta: DeltaTable | None = None
        self._log = SyncedLog(self.path)

    def exists(self) -> bool:
        """Return whether the table has been created."""
        return self._refresh() is not None

    def prepare(self, selection: Selection, *, add: bool = True) -> None:
        """Check the table and add missing columns; see `LandedTable`."""
        delta = self._refresh()
        self._check_selection(delta, selection)
        if delta is None:
            return
        partition_by = delta.metadata().partition_columns
        present = pa.schema(delta.schema())
        if is_declared_anew(present, partition_by, self.layout) and not files_of(delta):
            if add:
                self._declare_anew(selection)
            return
        check_partitions(self.path, partition_by, self.layout)
        added = columns_to_add(self.path, present, pa.schema(self._schema))
        if added and add:
            delta.alter.add_columns(Schema.from_arrow(pa.schema(added)).fields)
            self._refresh()

    def _declare_anew(self, selection: Selection) -> None:
        """Give a table without rows the declared columns and partitions; what has landed stays."""
        self._create([], selection, CommitProperties(max_commit_retries=0), mode="overwrite")
        self._delta, self._log = None, SyncedLog(self.path)
        self._refresh()

    def _create(
        self,
        actions: list[AddAction],
        selection: Selection,
        properties: CommitProperties,
        mode: Literal["error", "overwrite"] = "error",
    ) -> None:
        create_table_with_add_actions(
            str(self.path),
            self._schema,
            actions,
            mode=mode,
            partition_by=[*self.layout.partition_by],
            name=self.path.name,
            description=selection.description,
            configuration=_PROPERTIES,
            commit_properties=properties,
        )

    def columns(self) -> pa.Schema | None:
        """Return the columns of the table; None if it does not exist."""
        delta = self._refresh()
        return None if delta is None else pa.schema(delta.schema())

    def _check_selection(self, delta: DeltaTable | None, selection: Selection) -> None:
        if delta is None:
            return
        found = delta.metadata().description or "something that Penstock did not land"
        if found != selection.description:
            raise ConfigError(
                f"the table in {self.path} holds {found}; land {selection.description} in another"
                " one"
            )

    def can_widen(self, _present: pa.Field, _wanted: pa.Field) -> bool:
        """Return False: few readers support Delta's type widening."""
        return False

    def landed(self, selection: Selection) -> Landed | None:
        """Return what has landed of a selection, on disk; None if landing has not begun."""
        return Landed.stored(_finder(self._refresh()), selection)

    def epochs(self) -> tuple[str, ...]:
        """Return the epochs that the table has received, in that order; see `LandedTable`."""
        delta = self._refresh()
        return () if delta is None else epochs_of(delta)

    def last_batch(self, query_id: str) -> int | None:
        """Return the number of the last micro-batch of a query in the table; None without one."""
        return _finder(self._refresh())(QueryBatch(query_id, 0).transaction_id)

    def commit(
        self, batch: PlannedBatch, files: Sequence[NewFile], replaced: Collection[str] = ()
    ) -> Outcome:
        """Make files part of the table in one commit that moves its end; see `LandedTable`.

        Args:
            batch: the range of the files.
            files: the files; there may be none.
            replaced: paths of files that the commit removes. If the table lacks one of them, the
                outcome is OVERTAKEN.
        """
        error: Exception | None = None
        for _ in range(COMMIT_ATTEMPTS_MAX):
            # Read the table once: Delta refuses the commit if another one follows that version.
            delta = self._refresh()
            self._check_selection(delta, batch.selection)  # another job may have created the table
            find = _finder(delta)
            obstacle = batch.obstacle(find)
            if obstacle is not None:
                return obstacle
            present = files_of(delta) if delta is not None and replaced else []
            removed = [file for file in present if file["path"] in replaced]
            if len(removed) < len(replaced):
                return Outcome.OVERTAKEN
            self._touch(replaced)
            try:
                self._write_commit(batch, batch.numbers(find, files), files, removed)
            except DeltaError as conflict:  # refused by the table's log, or by the disk below it
                error = conflict
                continue
            except Exception as failure:
                return self._look_up_outcome(batch, failure)
            try:
                self._log.sync()
            except OSError as failure:
                raise self._unknown_outcome(batch, failure) from failure
            return Outcome.LANDED
        raise TableCommitFailed(
            f"{batch.description} could not be committed to {self.path}: {error}"
        ) from error

    def replace(
        self, span: Span, files: Sequence[NewFile], selection: Selection | None = None
    ) -> None:
        """Replace the rows of a span by the rows of files, in one commit."""
        rewritten_paths: list[str] | None = None
        kept_rows: list[NewFile] = []
        removed: list[RemoveAction] = []
        error: Exception | None = None
        for _ in range(COMMIT_ATTEMPTS_MAX):
            delta = self._refresh()
            assert delta is not None, "there are rows to replace"
            overlapping = [file for file in files_of(delta) if overlaps(file, span)]
            paths = [file["path"] for file in overlapping]
            if paths != rewritten_paths:  # else other jobs have only added files
                values = [partition_values(file, self.layout.partition_by) for file in overlapping]
                pairs = zip((self.path / path for path in paths), values, strict=True)
                layout = with_columns_of(pa.schema(delta.schema()), self.layout)
                kept_rows = rewrite_without(span, pairs, layout)
                removed = [remove_action(*one) for one in zip(overlapping, values, strict=True)]
                rewritten_paths = paths
                self._touch(paths)
            start = None if selection is None else delta.transaction_version(selection.key("start"))
            start_transactions = (
                [Transaction(selection.key("start"), span.start)]
                if selection is not None and start is not None and span.start < start
                else []
            )
            try:
                delta.create_write_transaction(
                    [*removed, *(add_action(file) for file in (*kept_rows, *files))],
                    "append",
                    delta.schema(),
                    [*self.layout.partition_by],
                    commit_properties=CommitProperties(
                        max_commit_retries=0, app_transactions=start_transactions
                    ),
                )
            except DeltaError as conflict:
                error = conflict
                continue
            self._log.sync()
            return
        raise replacement_failed(span, self.path) from error

    def live_files(self) -> list[LiveFile] | None:
        """Return the present files of the table; None if there is no table."""
        delta = self._refresh()
        return None if delta is None else live_files_of(delta, self.layout.partition_by)

    def compact(self, groups: Sequence[Sequence[str]], versions_max: int) -> bool:
        """Merge the files of each group in one commit, and expire earlier versions."""
        delta = self._refresh()
        if delta is None or not self._merge(delta, groups):
            return False
        self._log.expire_versions(versions_max)
        return True

    def _merge(self, delta: DeltaTable, groups: Sequence[Sequence[str]]) -> bool:
        present = {file["path"]: file for file in files_of(delta)} if groups else {}
        if any(path not in present for group in groups for path in group):
            return False  # another job has replaced some
        layout = with_columns_of(pa.schema(delta.schema()), self.layout)
        actions: list[AddAction | RemoveAction] = []
        for group in groups:
            files = [present[path] for path in group]
            values = [partition_values(file, self.layout.partition_by) for file in files]
            pairs = zip((self.path / path for path in group), values, strict=True)
            merged = rewrite_files(pairs, layout)
            actions += [
                remove_action(*pair, moves=True) for pair in zip(files, values, strict=True)
            ]
            actions += [add_action(file, moves=True) for file in merged]
        if not actions:
            return True
        self._touch(path for group in groups for path in group)
        try:
            delta.create_write_transaction(
                actions,
                "append",
                delta.schema(),
                [*self.layout.partition_by],
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError:  # another writer came first
            return False
        self._log.sync()
        return True

    def contents(self) -> Contents | None:
        """Return the contents of the table; None if it does not exist."""
        delta = self._refresh()
        return None if delta is None else contents_of(delta, self.path)

    def present_files(self) -> list[str]:
        """Return the paths of the table's files, relative to its directory."""
        delta = self._refresh()
        return [] if delta is None else [file["path"] for file in files_of(delta)]

    def recent_files(self, within: timedelta) -> list[Path]:
        """Return the files with rows that were received within this time before the newest row."""
        delta = self._refresh()
        files = [] if delta is None else files_of(delta)
        if within == timedelta.max:
            return [self.path / file["path"] for file in files]
        received = [(file["max.received_at"], file["path"]) for file in files]
        newest = max((at for at, _ in received if at is not None), default=None)
        return [
            self.path / path
            for at, path in received
            if at is None or (newest is not None and newest - at <= within)
        ]

    def files(self) -> list[tuple[Path, PartitionValues]]:
        """Return the files, each with the values of its partition; see `LandedTable`."""
        delta = self._refresh()
        return [
            (self.path / file["path"], partition_values(file, self.layout.partition_by))
            for file in ([] if delta is None else files_of(delta))
        ]

    def remove_orphans(self, older_than_h: int, *, remove: bool) -> list[str]:
        """Remove files that belong to no version of the table; return their names."""
        delta = self._refresh()
        return [] if delta is None else vacuum(delta, older_than_h, remove=remove)

    def _touch(self, paths: Iterable[str]) -> None:
        for path in paths:
            touch(self.path / path)

    def _look_up_outcome(self, batch: PlannedBatch, failure: Exception) -> Outcome:
        """Return LANDED if the table has the batch after an error; else raise
        TableCommitUnknown."""
        try:
            delta = self._refresh()
        except TableError:
            delta = None
        if batch.is_in(_finder(delta)):
            return Outcome.LANDED
        raise self._unknown_outcome(batch, failure) from failure

    def _unknown_outcome(self, batch: PlannedBatch, failure: Exception) -> TableCommitUnknown:
        return TableCommitUnknown(
            f"it is not known whether {batch.description} was committed to {self.path}"
            f" ({failure}); run the job again: it checks the table"
        )

    def _write_commit(
        self,
        batch: PlannedBatch,
        numbers: Mapping[str, int],
        files: Sequence[NewFile],
        removed: Sequence[dict[str, Any]] = (),
    ) -> None:
        selection = batch.selection
        properties = CommitProperties(
            # No retries in deltalake: it would repeat the commit that creates a table on top of
            # another writer's without checking transactions.
            max_commit_retries=0,
            app_transactions=[Transaction(*pair) for pair in numbers.items()],
            custom_metadata={
                "penstock.epoch": selection.epoch,
                "penstock.stream": selection.stream,
                "penstock.startOffset": batch.seen if batch.start is None else batch.start,
                "penstock.endOffset": batch.end,
            },
        )
        actions = [add_action(file) for file in files]
        partition_by = [*self.layout.partition_by]
        if self._delta is None:
            self._create(actions, selection, properties)
        else:
            delta_schema = self._delta.schema()  # it may have columns that are not declared
            removals = [
                remove_action(file, partition_values(file, partition_by)) for file in removed
            ]
            self._delta.create_write_transaction(
                [*removals, *actions],
                "append",
                delta_schema,
                partition_by,
                commit_properties=properties,
            )

    def _refresh(self) -> DeltaTable | None:
        """Return the newest version of the table, synced to disk; None if there is no table."""
        try:
            if self._delta is not None and not self._log.has(self._delta.version()):
                # Expired; or an older copy of the table was put back.
                self._delta, self._log = None, SyncedLog(self.path)
            if self._delta is not None:
                if self._log.has(self._delta.version() + 1):
                    self._delta.update_incremental()
            elif (self.path / LOG_DIRECTORY).is_dir():
                self._delta = DeltaTable(self.path)
            if self._delta is not None:
                self._log.sync()
        except TableNotFoundError:
            return None
        except Exception as error:  # deltalake raises OSError, DeltaError and others
            raise TableError(f"the table in {self.path} cannot be read: {error}") from error
        return self._delta


def _finder(delta: DeltaTable | None) -> FindNumber:
    return (lambda _: None) if delta is None else delta.transaction_version


def vacuum(delta: DeltaTable, older_than_h: int, *, remove: bool) -> list[str]:
    """Remove files of this age that belong to no version of a table; return their names.

    Raises:
        TableError: the table cannot be cleaned.
    """
    try:
        return delta.vacuum(
            retention_hours=older_than_h,
            dry_run=not remove,
            enforce_retention_duration=False,
            full=True,
        )
    except (DeltaError, OSError) as error:
        raise TableError(f"the table in {delta.table_uri} cannot be cleaned: {error}") from error


def epochs_of(delta: DeltaTable) -> tuple[str, ...]:
    """Return the epochs that a table has received, in that order; see `LandedTable.epochs`."""
    listed = stored_epochs(delta.transaction_version)
    if listed:
        return listed
    names = (file.get(f"{end}.epoch") for file in files_of(delta) for end in ("min", "max"))
    return tuple(sorted({name for name in names if name is not None}))


def contents_of(delta: DeltaTable, path: Path) -> Contents:
    """Return the contents of a table of messages."""
    files = files_of(delta)
    return Contents(
        version=delta.version(),
        changed_at=datetime.fromtimestamp(delta.history(1)[0]["timestamp"] / 1000, UTC),
        rows=sum(file["num_records"] or 0 for file in files),
        files=len(files),
        size_bytes=sum(file["size_bytes"] for file in files),
        description=delta.metadata().description or "",
        epoch=next(reversed(epochs_of(delta)), None),
        oldest_at=oldest_version_at(path),
    )
