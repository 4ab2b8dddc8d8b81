"""The application transactions of a Delta table, of which each commit reads and writes several.

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

_LAST_CHECKPOINT: Final = "_last_checkpoint"
_COMMIT: Final = "{:020}.json"
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


class AppTransactions:
    """The numbers that the log of a table stores, at the version that was asked for last.

    Args:
        log: the directory of the log.
    """

    def __init__(self, log: Location) -> None:
        self._log = log
        self._version = -1
        self._last = b""  # the commit of that version
        self._numbers: dict[str, int] = {}

    def is_there(self, version: int) -> bool:
        """Return whether the log has the commit of a version, and the same as when it was read.

        Raises:
            OSError: the log cannot be read.
        """
        try:
            found = self._commit(version)
        except FileNotFoundError:
            return False
        return version != self._version or found == self._last

    def at(self, version: int) -> dict[str, int] | None:
        """Return the version of each application at a version of the table.

        Returns:
            None if that cannot be read here: the checkpoint is of another writer, in a form that
            Penstock does not write, or commits before it have expired.

        Raises:
            OSError: the log cannot be read.
        """
        if version < self._version:
            self._version, self._numbers = -1, {}
        try:
            if self._version < 0 and not self._read_checkpoint(version):
                return None
            while self._version < version:
                self._take(self._version + 1, self._commit(self._version + 1))
        except FileNotFoundError:
            self._version, self._numbers = -1, {}
            return None
        return self._numbers

    def _read_checkpoint(self, version: int) -> bool:
        """Begin with the last checkpoint, if it is not behind `version`; return whether it can be
        read."""
        with suppress(FileNotFoundError):
            last = _decode_checkpoint((self._log / _LAST_CHECKPOINT).read())
            if last.version > version or last.parts is not None or last.v2Checkpoint is not None:
                return False
            with (
                (self._log / _CHECKPOINT.format(last.version)).open_input() as content,
                pq.ParquetFile(content) as file,
            ):
                for row in file.read(["txn"]).column("txn").to_pylist():
                    if row is not None and row["appId"] is not None:
                        self._numbers[row["appId"]] = row["version"]
            self._take(last.version, self._commit(last.version))
        return True

    def _commit(self, version: int) -> bytes:
        return (self._log / _COMMIT.format(version)).read()

    def _take(self, version: int, commit: bytes) -> None:
        for line in commit.splitlines():
            if b'"txn"' in line and (found := _decode_action(line).txn) is not None:
                self._numbers[found.appId] = found.version
        self._version, self._last = version, commit
