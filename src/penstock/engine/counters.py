"""Counters: totals of packets, bytes and events of one broker since it started.

The code that handles a packet adds to them; only the shell reads them (``$SYS``, metrics).
Totals that a batch can add at once are added once a batch: an integer on the hot path costs a few
nanoseconds, an object or a look-up would cost more than the packet. So the packets of messages have
a field each, and only those that are rare share a list by type.

Bytes are those of MQTT packets, without what TLS, WebSocket or TCP add to them.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from penstock.protocol.kinds import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL

TYPES: Final = 16
"""Places of a list by packet type; 0 is no type of MQTT."""


@final
class PacketCounts:
    """The number of packets of each type."""

    def __init__(self) -> None:
        self._publish = 0
        self._puback = 0
        self._pubrec = 0
        self._pubrel = 0
        self._pubcomp = 0
        self._others = [0] * TYPES  # by type

    def count(self, packet_type: i64) -> None:
        """Count one packet."""
        if packet_type == PUBLISH:
            self._publish += 1
        elif packet_type == PUBACK:
            self._puback += 1
        elif packet_type == PUBREC:
            self._pubrec += 1
        elif packet_type == PUBREL:
            self._pubrel += 1
        elif packet_type == PUBCOMP:
            self._pubcomp += 1
        else:
            self._others[packet_type] += 1

    def by_type(self) -> list[int]:
        """Return the counts, a copy with a place for each type."""
        counts = self._others[:]
        counts[PUBLISH] = self._publish
        counts[PUBACK] = self._puback
        counts[PUBREC] = self._pubrec
        counts[PUBREL] = self._pubrel
        counts[PUBCOMP] = self._pubcomp
        return counts


@final
class MessageCounts:
    """The number of messages of each QoS."""

    def __init__(self) -> None:
        self._qos0 = 0
        self._qos1 = 0
        self._qos2 = 0

    def count(self, qos: int) -> None:
        """Count one message."""
        if qos == 0:
            self._qos0 += 1
        elif qos == 1:
            self._qos1 += 1
        else:
            self._qos2 += 1

    def by_qos(self) -> list[int]:
        """Return the counts, for QoS 0, 1 and 2."""
        return [self._qos0, self._qos1, self._qos2]

    @property
    def total(self) -> int:
        """Return the number of messages of every QoS."""
        return self._qos0 + self._qos1 + self._qos2


@final
class Counters:
    """Totals since the start; none of them ever decreases."""

    def __init__(self) -> None:
        self.sockets_accepted = 0
        self.connections_accepted = 0  # CONNECT answered with success
        self.sessions_expired = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.received = PacketCounts()
        self.written = PacketCounts()  # to a link, but for what ``messages_sent`` counts
        self.packets_sent = 0  # handed to a socket
        self.messages_received = MessageCounts()  # each as often as it came
        self.messages_sent = MessageCounts()  # written to a link
        self.publish_bytes_received = 0  # payloads only
        self.publish_bytes_sent = 0
        self.rate_pauses = 0  # of reading from a client above its rate limit
        self.commits = 0  # sealed with something to write
        self.shared_looked_at = 0  # deliveries of groups' queues, to find those a member may take

    @property
    def packets_received(self) -> int:
        """Return the packets of all types."""
        return sum(self.received.by_type())

    @property
    def publish_received(self) -> int:
        """Return the messages of every QoS that were received."""
        return self.messages_received.total

    @property
    def publish_sent(self) -> int:
        """Return the messages of every QoS that were written to links."""
        return self.messages_sent.total

    def sent_by_type(self) -> list[int]:
        """Return the packets that were written to links, by type; those of a connection that ended
        before they left are among them."""
        sent = self.written.by_type()
        sent[PUBLISH] += self.publish_sent
        return sent
