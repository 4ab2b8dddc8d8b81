"""RocksDB in memory for simulations, with what a power cut leaves of it.

A ``ViewDisk`` outlasts its member. It knows what is synced, and each batch that was written since:
a power cut leaves what was synced and a prefix of those batches, as RocksDB's log with recovery to
a point in time does. ``MemoryDatabase`` is an open database on it; of RocksDB it has only what the
store uses.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, cast, final

from rocksdict import Rdict, ReadOptions, WriteBatch

from penstock.cluster.database import ClusterDatabase
from penstock.cluster.operations import (
    DELETE,
    DELETE_RANGE,
    FAMILIES,
    PUT,
    NotedBatch,
    Operation,
)
from penstock.store.batch import StoreBatch

Content = dict[str, dict[bytes, bytes]]
"""Keys and values of each column family."""


def apply(operations: Sequence[Operation], content: Content) -> None:
    """Do ``operations`` to ``content``."""
    for kind, family, key, value in operations:
        values = content[FAMILIES[family]]
        if kind == PUT:
            values[key] = value
        elif kind == DELETE:
            values.pop(key, None)
        else:
            for each in [each for each in values if key <= each < value]:
                del values[each]


def nothing() -> Content:
    """Return the content of an empty database."""
    return {name: {} for name in FAMILIES}


def copied(content: Content) -> Content:
    """Return a copy."""
    return {name: dict(values) for name, values in content.items()}


@final
class ViewDisk:
    """The disk of one member.

    Args:
        content: what is on it already.

    Attributes:
        content: what is written.
    """

    def __init__(self, content: Content | None = None) -> None:
        self._synced = nothing() if content is None else copied(content)
        self.content = copied(self._synced)
        self._unsynced: list[list[Operation]] = []

    def write(self, operations: list[Operation]) -> None:
        """Write a batch."""
        apply(operations, self.content)
        self._unsynced.append(operations)

    def sync(self) -> None:
        """Let all that is written outlast a power cut."""
        for operations in self._unsynced:
            apply(operations, self._synced)
        self._unsynced.clear()

    def cut_power(self, random: Random) -> int:
        """Lose some of the batches written since the last sync, the newest; return how many."""
        lost = random.randint(0, len(self._unsynced))
        del self._unsynced[len(self._unsynced) - lost :]
        self.sync()
        self.content = copied(self._synced)
        return lost


@final
class _Handle:
    """A column family's handle in batches."""

    def __init__(self, number: int) -> None:
        self.number = number


@final
class MemoryBatch:
    """A batch; see ``rocksdict.WriteBatch``."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def put(self, key: bytes, value: bytes, family: _Handle) -> None:
        self.operations.append((PUT, family.number, key, value))

    def delete(self, key: bytes, family: _Handle) -> None:
        self.operations.append((DELETE, family.number, key, b""))

    def delete_range(self, begin: bytes, end: bytes, family: _Handle) -> None:
        self.operations.append((DELETE_RANGE, family.number, begin, end))

    def size_in_bytes(self) -> int:
        return sum(len(key) + len(value) for _, _, key, value in self.operations)


@final
class _Iterator:
    """An iterator over what a column family has now; see ``rocksdict.RdictIter``."""

    def __init__(self, values: dict[bytes, bytes]) -> None:
        self._keys = sorted(values)
        self._values = [values[key] for key in self._keys]
        self._at = len(self._keys)

    def valid(self) -> bool:
        return 0 <= self._at < len(self._keys)

    def seek_to_first(self) -> None:
        self._at = 0

    def seek_to_last(self) -> None:
        self._at = len(self._keys) - 1

    def seek(self, key: bytes) -> None:
        self._at = bisect_left(self._keys, key)

    def seek_for_prev(self, key: bytes) -> None:
        self._at = bisect_right(self._keys, key) - 1

    def key(self) -> bytes:
        return self._keys[self._at]

    def value(self) -> bytes:
        return self._values[self._at]

    def next(self) -> None:
        self._at += 1

    def prev(self) -> None:
        self._at -= 1

    def status(self) -> None:
        """All can be read."""


@final
class _Family:
    """One column family; see ``rocksdict.Rdict``."""

    def __init__(self, disk: ViewDisk, name: str) -> None:
        self._disk = disk
        self._name = name

    def get(self, key: bytes) -> bytes | None:
        return self._disk.content[self._name].get(key)

    def iter(self, options: ReadOptions | None = None) -> _Iterator:
        del options
        return _Iterator(self._disk.content[self._name])

    def items(
        self, from_key: bytes | None = None, read_opt: ReadOptions | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        del read_opt
        for key, value in sorted(self._disk.content[self._name].items()):
            if from_key is None or key >= from_key:
                yield key, value

    def close(self) -> None:
        """Nothing is held."""


@final
class _Rocks:
    """The database; see ``rocksdict.Rdict``."""

    def __init__(self, disk: ViewDisk) -> None:
        self._disk = disk

    def write(self, batch: MemoryBatch, options: object = None) -> None:
        del options
        self._disk.write(list(batch.operations))

    def flush_wal(self, sync: bool) -> None:
        assert sync
        self._disk.sync()

    def get_column_family_handle(self, name: str) -> _Handle:
        return _Handle(FAMILIES.index(name))

    def get_column_family(self, name: str) -> _Family:
        return _Family(self._disk, name)

    def create_column_family(self, name: str, options: object) -> None:
        """All are there."""

    def close(self) -> None:
        """Nothing is held."""


class MemoryDatabase(ClusterDatabase):
    """The view of a member, in memory.

    Args:
        disk: its disk.
        data_dir: a directory for the watermark, which is a file.
    """

    def __init__(self, disk: ViewDisk, data_dir: Path) -> None:
        rocks = cast("Rdict", cast("Any", _Rocks(disk)))
        super().__init__(rocks, data_dir, FAMILIES)

    def rocks_batch(self) -> WriteBatch:
        return cast("WriteBatch", cast("Any", MemoryBatch()))


class StoppedDatabase(MemoryDatabase):
    """The view of a member that does not run, as the commands of an operator change it."""

    is_replicated = False

    def write(self, batch: StoreBatch, sync: bool = True) -> None:
        assert isinstance(batch, NotedBatch)
        self.write_here(batch.rocks, sync)
