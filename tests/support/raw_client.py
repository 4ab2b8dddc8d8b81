"""An MQTT client of single packets: it sends what a test says, and does nothing by itself.

It acknowledges nothing unless asked to (``take``) and never reconnects, so that a test decides
each packet and sees each answer. ``expect`` takes the very next packet; the few calls that wait for
a certain answer (``publish``, ``take``) leave what comes between for later, in its order.

``settle`` proves an absence: it returns everything that arrives before the answer to a message
that the client sends to itself. The broker answers in order, so what had not come by then was
not sent because of anything that happened before.
"""

import socket
import time
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar, final

from penstock.errors import RemoteProtocolError
from penstock.protocol.decode import PACKET_SIZE_BYTES_MAX, Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from penstock.protocol.properties import Properties
from tests.support.broker import Address
from tests.support.deadline import DEADLINE_S

_READ_BYTES: Final = 65_536
_SETTLE_ID_FIRST: Final = 60_000  # packet identifiers above are this client's own

Kind = TypeVar("Kind", bound=Packet)


class ConnectionEndedError(AssertionError):
    """The broker closed the connection."""


class NothingReceivedError(AssertionError):
    """No packet came in time."""


class ByteStream(Protocol):
    """What a client needs of its connection; a socket has it."""

    def sendall(self, data: bytes, /) -> None: ...
    def recv(self, size: int, /) -> bytes: ...
    def settimeout(self, value: float | None, /) -> None: ...
    def close(self) -> None: ...


