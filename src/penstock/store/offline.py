"""Opens the store of a broker that is not running, for commands that change or copy it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.store.database import Database, has_database, open_database
from penstock.store.identity import refuse_losses
from penstock.store.manifest import refuse_backup
from penstock.store.paths import no_store


@contextmanager
def open_offline(data_dir: Path) -> Iterator[Database]:
    """Open the database below ``data_dir`` for writing; close it at the end of the ``with`` block.

    Raises:
        StoreLocked: a broker has the store open.
        HistoryMismatch: the store holds less than was acknowledged.
        StoreError: there is no store, ``data_dir`` is a backup, or the store cannot be opened.
    """
    if not has_database(data_dir):
        raise no_store(data_dir)
    refuse_backup(data_dir)
    refuse_losses(data_dir)
    database = open_database(data_dir)
    try:
        yield database
    finally:
        database.close()
