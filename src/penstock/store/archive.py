"""The archive of a stream: its messages that outlive the log.

The log holds all streams and lets go of its oldest chunks, for all of them at once. What a stream
keeps longer moves into the stream's archive when its chunk leaves the log::

      the archive of "alarms"                         the log, of all streams
    ├─ piece ─┼── piece ──┼─ piece ─┼┄┄┄┄┄┄┄┄┄┤ chunk │ chunk │ chunk ▶
    begin                        covered      end

A *piece* stands for a span of offsets and holds the stream's messages in it, as an Arrow record
batch with a column of offsets. An archive is *open* while what leaves the log is added to it.

Invariants:

1. Each piece begins where the one before ends; the first at `begin`, the last ends at `covered`.
   Between `covered` and `end` the stream had no message.
2. All messages of the stream between `begin` and `end` are in it, those of `given_up` apart.
3. An open archive ends where the log begins: one atomic, synced write takes chunks out of the log
   and puts what they had of the stream into the archive. Where the log begins elsewhere, it was
   damaged: behind the archive's end, and what lies between is given up; before it, and a start is
   refused until a repair has seen whether the archive has all of it.
4. Pieces leave from the front, whole. The messages of one were received within one hour of the
   clock, as far as it does not run backwards. It may have none, where a repair has made it.

Which messages belong to a stream is decided when they leave the log. So an archive belongs to a
name *and* topic filters: with other filters, or after the log has let go of something in between,
a stream begins another one.
"""

from __future__ import annotations

from typing import Any, Final, final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import StoreFormatError
from penstock.store.chunk import LOG_SCHEMA, decode_key, encode_key
from penstock.store.parts import Pieces, read_head
from penstock.store.selection import TopicSelector

ARCHIVE: Final = b"archive/"
"""Prefix of the keys of archives, in the column family `meta`; a number of 8 bytes follows."""

ARCHIVES_MADE: Final = b"archives_made"
"""The key in `meta` of how many archives there ever were: no number is given twice."""

ARCHIVE_SCHEMA: Final = LOG_SCHEMA.insert(0, pa.field("offset", pa.int64(), nullable=False))
"""The columns of a piece, one row a message."""

_LAYOUT: Final = 1
SPAN_LENGTH_BYTES: Final = 16
"""At the beginning of a piece; it is also the note in the head of a large one (`store.parts`)."""

_HOUR_US: Final = 3_600_000_000


