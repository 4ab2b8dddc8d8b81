"""Copying into a fresh database: in portions, without a write-ahead log, synced at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, final

import msgspec
from rocksdict import WriteBatch, WriteOptions

from penstock.errors import StoreFailed
from penstock.store import identity
from penstock.store.archive import ARCHIVES_MADE, SPAN_LENGTH_BYTES
from penstock.store.chunk import chunk_note, encode_key, summary_of
from penstock.store.database import (
    ARCHIVE_FAMILY,
    FORMAT,
    FORMAT_KEY,
    open_database,
)
from penstock.store.faults import with_remedy
from penstock.store.findings import Examination
from penstock.store.parts import LARGE_BYTES
from penstock.store.ranges import join_ranges
from penstock.store.watermark import Committed, write_watermark

PORTION_BYTES_MAX: Final = 4 * 1_048_576


@final
class Copy:
    """A store in the making.

    Args:
        data_dir: the data directory of the copy, which is in ``store`` beneath it; it must not
            exist yet.
        copied: called with the number of further bytes copied.
    """

    def __init__(self, data_dir: Path, copied: Callable[[int], None]) -> None:
        self._data_dir = data_dir
        self._database = open_database(data_dir)
        self._copied = copied
        self._options = WriteOptions()
        self._options.disable_wal = True  # type: ignore[method-assign, assignment]  # its stub errs
        self._batch = WriteBatch(raw_mode=True)
        self._batch_bytes = 0

    def put(self, family: str, key: bytes, value: bytes) -> None:
        """Copy one value, with all its parts where it is large.

        Raises:
            StoreFailed: it could not be written.
        """
        self._database.put(self._batch, family, key, [value], _note(family, value))
        self._batch_bytes += len(key) + len(value)
        if self._batch_bytes >= PORTION_BYTES_MAX:
            self._write()

    def put_chunk(self, begin: int, chunk: bytes) -> None:
        """Copy a chunk of the log."""
        self.put("log", encode_key(begin), chunk)

    def finish(self, found: Examination) -> str:
        """Write down the log's identity and its watermark, and sync all of it; return the epoch.

        The epoch is a new one unless nothing of the log is lost.

        Raises:
            StoreFailed: it could not be written.
        """
        epoch = found.epoch
        lineage = found.lineage
        if not found.log_is_whole or found.archives_lost:
            epoch = identity.new_epoch()
            lineage = [(former, min(end, found.same_until)) for former, end in found.lineage]
            if found.epoch:
                lineage.append((found.epoch, found.same_until))
        commits = max(found.commits, 1)
        given_up = [
            (begin, min(end, found.end))
            for begin, end in join_ranges([*found.given_up, *found.lost])
            if begin < found.end and end > found.begin
        ]
        for key, value in (
            (FORMAT_KEY, FORMAT),
            (identity.EPOCH, epoch.encode()),
            (identity.LINEAGE, msgspec.msgpack.encode(lineage)),
            (identity.GIVEN_UP, msgspec.msgpack.encode(given_up)),
            (identity.CREATED_AT, str(found.created_at_us).encode()),
            (identity.COMMITS, encode_key(commits)),
            (identity.LOG_BYTES_APPENDED, encode_key(found.log_size_bytes)),
            (identity.LOG_BYTES_REMOVED, encode_key(0)),
            (ARCHIVES_MADE, encode_key(found.archives_made)),
        ):
            self.put("meta", key, value)
        self._write()
        try:
            for family in self._database.families.values():
                family.flush()
        except Exception as error:  # rocksdict raises bare Exception for every I/O error
            raise self._failed(error) from error
        write_watermark(self._data_dir, Committed(found.end, found.begin, commits, epoch))
        return epoch

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _write(self) -> None:
        try:
            self._database.rocks.write(self._batch, self._options)
        except Exception as error:  # rocksdict raises bare Exception for every I/O error
            raise self._failed(error) from error
        self._copied(self._batch_bytes)
        self._batch = WriteBatch(raw_mode=True)
        self._batch_bytes = 0

    def _failed(self, error: Exception) -> StoreFailed:
        return StoreFailed(
            f"the repair could not be written: {with_remedy(error, self._data_dir.parent)}"
        )


def _note(family: str, value: bytes) -> bytes:
    """Return the note that the head of a large value carries."""
    if len(value) >= LARGE_BYTES and family == "log":
        summary = summary_of(value)
        return chunk_note(summary.rows, summary.newest_us)
    return value[:SPAN_LENGTH_BYTES] if family == ARCHIVE_FAMILY else b""
