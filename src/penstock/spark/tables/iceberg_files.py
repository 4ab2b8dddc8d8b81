"""Commits to an Iceberg table, and the entries of new files in its manifests.

pyiceberg derives the partition of a file from the file's statistics, the smallest and largest value
of each column. A bucket cannot be derived from these; the writer of the file passes it on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from typing import Any, Final

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, StringType

from penstock.spark.parquet_files import NewFile
from penstock.spark.storage.location import Location

_EPOCH: Final = date(1970, 1, 1)


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
