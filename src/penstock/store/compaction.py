"""Compaction: rewrites the whole database without removed and replaced values.

RocksDB compacts in the background when that pays. An operator compacts the whole database to free
space at once, for instance after shortening retention.
"""

from __future__ import annotations

from pathlib import Path

from penstock.errors import StoreUnavailable
from penstock.store.database import STORE_DIRECTORY
from penstock.store.faults import with_remedy
from penstock.store.offline import open_offline


def compact(data_dir: Path) -> tuple[int, int]:
    """Compact the store below ``data_dir``; return its size in bytes before and after.

    Raises:
        StoreLocked: a broker has the store open.
        HistoryMismatch: the store holds less than was acknowledged.
        StoreError: there is no store, or it could not be written.
    """
    with open_offline(data_dir) as database:
        before = _size_bytes(data_dir)
        try:
            for family in database.families.values():
                family.flush()
                family.compact_range(None, None)
        except Exception as error:  # rocksdict raises bare Exception for every I/O error
            why = with_remedy(error, data_dir)
            raise StoreUnavailable(
                f"the store in {data_dir} could not be compacted: {why}"
            ) from error
    return before, _size_bytes(data_dir)


def _size_bytes(data_dir: Path) -> int:
    files = (data_dir / STORE_DIRECTORY).iterdir()
    return sum(path.stat().st_size for path in files if path.suffix in (".sst", ".log", ".blob"))
