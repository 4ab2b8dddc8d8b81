"""Engine records ↔ bytes: the values of the store's column families, as MessagePack.

Each value is an array whose first element is left for the version of its layout, so
that a later Penstock can tell them apart without touching the others.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.engine.message import Message
from penstock.engine.records import (
    Progress,
    QueueEntry,
    SessionRecord,
    SharedEntry,
    SubscriptionRecord,
    WillRecord,
    WindowEntry,
)
from penstock.protocol.packets import Subscription

_LAYOUT: Final = 1

_encode = msgspec.msgpack.Encoder().encode

_MessageRow = tuple[str, bytes, int, bool, str, int, bytes]
_session = msgspec.msgpack.Decoder(tuple[int, int, int, int])
_subscription = msgspec.msgpack.Decoder(tuple[int, int, bool, bool, int, int])


class _Progress(msgspec.Struct, array_like=True):
    layout: int
    queue_head: int
    next_sequence: int
    window: list[WindowEntry]
    inbound: list[int]
    shared: list[SharedEntry] = []


class _Segment(msgspec.Struct, array_like=True):
    layout: int
    entries: list[QueueEntry]
    shared: list[SharedEntry] = []


_progress = msgspec.msgpack.Decoder(_Progress)
_segment = msgspec.msgpack.Decoder(_Segment)
_message = msgspec.msgpack.Decoder(tuple[int, _MessageRow])
_will = msgspec.msgpack.Decoder(tuple[int, _MessageRow, int, int])


def encode_session(record: SessionRecord) -> bytes:
    """The value under a client identifier."""
    return _encode((_LAYOUT, record.number, record.expiry_interval_s, record.disconnected_at_us))


def decode_session(client_id: str, value: bytes) -> SessionRecord:
    """Inverse of ``encode_session``."""
    _, number, expiry_interval_s, disconnected_at_us = _session.decode(value)
    return SessionRecord(client_id, number, expiry_interval_s, disconnected_at_us)


def encode_subscription(subscription: Subscription, identifier: int) -> bytes:
    """The value under (session number, topic filter)."""
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
    """Inverse of ``encode_subscription``."""
    _, qos, no_local, as_published, handling, identifier = _subscription.decode(value)
    subscription = Subscription(topic_filter, qos, no_local, as_published, handling)
    return SubscriptionRecord(number, topic_filter, subscription, identifier)


def encode_progress(progress: Progress) -> bytes:
    """The value under a session number, without the segment."""
    row = (
        _LAYOUT,
        progress.queue_head,
        progress.next_sequence,
        progress.window,
        progress.inbound,
    )
    return _encode((*row, progress.window_shared) if progress.window_shared else row)


def decode_progress(number: int, value: bytes) -> Progress:
    """Inverse of ``encode_progress``."""
    kept = _progress.decode(value)
    return Progress(
        number,
        kept.queue_head,
        kept.next_sequence,
        kept.window,
        kept.inbound,
        [],
        [],
        kept.shared,
        [],
    )


def encode_segment(segment: list[QueueEntry], shared: list[SharedEntry]) -> bytes:
    """The value under (session number, first sequence)."""
    return _encode((_LAYOUT, segment, shared) if shared else (_LAYOUT, segment))


def decode_segment(value: bytes) -> tuple[list[QueueEntry], list[SharedEntry]]:
    """Inverse of ``encode_segment``."""
    kept = _segment.decode(value)
    return kept.entries, kept.shared


def encode_message(message: Message) -> bytes:
    """A retained message, outside the log's retention."""
    return _encode((_LAYOUT, _row(message)))


def decode_message(value: bytes) -> Message:
    """Inverse of ``encode_message``."""
    return _from_row(_message.decode(value)[1])


def encode_will(will: WillRecord) -> bytes:
    """The value under a client identifier."""
    return _encode((_LAYOUT, _row(will.message), will.delay_s, will.due_at_us))


def decode_will(value: bytes) -> WillRecord:
    """Inverse of ``encode_will``."""
    _, row, delay_s, due_at_us = _will.decode(value)
    return WillRecord(_from_row(row), delay_s, due_at_us)


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


def _from_row(row: _MessageRow) -> Message:
    topic, payload, qos, retain, client_id, received_at_us, properties = row
    return Message(topic, payload, qos, retain, client_id, received_at_us, properties)
