"""Messages that the client role received and has not acknowledged; the application decides when.

::

      PUBLISH ─▶ open, passed on ── settled ─▶ first in line ─▶ PUBACK, PUBREC
                  │    ▲                         (in the order of the PUBLISHes [MQTT-4.6.0-2])
                  │    ╰─ PUBLISH again, on the next connection: the same message, in the new line
                  ├─ settled as NOT_ACKNOWLEDGED ─────────▶ forgotten: the server sends it again
                  ├─ another message has its identifier ──▶ forgotten
                  ├─ PUBREL: the server gave it up ───────▶ forgotten, never acknowledged
                  ╰─ session lost ────────────────────────▶ forgotten

A server sets DUP when it sends an unacknowledged message again. Such a message is not passed to the
application twice, neither while it is processed nor after it was settled without a connection. A
server may also give up a message, for example because it expired, and use its packet identifier for
another; so a message is a repeat only if QoS, topic and payload are the same. If an acknowledgement
is lost, a QoS 1 message is received again as a new one, because it was forgotten when it was
acknowledged.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from penstock.engine.values.fifo import Fifo
from penstock.protocol import reasons
from penstock.protocol.packets import Publish

OPEN: Final = -1  # instead of a reason code: the application has not settled the message
NOT_ACKNOWLEDGED: Final = -2  # instead of a reason code: the server is to send the message again


@mypyc_attr(acyclic=True)
@final
class ReceivedMessage:
    """One QoS 1 or 2 message from the server.

    Args:
        publish: its first PUBLISH packet.
        topic: its topic name, also if the packet has a topic alias.
    """

    def __init__(self, publish: Publish, topic: str) -> None:
        self.publish = publish
        self.topic = topic
        self.code = OPEN  # or ``NOT_ACKNOWLEDGED``, or the reason code of its acknowledgement
        self.connection = (
            0  # number of the connection that acknowledges it, see ``UnacknowledgedMessages``
        )
        self.is_known = True  # ``UnacknowledgedMessages`` has it under its packet identifier

    def is_repeated_by(self, publish: Publish, topic: str) -> bool:
        """Return whether ``publish`` repeats this message: DUP, same QoS, topic and payload."""
        first = self.publish
        return (
            publish.dup
            and publish.qos == first.qos
            and topic == self.topic
            and publish.payload == first.payload
        )


@final
class UnacknowledgedMessages:
    """The unacknowledged messages of one session, on all its connections."""

    def __init__(self) -> None:
        self.connection = 0  # number of the current connection; earlier ones are over
        self._by_packet_id: dict[int, ReceivedMessage] = {}  # by packet identifier
        self._repeats: set[int] = set()  # packet identifiers of repeats in the line
        self._line: Fifo[ReceivedMessage] = (
            Fifo()
        )  # arrivals of the current connection, not acknowledged

    def __len__(self) -> int:
        """Return how many messages of the current connection are not acknowledged yet."""
        return len(self._line)

    def begin_connection(self, is_same_session: bool) -> int:
        """Begin a new connection; return its number.

        Unless ``is_same_session``, all messages are forgotten.
        """
        self._line.clear()
        self._repeats.clear()
        if not is_same_session:
            for arrival in self._by_packet_id.values():
                arrival.is_known = False
            self._by_packet_id.clear()
        self.connection += 1
        return self.connection

    def receive(self, publish: Publish, topic: str) -> ReceivedMessage | None:
        """Add the message of a QoS 1 or 2 PUBLISH, and return it; return None for a repeat."""
        known = self._by_packet_id.get(publish.packet_id)
        if known is not None and known.is_repeated_by(publish, topic):
            if known.connection != self.connection:
                self._append(known)
            return None
        if known is not None:
            known.is_known = False
        arrival = ReceivedMessage(publish, topic)
        self._by_packet_id[publish.packet_id] = arrival
        self._append(arrival)
        return arrival

    def receive_repeat(self, publish: Publish, topic: str) -> None:
        """Put the repeat of a QoS 2 message in line to be acknowledged again.

        The application had the message on an earlier connection.
        """
        known = self._by_packet_id.get(publish.packet_id)
        if known is not None:
            if known.connection == self.connection:
                return
            self._forget(known)  # settled, while there was no connection
        if publish.packet_id not in self._repeats:
            self._repeats.add(publish.packet_id)
            again = ReceivedMessage(publish, topic)
            again.code = reasons.SUCCESS
            again.is_known = False
            self._append(again)

    def handle_pubrel(self, packet_id: int) -> None:
        """Forget the QoS 2 message with this packet identifier: its server sent PUBREL.

        PUBREL before PUBREC is sent by a server that cannot send the message again and frees its
        packet identifier (``InFlightWindow.give_up``). It would take a PUBREC after PUBCOMP for
        that of the next message with the same identifier.
        """
        known = self._by_packet_id.get(packet_id)
        if known is not None and known.publish.qos == 2:
            self._forget(known)
        self._repeats.discard(packet_id)

    def _forget(self, arrival: ReceivedMessage) -> None:
        arrival.is_known = False
        del self._by_packet_id[arrival.publish.packet_id]

    def _append(self, arrival: ReceivedMessage) -> None:
        assert arrival.connection != self.connection, "a message is in the line only once"
        arrival.connection = self.connection
        self._line.append(arrival)

    def settle(self, arrival: ReceivedMessage, code: int) -> bool:
        """Set the reason code of ``arrival``; return False if it is forgotten or settled
        already."""
        if arrival.code != OPEN or not arrival.is_known:
            return False
        arrival.code = code
        if code == NOT_ACKNOWLEDGED:
            self._forget(arrival)
        return True

    def next_settled(self) -> ReceivedMessage | None:
        """Remove and return the first arrival in line if it is settled, else None.

        Arrivals that the server gave up are skipped.
        """
        while len(self._line) > 0:
            first = self._line.first()
            if first.code == OPEN and first.is_known:
                return None
            self._line.pop()
            if first.is_known:
                self._forget(first)
                return first
            packet_id = first.publish.packet_id
            if packet_id in self._repeats and first.code == reasons.SUCCESS:
                self._repeats.discard(packet_id)
                return first
        return None
