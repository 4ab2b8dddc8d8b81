"""Replaces a store by a copy of another machine's store; a crash at any moment leaves one of both.

::

      seed.unfinished/   the copy while it is received and examined; the next attempt removes it
             │ complete, synced, renamed
             ▼
      seed.ready/        a complete copy; ``finish_replacement``, repeatable after a crash, renames
             │           store ─▶ store.replaced, the copy ─▶ store, its watermark ─▶ committed
             ▼
      store/             the copy; store.replaced is removed, or on request kept as store.kept-TIME

A copy has the form of a backup (``store.backup``) and keeps its epoch. That is correct only in a
cluster, where every store is a view of the cluster's log.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from penstock.errors import StoreError, StoreUnavailable
from penstock.store.database import STORE_DIRECTORY, lock_out_brokers
from penstock.store.faults import with_remedy
from penstock.store.manifest import MANIFEST_FILE, read_manifest
from penstock.store.paths import path_exists
from penstock.store.watermark import (
    WATERMARK_FILE,
    sync_directory,
    sync_file,
    write_watermark,
)

UNFINISHED_COPY: Final = "seed.unfinished"
READY_COPY: Final = "seed.ready"
REPLACED_STORE: Final = "store.replaced"
_OLD_STORE_PREFIX: Final = f"{STORE_DIRECTORY}.kept-"
_OLD_STORE_NAME_FILE: Final = "keeps"  # in READY_COPY: contains the name for the old store


def new_unfinished_copy(data_dir: Path) -> Path:
    """Remove an unfinished copy, and create the directory for a new one; return its path.

    It contains an empty directory ``store``.

    Raises:
        StoreUnavailable: the directory cannot be created.
    """
    unfinished = data_dir / UNFINISHED_COPY
    try:
        if path_exists(unfinished):
            shutil.rmtree(unfinished)
        (unfinished / STORE_DIRECTORY).mkdir(parents=True)
    except OSError as error:
        raise _failed(data_dir, error) from error
    return unfinished


def mark_copy_ready(data_dir: Path, keep_old_store: bool) -> None:
    """Sync the complete copy in ``UNFINISHED_COPY``, and rename it to ``READY_COPY``.

    From then on the copy is the store; the caller calls ``finish_replacement`` next.

    Args:
        data_dir: the data directory.
        keep_old_store: whether the replaced store is kept under another name.

    Raises:
        StoreError: the copy has no manifest.
        StoreUnavailable: the copy cannot be synced or renamed.
    """
    unfinished = data_dir / UNFINISHED_COPY
    manifest = read_manifest(unfinished)
    if manifest is None:
        raise StoreError(f"the copy in {unfinished} has no {MANIFEST_FILE}")
    try:
        write_watermark(unfinished, manifest.watermark)
        if keep_old_store:
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
            (unfinished / _OLD_STORE_NAME_FILE).write_text(f"{_OLD_STORE_PREFIX}{stamp}")
        _sync_all(unfinished)
        unfinished.rename(data_dir / READY_COPY)
        sync_directory(data_dir)
    except OSError as error:
        raise _failed(data_dir, error) from error


def finish_replacement(data_dir: Path) -> Path | None:
    """Replace the store by the ready copy, if there is one.

    Call this before the store of a data directory is opened; repeated calls do no harm.

    Returns:
        The path under which the old store is kept; None if it was removed, or if there is no copy.

    Raises:
        StoreLocked: a broker has the old store open.
        StoreUnavailable: a file cannot be renamed or removed.
    """
    ready, store = data_dir / READY_COPY, data_dir / STORE_DIRECTORY
    try:
        if not path_exists(ready):
            if path_exists(data_dir / REPLACED_STORE) and path_exists(store):
                shutil.rmtree(data_dir / REPLACED_STORE)
            return None
        name_file = ready / _OLD_STORE_NAME_FILE
        aside = data_dir / (name_file.read_text() if path_exists(name_file) else REPLACED_STORE)
        if path_exists(ready / STORE_DIRECTORY):
            with lock_out_brokers(data_dir):
                _put_in_place(ready, store, aside)
        if path_exists(ready / WATERMARK_FILE):
            (ready / WATERMARK_FILE).replace(data_dir / WATERMARK_FILE)
            sync_directory(data_dir)
        shutil.rmtree(ready)
        sync_directory(data_dir)
        if aside.name == REPLACED_STORE:
            if path_exists(aside):
                shutil.rmtree(aside)
            return None
        return aside if path_exists(aside) else None
    except OSError as error:
        raise _failed(data_dir, error) from error


def _put_in_place(ready: Path, store: Path, aside: Path) -> None:
    if path_exists(store):
        if path_exists(aside):  # left by an earlier replacement
            shutil.rmtree(aside)
        store.rename(aside)
        sync_directory(store.parent)
    (ready / STORE_DIRECTORY).rename(store)
    sync_directory(store.parent)


def _sync_all(directory: Path) -> None:
    for path in sorted(directory.rglob("*"), reverse=True):  # a directory after its content
        if path.is_dir():
            sync_directory(path)
        else:
            sync_file(path)
    sync_directory(directory)


def _failed(data_dir: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"the store in {data_dir} cannot be replaced: {with_remedy(error, data_dir)}"
    )
