"""Recyclable records: no log of ours has any, and RocksDB 9.8 reads one for ever.

RocksDB writes its write-ahead logs and its MANIFEST as records in blocks of 32 KiB. What is left of
a block and too short for a header is passed over (``db/log_format.h``)::

    ├───────────────── block ─────────────────┤
    │ record │ record │ record         │ rest │
    └────────┘
      checksum, 4 bytes │ length, 2 │ type, 1 │ what was written

There are two sets of types. The *recyclable* ones, whose header is longer, stand in log files that
are used a second time (``recycle_log_file_num``), and there from the first record on. We do not
recycle, so here they are never a record: they are garbage, as a power cut may leave it at the end
of a log, or a flipped bit. The checksum would tell, but RocksDB looks at the type before: it finds
a recyclable record behind one that is not, says "bad record", stays where it is, and reads it
again, for ever (``Reader::ReadPhysicalRecord`` and ``FragmentBufferedReader::TryReadFragment`` in
``db/log_reader.cc``).

So before a database is opened such a type becomes its twin of the other set, and then the checksum
decides: garbage is what any damaged record is, where recovery stops, and a record of which only a
bit of the type was wrong is whole again. The file is not cut there, for RocksDB would go on with
the next log and miss nothing.

No checksum is compared here. Behind a damaged record the rest of a block means nothing, and RocksDB
leaves it out; a byte overwritten there takes nothing away.

A log that is being written has none: a reader sees the first bytes of what was written, and each of
them is true. A database that is in use is therefore never mended.

This file goes when the RocksDB in rocksdict gets past such a record by itself. Its tests:
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
_UNUSED: Final = (0, 0)  # length and type where a block was allocated and not written
_TWINS: Final = {5: 1, 6: 2, 7: 3, 8: 4, 11: 10}


@dataclass(frozen=True, slots=True)
class Recyclable:
    """A recyclable record where there can be none.

    Attributes:
        path: the write-ahead log or MANIFEST with it.
        offset: place of its type byte in the file.
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
        """The type that it is overwritten by."""
        return _TWINS[self.type]


def find_recyclable(store: Path) -> list[Recyclable]:
    """Look through the database in the directory ``store``; what cannot be read is left out."""
    found: list[Recyclable] = []
    for path in sorted([*store.glob("*.log"), *store.glob("MANIFEST-*")]):
        with contextlib.suppress(OSError):  # RocksDB will tell; or it is removed already
            found.extend(_recyclable_in(path))
    return found


def _recyclable_in(path: Path) -> Iterator[Recyclable]:
    with path.open("rb") as file:
        begin = 0
        while block := file.read(_BLOCK_BYTES):
            at, last = 0, len(block) - _HEADER.size
            while at <= last:
                length, type_ = header = _HEADER.unpack_from(block, at)
                if type_ in _TWINS:
                    yield Recyclable(path, begin + at + _TYPE_AT, type_)
                elif header == _UNUSED:
                    break
                at += _HEADER.size + length
            if len(block) < _BLOCK_BYTES:
                return
            begin += _BLOCK_BYTES


def mend(found: list[Recyclable]) -> None:
    """Overwrite each type by its twin, synced. Nobody may have the database open.

    Raises:
        OSError: the file cannot be written.
    """
    for each in found:
        with each.path.open("r+b") as file:
            file.seek(each.offset)
            file.write(bytes([each.twin]))
            file.flush()
            os.fsync(file.fileno())


def mended_copy(store: Path, found: list[Recyclable], copy: Path) -> None:
    """Make the directory ``copy`` a database of links to the files in ``store``, and mend that.

    Only the files to be mended are copied.

    Raises:
        OSError: the file cannot be written.
    """
    copy.mkdir()
    to_mend = {each.path for each in found}
    for path in store.iterdir():
        if path in to_mend:
            shutil.copyfile(path, copy / path.name)
        elif not path.name.startswith(("LOG", "LOCK")):  # those RocksDB writes also as a reader
            (copy / path.name).symlink_to(path.absolute())
    mend([Recyclable(copy / each.path.name, each.offset, each.type) for each in found])