@final
class Archive(msgspec.Struct, array_like=True):
    """The record of an archive; it is written with each change.

    Attributes:
        layout: version of these fields.
        number: its own, in its keys.
        stream: name of the stream.
        topic_filters: the filters of the stream, sorted.
        begin: offset from which on all messages of the stream are there.
        covered: offset at which the last piece ends; `begin` where there is none.
        end: offset up to which, excluded, the stream has no others.
        messages: number of messages in it.
        size_bytes: size of its pieces.
        retention_s: age in seconds beyond which messages leave; 0 = no limit.
        bytes_max: size beyond which the oldest leave; 0 = no limit.
        is_open: whether messages that leave the log are added.
        given_up: offsets whose messages are lost, in the log before or in the archive.
        is_retired: whether it stays closed, because its offsets stand for other messages now.
    """

    layout: int
    number: int
    stream: str
    topic_filters: list[str]
    begin: int
    covered: int
    end: int
    messages: int = 0
    size_bytes: int = 0
    retention_s: int = 0
    bytes_max: int = 0
    is_open: bool = True
    given_up: list[tuple[int, int]] = []
    is_retired: bool = False

    @property
    def key(self) -> bytes:
        """The key of its record in `meta`."""
        return ARCHIVE + encode_key(self.number)

    def is_of(self, stream: str, topic_filters: list[str] | tuple[str, ...]) -> bool:
        """Return whether it is an archive of the stream with this name and these filters."""
        return self.stream == stream and self.topic_filters == sorted(set(topic_filters))

    def has(self, key: bytes) -> bool:
        """Return whether `key` is that of a piece of it."""
        return key[:8] == self.key[-8:]

    def update_from(self, other: Archive) -> None:
        """Copy all fields of `other`, which is a later state of this archive."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(other, name))

    def piece_key(self, base: int) -> bytes:
        """Return the key of its piece whose span begins at `base`."""
        return encode_key(self.number) + encode_key(base)


def new_archive(number: int, stream: str, topic_filters: tuple[str, ...], begin: int) -> Archive:
    """Return an empty archive of a stream whose messages leave the log from `begin` on."""
    return Archive(_LAYOUT, number, stream, sorted(set(topic_filters)), begin, begin, begin)


encode_archive: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(Archive)


def decode_archive(value: bytes) -> Archive:
    """Inverse of `encode_archive`.

    Raises:
        msgspec.MsgspecError: the bytes are no archive record.
        StoreFormatError: a later Penstock wrote it.
    """
    archive = _decoder.decode(value)
    if archive.layout != _LAYOUT:
        raise StoreFormatError(
            f"the store has archives of layout {archive.layout}, this version of Penstock reads"
            f" {_LAYOUT}: use the version that wrote it"
        )
    return archive


@final
class ArchivePiece:
    """Messages of a stream in a span of offsets.

    Attributes:
        base: first offset of the span.
        end: offset after its last.
        newest_us: time of receipt of the newest message, µs since the Unix epoch.
        batch: the messages, `ARCHIVE_SCHEMA`, by offset.
    """

    __slots__ = ("base", "batch", "end", "newest_us")

    def __init__(self, base: int, end: int, newest_us: int, batch: pa.RecordBatch) -> None:
        self.base = base
        self.end = end
        self.newest_us = newest_us
        self.batch = batch


def choose_rows(chunks: pa.Table, offsets: pa.Array, selector: TopicSelector) -> pa.Table:
    """Return the messages of a stream among rows of the log, in the columns of `ARCHIVE_SCHEMA`."""
    mask = selector.mask(chunks)
    rows = chunks.add_column(0, ARCHIVE_SCHEMA.field("offset"), offsets)
    return rows if mask is None else rows.filter(mask)


def make_pieces(base: int, end: int, rows: pa.Table) -> list[ArchivePiece]:
    """Return the pieces with `rows` that span the offsets from `base` up to `end`; one at least."""
    if not rows.num_rows:
        return [ArchivePiece(base, end, 0, pa.RecordBatch.from_pylist([], schema=ARCHIVE_SCHEMA))]
    parts = [
        part.slice(first, after - first)
        for part in rows.combine_chunks().to_batches()  # one, of less than 2 GiB of text
        for first, after in _by_hour(part.column("received_at"))
    ]
    pieces = []
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        after = end if is_last else int(parts[number + 1].column("offset")[0].as_py())
        newest_us = int(pc.max(part.column("received_at")).as_py())
        pieces.append(ArchivePiece(base, after, newest_us, part))
        base = after
    return pieces


def hour_of(received_at_us: int) -> int:
    """Return the hour of the clock, counted since the Unix epoch."""
    return received_at_us // _HOUR_US


def _by_hour(received_at: pa.Array) -> list[tuple[int, int]]:
    """Return ranges of rows, each within one hour; a clock that runs backwards is taken to stand
    still."""
    hours = pc.divide(pc.cumulative_max(received_at), _HOUR_US)
    changes = pc.not_equal(hours[1:], hours[:-1])
    firsts = [0, *(index + 1 for index in pc.indices_nonzero(changes).to_pylist())]
    return list(zip(firsts, [*firsts[1:], len(hours)], strict=True))


def encode_piece(piece: ArchivePiece) -> Pieces:
    """Return the stored form, in parts that are to be joined: end and time as 8 bytes each,
    big-endian, and an Arrow IPC message."""
    span = encode_key(piece.end) + encode_key(max(0, piece.newest_us))
    return [span, memoryview(piece.batch.serialize())]


def decode_span(value: bytes) -> tuple[int, int]:
    """Return the end of a piece and its newest time; `value` may be the head of a large one.

    Raises:
        StoreFormatError: `value` is no piece.
    """
    head = read_head(value)
    if head is not None:
        value = head.note
    if len(value) < SPAN_LENGTH_BYTES:
        raise StoreFormatError(f"a piece of an archive has {len(value)} bytes only")
    return decode_key(value[:8]), decode_key(value[8:SPAN_LENGTH_BYTES])


def decode_piece(key: bytes, value: bytes) -> ArchivePiece:
    """Inverse of `encode_piece`.

    Raises:
        StoreFormatError: `value` is no piece.
    """
    end, newest_us = decode_span(value)
    base = decode_key(key[8:])
    buffer: Any = pa.py_buffer(value)
    try:
        batch = pa.ipc.read_record_batch(buffer.slice(SPAN_LENGTH_BYTES), ARCHIVE_SCHEMA)
        batch.validate()
    except (pa.ArrowInvalid, EOFError, OSError) as error:
        raise StoreFormatError(f"a piece of an archive cannot be read: {error}") from error
    offsets = batch.column("offset")
    if len(offsets) and not base <= offsets[0].as_py() <= offsets[-1].as_py() < end:
        raise StoreFormatError("a piece of an archive has other offsets than it says")
    return ArchivePiece(base, end, newest_us, batch)
