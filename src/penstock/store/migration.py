"""Migration: converts the store of an older Penstock to this format when a broker starts.

::

      format 1 or 2 ─▶ format 3, migrating ─▶ one portion after the other ─▶ format 3

In formats 1 and 2 a session's progress contained its whole window and all inbound packet
identifiers; in format 3 these are pages with keys of their own (``store.pages``). A portion is one
atomic write of whole sessions: the new progress of each and its pages. So a start that is killed
leaves each session either old or migrated, and the next start migrates those whose progress still
contains a window. After the first write older versions of Penstock refuse the store, and only a
backup leads back.

Only the start of a broker migrates. Readers of a store (``store.examination``, the stream service)
read all formats, and a repair writes format 3.
"""

from __future__ import annotations

import time
from typing import Final

from penstock.store import records
from penstock.store.chunk import decode_key
from penstock.store.database import FORMAT, FORMAT_KEY, PARTS_KEY, Database
from penstock.store.pages import page_values
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

MIGRATING: Final = b"migrating"
"""The key that is in ``meta`` during a migration: progress of some sessions may contain a
window."""
PORTION_BYTES: Final = 1_048_576
_REPORT_INTERVAL_S: Final = 5.0


def migrate(database: Database, portion_bytes: int = PORTION_BYTES) -> None:
    """Convert ``database`` to this format; do nothing if it has this format already.

    Args:
        database: a database that is open for writing and has an epoch and a known format.
        portion_bytes: a batch is written once it has this size.

    Raises:
        StoreFailed: the database cannot be read.
        CommitUnknown: the database could not be written; the next start continues the migration.
    """
    meta = database.families["meta"]
    former: bytes | None = meta.get(FORMAT_KEY)
    if former == FORMAT and meta.get(MIGRATING) is None:
        return
    if former is not None and former != FORMAT:
        logger.info(
            "the store in %s is of format %s, of an older Penstock: it becomes one of format %s,"
            " which older versions refuse",
            database.data_dir,
            former.decode(),
            FORMAT.decode(),
        )
        _begin(database)
    sessions = _migrate_windows(database, portion_bytes)
    batch = database.new_batch()
    batch.delete(MIGRATING, database.handles["meta"])
    database.write(batch)
    logger.info(
        "the store in %s is of format %s now; sessions rewritten: %d",
        database.data_dir,
        FORMAT.decode(),
        sessions,
    )


def _begin(database: Database) -> None:
    meta = database.handles["meta"]
    batch = database.new_batch()
    batch.put(FORMAT_KEY, FORMAT, meta)
    batch.put(MIGRATING, b"1", meta)
    if database.has_parts:
        batch.put(PARTS_KEY, b"1", meta)
    database.write(batch)


def _migrate_windows(database: Database, portion_bytes: int) -> int:
    """Move the window in each session's progress to pages; return the number of sessions."""
    handle = database.handles["progress"]
    sessions = 0
    reported_s = time.monotonic()
    batch = database.new_batch()
    for key, value in database.items("progress"):
        if len(key) != 8 or not records.has_window(value):
            continue
        progress = records.decode_progress(decode_key(key), value)
        batch.put(key, records.encode_progress(progress), handle)
        for page_key, page in page_values(progress):
            assert page is not None
            batch.put(page_key, page, handle)
        sessions += 1
        if batch.size_in_bytes() >= portion_bytes:
            database.write(batch)
            batch = database.new_batch()
            if time.monotonic() - reported_s > _REPORT_INTERVAL_S:
                reported_s = time.monotonic()
                logger.info(
                    "migrating the store in %s; sessions rewritten so far: %d",
                    database.data_dir,
                    sessions,
                )
    database.write(batch)
    return sessions
