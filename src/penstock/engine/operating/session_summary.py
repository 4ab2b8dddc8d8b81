"""The description of a session in a list, as operators get it.

A list has up to a thousand of them, and is made in the loop: a struct takes a quarter of the time
of a dict, to make and to encode. This module is never compiled, because a compiled class has no
annotations, by which msgspec finds the fields.
"""

from __future__ import annotations

import msgspec


class SessionSummary(msgspec.Struct, frozen=True, gc=False):
    """A session, in JSON by the same names.

    Attributes:
        client_id: the client identifier.
        user: the name that it logged in with; None for an anonymous client.
        connected: whether its client, or this broker's bridge, is connected.
        address: the address of its client; None while that is away, and for a bridge.
        listener: name of the listener that its client used last.
        version: protocol level of its client; 0 while that is away, and for a bridge.
        since_us: when its client came or left, µs since the Unix epoch; 0 where that is not known.
        expires_at_us: when it ends unless its client comes, µs since the Unix epoch; None while
            that is connected, and for a session that never ends.
        expiry_interval_s: how long it outlives its connection, seconds.
        window: messages in flight.
        window_size: places for messages in flight.
        queue: messages in its queue.
        queue_max: places in its queue.
        queue_bytes: size of its queue.
        subscriptions: number of its subscriptions.
        dropped: messages that were dropped for it since the broker's start.
        bridge: whether it is that of a configured bridge.
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
