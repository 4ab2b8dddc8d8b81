"""Counters: packets, bytes and messages since the start, by listener and client group.

::

      link ─▶ Counters of (listener, group) ─╮
      link ─▶ Counters of (listener, group) ─┼─ added up when they are read ─▶ total
      drops ▶ Counters of the client's pair ─╯

The code that handles a packet adds to the counters of its link, one object for each pair of
listener and client group. Only the shell reads the counters (``$SYS``, metrics) and adds them up.
To add to an integer costs a few nanoseconds, while an object or a look-up would cost more than the
packet. So the packet types of messages have a field each, and the rare types share a list.

Bytes are those of MQTT packets, without what TLS, WebSocket or TCP add to them.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from penstock.engine.values.client_groups import OTHER, ClientGroups
from penstock.protocol.kinds import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL

TYPES: Final = 16
"""Length of a list that has a packet type as its index; MQTT has no type 0."""

NO_LISTENER: Final = "no listener"
"""The listener name of counters without a listener; no listener has a space in its name."""

NAMED_PAIRS_MAX: Final = 4096
"""Pairs of a listener and a configured group since the start, groups of earlier settings included.
Further pairs count in the group ``OTHER`` of their listener or bridge."""


@final
class PacketCounts:
    """The number of packets of each type."""

    def __init__(self) -> None:
        self._publish: i64 = 0
        self._puback: i64 = 0
        self._pubrec: i64 = 0
        self._pubrel: i64 = 0
        self._pubcomp: i64 = 0
        self._other_types = [0] * TYPES  # by type

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
            self._other_types[packet_type] += 1

    def by_type(self) -> list[int]:
        """Return a copy of the counts as a list with the packet type as its index."""
        counts = self._other_types[:]
        counts[PUBLISH] = self._publish
        counts[PUBACK] = self._puback
        counts[PUBREC] = self._pubrec
        counts[PUBREL] = self._pubrel
        counts[PUBCOMP] = self._pubcomp
        return counts

    def add(self, other: PacketCounts) -> None:
        """Add all counts of ``other``."""
        self._publish += other._publish
        self._puback += other._puback
        self._pubrec += other._pubrec
        self._pubrel += other._pubrel
        self._pubcomp += other._pubcomp
        for packet_type in range(TYPES):
            self._other_types[packet_type] += other._other_types[packet_type]


@final
class MessageCounts:
    """The number of messages of each QoS."""

    def __init__(self) -> None:
        self._qos0: i64 = 0
        self._qos1: i64 = 0
        self._qos2: i64 = 0

    def count(self, qos: i64) -> None:
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

    def add(self, other: MessageCounts) -> None:
        """Add all counts of ``other``."""
        self._qos0 += other._qos0
        self._qos1 += other._qos1
        self._qos2 += other._qos2


@final
class Counters:
    """Totals of one client group on one listener since the start; none of them ever decreases.

    Args:
        listener: name of the listener; ``bridge NAME`` for a bridge of this broker.
        group: name of the client group.
    """

    def __init__(self, listener: str, group: str) -> None:
        self.listener = listener
        self.group = group
        self.sockets_accepted = 0
        self.connections_accepted = 0  # CONNECT answered with success
        self.logins_failed = 0  # CONNECT refused: wrong credentials or not authorized
        self.bytes_received: i64 = 0
        self.bytes_sent: i64 = 0
        self.received = PacketCounts()
        self.written = PacketCounts()  # written to a link; without PUBLISH: ``messages_sent``
        self.packets_sent: i64 = 0  # handed to a socket
        self.messages_received = MessageCounts()  # repeats included
        self.messages_sent = MessageCounts()  # written to a link
        self.messages_dropped = 0  # on their way to these clients, see ``drop_counts``
        self.publish_bytes_received: i64 = 0  # payloads only
        self.publish_bytes_sent: i64 = 0
        self.rate_pauses = 0  # of reading from a client above its rate limit

    @property
    def packets_received(self) -> int:
        """Return the number of packets received, of all types."""
        return sum(self.received.by_type())

    @property
    def publish_received(self) -> int:
        """Return the number of messages received, of every QoS."""
        return self.messages_received.total

    @property
    def publish_sent(self) -> int:
        """Return the number of messages written to links, of every QoS."""
        return self.messages_sent.total

    def sent_by_type(self) -> list[int]:
        """Return the number of packets written to links, by type.

        Packets that a connection could not send before it ended are included.
        """
        sent = self.written.by_type()
        sent[PUBLISH] += self.publish_sent
        return sent

    def add(self, other: Counters) -> None:
        """Add all counts of ``other``."""
        self.sockets_accepted += other.sockets_accepted
        self.connections_accepted += other.connections_accepted
        self.logins_failed += other.logins_failed
        self.bytes_received += other.bytes_received
        self.bytes_sent += other.bytes_sent
        self.received.add(other.received)
        self.written.add(other.written)
        self.packets_sent += other.packets_sent
        self.messages_received.add(other.messages_received)
        self.messages_sent.add(other.messages_sent)
        self.messages_dropped += other.messages_dropped
        self.publish_bytes_received += other.publish_bytes_received
        self.publish_bytes_sent += other.publish_bytes_sent
        self.rate_pauses += other.rate_pauses


@final
class AllCounters:
    """All counters of one broker.

    Attributes:
        rest: the counters of shared subscriptions and of clients without a session, which belong to
            no listener.
    """

    def __init__(self) -> None:
        self.sessions_expired = 0
        self.commits = 0  # sealed with something to write
        self.group_deliveries_checked = 0  # queued deliveries that were checked for a member
        self.fallback = Counters(NO_LISTENER, OTHER)
        self._pairs = {(NO_LISTENER, OTHER): self.fallback}
        self._named_pairs = 0  # pairs of a listener and a configured group
        self._groups = ClientGroups()

    def apply_settings(self, groups: ClientGroups) -> None:
        """Count clients in ``groups`` from now on; connected clients keep their group."""
        self._groups = groups

    def counters_of_listener(self, listener: str) -> Counters:
        """Return the counters of a listener's connections without an accepted client or group."""
        return self._counters_of_pair(listener, OTHER)

    def counters_of_client(self, listener: str, client_id: str, username: str | None) -> Counters:
        """Return the counters of a client; ``username`` is None for an anonymous one."""
        return self._counters_of_pair(
            listener, self._groups.name_for(listener, client_id, username)
        )

    def counters_by_pair(self) -> list[Counters]:
        """Return the counters of all pairs of listener and group that were counted so far."""
        return list(self._pairs.values())

    def total(self) -> Counters:
        """Return the sum of all counters, as a new object."""
        total = Counters("", "")
        for counters in self._pairs.values():
            total.add(counters)
        return total

    def _counters_of_pair(self, listener: str, group: str) -> Counters:
        found = self._pairs.get((listener, group))
        if found is not None:
            return found
        if group != OTHER:
            if self._named_pairs >= NAMED_PAIRS_MAX:
                return self._counters_of_pair(listener, OTHER)
            self._named_pairs += 1
        made = Counters(listener, group)
        self._pairs[listener, group] = made
        return made
