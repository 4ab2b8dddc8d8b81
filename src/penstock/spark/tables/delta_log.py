"""The log of a Delta table: it is trusted only once it is on disk.

    00000000000000000199.json                 commit 199
    00000000000000000200.checkpoint.parquet   the result of all commits up to 200
    _last_checkpoint                          names it

The deltalake package syncs nothing, and a commit seen here may have been written by an attempt that
was killed a moment later. Spark, told that its batch has landed, would never send it again. So
every read of the table first syncs the new files of its log.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from penstock.spark.parquet_files import sync

LOG_DIRECTORY: Final = "_delta_log"
COMMITS_MIN: Final = 100
"""Commits that always stay, so that readers of the log can finish."""

_LAST_CHECKPOINT: Final = "_last_checkpoint"
_COMMIT: Final = "{:020}.json"
_Mark = tuple[int, int]


class _Entry:
    """A file of the log that belongs to a version."""

    def __init__(self, path: Path) -> None:
        stem, _, ending = path.name.partition(".")
        self.path = path
        self.version = int(stem)
        self.is_commit = ending == "json"
        self.is_checkpoint = ending == "checkpoint.parquet"  # not one of several parts


class SyncedLog:
    """Syncs the log of a table, which need not exist yet. For one thread at a time."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._log = table / LOG_DIRECTORY
        self._commits = 0  # the number of commits, from 0 on, that are on disk
        self._others: dict[str, _Mark] = {}
        """Other files of the log that are on disk, by their state then."""
        self._checkpoint: _Mark | None = None
        """The state of `_last_checkpoint` when the whole log was synced."""

    def sync(self) -> None:
        """Sync all files of the log that are not known to be on disk, whoever wrote them.

        Mostly that is the next commit, which has a known name: a log that is kept for a month may
        have a million files, too many to list for each batch.
        """
        if not self._commits or _mark(self._log / _LAST_CHECKPOINT) != self._checkpoint:
            self._sync_whole()
            return
        known = self._commits
        while (commit := self._log / _COMMIT.format(self._commits)).exists():
            sync(commit)
            self._commits += 1
        if self._commits != known:
            sync(self._log)

    def has_changed_since(self, version: int) -> bool:
        """Return whether there is a later version, or the commit of this one was cleaned up.

        The deltalake package lists the whole log to find out.
        """
        known, later = (self._log / _COMMIT.format(n) for n in (version, version + 1))
        return later.exists() or not known.exists()

    def expire_versions(self, versions_max: int) -> None:
        """Remove log files that the last versions do not need [Delta protocol, Metadata Cleanup].

        Each commit and each read of the table takes longer the more files there are, and Delta
        expires them only by age: two commits a second are 172,800 a day. Files before a checkpoint
        are removed if it is not one of the last versions; it has to be on disk first.
        """
        found = [_Entry(path) for path in self._log.glob("[0-9]*")]
        last = max((entry.version for entry in found if entry.is_commit), default=0)
        before = last - max(versions_max, COMMITS_MIN)
        checkpoints = [e for e in found if e.is_checkpoint and e.version <= before]
        newest = max(checkpoints, key=lambda entry: entry.version, default=None)
        if newest is None:
            return
        sync(newest.path)
        sync(self._log)
        for entry in sorted(found, key=lambda entry: entry.version):
            if entry.version < newest.version and (entry.is_commit or entry.is_checkpoint):
                entry.path.unlink(missing_ok=True)

    def _sync_whole(self) -> None:
        checkpoint = _mark(self._log / _LAST_CHECKPOINT)
        commits: list[int] = []
        others: dict[str, _Mark] = {}
        with os.scandir(self._log) as entries:
            for entry in entries:
                stem, _, ending = entry.name.partition(".")
                if ending == "json" and stem.isdecimal():
                    commits.append(int(stem))
                elif mark := _mark(self._log / entry.name):  # else unfinished, or cleaned up
                    others[entry.name] = mark
        new = [_COMMIT.format(n) for n in sorted(commits) if n >= self._commits]
        new += [name for name, mark in sorted(others.items()) if self._others.get(name) != mark]
        for name in new:
            with suppress(FileNotFoundError):
                sync(self._log / name)
        if new:
            sync(self._log)
        if not self._commits:
            sync(self._table)
            sync(self._table.parent)
        self._commits = max([self._commits, *(n + 1 for n in commits)])
        self._others, self._checkpoint = others, checkpoint


def oldest_version_at(table: Path) -> datetime | None:
    """Return when the oldest version in the log was written; None if there is none.

    A version needs all commits since a checkpoint before it, or since the table was created.
    """
    found = [
        entry
        for entry in map(_Entry, (table / LOG_DIRECTORY).glob("[0-9]*"))
        if entry.is_checkpoint or (entry.is_commit and entry.version == 0)
    ]
    oldest = min(found, key=lambda entry: entry.version, default=None)
    with suppress(FileNotFoundError):  # cleaned up just now
        if oldest is not None:
            return datetime.fromtimestamp(oldest.path.stat().st_mtime, UTC)
    return None


def _mark(path: Path) -> _Mark | None:
    """Return a file's size and time of change (ns), which change with it; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns
