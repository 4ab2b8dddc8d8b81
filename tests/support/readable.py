"""Values of the engine as plain values that can be compared and printed."""

from __future__ import annotations

from penstock.engine.session.session import SessionSubscription
from penstock.engine.values.message import Message
from penstock.engine.values.packed_run import PackedRun
from penstock.engine.values.records import (
    ProducerRecord,
    SessionRecord,
    SessionState,
    SubscriptionRecord,
    WillRecord,
    WindowPage,
)
from penstock.engine.values.steady_clock import ClockRecord, Leads
from penstock.protocol.packets import Subscription

_FIELDS: dict[type, tuple[str, ...]] = {
    SessionRecord: (
        *("client_id", "number", "expiry_interval_s", "disconnected_at_us", "limits_name"),
        *("username", "is_owner_known", "account"),
    ),
    SubscriptionRecord: ("number", "topic_filter", "subscription", "identifier"),
    SessionSubscription: ("subscription", "identifier"),
    Subscription: (*("topic_filter", "qos", "no_local", "retain_as_published", "retain_handling"),),
    SessionState: (
        *("number", "queue_head", "next_sequence", "pages", "inbound", "segments"),
        *("finished_segments", "lanes", "unreleased", "sent_below", "window_len", "next_place"),
        *("window_checksum", "inbound_len", "inbound_checksum"),
    ),
    WindowPage: ("number", "entries"),
    PackedRun: ("first", "offsets", "sizes", "kinds", "table"),
    Message: (
        *("topic", "payload", "qos", "retain", "client_id", "received_at_us", "properties"),
        *("offset", "lead_us"),
    ),
    WillRecord: ("message", "delay_s", "due_at_us", "username"),
    ProducerRecord: ("key", "sequence", "used_at_us"),
    ClockRecord: ("steady_us", "wall_us", "boot_us", "boot_id", "leads"),
    Leads: ("entries",),
}


def readable(value: object) -> object:
    """Return ``value`` with each object of the engine as a tuple of its fields."""
    if isinstance(value, list | tuple):
        return [readable(one) for one in value]
    if isinstance(value, dict):
        return {key: readable(one) for key, one in value.items()}
    fields = _FIELDS.get(type(value))
    if fields is None:
        return value
    return (type(value).__name__, *(readable(getattr(value, name)) for name in fields))
