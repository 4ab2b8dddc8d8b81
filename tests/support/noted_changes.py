"""Notes what a store writes to its database, in the form in which a standby is told it."""

from __future__ import annotations

from collections.abc import Callable

from rocksdict import ColumnFamily, WriteBatch

from penstock.store.database import Database
from penstock.store.rocks import RocksStore
from penstock.store.stored_sessions import DELETE, DELETE_RANGE, PUT, Operation


class _NotedBatch:
    """A batch for RocksDB that notes its operations."""

    def __init__(self, database: Database) -> None:
        self.rocks = WriteBatch(raw_mode=True)
        self.operations: list[Operation] = []
        self._database = database

    def put(self, key: bytes, value: bytes, column_family: ColumnFamily) -> None:
        self.rocks.put(key, value, column_family)
        self.operations.append((PUT, self._name(column_family), key, value))

    def delete(self, key: bytes, column_family: ColumnFamily) -> None:
        self.rocks.delete(key, column_family)
        self.operations.append((DELETE, self._name(column_family), key, b""))

    def delete_range(self, begin: bytes, end: bytes, column_family: ColumnFamily) -> None:
        self.rocks.delete_range(begin, end, column_family)
        self.operations.append((DELETE_RANGE, self._name(column_family), begin, end))

    def is_empty(self) -> bool:
        return not self.operations

    def size_in_bytes(self) -> int:
        return self.rocks.size_in_bytes()

    def _name(self, family: ColumnFamily) -> str:
        return next(name for name, known in self._database.handles.items() if known is family)


def note_changes(store: RocksStore, take: Callable[[list[Operation]], None]) -> None:
    """Call ``take`` with the operations of each batch that ``store`` has written, from now on."""
    database = store._database
    write = database.write

    def write_and_note(batch: object, sync: bool = True) -> None:
        if not isinstance(batch, _NotedBatch):
            assert isinstance(batch, WriteBatch)
            write(batch, sync)  # parts that a start removes
            return
        write(batch.rocks, sync)
        take(batch.operations)

    vars(database).update(new_batch=lambda: _NotedBatch(database), write=write_and_note)
