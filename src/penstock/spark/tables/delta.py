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
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from penstock.errors import ConfigError
from penstock.spark.parquet_files import Layout, NewFile
from penstock.spark.storage.leftovers import release, remove_leftovers
from penstock.spark.storage.local import LocalLocation
from penstock.spark.storage.location import FoundFile, Location
from penstock.spark.storage.opening import (
    PathOrUrl,
    check_store,
    cleaned,
    delta_options,
    location_of,
)
from penstock.spark.tables.columns import check_partitions, columns_to_add, is_declared_anew
from penstock.spark.tables.delta_actions import (
    add_action,
    declaration,
    files_of,
    live_files_of,
    overlaps,
    partition_values,
    remove_action,
)
from penstock.spark.tables.delta_commits import WriteCommit, commit_next, unknown_outcome
from penstock.spark.tables.delta_log import (
    LOG_DIRECTORY,
    SyncedLog,
    commit_name,
    oldest_version_at,
)
from penstock.spark.tables.delta_transactions import KnownVersion
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


def checked_location(table: PathOrUrl) -> Location:
    """Return the directory of a table, which a path or a URL names.

    Raises:
        ConfigError: the deltalake package would look for the table elsewhere, because it reads some
            characters of a path as parts of a URL.
    """
    location = location_of(table)
    misread = _MISREAD_CHARACTERS.search(location.uri)
    if misread is not None:
        raise ConfigError(
            f"the table's directory {location} has {misread.group()} in its path, which the Delta"
            " library reads as part of a URL; choose another directory"
        )
    return location


