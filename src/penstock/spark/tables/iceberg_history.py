"""Expires snapshots of an Iceberg table, and finds the files that no snapshot names.

    in the table ──replaced──▶ named by earlier snapshots ──expired──▶ named by none ──▶ removed
                                                              └─ time of modification set to now:
                                                                 stays for `leftovers_h` hours

pyiceberg removes snapshots from the table's metadata and leaves their files in place. Readers that
opened the table earlier need these: they have the list of their snapshot's files and continue to
read them. So files are removed by age, which is counted from the time at which the last snapshot
that names them expires. Snapshots have no state that a landing needs (`iceberg`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from penstock.spark.parquet_files import touch

_SCHEME: Final = "file://"


def oldest_kept_snapshot(table: Table, versions_max: int) -> Snapshot | None:
    """Return the oldest of the last `versions_max` snapshots; None if there is no snapshot."""
    return next(iter(_sorted_snapshots(table)[-versions_max:]), None)


def touch_files_before(table: Table, kept: Snapshot) -> int:
    """Set the time of modification to now for files that only snapshots before `kept` name.

    It is also set for some other files, which does no harm.

    Returns:
        The number of snapshots before `kept`.
    """
    snapshots = _sorted_snapshots(table)
    expiring = [snapshot for snapshot in snapshots if snapshot.timestamp_ms < kept.timestamp_ms]
    for snapshot in expiring:
        _touch(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            _touch(manifest.manifest_path)
    for snapshot in [*expiring, kept] if expiring else []:
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.deleted_files_count:
                _touch_deleted(table, manifest)
    return len(expiring)


def unreferenced_files(table: Table, directory: Path) -> Iterator[Path]:
    """Yield the files of data and metadata in a table's directory that no snapshot names."""
    referenced = _referenced_files(table)
    metadata = directory / "metadata"
    for found in (
        directory.glob("**/*.parquet"),
        metadata.glob("*.avro"),
        metadata.glob("*.metadata.json"),
    ):
        yield from (path for path in found if str(path) not in referenced)


def oldest_at(table: Table) -> datetime | None:
    """Return the time of the oldest snapshot (UTC); None if there is none."""
    snapshots = _sorted_snapshots(table)
    return datetime.fromtimestamp(snapshots[0].timestamp_ms / 1000, UTC) if snapshots else None


def _sorted_snapshots(table: Table) -> Sequence[Snapshot]:
    return sorted(table.snapshots(), key=lambda snapshot: snapshot.timestamp_ms)


def _referenced_files(table: Table) -> set[str]:
    """Return the paths of all files that the table's metadata or snapshots name."""
    referenced = {
        table.metadata_location,
        *(log.metadata_file for log in table.metadata.metadata_log),
    }
    manifests: dict[str, ManifestFile] = {}
    for snapshot in table.snapshots():
        referenced.add(snapshot.manifest_list)
        manifests |= {one.manifest_path: one for one in snapshot.manifests(table.io)}
    for path, manifest in manifests.items():
        referenced.add(path)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            referenced.add(entry.data_file.file_path)
    return {_local_path(path) for path in referenced}


def _touch_deleted(table: Table, manifest: ManifestFile) -> None:
    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
        if entry.status == ManifestEntryStatus.DELETED:
            _touch(entry.data_file.file_path)


def _touch(location: str) -> None:
    touch(Path(_local_path(location)))


def _local_path(location: str) -> str:
    return location.removeprefix(_SCHEME)
