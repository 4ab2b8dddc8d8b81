"""Repair: makes a new store of the readable parts of a damaged one.

What can be read goes into a fresh store; the damaged one is kept beside it. Offsets that are lost
stay lost: the log goes on in a new epoch, so that they never stand for other messages, and the
holes are written down for its readers (``store.identity``: `given_up`). Only where it is certain
that nothing of the log is lost it keeps its epoch.

A repair may be interrupted at any moment, and be run again::

    store, committed                            the damaged ones
      │  copy into repair.unfinished/           ◀─ interrupted: removed, and made anew
      ▼  sync, rename to repair.finished-TIME/  ◀─ interrupted: gone on with from here
    store     ─▶ store.damaged-TIME
    committed ─▶ committed.damaged-TIME
    repair.finished-TIME/committed ─▶ committed
    repair.finished-TIME/store     ─▶ store
      │  remove repair.finished-TIME/

Each step looks whether it is done already. A broker does not start while there is a
repair.finished-TIME (``store.identity.refuse_broken_files``).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from penstock.errors import StoreFailed
from penstock.store.copying import Copy
from penstock.store.database import STORE_DIRECTORY, lock_out_brokers
from penstock.store.diagnosis import REPAIR_FINISHED, unfinished_repair
from penstock.store.examination import examine_readable, has_files
from penstock.store.findings import Examination
from penstock.store.identity import Loss
from penstock.store.manifest import refuse_backup
from penstock.store.paths import no_store, path_exists
from penstock.store.salvage_reader import open_salvage_reader
from penstock.store.watermark import (
    WATERMARK_FILE,
    Committed,
    read_watermark,
    sync_directory,
    sync_file,
)

_UNFINISHED: Final = "repair.unfinished"
_SPARE_BYTES: Final = 64 * 1_048_576

Report = Callable[[str, int, int], None]
"""A progress callback: the step, how many bytes of it are done, and of how many."""


@dataclass(frozen=True, slots=True)
class RepairResult:
    """The outcome of a repair, or of a dry run.

    Attributes:
        epoch: epoch of the store as it is now.
        end: offset at which its log goes on.
        loss: messages missing at the end of the log; None where none are.
        found: the content of the damaged store; None where it was put in place by an
            earlier repair that was interrupted.
        kept: the damaged store, and what else was kept; none where nothing was changed.
        is_new_epoch: whether the log goes on in a new one.
    """

    epoch: str
    end: int
    loss: Loss | None
    found: Examination | None = None
    kept: list[Path] = field(default_factory=list)
    is_new_epoch: bool = False

    @property
    def kept_bytes(self) -> int:
        """The size of the kept files on disk, in bytes."""
        files = [path for top in self.kept for path in (top, *top.rglob("*")) if path.is_file()]
        return sum(path.stat().st_size for path in files)


def repair(data_dir: Path, is_dry_run: bool = False, report: Report | None = None) -> RepairResult:
    """Make a new store of the readable parts of the one below ``data_dir``.

    Args:
        data_dir: a store that is whole is left as it is.
        is_dry_run: examine the store only, and change nothing.
        report: called with the progress.

    Raises:
        StoreLocked: a broker has it open.
        StoreFormatError: it is of another format.
        StoreError: there is no store, or nothing of it can be read.
        StoreFailed: there is no room for the copy, or it could not be written.
    """
    has_database = has_files(data_dir)
    interrupted = unfinished_repair(data_dir)
    if not has_database and interrupted is None and not path_exists(data_dir / WATERMARK_FILE):
        raise no_store(data_dir)
    refuse_backup(data_dir)
    if interrupted is not None and not is_dry_run:
        return _finish_interrupted(data_dir, interrupted)
    with lock_out_brokers(data_dir) if has_database else nullcontext():
        return _repair(data_dir, has_database, is_dry_run, report or _report_nothing)


def _repair(data_dir: Path, has_database: bool, is_dry_run: bool, report: Report) -> RepairResult:
    claimed = read_watermark(data_dir)
    with tempfile.TemporaryDirectory(prefix="penstock-") as scratch:
        if not has_database:
            found = _all_lost(claimed)
        else:
            with open_salvage_reader(data_dir, Path(scratch), claimed) as reader:
                report("reading", 0, reader.size_bytes)
                found = examine_readable(reader, claimed)
                report("reading", reader.size_bytes, reader.size_bytes)
    if not found.problems or is_dry_run:
        return RepairResult(found.epoch, found.end, found.loss, found)
    unfinished = data_dir / _UNFINISHED
    try:
        if unfinished.exists():
            shutil.rmtree(unfinished)
        unfinished.mkdir()
        epoch = _copy(data_dir, unfinished, has_database, claimed, report)
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
        finished = data_dir / f"{REPAIR_FINISHED}{stamp}"
        _sync_all(unfinished)
        unfinished.rename(finished)
        sync_directory(data_dir)
        kept = _put_in_place(data_dir, finished)
    except OSError as error:
        raise StoreFailed(
            f"the repair of the store in {data_dir} failed: {error}; run it again, the damaged"
            " store is still there"
        ) from error
    return RepairResult(epoch, found.end, found.loss, found, kept, epoch != found.epoch)


def _all_lost(claimed: Committed | None) -> Examination:
    """Return the findings for a store whose database is missing; ``claimed`` is its watermark."""
    found = Examination()
    if claimed is not None:
        found.epoch = claimed.epoch
        found.loss = Loss(0, claimed.end, claimed.commits)
        found.lost = [(claimed.begin, claimed.end)] if claimed.end > claimed.begin else []
    found.add_problem("the database is missing")
    return found


def _copy(
    data_dir: Path,
    unfinished: Path,
    has_database: bool,
    claimed: Committed | None,
    report: Report,
) -> str:
    """Copy the readable parts to ``unfinished``; return the epoch of the copy."""
    scratch = unfinished / "scratch"
    scratch.mkdir()
    copied_bytes = total_bytes = 0

    def copied(size_bytes: int) -> None:
        nonlocal copied_bytes
        copied_bytes += size_bytes
        report("copying", min(copied_bytes, total_bytes), total_bytes)

    if not has_database:
        found = _all_lost(claimed)
        copy = Copy(unfinished, copied)
        try:
            epoch = copy.finish(found)
        finally:
            copy.close()
    else:
        with open_salvage_reader(data_dir, scratch, claimed) as reader:
            total_bytes = reader.size_bytes
            free_bytes = shutil.disk_usage(data_dir).free
            if free_bytes < total_bytes + _SPARE_BYTES:
                needed = -(-(total_bytes + _SPARE_BYTES) // 1_048_576)
                raise StoreFailed(
                    f"the repair needs {needed:,} MiB on the file system of {data_dir}, which has"
                    f" {free_bytes // 1_048_576:,} free: make room and run it again"
                )
            copy = Copy(unfinished, copied)
            try:
                epoch = copy.finish(examine_readable(reader, claimed, copy))
            finally:
                copy.close()
    shutil.rmtree(scratch)
    return epoch


def _put_in_place(data_dir: Path, finished: Path) -> list[Path]:
    """Put a finished copy in the place of the damaged store; return where that was moved to."""
    stamp = finished.name.removeprefix(REPAIR_FINISHED)
    kept = []
    for name in (STORE_DIRECTORY, WATERMARK_FILE):
        place, damaged = data_dir / name, data_dir / f"{name}.damaged-{stamp}"
        if (finished / name).exists() and place.exists() and not damaged.exists():
            place.rename(damaged)
            sync_directory(data_dir)
        if damaged.exists():
            kept.append(damaged)
    for name in (WATERMARK_FILE, STORE_DIRECTORY):
        if (finished / name).exists():
            (finished / name).rename(data_dir / name)
            sync_directory(finished)
            sync_directory(data_dir)
    shutil.rmtree(finished)
    sync_directory(data_dir)
    return kept


def _finish_interrupted(data_dir: Path, finished: Path) -> RepairResult:
    try:
        kept = _put_in_place(data_dir, finished)
    except OSError as error:
        raise StoreFailed(f"the repair of the store in {data_dir} failed: {error}") from error
    claimed = read_watermark(data_dir)
    assert claimed is not None
    return RepairResult(claimed.epoch, claimed.end, None, None, kept, True)


def _sync_all(directory: Path) -> None:
    """Make all of a directory outlast a power cut."""
    for top, _, names in os.walk(directory):
        for name in names:
            sync_file(Path(top) / name)
        sync_directory(Path(top))


def _report_nothing(_what: str, _done: int, _total: int) -> None:
    pass
