"""A batch of changes to the database: what is written in one atomic step."""

from __future__ import annotations

from typing import Protocol

from rocksdict import ColumnFamily


class Batch(Protocol):
    """Changes that are written together: RocksDB's own batch, or one that also notes them for a
    replicated log. ``Database.new_batch`` makes it, ``Database.write`` writes it."""

    def put(self, key: bytes, value: bytes, column_family: ColumnFamily) -> None:
        """Add: ``value`` is stored under ``key``."""

    def delete(self, key: bytes, column_family: ColumnFamily) -> None:
        """Add: ``key`` goes."""

    def delete_range(self, begin: bytes, end: bytes, column_family: ColumnFamily) -> None:
        """Add: the keys from ``begin`` up to, not including, ``end`` go."""

    def is_empty(self) -> bool:
        """Return whether nothing was added."""

    def size_in_bytes(self) -> int:
        """Return the size of what was added, as RocksDB counts it."""
