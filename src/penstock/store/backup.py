"""Makes backups of a store, also while a broker uses it, and restores them in a new epoch.

A backup is a directory that no broker starts from::

    BACKUP/backup.json   the manifest: epoch and extent of the log, time of the backup
    BACKUP/store/        a RocksDB checkpoint

A checkpoint is the whole database at one moment: hard links to the table files, which never
change, and a copy of the small files that do. It takes time and space only where the backup lies
in another file system. Everything acknowledged before the backup was requested is in it.

The memtables are flushed before the checkpoint is made. Flushing releases the interpreter lock,
which making a checkpoint holds, so the broker runs on meanwhile.

Restoring a backup starts a new epoch. The original log has grown since the backup was made, and its
later offsets stand for messages that the restored log does not have.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from rocksdict import Checkpoint

from penstock.errors import StoreCorrupt, StoreError, StoreUnavailable
from penstock.store.database import (
    STORE_DIRECTORY,
    Database,
    open_database,
    open_for_reading,
)
from penstock.store.examination import examine
from penstock.store.faults import with_remedy
from penstock.store.identity import (
    COMMITS,
    begin_epoch,
    find_begin,
    find_end,
    read_counter,
    read_epoch,
)
from penstock.store.manifest import MANIFEST_FILE, Manifest, read_manifest
from penstock.store.offline import open_offline
from penstock.store.paths import path_exists
from penstock.store.watermark import (
    WATERMARK_FILE,
    Watermark,
    sync_directory,
    sync_file,
    write_watermark,
)
from penstock.version import __version__

_UNFINISHED: Final = ".unfinished"


def back_up(database: Database, destination: Path) -> Manifest:
    """Write a backup of ``database``, which may be in use by this process, to ``destination``.

    Raises:
        StoreError: ``destination`` exists, or its directory cannot be read.
        StoreUnavailable: it could not be written; nothing is left at ``destination``.
    """
    if path_exists(destination):
        raise StoreError(f"{destination} exists already; name a directory that does not")
    unfinished = destination.with_name(destination.name + _UNFINISHED)
    try:
        if unfinished.exists():
            shutil.rmtree(unfinished)
        unfinished.mkdir(parents=True)
        _checkpoint(database, unfinished / STORE_DIRECTORY)
        manifest = _describe(unfinished)
        (unfinished / MANIFEST_FILE).write_bytes(
            msgspec.json.format(msgspec.json.encode(manifest)) + b"\n"
        )
        _sync_all(unfinished)
        unfinished.rename(destination)
        sync_directory(destination.absolute().parent)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        why = with_remedy(error, destination.parent)
        raise StoreUnavailable(f"the backup in {destination} failed: {why}") from error
    except StoreError:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return manifest


def back_up_offline(data_dir: Path, destination: Path) -> Manifest:
    """Write a backup of the store below ``data_dir`` while no broker has it open.

    Raises:
        StoreLocked: a broker has the store open, and does not answer on its control socket.
        HistoryMismatch: the store holds less than was acknowledged.
        StoreError: there is no store, or ``destination`` exists.
        StoreUnavailable: the backup could not be written.
    """
    with open_offline(data_dir) as database:
        return back_up(database, destination)


def restore(backup: Path, data_dir: Path) -> tuple[Manifest, str]:
    """Make a store of ``backup`` below ``data_dir``; return the manifest and the new epoch.

    Raises:
        StoreError: ``backup`` is no backup, or there is a store in ``data_dir``.
        StoreCorrupt: the backup is damaged.
        StoreUnavailable: the store could not be written.
    """
    manifest = read_manifest(backup)
    if manifest is None:
        raise StoreError(f"{backup} is no backup: it has no {MANIFEST_FILE}")
    if path_exists(data_dir / STORE_DIRECTORY):
        raise StoreError(
            f"there is a store in {data_dir}; stop its broker and move the directory away, or"
            " restore to another one with --data-dir"
        )
    problems = examine(backup).problems
    if problems:
        raise StoreCorrupt(
            f"the backup in {backup} is damaged, use another one: {'; '.join(problems)}"
        )
    unfinished = data_dir / f"restore{_UNFINISHED}"
    try:
        if unfinished.exists():
            shutil.rmtree(unfinished)
        shutil.copytree(backup / STORE_DIRECTORY, unfinished / STORE_DIRECTORY)
        epoch = _begin_new_epoch(unfinished)
        _sync_all(unfinished)
        # The watermark first: a broker started between the two steps is then refused.
        (unfinished / WATERMARK_FILE).replace(data_dir / WATERMARK_FILE)
        (unfinished / STORE_DIRECTORY).rename(data_dir / STORE_DIRECTORY)
        unfinished.rmdir()
        sync_directory(data_dir)
        sync_directory(data_dir.absolute().parent)
    except OSError as error:
        why = with_remedy(error, data_dir)
        raise StoreUnavailable(f"the restore to {data_dir} failed: {why}") from error
    return manifest, epoch


def _begin_new_epoch(data_dir: Path) -> str:
    database = open_database(data_dir)
    try:
        epoch = begin_epoch(database)
        end, begin, commits = (
            find_end(database),
            find_begin(database),
            read_counter(database, COMMITS),
        )
        write_watermark(data_dir, Watermark(end, begin, commits, epoch))
        return epoch
    finally:
        database.close()


def _checkpoint(database: Database, path: Path) -> None:
    try:
        with database.usage_lock.shared():
            for family in tuple(database.families.values()):  # a first large value adds a family
                family.flush()
            Checkpoint(database.rocks).create_checkpoint(str(path))
    except Exception as error:  # rocksdict raises bare Exception for every I/O error
        raise StoreUnavailable(f"the backup failed: {with_remedy(error, path.parent)}") from error


def _describe(backup: Path) -> Manifest:
    copy = open_for_reading(backup)
    try:
        return Manifest(
            read_epoch(copy) or "",
            find_begin(copy),
            find_end(copy),
            read_counter(copy, COMMITS),
            datetime.now(UTC).isoformat(timespec="seconds"),
            __version__,
        )
    finally:
        copy.close()


def _sync_all(directory: Path) -> None:
    for path in sorted(directory.rglob("*"), reverse=True):  # a directory after its content
        if path.is_dir():
            sync_directory(path)
        else:
            sync_file(path)
    sync_directory(directory)
