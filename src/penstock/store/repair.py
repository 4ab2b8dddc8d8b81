"""Repair: makes a new store of the readable parts of a damaged one.

The readable values are copied to a new store; the damaged store stays beside it under another name.
The log continues in a new epoch, so that lost offsets are never assigned to other messages, and the
lost ranges are recorded for its readers (``store.identity``: `given_up`). The log keeps its epoch
only where it is certain that it has lost nothing.

A repair may be interrupted at any moment, and be run again::

    store, committed                            the damaged files
      │  copy into repair.unfinished/           ◀─ interrupted: removed, and copied again
      ▼  sync, rename to repair.finished-TIME/  ◀─ interrupted: continued from here
    store     ─▶ store.damaged-TIME
    committed ─▶ committed.damaged-TIME
    repair.finished-TIME/committed ─▶ committed
    repair.finished-TIME/store     ─▶ store
      │  remove repair.finished-TIME/

Each step is skipped if it was done before the interruption. A broker does not start while there is
a repair.finished-TIME (``store.identity.refuse_corrupt_files``).
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

from penstock.errors import StoreUnavailable
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
    Watermark,
    read_watermark,
    sync_directory,
    sync_file,
)

_UNFINISHED: Final = "repair.unfinished"
_SPARE_BYTES: Final = 64 * 1_048_576

Report = Callable[[str, int, int], None]
"""A progress callback: called with the step's name, the bytes done and the bytes in total."""


@dataclass(frozen=True, slots=True)
class RepairResult:
    """The outcome of a repair, or of a dry run.

    Attributes:
        epoch: epoch of the store after the repair; of a dry run the present one.
        end: offset of the next message.
        loss: messages and commits missing at the end of the log; None where none is.
        examination: the findings in the damaged store; None where this run only finished an
            interrupted repair.
        moved_paths: new paths of the damaged store and its watermark; empty where nothing changed.
        is_new_epoch: whether the log continues in a new epoch.
    """

    epoch: str
    end: int
    loss: Loss | None
    examination: Examination | None = None
    moved_paths: list[Path] = field(default_factory=list)
    is_new_epoch: bool = False

    @property
    def moved_bytes(self) -> int:
        """The size of the files in ``moved_paths``, in bytes."""
        files = [
            path for top in self.moved_paths for path in (top, *top.rglob("*")) if path.is_file()
        ]
        return sum(path.stat().st_size for path in files)


