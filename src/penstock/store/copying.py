"""Copies values into a new database: in portions, without a write-ahead log, synced at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, final

import msgspec
from rocksdict import WriteBatch, WriteOptions

from penstock.errors import StoreUnavailable
from penstock.store import identity
from penstock.store.archive import LAST_ARCHIVE_NUMBER, SPAN_LENGTH_BYTES
from penstock.store.chunk import chunk_note, encode_key, summarize_chunk
from penstock.store.database import (
    ARCHIVE_FAMILY,
    FORMAT,
    FORMAT_KEY,
    open_database,
)
from penstock.store.faults import with_remedy
from penstock.store.findings import Examination
from penstock.store.history import RUNS, encode_runs
from penstock.store.parts import LARGE_BYTES
from penstock.store.ranges import join_ranges
from penstock.store.watermark import Watermark, write_watermark

PORTION_BYTES_MAX: Final = 4 * 1_048_576


@final
class Copy:
    """A new store that a repair fills with the readable values of a damaged one.

    Args:
        data_dir: the data directory of the copy; ``store`` in it must not exist yet.
        report_bytes: called after each portion with the number of bytes in it.
    """

    def __init__(self, data_dir: Path, report_bytes: Callable[[int], None]) -> None:
        self._data_dir = data_dir
        self._database = open_database(data_dir)
        self._report_bytes = report_bytes
        self._options = WriteOptions()
        self._options.disable_wal = True  # type: ignore[method-assign, assignment]  # its stub errs
        self._batch = WriteBatch(raw_mode=True)
        self._batch_bytes = 0

    def put(self, family: str, key: bytes, value: bytes) -> None:
        """Copy one value; a large one is written in parts.

        Args:
            family: name of the column family.
            key: key of the value.
            value: the whole value.

        Raises:
            StoreUnavailable: the value could not be written.
        """
        self._database.put(self._batch, family, key, [value], _note(family, value))
        self._batch_bytes += len(key) + len(value)
        if self._batch_bytes >= PORTION_BYTES_MAX:
            self._write()

    def put_chunk(self, begin: int, chunk: bytes) -> None:
        """Copy a chunk of the log whose first offset is ``begin``."""
        self.put("log", encode_key(begin), chunk)

    def finish(self, findings: Examination) -> str:
        """Write the log's identity and its watermark, and sync the copy; return its epoch.

        The copy gets a new epoch, except where the log and the archives have lost nothing.

        Args:
            findings: the findings of the examination that filled this copy.

        Raises:
            StoreUnavailable: the copy could not be written.
        """
        epoch = findings.epoch
        lineage = findings.lineage
        if not findings.log_is_whole or findings.lost_archive_ranges:
            lineage = [(former, min(end, findings.same_until)) for former, end in findings.lineage]
            if findings.epoch:
                lineage.append((findings.epoch, findings.same_until))
            epoch = identity.new_epoch(former for former, _ in lineage)
        commits = max(findings.commits, 1)
        given_up = [
            (begin, min(end, findings.end))
            for begin, end in join_ranges([*findings.given_up, *findings.lost_ranges])
            if begin < findings.end and end > findings.begin
        ]
        for key, value in (
            (FORMAT_KEY, FORMAT),
            (identity.EPOCH, epoch.encode()),
            (identity.LINEAGE, msgspec.msgpack.encode(lineage)),
            (identity.GIVEN_UP, msgspec.msgpack.encode(given_up)),
            (identity.SEAMS, msgspec.msgpack.encode(findings.seams + findings.broken_links)),
            (RUNS, encode_runs(findings.runs)),
            (identity.CREATED_AT, str(findings.created_at_us).encode()),
            (identity.COMMITS, encode_key(commits)),
            (identity.LOG_BYTES_APPENDED, encode_key(findings.log_size_bytes)),
            (identity.LOG_BYTES_REMOVED, encode_key(0)),
            (LAST_ARCHIVE_NUMBER, encode_key(findings.last_archive_number)),
        ):
            self.put("meta", key, value)
        self._write()
        try:
            for family in self._database.families.values():
                family.flush()
        except Exception as error:  # rocksdict raises bare Exception for every I/O error
            raise self._failed(error) from error
        write_watermark(self._data_dir, Watermark(findings.end, findings.begin, commits, epoch))
        return epoch

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _write(self) -> None:
        try:
            self._database.rocks.write(self._batch, self._options)
        except Exception as error:  # rocksdict raises bare Exception for every I/O error
            raise self._failed(error) from error
        self._report_bytes(self._batch_bytes)
        self._batch = WriteBatch(raw_mode=True)
        self._batch_bytes = 0

    def _failed(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(
            f"the repair could not be written: {with_remedy(error, self._data_dir.parent)}"
        )


def _note(family: str, value: bytes) -> bytes:
    """Return the note that the head of a large value carries."""
    if len(value) >= LARGE_BYTES and family == "log":
        summary = summarize_chunk(value)
        return chunk_note(summary.rows, summary.newest_us)
    return value[:SPAN_LENGTH_BYTES] if family == ARCHIVE_FAMILY else b""
