"""Commits messages to an Iceberg table, with pyiceberg and a catalog: by default a SQLite file.

Properties of the table have the same purpose as the application transactions of a Delta table. One
Iceberg transaction changes them together with the files:

    penstock-log:<epoch>/<stream>/<topics>       offset after the last landed message
    penstock-start:<epoch>/<stream>/<topics>     offset at which landing began
    penstock-query:<query id>                    number of the last micro-batch, with state only

A catalog compares no properties: it refuses a commit if there is another snapshot than the writer
has seen. So each commit that changes these numbers makes a snapshot, also one without files. They
are not in the snapshots, which may be expired. By default pyiceberg repeats a refused commit on top
of another writer's without reading the properties; so `commit.retry.num-retries` is 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.types import PrimitiveType

from penstock.config.table import IcebergNames
from penstock.errors import ConfigError
from penstock.spark.parquet_files import Layout, NewFile
from penstock.spark.partition_fields import parse_partition
from penstock.spark.storage.leftovers import remove_leftovers
from penstock.spark.storage.location import Location
from penstock.spark.storage.opening import (
    PathOrUrl,
    cleaned,
    location_in,
    location_of,
    settings_of,
)
from penstock.spark.tables.columns import check_partitions, columns_to_add, is_declared_anew
from penstock.spark.tables.iceberg_catalog import open_catalog
from penstock.spark.tables.iceberg_files import (
    QuickTransaction,
    add_files,
    data_file,
    declare_anew,
    has_had_files,
)
from penstock.spark.tables.iceberg_history import (
    oldest_at,
    oldest_kept_snapshot,
    release_files_before,
    unreferenced_files,
)
from penstock.spark.tables.iceberg_places import one_uri
from penstock.spark.tables.iceberg_types import can_promote, iceberg_columns, to_iceberg_types
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

_DESCRIPTION: Final = "comment"
_PROPERTIES: Final = {
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "50",
    "commit.manifest.target-size-bytes": str(512 * 1024),  # about the bytes that one merge reads
    "write.metadata.metrics.column.epoch": "full",  # else its bounds have only 16 characters
}


class IcebergTable:
    """An Iceberg table, which need not exist yet. For one thread at a time.

    Args:
        location: the directory of the table: a path, a URL, or the place.
        schema: the columns of the table.
        partition_by: the texts of the partition fields.
        catalog: the SQLite file of the catalog, if `names` has no properties of another one.
        names: the names of the catalog, and of the namespace in it.

    Raises:
        ConfigError: there is no catalog.
    """

    def __init__(
        self,
        location: PathOrUrl,
        schema: pa.Schema,
        partition_by: tuple[str, ...],
        catalog: Path | None,
        names: IcebergNames = IcebergNames(),  # noqa: B008  # frozen
    ) -> None:
        self.location = location_of(location)
        if not names.properties and (catalog is None or settings_of(self.location) is not None):
            raise ConfigError(
                f"the table in {self.location} needs an Iceberg catalog that its readers can ask,"
                " too: set tables.iceberg.properties, such as"
                ' { type = "rest", uri = "https://…" } or { type = "sql", uri = "postgresql://…" }'
            )
        self._fields = [parse_partition(text) for text in partition_by]
        self.layout = Layout(
            self.location,
            to_iceberg_types(schema),
            tuple(one.name for one in self._fields),
            keeps_partition_columns=True,
            transforms=tuple(one for one in self._fields if not one.is_column),
        )
        self._names = names
        self._name = (names.namespace, self.location.name)
        self._catalog_path = catalog
        self._catalog_cache: Catalog | None = None

    def prepare(self, selection: Selection, *, add: bool = True) -> None:
        """Check the table, add missing columns and widen others; see `LandedTable`."""
        for _ in range(COMMIT_ATTEMPTS_MAX):
            table = self._refresh()
            if table is None:
                return
            self._check_selection(table, selection)
            try:
                self._prepare(table, add=add)
            except CommitFailedException:
                continue
            except (ConfigError, TableError):
                raise
            except Exception as failure:
                cleaned(failure, self.location)
                raise TableError(
                    f"the table in {self.location} could not be given the declared columns:"
                    f" {failure}"
                ) from failure
            return
        raise TableCommitFailed(f"other jobs change the table in {self.location}; try again")

    def _prepare(self, table: Table, *, add: bool) -> None:
        partition_by = [field.name for field in table.spec().fields]
        present = iceberg_columns(table)
        if is_declared_anew(present, partition_by, self.layout) and not has_had_files(table):
            if add:
                declare_anew(table, self.layout.schema, self._fields)
            return
        check_partitions(self.location, partition_by, self.layout)
        added = columns_to_add(self.location, present, self.layout.schema, self.can_widen)
        if added and add:
            with table.update_schema() as update:
                update.union_by_name(pa.schema(added))

    def columns(self) -> pa.Schema | None:
        """Return the columns of the table; None if it does not exist."""
        table = self._refresh()
        if table is None:
            return None
        return iceberg_columns(table)

    def can_widen(self, present: pa.Field, wanted: pa.Field) -> bool:
        """Return whether Iceberg can promote the type; sources of partition fields keep theirs."""
        is_source = any(present.name == one.column for one in self._fields)
        return not is_source and can_promote(present.type, wanted.type)

    def landed(self, selection: Selection) -> Landed | None:
        """Return what has landed of a selection, on disk; None if landing has not begun."""
        return Landed.stored(_finder(self._refresh()), selection)

    def epochs(self) -> tuple[str, ...]:
        """Return the epochs that the table has received, in that order; see `LandedTable`."""
        table = self._refresh()
        if table is None:
            return ()
        listed = stored_epochs(_finder(table))
        if listed:
            return listed
        files = [task.file for task in table.scan().plan_files()]
        bounds = (bound for file in files for bound in (file.lower_bounds, file.upper_bounds))
        return tuple(sorted({_bound(table, bound, "epoch") for bound in bounds}))

    def last_batch(self, query_id: str) -> int | None:
        """Return the number of the last micro-batch of a query in the table; None without one."""
        return _finder(self._refresh())(QueryBatch(query_id, 0).transaction_id)

    def commit(self, batch: PlannedBatch, files: Sequence[NewFile]) -> Outcome:
        """Make files part of the table in one commit that moves its end; see `LandedTable`."""
        selection = batch.selection
        error: Exception | None = None
        for _ in range(COMMIT_ATTEMPTS_MAX):
            table = self._refresh() or self._create(selection)
            self._check_selection(table, selection)
            find = _finder(table)
            obstacle = batch.obstacle(find)
            if obstacle is not None:
                return obstacle
            numbers = batch.numbers(find, files)
            try:
                with QuickTransaction(table) as transaction:
                    if files:
                        self._add(transaction, files)
                    else:
                        transaction.update_snapshot().fast_append().commit()
                    transaction.set_properties({key: str(n) for key, n in numbers.items()})
            except CommitFailedException as conflict:
                error = conflict
                continue
            except Exception as failure:
                return self._look_up_outcome(batch, cleaned(failure, self.location))
            return Outcome.LANDED
        raise TableCommitFailed(
            f"{batch.description} could not be committed to {self.location}: {error}"
        ) from error

    def _look_up_outcome(self, batch: PlannedBatch, failure: Exception) -> Outcome:
        """Return LANDED if the table has the batch after an error; else raise
        TableCommitUnknown."""
        with suppress(TableError):
            if batch.is_in(_finder(self._refresh())):
                return Outcome.LANDED
        raise TableCommitUnknown(
            f"it is not known whether {batch.description} was committed to {self.location}"
            f" ({failure}); run the job again: it checks the table"
        ) from failure

    def replace(
        self, span: Span, files: Sequence[NewFile], selection: Selection | None = None
    ) -> None:
        """Replace the rows of a span by the rows of files, in one commit; see `LandedTable`.

        Raises:
            TableCommitFailed: other writers committed first; nothing has changed.
            TableCommitUnknown: an error does not tell whether it was done.
        """
        row_filter = f"epoch == '{span.epoch}' and offset >= {span.start} and offset < {span.end}"
        error: Exception | None = None
        for _ in range(COMMIT_ATTEMPTS_MAX):
            table = self._refresh()
            assert table is not None, "there are rows to replace"
            try:
                with table.transaction() as transaction:
                    if span.start < span.end and self.layout.transforms:
                        self._rewrite_without(transaction, table, span, row_filter)
                    elif span.start < span.end:
                        _delete(transaction, row_filter)
                    if files:
                        self._add(transaction, files)
                    key = None if selection is None else selection.key("start")
                    start = None if key is None else _number(table, key)
                    if selection is not None and start is not None and span.start < start:
                        transaction.set_properties({selection.key("start"): str(span.start)})
            except CommitFailedException as conflict:
                error = conflict
                continue
            except (ConfigError, TableError):
                raise
            except Exception as failure:
                cleaned(failure, self.location)
                raise TableCommitUnknown(
                    f"it is not known whether rows were replaced in {self.location} ({failure});"
                    " run it again"
                ) from failure
            return
        raise replacement_failed(span, self.location) from error

    def _add(self, transaction: Transaction, files: Sequence[NewFile]) -> None:
        """Add files to a transaction.

        Their names are unique, so pyiceberg need not read all manifests to find duplicates.
        """
        if any(one.buckets for one in self._fields):
            add_files(transaction, self.location, files)
            return
        paths = [(self.location / file.path).uri for file in files]
        transaction.add_files(paths, check_duplicate_files=False)

    def _rewrite_without(
        self, transaction: Transaction, table: Table, span: Span, row_filter: str
    ) -> None:
        """Remove the rows of a span by rewriting their files.

        pyiceberg cannot delete rows of a table with partition transforms.
        """
        overlapping = [task.file for task in table.scan(row_filter=row_filter).plan_files()]
        places = [self._at(file.file_path) for file in overlapping]
        layout = with_columns_of(iceberg_columns(table), self.layout)
        kept_rows = rewrite_without(span, [(place, {}) for place in places], layout)
        self._exchange(transaction, table, overlapping, kept_rows)

    def _exchange(
        self,
        transaction: Transaction,
        table: Table,
        removed: Sequence[DataFile],
        files: Sequence[NewFile],
    ) -> None:
        """Remove files from the table and add others, in one snapshot."""
        with transaction.update_snapshot().overwrite() as snapshot:
            for old in removed:
                snapshot.delete_data_file(old)
            for new in files:
                snapshot.append_data_file(data_file(table.metadata, self.location, new))

    def live_files(self) -> list[LiveFile] | None:
        """Return the files of the table that have no delete files; None if there is no table."""
        table = self._refresh()
        return (
            None
            if table is None
            else [self._live_file(table, file) for file in _whole_files(table)]
        )

    def compact(self, groups: Sequence[Sequence[str]], versions_max: int) -> bool:
        """Merge the files of each group, and expire earlier versions, in one commit."""
        table = self._refresh()
        if table is None:
            return False
        present = {file.file_path: file for file in _whole_files(table)} if groups else {}
        if any(path not in present for group in groups for path in group):
            return False  # another job has replaced some
        layout = with_columns_of(iceberg_columns(table), self.layout)
        merged = [
            file
            for group in groups
            for file in rewrite_files([(self._at(path), {}) for path in group], layout)
        ]
        oldest_kept = oldest_kept_snapshot(table, versions_max)
        expired_count = (
            0 if oldest_kept is None else release_files_before(table, self.location, oldest_kept)
        )
        changed_properties = {
            key: to for key, to in _PROPERTIES.items() if table.properties.get(key) != to
        }
        if not (groups or expired_count or changed_properties):
            return True
        try:
            with QuickTransaction(table) as transaction:
                if groups:
                    removed = [present[path] for group in groups for path in group]
                    self._exchange(transaction, table, removed, merged)
                if changed_properties:  # a table made by an older version
                    transaction.set_properties(changed_properties)
                if expired_count and oldest_kept is not None:
                    oldest = datetime.fromtimestamp(oldest_kept.timestamp_ms / 1000, UTC)
                    ExpireSnapshots(transaction).older_than(oldest).commit()
        except (CommitFailedException, ValidationException):  # another writer came first
            return False
        return True

    def contents(self) -> Contents | None:
        """Return the contents of the table; None if it does not exist."""
        table = self._refresh()
        if table is None:
            return None
        files = [task.file for task in table.scan().plan_files()]
        return Contents(
            version=int(Path(table.metadata_location).name.partition("-")[0]),
            changed_at=datetime.fromtimestamp(table.metadata.last_updated_ms / 1000, UTC),
            rows=sum(file.record_count for file in files),
            files=len(files),
            size_bytes=sum(file.file_size_in_bytes for file in files),
            description=table.properties.get(_DESCRIPTION, ""),
            epoch=next(reversed(self.epochs()), None),
            oldest_at=oldest_at(table),
        )

    def recent_files(self, within: timedelta) -> list[Location]:
        """Return the files with rows that were received within this time before the newest row."""
        table = self._refresh()
        if table is None:
            return []
        files = [task.file for task in table.scan().plan_files()]
        if within == timedelta.max:
            return [self._at(file.file_path) for file in files]
        received = [(_upper(table, file, "received_at"), file.file_path) for file in files]
        newest = max((at for at, _ in received), default=0)
        return [
            self._at(path) for at, path in received if timedelta(microseconds=newest - at) <= within
        ]

    def files(self) -> list[tuple[Location, PartitionValues]]:
        """Return the files, which have all columns; see `LandedTable`."""
        return [(path, {}) for path in self.recent_files(timedelta.max)]

    def remove_orphans(self, older_than_h: int, *, remove: bool) -> list[str]:
        """Remove files of this age that no snapshot names; return their names."""
        table = self._refresh()
        if table is None:
            return []
        leftovers = unreferenced_files(table, self.location)
        return remove_leftovers(self.location, leftovers, older_than_h, remove=remove)

    def _check_selection(self, table: Table, selection: Selection) -> None:
        found = table.properties.get(_DESCRIPTION, "something that Penstock did not land")
        if found != selection.description:
            raise ConfigError(
                f"the table in {self.location} holds {found}; land {selection.description} in"
                " another one"
            )

    def _at(self, uri: str) -> Location:
        """Return the place of a file that the table names."""
        return location_in(self.location, uri)

    def _live_file(self, table: Table, file: DataFile) -> LiveFile:
        return LiveFile(
            path=file.file_path,
            partition=tuple(file.partition[at] for at in range(len(file.partition))),
            rows=file.record_count,
            size_bytes=file.file_size_in_bytes,
            first=(
                _bound(table, file.lower_bounds, "epoch"),
                _bound(table, file.lower_bounds, "offset"),
            ),
            written_at_s=_written_at_s(self._at(file.file_path)),
        )

    def _catalog(self) -> Catalog:
        if self._catalog_cache is None:
            settings = settings_of(self.location)
            self._catalog_cache = open_catalog(self._names, self._catalog_path, settings)
        return self._catalog_cache

    def _create(self, selection: Selection) -> Table:
        """Return the table, created empty unless another job has just created it."""
        try:
            self._create_namespace()
            with (
                suppress(TableAlreadyExistsError, CommitFailedException),
                self._catalog().create_table_transaction(
                    self._name,
                    self.layout.schema,
                    location=self.location.uri,
                    properties={**_PROPERTIES, _DESCRIPTION: selection.description},
                ) as transaction,
                transaction.update_spec() as spec,
            ):
                for one in self._fields:
                    spec.add_field(one.column, one.transform, one.name)
        except ConfigError:
            raise
        except Exception as error:
            cleaned(error, self.location)
            raise TableCommitFailed(
                f"the table in {self.location} could not be created: {error}"
            ) from error
        created = self._refresh()
        if created is None:
            raise TableCommitFailed(f"the table in {self.location} was removed after its creation")
        return created

    def _create_namespace(self) -> None:
        catalog, name = self._catalog(), self._names.namespace
        try:
            catalog.create_namespace_if_not_exists(name)
        except Exception:
            if not catalog.namespace_exists(name):  # else another job has created it just now
                raise

    def _refresh(self) -> Table | None:
        """Return the newest version of the table; None if there is no table."""
        try:
            return self._load()
        except ConfigError:
            raise
        except Exception:  # the file of the catalog may be another one: a copy that was put back
            self._close_catalog()
        try:
            return self._load()
        except Exception as error:  # pyiceberg raises errors of SQLite, Arrow and the disk
            cleaned(error, self.location)
            raise TableError(f"the table in {self.location} cannot be read: {error}") from error

    def _load(self) -> Table | None:
        path = None if self._names.properties else self._catalog_path
        if path is not None and not path.exists():
            self._close_catalog()
            return None  # whoever only looks makes none
        try:
            table = self._catalog().load_table(self._name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        self._check_place(table)
        return table

    def _check_place(self, table: Table) -> None:
        """Raise ConfigError if the catalog has another table of this name."""
        if one_uri(table.location()) != one_uri(self.location.uri):
            name = ".".join(self._name)
            raise ConfigError(
                f"the table {name} of the Iceberg catalog {self._names.catalog} is in"
                f" {table.location()}, not in {self.location}: if it is that of another"
                " installation, give each a namespace of its own (tables.iceberg.namespace); if it"
                " was moved, declare the path that the catalog has, or put it back there"
            )

    def _close_catalog(self) -> None:
        if self._catalog_cache is not None:
            self._catalog_cache.close()
            self._catalog_cache = None


@lru_cache(maxsize=100_000)
def _written_at_s(file: Location) -> float:
    """Return when a file was written (files never change)."""
    return file.stat().modified_at_s


def _finder(table: Table | None) -> FindNumber:
    return (lambda _: None) if table is None else partial(_number, table)


def _number(table: Table, key: str) -> int | None:
    found = table.properties.get(key)
    return None if found is None else int(found)


def _whole_files(table: Table) -> list[DataFile]:
    """Return the files without delete files, of which all rows are present."""
    return [task.file for task in table.scan().plan_files() if not task.delete_files]


def _delete(transaction: Transaction, rows: str) -> None:
    """Delete the rows for which an expression is true, without a warning if there are none."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Delete operation did not match any records")
        transaction.delete(rows)


def _upper(table: Table, file: DataFile, column: str) -> Any:
    """Return the largest value of a column in a file, from its statistics."""
    return _bound(table, file.upper_bounds, column)


def _bound(table: Table, bounds: Mapping[int, bytes], column: str) -> Any:
    field = table.schema().find_field(column)
    kind = field.field_type
    assert isinstance(kind, PrimitiveType)
    return from_bytes(kind, bounds[field.field_id])