class DeltaMessageTable:
    """A Delta table of messages, which need not exist yet. For one thread at a time.

    Args:
        location: the directory of the table: a path, a URL, or the place.
        schema: the columns of the table.
        partition_by: the columns by which the table is partitioned.

    Raises:
        ConfigError: the path has characters that the Delta library misreads.
    """

    def __init__(
        self, location: PathOrUrl, schema: pa.Schema, partition_by: tuple[str, ...]
    ) -> None:
        self.location = checked_location(location)
        self.layout = Layout(self.location, schema, partition_by)
        self._schema = Schema.from_arrow(schema)
        self._options: dict[str, str] | None = None
        self._forget()

    def _forget(self) -> None:
        self._delta: DeltaTable | None = None
        self._log = SyncedLog(self.location)
        self._known = KnownVersion(self.location / LOG_DIRECTORY)

    def exists(self) -> bool:
        """Return whether the table has been created."""
        return self._refresh() is not None

    def prepare(self, selection: Selection, *, add: bool = True) -> None:
        """Check the table and add missing columns; see `LandedTable`."""
        if add:
            check_store(self.location)
        what, refusal = "the declaration of its columns", None
        for _ in range(COMMIT_ATTEMPTS_MAX):
            delta = self._refresh()
            change = None if delta is None else self._missing_change(delta, selection)
            if change is None or not add:
                return
            refusal = self._commit_next(delta, change, what)
        raise self._failed(what, refusal) from refusal

    def _missing_change(self, delta: DeltaTable, selection: Selection) -> WriteCommit | None:
        """Return what makes this version of the table as it is declared; None if it is so."""
        self._check_selection(delta, selection)
        partition_by = _partitions_of(delta)
        present = pa.schema(delta.schema())
        if is_declared_anew(present, partition_by, self.layout) and not files_of(delta):
            return lambda properties: self._declare_anew(delta, selection, properties)
        added = self._check_columns(delta)
        if not added:
            return None
        fields = Schema.from_arrow(pa.schema(added)).fields
        return lambda properties: delta.alter.add_columns(fields, commit_properties=properties)

    def _declare_anew(
        self, delta: DeltaTable, selection: Selection, properties: CommitProperties
    ) -> None:
        """Give a table without rows the declared columns and partitions; what has landed stays.

        The deltalake package would do it on top of the newest version, and remove the rows that
        another job has landed since `delta`.
        """
        with TemporaryDirectory() as directory:
            self._create(directory, [], selection, properties)
            created = Path(directory, LOG_DIRECTORY, commit_name(0)).read_bytes()
        commit = self.location / LOG_DIRECTORY / commit_name(delta.version() + 1)
        if not commit.create(declaration(created, delta)):
            raise CommitFailedError(f"another job's commit follows version {delta.version()}")

    def _create(
        self,
        uri: str,
        actions: list[AddAction],
        selection: Selection,
        properties: CommitProperties,
        options: dict[str, str] | None = None,
    ) -> None:
        create_table_with_add_actions(
            uri,
            self._schema,
            actions,
            mode="error",
            partition_by=[*self.layout.partition_by],
            name=self.location.name,
            description=selection.description,
            configuration=_PROPERTIES,
            storage_options=options,
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
                f"the table in {self.location} holds {found}; land {selection.description} in"
                " another one"
            )

    def _check_columns(self, delta: DeltaTable) -> list[pa.Field]:
        """Return declared columns that the table lacks; see `columns_to_add`."""
        check_partitions(self.location, _partitions_of(delta), self.layout)
        present, declared = pa.schema(delta.schema()), pa.schema(self._schema)
        return columns_to_add(self.location, present, declared)

    def can_widen(self, _present: pa.Field, _wanted: pa.Field) -> bool:
        """Return False: few readers support Delta's type widening."""
        return False

    def landed(self, selection: Selection) -> Landed | None:
        """Return what has landed of a selection, on disk; None if landing has not begun."""
        return Landed.stored(self._finder(self._refresh()), selection)

    def epochs(self) -> tuple[str, ...]:
        """Return the epochs that the table has received, in that order; see `LandedTable`."""
        delta = self._refresh()
        return () if delta is None else epochs_of(delta, self._finder(delta))

    def last_batch(self, query_id: str) -> int | None:
        """Return the number of the last micro-batch of a query in the table; None without one."""
        return self._finder(self._refresh())(QueryBatch(query_id, 0).transaction_id)

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
        refusal: Exception | None = None
        for _ in range(COMMIT_ATTEMPTS_MAX):
            # Read the table once: Delta refuses the commit if another one follows that version.
            delta = self._refresh()
            if delta is not None:  # another job may have created it, or declared it anew
                self._check_selection(delta, batch.selection)
                self._check_columns(delta)
            find = self._finder(delta)
            obstacle = batch.obstacle(find)
            if obstacle is not None:
                return obstacle
            present = files_of(delta) if delta is not None and replaced else []
            removed = [file for file in present if file["path"] in replaced]
            if len(removed) < len(replaced):
                return Outcome.OVERTAKEN
            release(self.location, replaced)
            refusal = self._commit_next(
                delta,
                partial(self._write_batch, delta, batch, files, removed),
                batch.description,
                batch.numbers(find, files),
                {
                    "penstock.epoch": batch.selection.epoch,
                    "penstock.stream": batch.selection.stream,
                    "penstock.startOffset": batch.seen if batch.start is None else batch.start,
                    "penstock.endOffset": batch.end,
                },
            )
            if refusal is None:
                return Outcome.LANDED
        raise self._failed(batch.description, refusal) from refusal

    def replace(
        self, span: Span, files: Sequence[NewFile], selection: Selection | None = None
    ) -> None:
        """Replace the rows of a span by the rows of files, in one commit."""
        rewritten_paths: list[str] | None = None
        kept_rows: list[NewFile] = []
        removed: list[RemoveAction] = []
        refusal: Exception | None = None
        for _ in range(COMMIT_ATTEMPTS_MAX):
            delta = self._refresh()
            assert delta is not None, "there are rows to replace"
            self._check_columns(delta)
            overlapping = [file for file in files_of(delta) if overlaps(file, span)]
            paths = [file["path"] for file in overlapping]
            if paths != rewritten_paths:  # else other jobs have only added files
                values = [partition_values(file, self.layout.partition_by) for file in overlapping]
                pairs = zip((self.location / path for path in paths), values, strict=True)
                layout = with_columns_of(pa.schema(delta.schema()), self.layout)
                kept_rows = rewrite_without(span, pairs, layout)
                removed = [remove_action(*one) for one in zip(overlapping, values, strict=True)]
                rewritten_paths = paths
                release(self.location, paths)
            start = None if selection is None else self._finder(delta)(selection.key("start"))
            starts = (
                {selection.key("start"): span.start}
                if selection is not None and start is not None and span.start < start
                else {}
            )
            actions: list[AddAction | RemoveAction] = [*removed]
            actions += [add_action(file) for file in (*kept_rows, *files)]
            refusal = self._commit_next(
                delta,
                _writer(delta, actions),
                f"the replacement of the offsets {span.start} to {span.end - 1}",
                starts,
            )
            # If this job was paused before the commit, others may have gone so far that the file of
            # its version had expired, and was made again behind them.
            if refusal is None and self._log.has(delta.version()):
                return
        raise replacement_failed(span, self.location) from refusal

    def live_files(self) -> list[LiveFile] | None:
        """Return the present files of the table; None if there is no table."""
        delta = self._refresh()
        return None if delta is None else live_files_of(delta, _partitions_of(delta))

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
        self._check_columns(delta)
        layout = with_columns_of(pa.schema(delta.schema()), self.layout)
        actions: list[AddAction | RemoveAction] = []
        for group in groups:
            files = [present[path] for path in group]
            values = [partition_values(file, self.layout.partition_by) for file in files]
            pairs = zip((self.location / path for path in group), values, strict=True)
            merged = rewrite_files(pairs, layout)
            actions += [
                remove_action(*pair, moves=True) for pair in zip(files, values, strict=True)
            ]
            actions += [add_action(file, moves=True) for file in merged]
        if not actions:
            return True
        release(self.location, [path for group in groups for path in group])
        what = "the merge of its files"
        refusal = self._commit_next(delta, _writer(delta, actions), what)
        if refusal is not None and not isinstance(refusal, CommitFailedError):
            raise self._failed(what, refusal) from refusal
        return refusal is None  # else another writer came first

    def contents(self) -> Contents | None:
        """Return the contents of the table; None if it does not exist."""
        delta = self._refresh()
        return None if delta is None else contents_of(delta, self.location, self._finder(delta))

    def present_files(self) -> list[str]:
        """Return the paths of the table's files, relative to its directory."""
        delta = self._refresh()
        return [] if delta is None else [file["path"] for file in files_of(delta)]

    def recent_files(self, within: timedelta) -> list[Location]:
        """Return the files with rows that were received within this time before the newest row."""
        delta = self._refresh()
        files = [] if delta is None else files_of(delta)
        if within == timedelta.max:
            return [self.location / file["path"] for file in files]
        received = [(file["max.received_at"], file["path"]) for file in files]
        newest = max((at for at, _ in received if at is not None), default=None)
        return [
            self.location / path
            for at, path in received
            if at is None or (newest is not None and newest - at <= within)
        ]

    def files(self) -> list[tuple[Location, PartitionValues]]:
        """Return the files, each with the values of its partition; see `LandedTable`."""
        delta = self._refresh()
        return (
            [
                (self.location / file["path"], partition_values(file, _partitions_of(delta)))
                for file in files_of(delta)
            ]
            if delta is not None
            else []
        )

    def remove_orphans(self, older_than_h: int, *, remove: bool) -> list[str]:
        """Remove files that belong to no version of the table; return their names."""
        delta = self._refresh()
        return [] if delta is None else vacuum(delta, self.location, older_than_h, remove=remove)

    def _finder(self, delta: DeltaTable | None) -> FindNumber:
        """Return what finds the numbers that a version of the table stores."""
        if delta is None:
            return lambda _: None
        numbers = self._known.numbers
        return delta.transaction_version if numbers is None else numbers.get

    def _commit_next(
        self,
        delta: DeltaTable | None,
        write: WriteCommit,
        what: str,
        numbers: Mapping[str, int] | None = None,
        facts: Mapping[str, str | int] | None = None,
    ) -> Exception | None:
        """Make the commit that follows a version of the table, or creates it; see `commit_next`."""
        version = -1 if delta is None else delta.version()
        refusal = commit_next(self.location, version, write, what, numbers, facts)
        if refusal is None:
            try:
                self._log.sync()
            except OSError as failure:
                raise unknown_outcome(what, self.location, failure) from failure
        return refusal

    def _failed(self, what: str, refusal: Exception | None) -> TableCommitFailed:
        return TableCommitFailed(f"{what} could not be committed to {self.location}: {refusal}")

    def _write_batch(
        self,
        delta: DeltaTable | None,
        batch: PlannedBatch,
        files: Sequence[NewFile],
        removed: Sequence[dict[str, Any]],
        properties: CommitProperties,
    ) -> None:
        actions = [add_action(file) for file in files]
        if delta is None:
            options = delta_options(self.location)
            self._create(self.location.uri, actions, batch.selection, properties, options)
        else:
            partition_by = self.layout.partition_by
            removals = [
                remove_action(file, partition_values(file, partition_by)) for file in removed
            ]
            _writer(delta, [*removals, *actions])(properties)

    def _refresh(self) -> DeltaTable | None:
        """Return the newest version of the table, synced to disk; None if there is no table.

        Here alone a version becomes the known one, with what its commit says.
        """
        try:
            options = delta_options(self.location)
            if options != self._options or (
                self._delta is not None and not self._known.is_there(self._delta.version())
            ):  # Other credentials; or it expired, or an older copy of the table was put back.
                self._options = options
                self._forget()
            if self._delta is not None:
                if self._log.has(self._delta.version() + 1):
                    self._delta.update_incremental()
            elif (self.location / LOG_DIRECTORY).has_files():
                self._delta = open_delta(self.location)
            if self._delta is not None:
                self._known.follow(self._delta.version())
                self._log.sync()
        except TableNotFoundError:
            self._forget()
            return None
        except Exception as error:  # deltalake raises OSError, DeltaError and others
            cleaned(error, self.location)
            raise TableError(f"the table in {self.location} cannot be read: {error}") from error
        return self._delta


