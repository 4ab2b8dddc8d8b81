"""The two roles of a simulated link: one side dials with ``ClientConnection``, the other accepts.

``Accepting`` is an ``Endpoint`` with a handshake before it; ``test_link.py`` proves the session
behind it. ``Dialled`` has the real client role. It processes messages a while after they came, in
portions, so that connections end and the other side crashes meanwhile.
"""

from __future__ import annotations

from typing import Final

from penstock.engine.dialling.client_connection import ClientConnection
from penstock.engine.dialling.client_inbound import ClientCallbacks
from penstock.engine.dialling.unacknowledged import ReceivedMessage, UnacknowledgedMessages
from penstock.engine.values.clock import Now
from penstock.engine.values.message import Message
from penstock.engine.values.states import CLOSED
from penstock.engine.wire.link import Link
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connack, Connect, Packet, Puback, Pubcomp, Pubrec
from penstock.protocol.properties import Properties
from penstock.protocol.reasons import QUOTA_EXCEEDED
from tests.model.endpoint import PACKET_SIZE_BYTES_MAX, Endpoint

KEEP_ALIVE_S: Final = 60


class Dialled(Endpoint, ClientCallbacks):
    """The side that dials."""

    connection: ClientConnection | None = None
    waiting: list[ReceivedMessage]

    def _start(self, now: Now) -> None:
        super()._start(now)
        self.arrivals = UnacknowledgedMessages()
        self.waiting = []
        self.connection = None

    def attach(self, receive_maximum: int, packet_size_max: int, now: Now) -> None:
        """Dial. The limits that CONNACK is to have travel in the CONNECT."""
        self.detach(now)
        self._receive_maximum = receive_maximum
        self._wire_decoder = Decoder(PACKET_SIZE_BYTES_MAX)
        self._decoder = Decoder(PACKET_SIZE_BYTES_MAX, self.version, server=False)
        connect = Connect(self.outward.sender, self.version, False, KEEP_ALIVE_S)
        if self.version == V5:
            accepted = [("receive maximum", str(receive_maximum)), ("size", str(packet_size_max))]
            connect.properties = Properties(user_properties=accepted)
        self.connection = ClientConnection(
            self.context, self.session, self.arrivals, connect, self.limits, self, True, now
        )
        self.link = self.connection.link

    def on_connected(self, connack: Connack, now: Now) -> None:
        """Tell the judge that the handshake is done."""
        del connack, now
        self.outward.connected(self._receive_maximum)

    def detach(self, now: Now) -> None:
        """End the connection."""
        if self.connection is not None:
            self.connection.lost("cut", now)
        self.link = None

    def receive(self, data: bytes, now: Now) -> None:
        """Handle bytes from the wire."""
        connection = self.connection
        assert connection is not None
        self._decoder.feed(data)
        while (packet := self._decoder.next_packet()) is not None:
            if isinstance(packet, Puback | Pubrec | Pubcomp):
                self.outward.answered(packet)
        connection.receive(data, now)
        assert connection.state != CLOSED, connection.close_reason
        assert not connection.is_reading_paused

    def on_message(self, arrival: ReceivedMessage, now: Now) -> None:
        """Keep a message, to process it later, all in their order."""
        del now
        if not self.waiting:
            self.reads.append((self.session, []))  # ``LinkWorld`` calls ``supply``, some time
        self.waiting.append(arrival)

    def _process(self, now: Now) -> None:
        connection = self.connection
        assert connection is not None
        waiting, self.waiting = self.waiting, []
        for arrival in waiting:
            packet = arrival.publish
            if packet.qos > 0 and self.refuses(packet):
                connection.settle(arrival, QUOTA_EXCEEDED, now)
                continue
            sender = self.inward.sender
            self.context.batch.append(
                Message(arrival.topic, packet.payload, packet.qos, False, sender, now.wall_us)
            )
            connection.settle(arrival, 0, now)

    def supply(self, now: Now) -> None:
        """Process the messages that came; without any, answer the oldest question for bodies."""
        if self.waiting:
            self.reads.remove((self.session, []))
            self._process(now)
        else:
            super().supply(now)


class Accepting(Endpoint):
    """The side that accepts."""

    def attach(self, receive_maximum: int, packet_size_max: int, now: Now) -> None:
        """Open a socket on which the other side may send CONNECT."""
        self.detach(now)
        self._may_send = (receive_maximum, packet_size_max)
        self._decoder = Decoder(PACKET_SIZE_BYTES_MAX)
        self._wire_decoder = Decoder(PACKET_SIZE_BYTES_MAX, self.version, server=False)
        self.link = Link(self.context.turn)
        self.link.version = self.version

    def handle(self, packet: Packet, now: Now) -> None:
        """Handle one packet from the other side."""
        link = self.link
        assert link is not None
        if not isinstance(packet, Connect):
            super().handle(packet, now)
            return
        answer = Connack(0, True)
        if packet.properties is not None:
            accepted = dict(packet.properties.user_properties or [])
            answer.properties = Properties(receive_maximum=int(accepted["receive maximum"]))
            answer.properties.maximum_packet_size = int(accepted["size"]) or None
        link.send_after_commit(encode(answer, self.version))
        receive_maximum, link.max_packet_size_bytes = self._may_send
        self.outward.connected(receive_maximum)
        self.session.attach(link, self.limits, receive_maximum, now)
