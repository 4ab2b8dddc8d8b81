"""Messages that the client role receives: they are passed to the application and acknowledged.

::

      PUBLISH ─▶ topic alias ─▶ new ─▶ ClientCallbacks.on_message … settle ─╮
                            ╰─▶ repeat of a known message ───────────────┴▶ PUBACK, PUBREC in turn
      PUBREL ─▶ PUBCOMP

``unacknowledged`` has the order of the acknowledgements; each is sent after the commit of the turn
in which the application settled the message (``link``).
"""

from __future__ import annotations

from typing import final

from mypy_extensions import mypyc_attr

from penstock.engine.dialling.unacknowledged import (
    NOT_ACKNOWLEDGED,
    ReceivedMessage,
    UnacknowledgedMessages,
)
from penstock.engine.session.session import Session
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import PACKET_IDENTIFIERS
from penstock.engine.values.refusals import quote
from penstock.engine.values.topics import is_topic_name
from penstock.engine.wire.aliases import InboundAliases
from penstock.engine.wire.link import Link
from penstock.errors import LocalProtocolError, RemoteProtocolError
from penstock.protocol import reasons
from penstock.protocol.encode import encode_ack
from penstock.protocol.kinds import PUBACK, PUBCOMP, PUBREC, V5
from penstock.protocol.packets import Connack, Packet, Publish
from penstock.protocol.properties import Properties


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientCallbacks:
    """The port of the user of a dialled connection: a bridge or the client library.

    ::

          server ─▶ ClientConnection ── on_connected, on_message, on_answer, … ─▶ ClientCallbacks
                            ▲                                                          │
                            ╰─────────── settle, subscribe, unsubscribe, disconnect ◀──╯
    """

    def on_connected(self, connack: Connack, now: Now) -> None:
        """Handle the CONNACK that accepted the CONNECT.

        Packets that are sent in this call precede the packets that the session sends again.
        """

    def on_message(self, arrival: ReceivedMessage, now: Now) -> None:
        """Handle a message; at QoS 1 and 2 call ``ClientConnection.settle`` for it, now or
        later."""

    def on_answer(self, packet: Packet, now: Now) -> None:
        """Handle a SUBACK or UNSUBACK."""

    def authenticate(self, data: bytes | None) -> bytes | None:
        """Return the client's data for the next step of the authentication method; None if the
        server's ``data`` is wrong."""
        del data
        return None

    def on_writable(self, now: Now) -> None:
        """Send waiting messages: the window or the socket may have room again."""

    def on_end(self, now: Now) -> None:
        """Handle the end of the connection; its ``close_reason`` has the reason."""


