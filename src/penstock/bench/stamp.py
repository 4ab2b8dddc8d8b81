"""The stamp of each message: 28 bytes at the front of its payload, big-endian.

======== ===== =============================================================================
bytes    type  meaning
======== ===== =============================================================================
0 - 7    i64   the run, a random number: messages of other runs do not count
8 - 11   i32   the publisher's number, from 0
12 - 19  i64   the number of the message among the publisher's, from 0
20 - 27  i64   when the message was due, nanoseconds of this process's monotonic clock
======== ===== =============================================================================
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

SIZE_BYTES: Final = 28

_PUBLISHER_AT: Final = 8
_SEQUENCE_AT: Final = 12
_DUE_AT: Final = 20


@final
class Stamper:
    """Makes the payloads of one publisher.

    Args:
        run: the number of this run.
        publisher: the number of the publisher.
        size_bytes: size of each payload, ``SIZE_BYTES`` or more.
    """

    def __init__(self, run: int, publisher: int, size_bytes: int) -> None:
        writer = BytesWriter()
        write_i64_be(writer, i64(run))
        write_i32_be(writer, i32(publisher))
        self._prefix = writer.getvalue()
        self._padding = b"x" * (size_bytes - SIZE_BYTES)

    def payload(self, sequence: int, due_ns: int) -> bytes:
        """Return the payload of the message with number ``sequence``, due at ``due_ns``."""
        writer = BytesWriter()
        writer.write(self._prefix)
        write_i64_be(writer, i64(sequence))
        write_i64_be(writer, i64(due_ns))
        writer.write(self._padding)
        return writer.getvalue()


def is_stamped_by(run: int, payload: bytes) -> bool:
    """Return whether a payload has a stamp of this run."""
    return len(payload) >= SIZE_BYTES and read_i64_be(payload, 0) == run


def publisher_of(payload: bytes) -> int:
    """Return the number of the publisher of a stamped payload."""
    return int(read_i32_be(payload, _PUBLISHER_AT))


def sequence_of(payload: bytes) -> int:
    """Return the number of the message with a stamped payload among its publisher's."""
    return int(read_i64_be(payload, _SEQUENCE_AT))


def due_ns_of(payload: bytes) -> int:
    """Return when the message with a stamped payload was due, in nanoseconds of the monotonic
    clock."""
    return int(read_i64_be(payload, _DUE_AT))
