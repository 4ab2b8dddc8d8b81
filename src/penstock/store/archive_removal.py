"""Removes archives that no stream reads any more (`store.archive`)."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import StoreError
from penstock.store.archive import Archive
from penstock.store.archiving import read_archives, remove_archive
from penstock.store.database import Database
from penstock.store.offline import open_offline


def forget(data_dir: Path, stream: str) -> list[Archive]:
    """Remove the closed archives of `stream`; return their records.

    Raises:
        StoreLocked: a broker has the store open.
        StoreError: there is no store, `stream` has no closed archive, or the removal could not be
            written.
    """
    with open_offline(data_dir) as database:
        return _forget(database, stream)


def _forget(database: Database, stream: str) -> list[Archive]:
    archives = read_archives(database)
    named = [archive for archive in archives if archive.stream == stream]
    closed = [archive for archive in named if not archive.is_open]
    if not named:
        names = ", ".join(sorted({archive.stream for archive in archives})) or "none"
        raise StoreError(
            f"there is no archive of a stream {stream!r}; there are archives of: {names}"
        )
    if not closed:
        raise StoreError(
            f"the archive of the stream {stream!r} is in use: first start the broker once without a"
            " retention for this stream, or without the stream"
        )
    batch = database.new_batch()
    for archive in closed:
        remove_archive(batch, database, archive)
    database.write(batch)
    return closed
