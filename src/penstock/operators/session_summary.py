"""The description of a session in a list, as operators get it.

A list has up to a thousand descriptions, and is made on the event loop: to make and encode a struct
takes a quarter of the time of a dict. This module is never compiled, because a compiled class has
no annotations, in which msgspec finds the fields.
"""

from __future__ import annotations

import msgspec


class SessionSummary(msgspec.Struct, frozen=True, gc=False):
    """The description of a session; in JSON its fields have the same names.

    Attributes:
        client_id: the client identifier.
        user: the authenticated user name; None for an anonymous client.
        connected: whether the client, or this broker's bridge, is connected.
        address: the address of the client; None while it is disconnected, and for a bridge.
        listener: name of the listener that the client used last.
        version: protocol level of the client; 0 while it is disconnected, and for a bridge.
        since_us: when the client last connected or disconnected, µs since the Unix epoch; 0 if that
            is not known.
        expires_at_us: when the session expires unless its client connects, µs since the Unix epoch;
            None while the client is connected, and for a session that never expires.
        expiry_interval_s: the session expiry interval, seconds.
        window: number of messages in flight.
        window_size: capacity of the in-flight window, messages.
        queue: number of queued messages.
        queue_max: number of messages that the queue may have; 0 = no limit.
        queue_bytes: size of the queued messages, bytes.
        subscriptions: number of subscriptions.
        dropped: messages dropped for the session since the start of the broker.
        bridge: whether the session is that of a configured bridge.
    """

    client_id: str
    user: str | None
    connected: bool
    address: str | None
    listener: str
    version: int
    since_us: int
    expires_at_us: int | None
    expiry_interval_s: int
    window: int
    window_size: int
    queue: int
    queue_max: int
    queue_bytes: int
    subscriptions: int
    dropped: int
    bridge: bool