def connect(address: Address) -> socket.socket:
    """A TCP connection that sends at once: a test's small packets wait for no acknowledgement."""
    connection = socket.create_connection(address, DEADLINE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


@final
class RawClient:
    """One connection, over TCP unless another one is given.

    Args:
        address: of the broker.
        version: protocol level, 3, 4 or 5.
        connection: made already, in the place of a TCP connection to the address.
        answer_s: how long it waits for a packet where nothing else is said.
    """

    def __init__(
        self,
        address: Address,
        version: int = V5,
        connection: ByteStream | None = None,
        answer_s: float = DEADLINE_S,
    ) -> None:
        self._answer_s = answer_s
        self.version = version
        self.client_id = ""
        self._socket: ByteStream = connection or connect(address)
        self._decoder = Decoder(PACKET_SIZE_BYTES_MAX, version, server=False)
        self._aside: list[Packet] = []  # received, and not what was waited for
        self._last_id = 0
        self._settled = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.drop()

    # -- the connection ----------------------------------------------------------------

    def connect(
        self,
        client_id: str,
        clean_start: bool = True,
        keep_alive_s: int = 0,
        will: Will | None = None,
        expiry_s: int | None = None,
        properties: Properties | None = None,
    ) -> Connack:
        """Send CONNECT and return the answer, whatever it says.

        ``expiry_s`` is the session expiry interval of MQTT 5. Refusals come without a reason
        string unless ``properties`` asks for problem information.
        """
        self.client_id = client_id
        if self.version == V5:
            properties = properties or Properties()
            if properties.request_problem_information is None:
                properties.request_problem_information = 0
            if expiry_s is not None:
                properties.session_expiry_interval = expiry_s
        self.send(
            Connect(client_id, self.version, clean_start, keep_alive_s, will, properties=properties)
        )
        return self.expect(Connack)

    def disconnect(self, reason_code: int = 0, properties: Properties | None = None) -> None:
        """Leave in order, and wait until the broker has closed the connection."""
        self.send(Disconnect(reason_code, properties))
        self.expect_end()

    def drop(self) -> None:
        """Lose the connection: no DISCONNECT."""
        self._socket.close()

    # -- packets -----------------------------------------------------------------------

    def send(self, *packets: Packet) -> None:
        """Send packets, in one write."""
        self.send_bytes(b"".join(encode(packet, self.version) for packet in packets))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def receive(self, within_s: float | None = None) -> Packet:
        """The next packet."""
        return self._aside.pop(0) if self._aside else self._read(within_s)

    def _read(self, within_s: float | None = None) -> Packet:
        within_s = self._answer_s if within_s is None else within_s
        ends_s = time.monotonic() + within_s
        while True:
            try:
                packet = self._decoder.next_packet()
            except RemoteProtocolError as error:
                raise AssertionError(f"the broker broke the protocol: {error}") from error
            if packet is not None:
                return packet
            left_s = ends_s - time.monotonic()
            if left_s <= 0:
                raise NothingReceivedError(f"{self.client_id}: nothing in {within_s:g} s")
            self._socket.settimeout(left_s)
            try:
                data = self._socket.recv(_READ_BYTES)
            except TimeoutError:
                continue
            except ConnectionError:
                data = b""
            finally:
                self._socket.settimeout(DEADLINE_S)
            if not data:
                raise ConnectionEndedError(f"{self.client_id}: the broker closed the connection")
            self._decoder.feed(data)

    def expect(self, kind: type[Kind], within_s: float | None = None) -> Kind:
        """The next packet, which must be of this kind."""
        packet = self.receive(within_s)
        assert isinstance(packet, kind), f"{self.client_id}: {packet!r} is not a {kind.__name__}"
        return packet

    def _answer(self, kind: type[Kind]) -> Kind:
        """The next packet of this kind; others before it are kept for later."""
        for position, packet in enumerate(self._aside):
            if isinstance(packet, kind):
                del self._aside[position]
                return packet
        while True:
            packet = self._read()
            if isinstance(packet, kind):
                return packet
            self._aside.append(packet)

    def expect_end(self, within_s: float = DEADLINE_S) -> None:
        """The broker must close the connection, and send nothing more."""
        try:
            packet = self.receive(within_s)
        except ConnectionEndedError:
            return
        raise AssertionError(f"{self.client_id}: {packet!r} instead of the end")

    def has_ended(self, within_s: float) -> bool:
        """Whether the broker closes the connection in this time; packets are passed over."""
        try:
            while True:
                self.receive(within_s)
        except ConnectionEndedError:
            return True
        except NothingReceivedError:
            return False

    def expect_disconnect(self, reason_code: int, within_s: float = DEADLINE_S) -> Disconnect:
        """MQTT 5: DISCONNECT with this reason code, and the end."""
        packet = self.expect(Disconnect, within_s)
        assert packet.reason_code == reason_code, packet
        self.expect_end()
        return packet

    # -- what most tests need ----------------------------------------------------------

    def next_id(self) -> int:
        """A packet identifier not used before on this connection."""
        self._last_id += 1
        return self._last_id

    def subscribe(
        self, *subscriptions: Subscription | str, qos: int = 2, identifier: int | None = None
    ) -> list[int]:
        """Subscribe; the granted reason codes. A plain filter is asked for with ``qos``."""
        asked = [
            Subscription(item, qos) if isinstance(item, str) else item for item in subscriptions
        ]
        properties = None
        if identifier is not None:
            properties = Properties(subscription_identifiers=[identifier])
        self.send(Subscribe(self.next_id(), asked, properties))
        return self.expect(Suback).reason_codes

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 1,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> int:
        """Publish with the whole acknowledgement; the reason code of PUBACK or PUBREC."""
        packet_id = self.next_id() if qos else 0
        self.send(Publish(topic, payload, qos, retain, False, packet_id, properties))
        if qos == 0:
            return 0
        if qos == 1:
            puback = self._answer(Puback)
            assert puback.packet_id == packet_id
            return puback.reason_code
        pubrec = self._answer(Pubrec)
        assert pubrec.packet_id == packet_id
        if pubrec.reason_code < 0x80:
            self.send(Pubrel(packet_id))
            assert self._answer(Pubcomp) == Pubcomp(packet_id)
        return pubrec.reason_code

    def take(self, within_s: float = DEADLINE_S) -> Publish:
        """The next packet, a message, acknowledged as its QoS asks."""
        message = self.expect(Publish, within_s)
        if message.qos == 1:
            self.send(Puback(message.packet_id))
        elif message.qos == 2:
            self.send(Pubrec(message.packet_id))
            assert self._answer(Pubrel) == Pubrel(message.packet_id)
            self.send(Pubcomp(message.packet_id))
        return message

    def acknowledge(self, packet: Packet) -> None:
        """Answer a message or a PUBREL; nothing else has an answer."""
        if isinstance(packet, Publish) and packet.qos == 1:
            self.send(Puback(packet.packet_id))
        elif isinstance(packet, Publish) and packet.qos == 2:
            self.send(Pubrec(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self.send(Pubcomp(packet.packet_id))

    def take_payloads(self, count: int) -> list[bytes]:
        """The payloads of the next ``count`` messages, each acknowledged."""
        return [self.take().payload for _ in range(count)]

    def settle(self) -> list[Packet]:
        """Everything that arrives before the answer to a message sent now to oneself."""
        self._settled += 1
        topic = f"settle/{self.client_id}/{self._settled}"
        subscribe_id = publish_id = _SETTLE_ID_FIRST + self._settled
        self.send(
            Subscribe(subscribe_id, [Subscription(topic, 0)]),
            Publish(topic, b"", 1, packet_id=publish_id),
        )
        own: list[Packet] = [
            Suback(subscribe_id, [0]),
            Puback(publish_id),
            Publish(topic, b""),
        ]
        arrived: list[Packet] = []
        while own:
            packet = self.receive()
            if packet in own:
                own.remove(packet)
            else:
                arrived.append(packet)
        return arrived
