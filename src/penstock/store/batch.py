"""A batch of changes to the database, written in one atomic step."""

from __future__ import annotations

from typing import Protocol

from rocksdict import ColumnFamily


class StoreBatch(Protocol):
    """Changes that are written together: RocksDB's own batch, or in a cluster a batch that also
    records them for the replicated log. ``Database.new_batch`` makes it, ``Database.write`` writes
    it."""

    def put(self, key: bytes, value: bytes, column_family: ColumnFamily) -> None:
        """Add a write of ``value`` under ``key``."""

    def delete(self, key: bytes, column_family: ColumnFamily) -> None:
        """Add the deletion of ``key``."""

    def delete_range(self, begin: bytes, end: bytes, column_family: ColumnFamily) -> None:
        """Add the deletion of the keys from ``begin`` up to, not including, ``end``."""

    def is_empty(self) -> bool:
        """Return whether the batch has no changes."""

    def size_in_bytes(self) -> int:
        """Return the size of the batch in bytes, as RocksDB counts it."""
