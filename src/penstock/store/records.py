"""Encodes the engine's records as values of the store's column families, and decodes them.

Each value is a MessagePack array. Its first element is the version of its layout, so that the
layout of one kind of value can change without the others. A field that stores of released versions
lack is at the end, and has a default. The decoding functions raise ``msgspec.MsgspecError`` for
bytes that cannot be decoded.
"""

from __future__ import annotations

import sys
from array import array
from typing import Final, Literal

import msgspec

from penstock.engine.values.message import Message
from penstock.engine.values.packed_run import Kind, PackedRun
from penstock.engine.values.records import (
    LaneEntry,
    ProducerRecord,
    SessionRecord,
    SessionState,
    SubscriptionRecord,
    UnreleasedEntry,
    WillRecord,
    WindowEntry,
    WindowPage,
)
from penstock.engine.values.steady_clock import ClockRecord, Leads
from penstock.protocol.packets import Subscription

_LAYOUT: Final = 1
_SEGMENT_LAYOUT: Final = 2
_PROGRESS_LAYOUT: Final = 2

_encode = msgspec.msgpack.Encoder().encode
_EMPTY: Final = _encode(b"")

_MessageRow = tuple[str, bytes, int, bool, str, int, bytes]
_subscription = msgspec.msgpack.Decoder(tuple[int, int, bool, bool, int, int])


class _SessionRow(msgspec.Struct, array_like=True):
    """The stored form of a session; its client identifier is the key."""

    layout: int
    number: int
    expiry_interval_s: int
    disconnected_at_us: int
    limits_name: str
    username: str | None
    is_owner_known: bool
    account: str


class _ProgressRow(msgspec.Struct, array_like=True):
    """The stored form of a session's progress; its pages have records of their own."""

    layout: int
    queue_head: int
    next_sequence: int
    lanes: list[LaneEntry]
    unreleased: list[UnreleasedEntry]
    sent_below: int
    window_len: int
    next_place: int
    window_checksum: int
    inbound_len: int
    inbound_checksum: int


class _Page(msgspec.Struct, array_like=True):
    layout: int
    entries: list[WindowEntry]


# columns, see ``engine.values.packed_run``; numbers little-endian.
_Segment = tuple[int, int, bytes, bytes, bytes, list[Kind]]

_session = msgspec.msgpack.Decoder(_SessionRow)
_progress = msgspec.msgpack.Decoder(_ProgressRow)
_page = msgspec.msgpack.Decoder(_Page)
_inbound = msgspec.msgpack.Decoder(tuple[int, int])
_segment = msgspec.msgpack.Decoder(_Segment)


class _ProducerValue(msgspec.Struct, array_like=True):
    """The stored form of a producer's latest message; older versions wrote no mark."""

    layout: int
    sequence: int
    used_at_us: int
    mark: str = ""


_producer = msgspec.msgpack.Decoder(_ProducerValue)


class _MessageValue(msgspec.Struct, array_like=True):
    """The stored form of a retained message; its topic is the key."""

    layout: int
    message: _MessageRow
    lead_us: int


_message = msgspec.msgpack.Decoder(_MessageValue)
_clock = msgspec.msgpack.Decoder(tuple[int, int, int, int, str, list[tuple[int, int]]])


class _WillRow(msgspec.Struct, array_like=True):
    """The stored form of a will; the client identifier of its session is the key."""

    layout: int
    message: _MessageRow
    delay_s: int
    due_at_us: int
    username: str | None
    has_own_authorize: bool = False


_will = msgspec.msgpack.Decoder(_WillRow)


def encode_session(record: SessionRecord) -> bytes:
    """Return the stored form of a session."""
    return _encode(
        (
            _LAYOUT,
            record.number,
            record.expiry_interval_s,
            record.disconnected_at_us,
            record.limits_name,
            record.username,
            record.is_owner_known,
            record.account,
        )
    )


def decode_session(client_id: str, value: bytes) -> SessionRecord:
    """Return the session that is stored as ``value`` under ``client_id``."""
    row = _session.decode(value)
    return SessionRecord(
        client_id,
        row.number,
        row.expiry_interval_s,
        row.disconnected_at_us,
        row.limits_name,
        row.username,
        row.is_owner_known,
        row.account,
    )


def encode_subscription(subscription: Subscription, identifier: int) -> bytes:
    """Return the stored form of a subscription with its subscription identifier (0: none)."""
    return _encode(
        (
            _LAYOUT,
            subscription.qos,
            subscription.no_local,
            subscription.retain_as_published,
            subscription.retain_handling,
            identifier,
        )
    )


def decode_subscription(number: int, topic_filter: str, value: bytes) -> SubscriptionRecord:
    """Return the subscription of session ``number`` to ``topic_filter`` that is stored as
    ``value``."""
    qos, no_local, as_published, handling, identifier = decode_subscription_options(value)
    subscription = Subscription(topic_filter, qos, no_local, as_published, handling)
    return SubscriptionRecord(number, topic_filter, subscription, identifier)


def decode_subscription_options(value: bytes) -> tuple[int, bool, bool, int, int]:
    """Decode a stored subscription; return its QoS, No Local, Retain As Published, Retain Handling
    and subscription identifier."""
    return _subscription.decode(value)[1:]


