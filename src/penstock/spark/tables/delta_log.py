"""Syncs the log of a Delta table to disk before its commits are trusted, and expires old files.

    00000000000000000199.json                 commit 199
    00000000000000000200.checkpoint.parquet   the result of all commits up to 200
    _last_checkpoint                          the version of the last checkpoint

The deltalake package does not sync files. A commit that this process reads may have been written by
one that was killed just after; if Spark then learned that its batch has landed, it would never
repeat it, although a power cut can still undo the commit. So every read of the table first syncs
the new files of its log.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from penstock.spark.storage.local import LocalLocation, sync
from penstock.spark.storage.location import Location

LOG_DIRECTORY: Final = "_delta_log"
COMMITS_MIN: Final = 100
"""The last commits, which always stay, so that readers of the log can finish."""

LAST_CHECKPOINT: Final = "_last_checkpoint"
_FileState = tuple[int, int]


def commit_name(version: int) -> str:
    """Return the name of the file that has the commit of a version."""
    return f"{version:020}.json"


class _Entry:
    """A file of the log that belongs to a version."""

    def __init__(self, name: str) -> None:
        stem, _, ending = name.partition(".")
        self.name = name
        self.version = int(stem)
        self.is_commit = ending == "json"
        self.is_checkpoint = (
            ending == "checkpoint.parquet"
        )  # a checkpoint in several parts is not recognised


class SyncedLog:
    """Syncs the log of a table, which need not exist yet. For one thread at a time.

    In an object store nothing is to be synced: what can be read there is durable.
    """

    def __init__(self, table: Location) -> None:
        self._location = table / LOG_DIRECTORY
        self._table = table.path if isinstance(table, LocalLocation) else None
        self._synced_commits = 0  # the number of commits, from 0 on, that are on disk
        self._synced_others: dict[str, _FileState] = {}
        """The state of each other file of the log when it was synced, by name."""
        self._checkpoint: _FileState | None = None
        """The state of `_last_checkpoint` when the whole log was synced."""

    def sync(self) -> None:
        """Sync all files of the log, of any writer, that this object has not synced yet.

        Usually that is the next commit, whose name is known: the log of a month may have a million
        files, too many to list for each batch.
        """
        if self._table is None:
            return
        log = self._table / LOG_DIRECTORY
        if not self._synced_commits or _file_state(log / LAST_CHECKPOINT) != self._checkpoint:
            self._sync_whole(self._table, log)
            return
        known = self._synced_commits
        while (commit := log / commit_name(self._synced_commits)).exists():
            sync(commit)
            self._synced_commits += 1
        if self._synced_commits != known:
            sync(log)

    def has(self, version: int) -> bool:
        """Return whether the log has the commit of this version.

        It looks up one name, while the deltalake package would list the whole log.
        """
        return (self._location / commit_name(version)).exists()

    def expire_versions(self, versions_max: int) -> None:
        """Remove log files that the last versions do not need [Delta protocol, Metadata Cleanup].

        With more files each commit and each read of the table takes longer, and Delta expires them
        only by age: two commits a second are 172,800 a day. The files before a checkpoint are
        removed if the checkpoint is older than the last versions; it is synced first.

        Args:
            versions_max: the number of last versions that stay, at least COMMITS_MIN.
        """
        found = [_Entry(name) for name in self._location.names() if name[:1].isdecimal()]
        last = max((entry.version for entry in found if entry.is_commit), default=0)
        newest_removable = last - max(versions_max, COMMITS_MIN)
        checkpoints = [e for e in found if e.is_checkpoint and e.version <= newest_removable]
        newest = max(checkpoints, key=lambda entry: entry.version, default=None)
        if newest is None:
            return
        (self._location / newest.name).sync()
        self._location.sync()
        for entry in sorted(found, key=lambda entry: entry.version):
            if entry.version < newest.version and (entry.is_commit or entry.is_checkpoint):
                (self._location / entry.name).remove()

    def _sync_whole(self, table: Path, log: Path) -> None:
        checkpoint = _file_state(log / LAST_CHECKPOINT)
        commits: list[int] = []
        others: dict[str, _FileState] = {}
        with os.scandir(log) as entries:
            for entry in entries:
                stem, _, ending = entry.name.partition(".")
                if ending == "json" and stem.isdecimal():
                    commits.append(int(stem))
                elif state := _file_state(log / entry.name):  # else removed just now
                    others[entry.name] = state
        new = [commit_name(n) for n in sorted(commits) if n >= self._synced_commits]
        new += [
            name for name, state in sorted(others.items()) if self._synced_others.get(name) != state
        ]
        for name in new:
            with suppress(FileNotFoundError):
                sync(log / name)
        if new:
            sync(log)
        if not self._synced_commits:
            sync(table)
            sync(table.parent)
        self._synced_commits = max([self._synced_commits, *(n + 1 for n in commits)])
        self._synced_others, self._checkpoint = others, checkpoint


def oldest_version_at(table: Location) -> datetime | None:
    """Return the time of the oldest version that can be read from the log; None without a log.

    A version can be read if all commits are there since a checkpoint before it, or since the table
    was created.
    """
    log = table / LOG_DIRECTORY
    found = [
        entry
        for entry in map(_Entry, (name for name in log.names() if name[:1].isdecimal()))
        if entry.is_checkpoint or (entry.is_commit and entry.version == 0)
    ]
    oldest = min(found, key=lambda entry: entry.version, default=None)
    with suppress(FileNotFoundError):  # removed just now
        if oldest is not None:
            return datetime.fromtimestamp((log / oldest.name).stat().modified_at_s, UTC)
    return None


def _file_state(path: Path) -> _FileState | None:
    """Return a file's size and time of modification in ns; None if there is no file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns
