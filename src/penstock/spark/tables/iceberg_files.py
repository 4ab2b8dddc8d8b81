"""Commits to an Iceberg table: its columns, and the entries of new files in its manifests.

pyiceberg derives the partition of a file from the file's statistics, the smallest and largest value
of each column. A bucket cannot be derived from these; the writer of the file passes it on.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField as TablePartitionField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    RemovePartitionSpecsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, StringType

from penstock.spark.parquet_files import NewFile
from penstock.spark.partition_fields import PartitionField
from penstock.spark.storage.location import Location

_EPOCH: Final = date(1970, 1, 1)
_LAST_ADDED: Final = -1


class QuickTransaction(Transaction):
    """A transaction that computes the resulting metadata once for each change.

    pyiceberg computes them at each access, some twenty times in a commit, and copies the whole
    metadata with all snapshots: this took most of the time of a commit.
    """

    _cached_metadata: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with the changes so far; callers must not modify the object."""
        base, updates = self._table.metadata, self._updates
        if (
            self._cached_metadata is None
            or self._cached_metadata[0] is not base
            or self._cached_metadata[1] is not updates
        ):
            self._cached_metadata = (base, updates, super().table_metadata)
        return self._cached_metadata[2]

    def change(self, changes: Iterable[TableUpdate], *requirements: TableRequirement) -> None:
        """Add changes of the metadata, for a table that meets these requirements."""
        self._apply(tuple(changes), requirements)


def add_files(transaction: Transaction, directory: Location, files: Sequence[NewFile]) -> None:
    """Add files, whose paths are relative to the table's directory and new to the table."""
    if transaction.table_metadata.name_mapping() is None:  # the files have no field ids
        names = transaction.table_metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: names})
    with transaction.update_snapshot().merge_append() as append:
        for file in files:
            append.append_data_file(data_file(transaction.table_metadata, directory, file))


def data_file(metadata: TableMetadata, directory: Location, file: NewFile) -> DataFile:
    """Return the manifest entry of a file, whose path is relative to the table's directory."""
    place, schema = directory / file.path, metadata.schema()
    with place.open_input() as content:
        parquet_metadata = pq.read_metadata(content)
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=parquet_metadata,
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=place.uri,
        file_format=FileFormat.PARQUET,
        partition=_partition(metadata, json.loads(file.partition)),
        file_size_in_bytes=file.size_bytes,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _partition(metadata: TableMetadata, values: dict[str, str | None]) -> Record:
    found: list[Any] = []
    for field in metadata.spec().fields:
        text = values[field.name]
        kind = metadata.schema().find_type(field.source_id)
        if text is None:
            found.append(None)
        elif field.transform.root != "identity":
            found.append(int(text))
        elif isinstance(kind, DateType):
            found.append((date.fromisoformat(text) - _EPOCH).days)
        else:
            found.append(text if isinstance(kind, StringType) else int(text))
    return Record(*found)


def has_had_files(table: Table) -> bool:
    """Return whether the table has files, or had some: the first one that is added brings the
    mapping of names."""
    return table.name_mapping() is not None or any(table.scan().plan_files())


def declare_anew(table: Table, schema: pa.Schema, fields: Sequence[PartitionField]) -> None:
    """Give a table that never had a file other columns and partitions, in one commit.

    Its properties stay, and so what has landed. The columns are new ones, also under their former
    names; the former partitions go, because they are those of columns that are gone.

    Raises:
        CommitFailedException: another job has changed the table.
    """
    metadata = table.metadata
    numbers = itertools.count(metadata.last_column_id + 1)
    without_ids = Catalog._convert_schema_if_needed(schema, metadata.format_version)  # noqa: SLF001  # there is no public one
    fresh = assign_fresh_schema_ids(without_ids, lambda: next(numbers))
    schema_id = 1 + max(one.schema_id for one in metadata.schemas)
    spec = PartitionSpec(
        *(
            TablePartitionField(
                fresh.find_field(one.column).field_id,
                number,
                parse_transform(one.transform),
                one.name,
            )
            for number, one in enumerate(fields, 1 + (metadata.last_partition_id or 0))
        ),
        spec_id=1 + max(one.spec_id for one in metadata.partition_specs),
    )
    changes: list[TableUpdate] = [
        AddSchemaUpdate(schema=Schema(*fresh.fields, schema_id=schema_id)),
        SetCurrentSchemaUpdate.model_validate({"schema-id": _LAST_ADDED}),
    ]
    if fields or metadata.spec().fields:
        former = [one.spec_id for one in metadata.partition_specs]
        changes += [
            AddPartitionSpecUpdate(spec=spec),
            SetDefaultSpecUpdate.model_validate({"spec-id": _LAST_ADDED}),
            RemovePartitionSpecsUpdate.model_validate({"spec-ids": former}),
        ]
    snapshot = metadata.current_snapshot()
    seen = None if snapshot is None else snapshot.snapshot_id
    transaction = QuickTransaction(table)
    transaction.change(
        changes,
        AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": seen}),
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertLastAssignedFieldId.model_validate(
            {"last-assigned-field-id": metadata.last_column_id}
        ),
        AssertLastAssignedPartitionId.model_validate(
            {"last-assigned-partition-id": metadata.last_partition_id}
        ),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
    )
    transaction.commit_transaction()
