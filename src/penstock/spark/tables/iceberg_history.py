"""Expires snapshots of an Iceberg table, and finds the files that no snapshot names.

    in the table ──replaced──▶ named by earlier snapshots ──expired──▶ named by none ──▶ removed
                                                              └─ released (storage.leftovers):
                                                                 stays for `leftovers_h` hours

pyiceberg removes snapshots from the table's metadata and leaves their files in place. Readers that
opened the table earlier need these: they have the list of their snapshot's files and continue to
read them. So files are removed by age, which is counted from the time at which the last snapshot
that names them expires. Snapshots have no state that a landing needs (`iceberg`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from penstock.spark.storage.leftovers import release
from penstock.spark.storage.location import FoundFile, Location
from penstock.spark.tables.iceberg_places import one_uri

_METADATA: Final = re.compile(r"metadata/[^/]+\.(avro|metadata\.json)")


def oldest_kept_snapshot(table: Table, versions_max: int) -> Snapshot | None:
    """Return the oldest of the last `versions_max` snapshots; None if there is no snapshot."""
    return next(iter(_sorted_snapshots(table)[-versions_max:]), None)


def release_files_before(table: Table, directory: Location, kept: Snapshot) -> int:
    """Note that files which only snapshots before `kept` name are about to be named by none.

    It is also noted of some other files, which does no harm.

    Returns:
        The number of snapshots before `kept`.
    """
    snapshots = _sorted_snapshots(table)
    expiring = [snapshot for snapshot in snapshots if snapshot.timestamp_ms < kept.timestamp_ms]
    found: set[str] = set()
    for snapshot in expiring:
        found.add(snapshot.manifest_list)
        found |= {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
    for snapshot in [*expiring, kept] if expiring else []:
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.deleted_files_count:
                found |= _deleted_files(table, manifest)
    prefix = f"{one_uri(directory.uri)}/"
    inside = {one_uri(uri) for uri in found}
    release(directory, [path.removeprefix(prefix) for path in inside if path.startswith(prefix)])
    return len(expiring)


def unreferenced_files(table: Table, directory: Location) -> Iterator[FoundFile]:
    """Yield the files of data and metadata in a table's directory that no snapshot names."""
    referenced = _referenced_files(table)
    at = one_uri(directory.uri)
    for found in directory.files():
        is_of_table = found.path.endswith(".parquet") or _METADATA.fullmatch(found.path)
        if is_of_table and f"{at}/{found.path}" not in referenced:
            yield found


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
    return {one_uri(uri) for uri in referenced}


def _deleted_files(table: Table, manifest: ManifestFile) -> set[str]:
    return {
        entry.data_file.file_path
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        if entry.status == ManifestEntryStatus.DELETED
    }
