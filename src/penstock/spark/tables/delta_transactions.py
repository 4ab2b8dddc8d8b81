"""The version of a Delta table that a job knows, and the application transactions up to it.

    _last_checkpoint ─▶ …0200.checkpoint.parquet (column txn) ─▶ …0201.json ─▶ …0202.json ─▶ …
                                                                 └─ then only what is new

The deltalake package reads all commits since the last checkpoint for each number that it is asked
for: 220 requests of an object store for a commit of one file.

A version is known by its number and by what its commit says: an older copy of the table may be put
back and grow to as many versions as before.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec
import pyarrow.parquet as pq

from penstock.spark.storage.location import Location
from penstock.spark.tables.delta_log import LAST_CHECKPOINT, commit_name

_CHECKPOINT: Final = "{:020}.checkpoint.parquet"


class _Checkpoint(msgspec.Struct):
    version: int
    parts: int | None = None
    v2Checkpoint: Any = None  # noqa: N815  # its name in the protocol


class _Transaction(msgspec.Struct):
    appId: str  # noqa: N815
    version: int


class _Action(msgspec.Struct):
    txn: _Transaction | None = None


_decode_checkpoint: Final = msgspec.json.Decoder(_Checkpoint).decode
_decode_action: Final = msgspec.json.Decoder(_Action).decode


class _UnknownForm(Exception):
    """Raised when a checkpoint has a form that Penstock does not write, or is behind a version."""


class KnownVersion:
    """A version of a table, which `follow` moves on; at first none is known.

    Args:
        log: the directory of the log.

    Attributes:
        numbers: the version of each application at this version of the table. None if that cannot
            be read here: the checkpoint is of another writer, in a form that Penstock does not
            write, or commits before it have expired.
    """

    def __init__(self, log: Location) -> None:
        self._log = log
        self._version = -1
        self._commit: bytes | None = None  # that of the version; None if the log lacks it
        self.numbers: dict[str, int] | None = {}

    def is_there(self, version: int) -> bool:
        """Return whether `version` is the one that is known, and the log still has its commit.

        Raises:
            OSError: the log cannot be read.
        """
        if version != self._version or self._commit is None:
            return False
        try:
            return self._read(version) == self._commit
        except FileNotFoundError:
            return False

    def follow(self, version: int) -> None:
        """Read what the log says up to a version, which is not behind the known one.

        Raises:
            OSError: the log cannot be read; then nothing is known any more.
        """
        known, self._version = self._version, -1
        if self.numbers is None or known < 0:
            known, self.numbers = -1, {}
        try:
            if known < 0:
                known = self._read_checkpoint(version, self.numbers)
            for following in range(known + 1, version + 1):
                self._take(self._read(following), self.numbers)
        except (FileNotFoundError, _UnknownForm):
            self.numbers = self._commit = None
            with suppress(FileNotFoundError):
                self._commit = self._read(version)
        self._version = version

    def _read_checkpoint(self, version: int, numbers: dict[str, int]) -> int:
        """Take the numbers of the last checkpoint; return its version, -1 without one."""
        with suppress(FileNotFoundError):
            last = _decode_checkpoint((self._log / LAST_CHECKPOINT).read())
            if last.version > version or last.parts is not None or last.v2Checkpoint is not None:
                raise _UnknownForm
            with (
                (self._log / _CHECKPOINT.format(last.version)).open_input() as content,
                pq.ParquetFile(content) as file,
            ):
                for row in file.read(["txn"]).column("txn").to_pylist():
                    if row is not None and row["appId"] is not None:
                        numbers[row["appId"]] = row["version"]
            self._take(self._read(last.version), numbers)
            return last.version
        return -1

    def _read(self, version: int) -> bytes:
        return (self._log / commit_name(version)).read()

    def _take(self, commit: bytes, numbers: dict[str, int]) -> None:
        for line in commit.splitlines():
            if b'"txn"' in line and (found := _decode_action(line).txn) is not None:
                numbers[found.appId] = found.version
        self._commit = commit