@final
class ClientInbound:
    """The messages that one connection receives.

    Args:
        session: has the QoS 2 messages until they are released.
        link: sends the acknowledgements.
        arrivals: the unacknowledged messages of that session.
        application: handles the messages.
        asked: the properties of the CONNECT, which announce the limits of this side.
    """

    def __init__(
        self,
        session: Session,
        link: Link,
        arrivals: UnacknowledgedMessages,
        application: ClientCallbacks,
        asked: Properties,
    ) -> None:
        self._session = session
        self._link = link
        self._arrivals = arrivals
        self._application = application
        self._number = 0  # number of this connection, see ``UnacknowledgedMessages``
        self._receive_maximum = asked.receive_maximum or PACKET_IDENTIFIERS
        self._aliases = InboundAliases(asked.topic_alias_maximum or 0)
        self._topic: str | None = None  # topic of the latest message, which is valid

    def begin_connection(self, session_present: bool) -> None:
        """Begin to receive messages: the server accepted the CONNECT."""
        self._number = self._arrivals.begin_connection(session_present)

    def is_current(self) -> bool:
        """Return whether no later connection has taken the session over."""
        return self._number == self._arrivals.connection

    def handle_publish(self, publish: Publish, now: Now) -> None:
        """Pass a PUBLISH to the application, unless it repeats a known message.

        Raises:
            RemoteProtocolError: its topic is invalid, or it exceeds this side's Receive Maximum.
        """
        topic = publish.topic
        properties = publish.properties
        if properties is not None and properties.topic_alias is not None:
            topic = self._aliases.topic_of(topic, properties.topic_alias)
            publish.take_alias()
        if topic is not self._topic:
            if not is_topic_name(topic, PACKET_IDENTIFIERS):
                raise RemoteProtocolError(
                    reasons.TOPIC_NAME_INVALID, f"not a topic name: {quote(topic)}"
                )
            self._topic = topic
        counters = self._link.counters
        counters.messages_received.count(publish.qos)
        counters.publish_bytes_received += len(publish.payload)
        if publish.qos == 0:
            self._application.on_message(ReceivedMessage(publish, topic), now)
        elif publish.qos == 2 and self._is_repeat(publish):
            self._session.receive(publish, now)
            self._arrivals.receive_repeat(publish, topic)
            self._check_receive_maximum()
        else:
            arrival = self._arrivals.receive(publish, topic)
            self._check_receive_maximum()
            if arrival is not None:
                self._application.on_message(arrival, now)

    def _is_repeat(self, publish: Publish) -> bool:
        """Return whether this QoS 2 message was received before, and waits for its PUBREL.

        A repeat on another connection has DUP. A message without DUP is a new one: the server lost
        its session, and this side crashed before that was stored.
        """
        packet_id = publish.packet_id
        if not self._session.inbound.awaits_release(packet_id):
            return False
        if publish.dup or self._session.inbound.received_on_this_connection(packet_id):
            return True
        self._session.release(packet_id)
        return False

    def _check_receive_maximum(self) -> None:
        """Raise the error that ends the connection if the server exceeds this side's Receive
        Maximum [MQTT-3.3.4-9]."""
        if self._link.version == V5 and len(self._arrivals) > self._receive_maximum:
            raise RemoteProtocolError(
                reasons.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {self._receive_maximum} QoS 1 and 2 messages unacknowledged",
            )

    def settle(self, arrival: ReceivedMessage, code: int, now: Now) -> None:
        """Set the acknowledgement of a QoS 1 or 2 message; see ``ClientConnection.settle``."""
        publish = arrival.publish
        kind = PUBACK if publish.qos == 1 else PUBREC
        if code >= reasons.UNSPECIFIED_ERROR and self._link.version != V5:
            code = reasons.SUCCESS
        if code != NOT_ACKNOWLEDGED and not reasons.is_allowed(code, kind):
            raise LocalProtocolError(code, f"no reason code to acknowledge a message with: {code}")
        is_known = self._arrivals.settle(arrival, code)
        if is_known and publish.qos == 2 and NOT_ACKNOWLEDGED < code < reasons.UNSPECIFIED_ERROR:
            self._session.receive(publish, now)

    def acknowledge_settled(self) -> None:
        """Acknowledge settled messages, in the order in which they were received, up to the first
        that is not settled."""
        if not self.is_current():
            return
        arrival = self._arrivals.next_settled()
        while arrival is not None:
            publish = arrival.publish
            kind = PUBACK if publish.qos == 1 else PUBREC
            if arrival.code == reasons.SUCCESS:
                self._link.ack_plain_after_commit(kind, publish.packet_id)
            else:
                encoded = encode_ack(kind, publish.packet_id, arrival.code, self._link.version)
                self._link.ack_after_commit(encoded)
            arrival = self._arrivals.next_settled()

    def handle_pubrel(self, packet_id: int) -> None:
        """Handle a PUBREL: forget the packet identifier and send PUBCOMP."""
        self._arrivals.handle_pubrel(packet_id)
        code = self._session.release(packet_id)
        self._link.ack_after_commit(encode_ack(PUBCOMP, packet_id, code, self._link.version))
