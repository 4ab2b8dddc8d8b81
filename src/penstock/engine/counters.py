"""Counters: totals of packets, bytes and events of one broker since it started.

The code that handles a packet adds to them; only the shell reads them (``$SYS``, metrics).
Totals that a batch can add at once are added once a batch: an integer on the hot path costs a few
nanoseconds, an object or a look-up would cost more than the packet.

Bytes are those of MQTT packets, without what TLS, WebSocket or TCP add to them.
"""

from __future__ import annotations

from typing import final


@final
class Counters:
    """Totals since the start; none of them ever decreases."""

    def __init__(self) -> None:
        self.sockets_accepted = 0
        self.connections_accepted = 0  # CONNECT answered with success
        self.sessions_expired = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.packets_received = 0
        self.packets_sent = 0
        self.publish_received = 0
        self.publish_sent = 0
        self.publish_bytes_received = 0  # payloads only
        self.publish_bytes_sent = 0
        self.rate_pauses = 0  # of reading from a client above its rate limit
        self.commits = 0  # sealed with something to write
        self.shared_looked_at = 0  # deliveries of groups' queues, to find those a member may take
