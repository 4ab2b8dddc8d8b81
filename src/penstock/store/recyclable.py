"""Recyclable records: Penstock's logs never have any, and RocksDB 9.8 reads one endlessly.

RocksDB writes its write-ahead logs and its MANIFEST as records in blocks of 32 KiB. The rest of a
block that is too short for a header is skipped (``db/log_format.h``)::

    ├───────────────── block ─────────────────┤
    │ record │ record │ record         │ rest │
    └────────┘
      checksum, 4 bytes │ length, 2 │ type, 1 │ what was written

There are two sets of types. The *recyclable* types, whose header is longer, occur in log files that
are reused (``recycle_log_file_num``), from the first record on. Penstock does not recycle log
files, so a recyclable type here is garbage that a power cut left at the end of a log, or a flipped
bit. The checksum would reveal that, but RocksDB examines the type first: it finds a recyclable
record behind one that is not, reports "bad record", does not advance, and reads the same record
again, endlessly (``Reader::ReadPhysicalRecord`` and ``FragmentBufferedReader::TryReadFragment`` in
``db/log_reader.cc``).

So before a database is opened, such a type is overwritten by its twin of the other set, and then
the checksum decides: garbage counts as a damaged record, at which recovery stops, and a record in
which only a bit of the type was flipped is whole again. The file is not truncated there, because
RocksDB would then continue with the next log and not notice the gap.

No checksum is compared here. Behind a damaged record RocksDB skips the rest of a block, so
overwriting a byte there loses nothing.

A log that is being written has no such record: a reader sees a prefix of valid records. A database
in use is therefore never mended.

This file can be removed when the RocksDB in rocksdict skips such a record by itself. Its tests:
`tests/contract/test_recyclable.py` with RocksDB, `tests/unit/store/test_recyclable_bytes.py` for
any bytes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BLOCK_BYTES: Final = 32 * 1024
_HEADER: Final = struct.Struct("<4xHB")  # without the checksum: length, type
_TYPE_AT: Final = 6
_UNUSED: Final = (0, 0)  # length and type in a block that was allocated and not written
_TWINS: Final = {5: 1, 6: 2, 7: 3, 8: 4, 11: 10}  # recyclable type → type of the other set


@dataclass(frozen=True, slots=True)
class RecyclableRecord:
    """A record with a recyclable type, which is always invalid: Penstock recycles no log files.

    Attributes:
        path: the write-ahead log or MANIFEST with the record.
        offset: position of the record's type byte in the file.
        type: the value of that byte.
    """

    path: Path
    offset: int
    type: int

    def __str__(self) -> str:
        return (
            f"byte {self.offset} of {self.path.name} was found to be {self.type}, which is never"
            " written there: garbage, as a power cut may leave it, or a flipped bit"
        )

    @property
    def twin(self) -> int:
        """The type of the other set, which replaces this record's type."""
        return _TWINS[self.type]


def find_recyclable_records(store: Path) -> list[RecyclableRecord]:
    """Return the recyclable records in the logs and MANIFEST files in the directory ``store``.

    Files that cannot be read are skipped.
    """
    found: list[RecyclableRecord] = []
    for path in sorted([*store.glob("*.log"), *store.glob("MANIFEST-*")]):
        with contextlib.suppress(OSError):  # RocksDB reports it, or the file was just removed
            found.extend(_recyclable_in(path))
    return found


def _recyclable_in(path: Path) -> Iterator[RecyclableRecord]:
    with path.open("rb") as file:
        begin = 0
        while block := file.read(_BLOCK_BYTES):
            at, last = 0, len(block) - _HEADER.size
            while at <= last:
                length, type_ = header = _HEADER.unpack_from(block, at)
                if type_ in _TWINS:
                    yield RecyclableRecord(path, begin + at + _TYPE_AT, type_)
                elif header == _UNUSED:
                    break
                at += _HEADER.size + length
            if len(block) < _BLOCK_BYTES:
                return
            begin += _BLOCK_BYTES


def mend(records: list[RecyclableRecord]) -> None:
    """Overwrite the type of each record by its twin, with a sync.

    No process may have the database open.

    Raises:
        OSError: a file cannot be written.
    """
    for each in records:
        with each.path.open("r+b") as file:
            file.seek(each.offset)
            file.write(bytes([each.twin]))
            file.flush()
            os.fsync(file.fileno())


def mended_copy(store: Path, records: list[RecyclableRecord], copy: Path) -> None:
    """Create the directory ``copy`` with links to the files in ``store``, and mend the records
    there.

    Only files with such records are copied.

    Raises:
        OSError: a file cannot be written.
    """
    copy.mkdir()
    to_mend = {each.path for each in records}
    for path in store.iterdir():
        if path in to_mend:
            shutil.copyfile(path, copy / path.name)
        elif not path.name.startswith(("LOG", "LOCK")):  # RocksDB writes these also as a reader
            (copy / path.name).symlink_to(path.absolute())
    mend([RecyclableRecord(copy / each.path.name, each.offset, each.type) for each in records])