def encode_progress(progress: SessionState) -> bytes:
    """Return the stored form of a session's progress, without its segments and pages."""
    return _encode(
        (
            _PROGRESS_LAYOUT,
            progress.queue_head,
            progress.next_sequence,
            progress.lanes,
            progress.unreleased,
            progress.sent_below,
            progress.window_len,
            progress.next_place,
            progress.window_checksum,
            progress.inbound_len,
            progress.inbound_checksum,
        )
    )


def decode_progress(number: int, value: bytes) -> SessionState:
    """Return the progress of session ``number`` that is stored as ``value``, without pages and
    segments."""
    kept = _progress.decode(value)
    return SessionState(
        number,
        kept.queue_head,
        kept.next_sequence,
        [],
        [],
        [],
        [],
        kept.lanes,
        kept.unreleased,
        kept.sent_below,
        kept.window_len,
        kept.next_place,
        kept.window_checksum,
        kept.inbound_len,
        kept.inbound_checksum,
    )


def encode_page(page: WindowPage) -> bytes:
    """Return the stored form of a page of a window."""
    return _encode((_LAYOUT, page.entries))


def decode_page(number: int, value: bytes) -> WindowPage:
    """Return the page ``number`` of a window that is stored as ``value``."""
    return WindowPage(number, _page.decode(value).entries)


def encode_inbound(bits: int) -> bytes:
    """Return the stored form of a page of inbound packet identifiers, a bit set."""
    return _encode((_LAYOUT, bits))


def decode_inbound(value: bytes) -> int:
    """Return the bit set of a stored page of inbound packet identifiers."""
    return _inbound.decode(value)[1]


def encode_segment(segment: PackedRun) -> bytes:
    """Return the stored form of a segment of a session's message queue."""
    return _encode(
        (
            _SEGMENT_LAYOUT,
            segment.first,
            _little_endian(segment.offsets),
            _little_endian(segment.sizes),
            segment.kinds,
            segment.table,
        )
    )


def decode_segment(value: bytes) -> PackedRun:
    """Return the segment that is stored as ``value``.

    Raises:
        ValidationError: the columns do not fit together.
    """
    _, first, offsets, sizes, kinds, table = _segment.decode(value)
    count = len(kinds)
    if (len(offsets), len(sizes)) != (8 * count, 4 * count) or max(kinds, default=-1) >= len(table):
        raise msgspec.ValidationError("the columns of a queue's segment do not fit together")
    run = PackedRun(first)
    run.offsets = _numbers("q", offsets)
    run.sizes = _numbers("I", sizes)
    run.kinds = bytearray(kinds)
    run.table = table
    return run


def _little_endian(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _numbers(typecode: Literal["q", "I"], data: bytes) -> array[int]:
    numbers = array(typecode, data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def encode_message(message: Message) -> bytes:
    """Return the stored form of a retained message; the log's retention does not affect it."""
    return _encode((_LAYOUT, _row(message), message.lead_us))


def message_fragments(message: Message) -> list[bytes]:
    """Return what ``encode_message`` returns, as byte strings to be joined; the payload is not
    copied.

    The payload must have 64 KiB or more.
    """
    without = _encode((_LAYOUT, (message.topic, b"", *_row(message)[2:]), message.lead_us))
    at = 3 + len(_encode(message.topic))  # after the headers of two arrays, layout and topic
    begin = b"\xc6" + len(message.payload).to_bytes(4, "big")  # MessagePack's bin 32
    return [without[:at], begin, message.payload, without[at + len(_EMPTY) :]]


def decode_message(value: bytes) -> Message:
    """Return the retained message that is stored as ``value``."""
    kept = _message.decode(value)
    return _from_row(kept.message, kept.lead_us)


def encode_will(will: WillRecord) -> bytes:
    """Return the stored form of a will."""
    return _encode(
        (
            _LAYOUT,
            _row(will.message),
            will.delay_s,
            will.due_at_us,
            will.username,
            will.has_own_authorize,
        )
    )


def decode_will(value: bytes) -> WillRecord:
    """Return the will that is stored as ``value``."""
    row = _will.decode(value)
    return WillRecord(
        _from_row(row.message), row.delay_s, row.due_at_us, row.username, row.has_own_authorize
    )


def _row(message: Message) -> _MessageRow:
    return (
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.client_id,
        message.received_at_us,
        message.properties,
    )


def _from_row(row: _MessageRow, lead_us: int = 0) -> Message:
    topic, payload, qos, retain, client_id, received_at_us, properties = row
    return Message(
        topic, payload, qos, retain, client_id, received_at_us, properties, lead_us=lead_us
    )


def encode_producer(record: ProducerRecord) -> bytes:
    """Return the stored form of a producer's latest message."""
    value = (_LAYOUT, record.sequence, record.used_at_us)
    return _encode((*value, record.mark) if record.mark else value)


def decode_producer(key: str, value: bytes) -> ProducerRecord:
    """Return the producer that is stored as ``value`` under ``key``."""
    found = _producer.decode(value)
    return ProducerRecord(key, found.sequence, found.used_at_us, found.mark)


def encode_clock(record: ClockRecord) -> bytes:
    """Return the stored form of the steady clock's state."""
    return _encode(
        (
            _LAYOUT,
            record.steady_us,
            record.wall_us,
            record.boot_us,
            record.boot_id,
            record.leads.entries,
        )
    )


def decode_clock(value: bytes) -> ClockRecord:
    """Return the state of the steady clock that is stored as ``value``."""
    _, steady_us, wall_us, boot_us, boot_id, leads = _clock.decode(value)
    return ClockRecord(steady_us, wall_us, boot_us, boot_id, Leads(leads))