def repair(data_dir: Path, is_dry_run: bool = False, report: Report | None = None) -> RepairResult:
    """Replace the store below ``data_dir`` by a new one made of its readable parts.

    A store without problems is not changed.

    Args:
        data_dir: the data directory.
        is_dry_run: only examine the store, and change nothing.
        report: called with the progress.

    Raises:
        StoreLocked: a broker has the store open.
        StoreFormatError: the store is of another format.
        StoreError: there is no store, or nothing of it can be read.
        StoreUnavailable: there is no room for the copy, or it could not be written.
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
    watermark = read_watermark(data_dir)
    with tempfile.TemporaryDirectory(prefix="penstock-") as scratch:
        if not has_database:
            findings = _all_lost(watermark)
        else:
            with open_salvage_reader(data_dir, Path(scratch), watermark) as reader:
                report("reading", 0, reader.size_bytes)
                findings = examine_readable(reader, watermark)
                report("reading", reader.size_bytes, reader.size_bytes)
    if not findings.problems or is_dry_run:
        return RepairResult(findings.epoch, findings.end, findings.loss, findings)
    unfinished = data_dir / _UNFINISHED
    try:
        if unfinished.exists():
            shutil.rmtree(unfinished)
        unfinished.mkdir()
        epoch = _copy(data_dir, unfinished, has_database, watermark, report)
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
        finished = data_dir / f"{REPAIR_FINISHED}{stamp}"
        _sync_all(unfinished)
        unfinished.rename(finished)
        sync_directory(data_dir)
        moved_paths = _put_in_place(data_dir, finished)
    except OSError as error:
        raise StoreUnavailable(
            f"the repair of the store in {data_dir} failed: {error}; run it again, the damaged"
            " store is still there"
        ) from error
    return RepairResult(
        epoch, findings.end, findings.loss, findings, moved_paths, epoch != findings.epoch
    )


def _all_lost(watermark: Watermark | None) -> Examination:
    """Return the findings for a store that has a watermark, and no database."""
    findings = Examination()
    if watermark is not None:
        findings.epoch = watermark.epoch
        findings.loss = Loss(0, watermark.end, watermark.commits)
        findings.lost_ranges = (
            [(watermark.begin, watermark.end)] if watermark.end > watermark.begin else []
        )
    findings.add_problem("the database is missing")
    return findings


def _copy(
    data_dir: Path,
    unfinished: Path,
    has_database: bool,
    watermark: Watermark | None,
    report: Report,
) -> str:
    """Copy the readable values to the directory ``unfinished``; return the epoch of the copy."""
    scratch = unfinished / "scratch"
    scratch.mkdir()
    copied_bytes = total_bytes = 0

    def add_copied_bytes(size_bytes: int) -> None:
        nonlocal copied_bytes
        copied_bytes += size_bytes
        report("copying", min(copied_bytes, total_bytes), total_bytes)

    if not has_database:
        findings = _all_lost(watermark)
        copy = Copy(unfinished, add_copied_bytes)
        try:
            epoch = copy.finish(findings)
        finally:
            copy.close()
    else:
        with open_salvage_reader(data_dir, scratch, watermark) as reader:
            total_bytes = reader.size_bytes
            free_bytes = shutil.disk_usage(data_dir).free
            if free_bytes < total_bytes + _SPARE_BYTES:
                needed = -(-(total_bytes + _SPARE_BYTES) // 1_048_576)
                raise StoreUnavailable(
                    f"the repair needs {needed:,} MiB on the file system of {data_dir}, which has"
                    f" {free_bytes // 1_048_576:,} free: make room and run it again"
                )
            copy = Copy(unfinished, add_copied_bytes)
            try:
                epoch = copy.finish(examine_readable(reader, watermark, copy))
            finally:
                copy.close()
    shutil.rmtree(scratch)
    return epoch


def _put_in_place(data_dir: Path, finished: Path) -> list[Path]:
    """Replace the damaged store by a finished copy; return the paths that its files were moved
    to."""
    stamp = finished.name.removeprefix(REPAIR_FINISHED)
    moved_paths = []
    for name in (STORE_DIRECTORY, WATERMARK_FILE):
        place, damaged = data_dir / name, data_dir / f"{name}.damaged-{stamp}"
        if (finished / name).exists() and place.exists() and not damaged.exists():
            place.rename(damaged)
            sync_directory(data_dir)
        if damaged.exists():
            moved_paths.append(damaged)
    for name in (WATERMARK_FILE, STORE_DIRECTORY):
        if (finished / name).exists():
            (finished / name).rename(data_dir / name)
            sync_directory(finished)
            sync_directory(data_dir)
    shutil.rmtree(finished)
    sync_directory(data_dir)
    return moved_paths


def _finish_interrupted(data_dir: Path, finished: Path) -> RepairResult:
    try:
        moved_paths = _put_in_place(data_dir, finished)
    except OSError as error:
        raise StoreUnavailable(f"the repair of the store in {data_dir} failed: {error}") from error
    watermark = read_watermark(data_dir)
    assert watermark is not None
    return RepairResult(watermark.epoch, watermark.end, None, None, moved_paths, True)


def _sync_all(directory: Path) -> None:
    """Sync a directory and all files and directories in it."""
    for top, _, names in os.walk(directory):
        for name in names:
            sync_file(Path(top) / name)
        sync_directory(Path(top))


def _report_nothing(_step: str, _done_bytes: int, _total_bytes: int) -> None:
    pass
