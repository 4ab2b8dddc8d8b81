"""Counters: totals of packets, bytes and events of one broker since it started.

The code that handles a packet adds to them; only the shell reads them (``$SYS``, metrics).
Totals that a batch can add at once are added once a batch: an integer on the hot path costs a few
nanoseconds, an object or a look-up by name would cost more than the packet. What is counted by
packet type or by QoS is a list with a place for each.

Bytes are those of MQTT packets, without what TLS, WebSocket or TCP add to them.
"""

from __future__ import annotations

from typing import Final, final

from penstock.protocol.kinds import PUBLISH

TYPES: Final = 16
"""Places of a list by packet type; 0 is no type of MQTT."""

QOS_LEVELS: Final = 3


@final
class Counters:
    """Totals since the start; none of them ever decreases."""

    def __init__(self) -> None:
        self.sockets_accepted = 0
        self.connections_accepted = 0  # CONNECT answered with success
        self.sessions_expired = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.received_by_type = [0] * TYPES  # packets
        self.written_by_type = [0] * TYPES  # packets written to a link, but for ``sent_by_qos``
        self.packets_sent = 0  # handed to a socket
        self.received_by_qos = [0] * QOS_LEVELS  # messages, each as often as it came
        self.sent_by_qos = [0] * QOS_LEVELS  # messages written to a link
        self.publish_bytes_received = 0  # payloads only
        self.publish_bytes_sent = 0
        self.rate_pauses = 0  # of reading from a client above its rate limit
        self.commits = 0  # sealed with something to write
        self.shared_looked_at = 0  # deliveries of groups' queues, to find those a member may take

    @property
    def packets_received(self) -> int:
        """Return the packets of all types."""
        return sum(self.received_by_type)

    @property
    def publish_received(self) -> int:
        """Return the messages of every QoS that were received."""
        return sum(self.received_by_qos)

    @property
    def publish_sent(self) -> int:
        """Return the messages of every QoS that were written to links."""
        return sum(self.sent_by_qos)

    def sent_by_type(self) -> list[int]:
        """Return the packets that were written to links, by type; those of a connection that ended
        before they left are among them."""
        sent = self.written_by_type[:]
        sent[PUBLISH] += self.publish_sent
        return sent
