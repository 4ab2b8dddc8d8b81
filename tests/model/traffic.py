"""The messages from one side of a simulated link to the other, and the promises about them.

One ``Traffic`` is the judge of one direction. The application tells it what was published, the
disks what became durable, and it reads the packets on the wire; it knows nothing of the engine.

=====================  ================================================================
window                 on no connection more than the smaller of Receive Maximum and
                       ``max_inflight`` are unacknowledged [MQTT-3.3.4-9]
packet identifiers     one in flight is never given to another message [MQTT-2.2.1-3]
DUP                    a message that left before has it [MQTT-3.3.1-1]
acknowledged           what the sender is told is the receiver's, is on the receiver's disk
durable first          nothing arrives that the sender's disk does not have
exactly once           a QoS 2 message becomes one row, a QoS 0 message at most one
at least once          an accepted QoS 1 or 2 message arrives, or is counted as dropped
order                  first arrivals of a topic keep the order of publishing [MQTT-4.6.0-6]
every drop has reason  what is missing was counted, and under a reason that was possible
=====================  ================================================================
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, final

from penstock.engine.values.drop_reasons import REASONS
from penstock.protocol.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel

REFUSED_FROM: Final = 0x80


def key_of(payload: bytes) -> str:
    """Return the key of a message, ``publisher|number``; the rest of the payload is padding."""
    return payload.decode().rstrip(".")


@final
class Sent:
    """One published message."""

    def __init__(self, number: int, topic: str, qos: int, expires_at_us: int) -> None:
        self.number = number
        self.topic = topic
        self.qos = qos
        self.expires_at_us = expires_at_us  # 0 = never
        self.accepted = False  # it is on the sender's disk
        self.left = False  # it was on the wire, or in a buffer for it
        self.rows = 0  # in the receiver's log


@final
class Traffic:
    """All messages of one direction.

    Args:
        sender: its name, the first part of each key.
        window_max: the sender's ``max_inflight``; 0 = no limit.
        gives_up: whether a message may be dropped after it was sent.
    """

    def __init__(self, sender: str, window_max: int, gives_up: bool) -> None:
        self.sender = sender
        self.messages: dict[str, Sent] = {}
        self.dropped: list[int] = [0] * len(REASONS)
        self.crashes = 0  # of the sender
        self._window_max = window_max
        self._gives_up = gives_up
        self._allowed = 0  # on this connection
        self._unacknowledged: set[int] = set()  # on this connection
        self._in_flight: dict[int, str] = {}  # packet identifier to key, over connections
        self._latest: dict[tuple[str, bool], int] = {}

    # -- the sender's side -------------------------------------------------------------

    def published(self, topic: str, qos: int, expires_at_us: int) -> str:
        """Note a message that the application publishes; return its key."""
        number = len(self.messages) + 1
        key = f"{self.sender}|{number}"
        self.messages[key] = Sent(number, topic, qos, expires_at_us)
        return key

    def accepted(self, key: str) -> None:
        """Note that the message is durable on the sender's side."""
        self.messages[key].accepted = True

    def connected(self, receive_maximum: int) -> None:
        """Note that the sender's session has a new connection."""
        self._unacknowledged.clear()
        own = self._window_max or 65535
        self._allowed = min(own, receive_maximum)

    def crashed(self) -> None:
        """Note that the sender starts again from its disk."""
        self.crashes += 1
        self._unacknowledged.clear()

    def left(self, packet: Packet, wall_us: int) -> None:
        """Check a packet that the sender writes to its socket."""
        if isinstance(packet, Pubrel):
            if packet.packet_id in self._in_flight and packet.reason_code < REFUSED_FROM:
                self._takes_a_place(packet)
        elif isinstance(packet, Publish):
            self._publish_left(packet, wall_us)

    def _publish_left(self, packet: Publish, wall_us: int) -> None:
        key = key_of(packet.payload)
        sent = self.messages.get(key)
        assert sent is not None, f"{packet} was never published"
        assert sent.topic == packet.topic, f"{key} was published to {sent.topic}"
        self._check_expiry(packet, key, sent, wall_us)
        if packet.qos == 0:
            assert not sent.left, f"{key} left twice at QoS 0"
            sent.left = True
            return
        assert sent.accepted, f"{key} left before the sender's disk had it"
        known = self._in_flight.get(packet.packet_id, key)
        if self._gives_up and self.messages[known].qos == 1:
            known = key  # nothing of it is left on either side
        assert known == key, f"{packet.packet_id} is {known} in flight, and was given to {key}"
        self._in_flight[packet.packet_id] = key
        if sent.left:
            assert packet.dup, f"{key} is sent again without DUP"
        sent.left = True
        self._takes_a_place(packet)

    def _check_expiry(self, packet: Publish, key: str, sent: Sent, wall_us: int) -> None:
        """Check the expiry interval: as published, less the time it waited [MQTT-3.3.2-6]."""
        properties = packet.properties
        left_s = None if properties is None else properties.message_expiry_interval
        if sent.expires_at_us == 0:
            assert left_s is None, f"{key} never expires"
        else:
            assert left_s is not None, f"{key} lost its expiry"
            assert left_s * 1_000_000 >= sent.expires_at_us - wall_us, f"{key}: {left_s} s left"

    def _takes_a_place(self, packet: Publish | Pubrel) -> None:
        self._unacknowledged.add(packet.packet_id)
        count = len(self._unacknowledged)
        assert count <= self._allowed, f"{packet}: {count} in flight, {self._allowed} allowed"

    def answered(self, packet: Puback | Pubrec | Pubcomp) -> None:
        """Check an acknowledgement that the sender reads."""
        packet_id = packet.packet_id
        key = self._in_flight.get(packet_id)
        refused = packet.reason_code >= REFUSED_FROM
        if key is not None and not refused and not isinstance(packet, Pubcomp):
            rows = self.messages[key].rows
            assert rows > 0, f"{packet} tells that {key} arrived, and it is on no disk"
        if isinstance(packet, Puback | Pubcomp) or refused:
            self._unacknowledged.discard(packet_id)
            self._in_flight.pop(packet_id, None)

    # -- the receiver's side -----------------------------------------------------------

    def row(self, key: str) -> None:
        """Check a message that becomes durable on the receiver's side."""
        sent = self.messages[key]
        assert sent.qos == 0 or sent.accepted, f"{key} arrived, and the sender may forget it"
        sent.rows += 1
        if sent.qos != 1:
            assert sent.rows == 1, f"{key} arrived {sent.rows} times at QoS {sent.qos}"
        if sent.rows > 1:
            return
        line = (sent.topic, sent.qos > 0)
        before = self._latest.get(line, 0)
        assert sent.number > before, f"{key} arrived after {before} in {sent.topic}"
        self._latest[line] = sent.number

    # -- the verdict -------------------------------------------------------------------

    def judge(self, possible: Collection[int], exact: bool) -> None:
        """Check, at rest, that every message arrived or was counted as dropped.

        Args:
            possible: the reasons to drop that this run can have.
            exact: whether each drop must be one missing message: nothing was dropped in a
                commit that a crash took back, and no QoS 0 message was lost on the way.
        """
        for reason, count in enumerate(self.dropped):
            assert count == 0 or reason in possible, f"{count} dropped: {REASONS[reason]}"
        missing = [
            key
            for key, sent in self.messages.items()
            if sent.rows == 0 and sent.qos > 0 and sent.accepted
        ]
        counted = sum(self.dropped)
        counts = [
            (REASONS[reason], count) for reason, count in enumerate(self.dropped) if count > 0
        ]
        assert len(missing) <= counted, f"{missing} never arrived, and counted is {counts}"
        if exact:
            assert len(missing) == counted, f"{missing} never arrived, but counted is {counts}"
