"""The archive of a stream: its messages that outlive the log.

The log holds the messages of all streams, and its oldest chunks are removed for all streams at
once. Messages that a stream keeps longer move to the stream's archive when retention removes their
chunk from the log::

      the archive of "alarms"                         the log, of all streams
    ├─ piece ─┼── piece ──┼─ piece ─┼┄┄┄┄┄┄┄┄┄┤ chunk │ chunk │ chunk ▶
    begin                        covered      end

A *piece* covers a span of offsets and holds the stream's messages of that span, as an Arrow record
batch with a column of offsets. An archive is *open* while messages that leave the log are added to
it.

Invariants:

1. Each piece begins where the piece before ends; the first begins at `begin`, the last ends at
   `covered`. Between `covered` and `end` the stream had no message.
2. All messages of the stream between `begin` and `end` are in the archive, except for the offsets
   in `given_up`.
3. An open archive ends where the log begins: one atomic, synced write removes chunks from the log
   and adds the stream's messages in them to the archive. Where the two differ, the log was damaged.
   If the log begins after the archive's end, the offsets between are given up. If the log begins
   before the archive's end, the broker refuses to start until a repair has compared both.
4. Whole pieces are removed from the front. The messages of one piece were received within one hour
   of the clock, unless the clock ran backwards. A piece that a repair has made may be empty.

Topic filters are matched when messages leave the log. So an archive belongs to a stream's name
*and* its topic filters: a stream whose filters change, or that was not archived for a while, begins
another archive.
"""

from __future__ import annotations

from typing import Any, Final, final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import StoreFormatError
from penstock.store.chunk import LOG_SCHEMA, decode_key, encode_key
from penstock.store.parts import Fragments, read_head
from penstock.store.selection import TopicSelector

ARCHIVE: Final = b"archive/"
"""Prefix of the keys of archive records in the column family `meta`; the archive's number follows,
8 bytes."""

LAST_ARCHIVE_NUMBER: Final = b"archives_made"
"""The key in `meta` of the highest archive number ever assigned; no number is used twice."""

ARCHIVE_SCHEMA: Final = LOG_SCHEMA.insert(0, pa.field("offset", pa.int64(), nullable=False))
"""The columns of a piece, one row a message."""

_LAYOUT: Final = 1
SPAN_LENGTH_BYTES: Final = 16
"""Length of the span (end, newest time) that begins a stored piece; in a large piece it is also the
note in the head (`store.parts`)."""

_HOUR_US: Final = 3_600_000_000


@final
class Archive(msgspec.Struct, array_like=True):
    """The record of an archive; it is written with each change of the archive.

    Attributes:
        layout: version of these fields.
        number: the archive's number, unique in the store; part of its keys.
        stream: name of the stream.
        topic_filters: the filters of the stream, sorted.
        begin: first offset of the archive.
        covered: offset at which the last piece ends; `begin` where there is no piece.
        end: offset at which the archive ends, excluded.
        messages: number of messages in the archive.
        size_bytes: size of its pieces.
        retention_s: age in seconds beyond which messages are removed; 0 = no limit.
        bytes_max: size beyond which the oldest messages are removed; 0 = no limit.
        is_open: whether messages that leave the log are added.
        given_up: ranges of offsets whose messages were lost, in the log or in the archive.
        is_retired: whether the archive stays closed for good, because the log assigned its offsets
            to other messages.
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
        """The key of this record in `meta`."""
        return ARCHIVE + encode_key(self.number)

    def belongs_to(self, stream: str, topic_filters: list[str] | tuple[str, ...]) -> bool:
        """Return whether this archive belongs to the stream with this name and these filters."""
        return self.stream == stream and self.topic_filters == sorted(set(topic_filters))

    def owns_key(self, key: bytes) -> bool:
        """Return whether `key` is the key of a piece of this archive."""
        return key[:8] == self.key[-8:]

    def update_from(self, other: Archive) -> None:
        """Copy all fields of `other`, which is a later state of this archive."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(other, name))

    def piece_key(self, base: int) -> bytes:
        """Return the key of this archive's piece whose span begins at offset `base`."""
        return encode_key(self.number) + encode_key(base)


def new_archive(number: int, stream: str, topic_filters: tuple[str, ...], begin: int) -> Archive:
    """Return an empty archive for a stream, which begins at offset `begin`."""
    return Archive(_LAYOUT, number, stream, sorted(set(topic_filters)), begin, begin, begin)


encode_archive: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(Archive)


def decode_archive(value: bytes) -> Archive:
    """Decode the bytes that `encode_archive` returned.

    Raises:
        msgspec.MsgspecError: the bytes are no archive record.
        StoreFormatError: a later version of Penstock wrote the record.
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
    """A piece of an archive: the messages of a stream in a span of offsets.

    Attributes:
        base: first offset of the span.
        end: offset after the last of the span.
        newest_us: time of receipt of the newest message, µs since the Unix epoch; 0 where there is
            no message.
        batch: the messages in the columns of `ARCHIVE_SCHEMA`, ordered by offset.
    """

    __slots__ = ("base", "batch", "end", "newest_us")

    def __init__(self, base: int, end: int, newest_us: int, batch: pa.RecordBatch) -> None:
        self.base = base
        self.end = end
        self.newest_us = newest_us
        self.batch = batch


def select_rows(chunks: pa.Table, offsets: pa.Array, selector: TopicSelector) -> pa.Table:
    """Return the rows of a stream among rows of the log, in the columns of `ARCHIVE_SCHEMA`.

    Args:
        chunks: rows of the log, with the columns of `LOG_SCHEMA`.
        offsets: the offset of each row.
        selector: selects the rows of the stream.
    """
    mask = selector.mask(chunks)
    rows = chunks.add_column(0, ARCHIVE_SCHEMA.field("offset"), offsets)
    return rows if mask is None else rows.filter(mask)


def make_pieces(base: int, end: int, rows: pa.Table) -> list[ArchivePiece]:
    """Return pieces that hold `rows` and cover the offsets from `base` up to `end`, excluded.

    There is one piece for each hour in which messages were received, and at least one.
    """
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


def unix_hour(received_at_us: int) -> int:
    """Return the number of whole hours since the Unix epoch at a time of receipt in µs."""
    return received_at_us // _HOUR_US


def _by_hour(received_at: pa.Array) -> list[tuple[int, int]]:
    """Return ranges of rows, each received within one hour; while the clock runs backwards it
    counts as standing still."""
    hours = pc.divide(pc.cumulative_max(received_at), _HOUR_US)
    changes = pc.not_equal(hours[1:], hours[:-1])
    firsts = [0, *(index + 1 for index in pc.indices_nonzero(changes).to_pylist())]
    return list(zip(firsts, [*firsts[1:], len(hours)], strict=True))


def encode_piece(piece: ArchivePiece) -> Fragments:
    """Return the stored form of a piece as fragments to be joined: end and newest time as 8 bytes
    each, big-endian, and an Arrow IPC message."""
    span = encode_key(piece.end) + encode_key(max(0, piece.newest_us))
    return [span, memoryview(piece.batch.serialize())]


def decode_span(value: bytes) -> tuple[int, int]:
    """Return the end offset of a stored piece and the time of its newest message in µs.

    Args:
        value: the stored piece, or the head of a large one.

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
    """Return the piece that `encode_piece` stored as `value` under `key`.

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
