"""Removing archives that no stream reads any more (`store.archive`)."""

from __future__ import annotations

from pathlib import Path

from rocksdict import WriteBatch

from penstock.errors import StoreError
from penstock.store.archive import ARCHIVE, Archive, decode_archive
from penstock.store.chunk import encode_key
from penstock.store.database import ARCHIVE_FAMILY, Database, has_database, open_database
from penstock.store.diagnosis import broken_where_damaged
from penstock.store.identity import refuse_losses
from penstock.store.manifest import refuse_backup
from penstock.store.places import no_store


def forget(data_dir: Path, stream: str) -> list[Archive]:
    """Remove the closed archives of `stream`; those removed.

    Raises:
        StoreLocked: a broker has the store open.
        StoreError: there is no store, or no such archive, or it could not be written.
    """
    if not has_database(data_dir):
        raise no_store(data_dir)
    refuse_backup(data_dir)
    refuse_losses(data_dir)
    database = open_database(data_dir)
    try:
        return _forget(database, stream)
    finally:
        database.close()


def _forget(database: Database, stream: str) -> list[Archive]:
    with broken_where_damaged(database.data_dir):
        archives = [decode_archive(value) for _, value in database.items("meta", ARCHIVE)]
    named = [archive for archive in archives if archive.stream == stream]
    closed = [archive for archive in named if not archive.is_open]
    if not named:
        names = ", ".join(sorted({archive.stream for archive in archives})) or "none"
        raise StoreError(f"nothing is kept of a stream {stream!r}; of these something is: {names}")
    if not closed:
        raise StoreError(
            f"what is kept of the stream {stream!r} is in use: first start the broker once without"
            " a retention for this stream, or without the stream"
        )
    batch = WriteBatch(raw_mode=True)
    for archive in closed:
        first, end = encode_key(archive.number), encode_key(archive.number + 1)
        batch.delete_range(first, end, database.handles[ARCHIVE_FAMILY])
        batch.delete(archive.key, database.handles["meta"])
    database.write(batch)
    return closed
