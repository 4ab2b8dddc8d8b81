"""Replaces a store by a copy of another machine's; a crash at any moment leaves one of them.

::

      seed.unfinished/   the copy while it comes, and is examined: removed at the next attempt
             │ complete, synced, renamed
             ▼
      seed.ready/        from here on the copy counts; ``finish`` goes on where a crash stopped it:
             │           store ─▶ store.replaced, the copy ─▶ store, its watermark ─▶ committed
             ▼
      store/             and store.replaced is removed, or kept where there is nothing else like it

A copy has the form of a backup (``store.backup``) and goes on in the same epoch: that is right only
for the view of a cluster, which is a function of the cluster's log.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from penstock.errors import StoreError, StoreFailed
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

UNFINISHED: Final = "seed.unfinished"
READY: Final = "seed.ready"
REPLACED: Final = "store.replaced"
_OLD_STORE_PREFIX: Final = f"{STORE_DIRECTORY}.kept-"
_OLD_STORE_NAME_FILE: Final = "keeps"  # in READY: has the name under which it is kept


def clear_unfinished(data_dir: Path) -> Path:
    """Remove what an earlier attempt left; return the directory for the next, which is empty.

    Raises:
        StoreFailed: it cannot be made.
    """
    unfinished = data_dir / UNFINISHED
    try:
        if path_exists(unfinished):
            shutil.rmtree(unfinished)
        (unfinished / STORE_DIRECTORY).mkdir(parents=True)
    except OSError as error:
        raise _failed(data_dir, error) from error
    return unfinished


def make_ready(data_dir: Path, keep_old_store: bool) -> None:
    """Sync the complete copy in ``UNFINISHED`` and rename it to ``READY``: from then on it counts.

    The caller calls ``finish`` next, which puts it in the place of the store.

    Args:
        data_dir: the data directory.
        keep_old_store: whether the store that it replaces is kept beside it.

    Raises:
        StoreError: the copy has no manifest.
        StoreFailed: it cannot be written.
    """
    unfinished = data_dir / UNFINISHED
    manifest = read_manifest(unfinished)
    if manifest is None:
        raise StoreError(f"the copy in {unfinished} has no {MANIFEST_FILE}")
    try:
        write_watermark(unfinished, manifest.committed)
        if keep_old_store:
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
            (unfinished / _OLD_STORE_NAME_FILE).write_text(f"{_OLD_STORE_PREFIX}{stamp}")
        _sync_all(unfinished)
        unfinished.rename(data_dir / READY)
        sync_directory(data_dir)
    except OSError as error:
        raise _failed(data_dir, error) from error


def finish(data_dir: Path) -> Path | None:
    """Put a copy that counts in its place, if there is one; return where the old store is kept.

    It is to be called before the store of a data directory is opened, and may be called again.

    Raises:
        StoreLocked: a broker has the old store open.
        StoreFailed: it cannot be written.
    """
    ready, store = data_dir / READY, data_dir / STORE_DIRECTORY
    try:
        if not path_exists(ready):
            if path_exists(data_dir / REPLACED) and path_exists(store):
                shutil.rmtree(data_dir / REPLACED)
            return None
        name_file = ready / _OLD_STORE_NAME_FILE
        aside = data_dir / (name_file.read_text() if path_exists(name_file) else REPLACED)
        if path_exists(ready / STORE_DIRECTORY):
            with lock_out_brokers(data_dir):
                _put_in_place(ready, store, aside)
        if path_exists(ready / WATERMARK_FILE):
            (ready / WATERMARK_FILE).replace(data_dir / WATERMARK_FILE)
            sync_directory(data_dir)
        shutil.rmtree(ready)
        sync_directory(data_dir)
        if aside.name == REPLACED:
            if path_exists(aside):
                shutil.rmtree(aside)
            return None
        return aside if path_exists(aside) else None
    except OSError as error:
        raise _failed(data_dir, error) from error


def _put_in_place(ready: Path, store: Path, aside: Path) -> None:
    if path_exists(store):
        if path_exists(aside):  # of a replacement before this one
            shutil.rmtree(aside)
        store.rename(aside)
        sync_directory(store.parent)
    (ready / STORE_DIRECTORY).rename(store)
    sync_directory(store.parent)


def _sync_all(directory: Path) -> None:
    for path in sorted(directory.rglob("*"), reverse=True):  # what is in a directory before it
        if path.is_dir():
            sync_directory(path)
        else:
            sync_file(path)
    sync_directory(directory)


def _failed(data_dir: Path, error: OSError) -> StoreFailed:
    return StoreFailed(
        f"the store in {data_dir} cannot be replaced: {with_remedy(error, data_dir)}"
    )