def _partitions_of(delta: DeltaTable) -> tuple[str, ...]:
    return tuple(delta.metadata().partition_columns)


def _writer(delta: DeltaTable, actions: list[AddAction | RemoveAction]) -> WriteCommit:
    """Return what commits actions on top of a version of a table."""
    return lambda properties: delta.create_write_transaction(
        actions,
        "append",
        delta.schema(),  # it may have columns that are not declared
        [*_partitions_of(delta)],
        commit_properties=properties,
    )


def open_delta(location: Location) -> DeltaTable:
    """Open a table that exists."""
    return DeltaTable(location.uri, storage_options=delta_options(location))


def vacuum(delta: DeltaTable, location: Location, older_than_h: int, *, remove: bool) -> list[str]:
    """Remove files of this age that belong to no version of a table; return their names.

    Raises:
        TableError: the table cannot be cleaned.
    """
    is_local = isinstance(location, LocalLocation)
    try:
        old = delta.vacuum(
            retention_hours=older_than_h,
            dry_run=not (remove and is_local),
            enforce_retention_duration=False,
            full=True,
        )
        if is_local:
            return old
        found = (FoundFile(unquote(path), 0, 0.0) for path in old)
        return remove_leftovers(location, found, older_than_h, remove=remove)
    except (DeltaError, OSError) as error:
        cleaned(error, location)
        raise TableError(f"the table in {location} cannot be cleaned: {error}") from error


def epochs_of(delta: DeltaTable, find: FindNumber | None = None) -> tuple[str, ...]:
    """Return the epochs that a table has received, in that order; see `LandedTable.epochs`.

    Args:
        delta: the table.
        find: finds the numbers that it stores; None to ask the table.
    """
    listed = stored_epochs(find or delta.transaction_version)
    if listed:
        return listed
    names = (file.get(f"{end}.epoch") for file in files_of(delta) for end in ("min", "max"))
    return tuple(sorted({name for name in names if name is not None}))


def contents_of(delta: DeltaTable, location: Location, find: FindNumber | None = None) -> Contents:
    """Return the contents of a table of messages.

    Args:
        delta: the table.
        location: its directory.
        find: finds the numbers that it stores; None to ask the table.
    """
    files = files_of(delta)
    return Contents(
        version=delta.version(),
        changed_at=datetime.fromtimestamp(delta.history(1)[0]["timestamp"] / 1000, UTC),
        rows=sum(file["num_records"] or 0 for file in files),
        files=len(files),
        size_bytes=sum(file["size_bytes"] for file in files),
        description=delta.metadata().description or "",
        epoch=next(reversed(epochs_of(delta, find)), None),
        oldest_at=oldest_version_at(location),
    )
