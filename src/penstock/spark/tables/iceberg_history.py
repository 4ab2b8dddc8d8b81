"""Expires snapshots of an Iceberg table, and finds the files that no snapshot names.

    in the table ──replaced──▶ named by earlier snapshots ──expired──▶ named by none ──▶ removed
                                                              └─ its time of change: from here
                                                                 on it stays `leftovers_h`

pyiceberg removes snapshots from the table's metadata and leaves their files in place. Readers
that opened the table before need that: they know their snapshot's files already, and continue
to read them. So files are removed by age, and the age that counts is set when the last snapshot
that names them expires. Snapshots contain no state that a landing needs (`iceberg`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from penstock.spark.parquet_files import renew

_SCHEME: Final = "file://"


def oldest_to_keep(table: Table, versions_max: int) -> Snapshot | None:
    """Return the oldest of the last snapshots; None if there is none at all."""
    return next(iter(_in_order(table)[-versions_max:]), None)


def renew_files_before(table: Table, kept: Snapshot) -> int:
    """Set the time of change to now for files that only snapshots before `kept` name.

    Also for some others, which does no harm. Return the number of snapshots before it.
    """
    snapshots = _in_order(table)
    before = [snapshot for snapshot in snapshots if snapshot.timestamp_ms < kept.timestamp_ms]
    for snapshot in before:
        _renew(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            _renew(manifest.manifest_path)
    for snapshot in [*before, kept] if before else []:
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.deleted_files_count:
                _renew_deleted(table, manifest)
    return len(before)


def leftovers(table: Table, directory: Path) -> Iterator[Path]:
    """Yield files of data and metadata below `directory` that no snapshot of the table names."""
    named = _named(table)
    metadata = directory / "metadata"
    for found in (
        directory.glob("**/*.parquet"),
        metadata.glob("*.avro"),
        metadata.glob("*.metadata.json"),
    ):
        yield from (path for path in found if str(path) not in named)


def oldest_at(table: Table) -> datetime | None:
    """Return when the oldest snapshot was made; None if there is none."""
    snapshots = _in_order(table)
    return datetime.fromtimestamp(snapshots[0].timestamp_ms / 1000, UTC) if snapshots else None


def _in_order(table: Table) -> Sequence[Snapshot]:
    return sorted(table.snapshots(), key=lambda snapshot: snapshot.timestamp_ms)


def _named(table: Table) -> set[str]:
    """Return the paths of all files that the table's metadata reaches."""
    named = {table.metadata_location, *(log.metadata_file for log in table.metadata.metadata_log)}
    manifests: dict[str, ManifestFile] = {}
    for snapshot in table.snapshots():
        named.add(snapshot.manifest_list)
        manifests |= {one.manifest_path: one for one in snapshot.manifests(table.io)}
    for path, manifest in manifests.items():
        named.add(path)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            named.add(entry.data_file.file_path)
    return {_local(path) for path in named}


def _renew_deleted(table: Table, manifest: ManifestFile) -> None:
    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
        if entry.status == ManifestEntryStatus.DELETED:
            _renew(entry.data_file.file_path)


def _renew(location: str) -> None:
    renew(Path(_local(location)))


def _local(location: str) -> str:
    return location.removeprefix(_SCHEME)
