"""What a broker had promised to whom at any moment, read from the bytes on its sockets.

Nothing that the broker or a client says of itself is believed. From the trace of the broker's
system calls every packet is known, and when it was read or began to leave::

      read  (from a client)   counts from the end of the read
      sent  (to a client)     counts from the beginning of the write: then it may have arrived

A ``Client`` is what a client that got everything knows at that moment: what it published and is
not acknowledged, what it received, which QoS 2 flows are open. With that it goes on after a power
cut, as any client with a session that stays would (``tests/support/survivors.py``).
"""

import re
from collections.abc import Iterator
from copy import copy
from typing import Final, NamedTuple, final

from penstock.errors import RemoteProtocolError
from penstock.protocol.decode import PACKET_SIZE_BYTES_MAX, Decoder
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
    Unsuback,
    Unsubscribe,
)
from tests.support.system_calls import Call

LASTING_S: Final = 60
"""Sessions with a shorter expiry interval may be gone by themselves."""

_SOCKET: Final = re.compile(r"TCP(?:v6)?:\[(.*)\]")
_WRITES: Final = ("write", "writev", "sendto", "sendmsg")
_READS: Final = ("read", "readv", "recvfrom", "recvmsg")

Key = tuple[str, bytes]
"""A message: topic and payload, which no other message has."""


class Event(NamedTuple):
    """A packet that passed between broker and client; ``at`` is its position in the recording."""

    at: int
    client_id: str
    sent: bool
    packet: Packet


class Sent(NamedTuple):
    """A message that a client published; ``at`` is when it was first read."""

    at: int
    message: Publish
    acknowledged: bool = False


class Held(NamedTuple):
    """A subscription: ``since`` when it was acknowledged, None while it may or may not be there."""

    qos: int
    since: int | None = None


@final
class Client:
    """One client identifier."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.version = V5
        self.expiry_s = 0
        self.has_session = False  # the broker said so
        self.subscriptions: dict[str, Held] = {}
        self.refused: set[str] = set()  # filters whose removal was acknowledged
        self.published: dict[Key, Sent] = {}
        self.kept: list[Sent] = []  # retained messages, in their order
        self.unacknowledged: dict[int, Publish] = {}
        self.unreleased: dict[int, None] = {}
        self.free: list[int] = []  # packet identifiers of finished flows, latest last
        self.received: dict[Key, int] = {}  # how often; at QoS 2 as a client counts
        self.first_at_qos1: set[Key] = set()  # as its subscription was then; these may come again
        self.confirmed: set[Key] = set()  # received, and the broker knows
        self.received_unreleased: set[int] = set()
        self._carried: dict[int, Key] = {}  # what a packet identifier of the broker carries
        self._asked: dict[int, Packet] = {}

    @property
    def lasting(self) -> bool:
        """Whether the broker must still know the session, whenever it comes back."""
        return self.has_session and self.expiry_s >= LASTING_S

    def copy(self) -> "Client":
        """The same client, to go another way."""
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (dict, set, list)):
                setattr(other, name, value.copy())
        return other

    def see(self, event: Event) -> None:
        """One packet further."""
        if event.sent:
            self._sent(event.at, event.packet)
        else:
            self._read(event.at, event.packet)

    # -- from the client ---------------------------------------------------------------

    def _read(self, at: int, packet: Packet) -> None:
        if isinstance(packet, Connect):
            self._connect(packet)
        elif isinstance(packet, Publish):
            self.publish(at, packet)
        elif isinstance(packet, Pubrel):
            sent = self.unacknowledged.pop(packet.packet_id, None)
            if sent is not None:  # its PUBREC was cut short in the trace, and arrived
                self._acknowledge(sent)
        elif isinstance(packet, (Puback, Pubrec)):
            key = self._carried.get(packet.packet_id)
            if key is not None:
                self.confirmed.add(key)
        elif isinstance(packet, Subscribe):
            self._asked[packet.packet_id] = packet
            for wanted in packet.subscriptions:
                self.refused.discard(wanted.topic_filter)
                self.subscriptions.setdefault(wanted.topic_filter, Held(wanted.qos))
        elif isinstance(packet, Unsubscribe):
            self._asked[packet.packet_id] = packet
            for topic_filter in packet.topic_filters:
                if topic_filter in self.subscriptions:
                    held = self.subscriptions[topic_filter]
                    self.subscriptions[topic_filter] = Held(held.qos)
        elif isinstance(packet, Disconnect) and packet.properties is not None:
            expiry_s = packet.properties.session_expiry_interval
            self.expiry_s = self.expiry_s if expiry_s is None else expiry_s

    def _connect(self, packet: Connect) -> None:
        self.version = packet.version
        properties = packet.properties
        if packet.version == V5:
            self.expiry_s = (properties and properties.session_expiry_interval) or 0
        else:
            self.expiry_s = 0 if packet.clean_start else 2**32 - 1
        if packet.clean_start:
            self.has_session = False
            self.subscriptions.clear()

    def publish(self, at: int, packet: Publish) -> None:
        """A PUBLISH of this client, new or once more."""
        if packet.qos == 0 or packet.topic.startswith("settle/"):
            return
        if packet.retain:
            if not (packet.dup and packet.packet_id in self.unacknowledged):
                self.kept.append(Sent(at, packet))
            self.unacknowledged[packet.packet_id] = packet
            return
        key = (packet.topic, packet.payload)
        if packet.packet_id in self.unreleased and key in self.published and packet.dup:
            return
        former = self.unacknowledged.get(packet.packet_id)
        if former is not None and (former.topic, former.payload) != key:
            self._acknowledge(former)  # so the client knew, for it uses the identifier again
        self.published.setdefault(key, Sent(at, packet))
        self.unreleased.pop(packet.packet_id, None)
        self.unacknowledged[packet.packet_id] = packet

    def _acknowledge(self, message: Publish) -> None:
        if not message.retain:
            key = (message.topic, message.payload)
            self.published[key] = self.published[key]._replace(acknowledged=True)
            return
        for position in reversed(range(len(self.kept))):
            if self.kept[position].message.packet_id == message.packet_id:
                self.kept[position] = self.kept[position]._replace(acknowledged=True)
                return

    # -- to the client -----------------------------------------------------------------

    def _sent(self, at: int, packet: Packet) -> None:
        if isinstance(packet, Connack):
            self.has_session = packet.reason_code == 0 and self.expiry_s > 0
        elif isinstance(packet, (Puback, Pubrec)):
            self.acknowledged(packet)
        elif isinstance(packet, Pubcomp):
            self.unreleased.pop(packet.packet_id, None)
            self.free.append(packet.packet_id)
        elif isinstance(packet, Publish):
            self.receive(packet)
        elif isinstance(packet, Pubrel):
            self.received_unreleased.discard(packet.packet_id)
        elif isinstance(packet, (Suback, Unsuback)):
            self._granted(at, packet)

    def acknowledged(self, packet: Puback | Pubrec) -> None:
        """The broker took responsibility for a message."""
        message = self.unacknowledged.pop(packet.packet_id, None)
        if message is not None and packet.reason_code < 0x80:
            self._acknowledge(message)
        if isinstance(packet, Pubrec):
            self.unreleased[packet.packet_id] = None
        else:
            self.free.append(packet.packet_id)

    def receive(self, packet: Publish) -> bool:
        """A message reaches the client; whether it is a new one to it."""
        key = (packet.topic, packet.payload)
        if packet.qos > 0:
            self._carried[packet.packet_id] = key
        if packet.qos == 2:
            if packet.packet_id in self.received_unreleased:
                return False
            self.received_unreleased.add(packet.packet_id)
        if packet.qos == 1 and key not in self.received:
            self.first_at_qos1.add(key)
        self.received[key] = self.received.get(key, 0) + 1
        return True

    def _granted(self, at: int, packet: Suback | Unsuback) -> None:
        asked = self._asked.pop(packet.packet_id, None)
        if isinstance(asked, Subscribe):
            for wanted, code in zip(asked.subscriptions, packet.reason_codes, strict=True):
                if code < 0x80:
                    self.subscriptions[wanted.topic_filter] = Held(wanted.qos, at)
        elif isinstance(asked, Unsubscribe):
            for topic_filter in asked.topic_filters:
                self.subscriptions.pop(topic_filter, None)
                self.refused.add(topic_filter)


def read_events(calls: list[Call]) -> list[Event]:
    """The packets of one start of the broker, in their order."""
    connections: dict[str, _Connection] = {}
    events: list[Event] = []
    for call in calls:
        socket = _SOCKET.match(call.target)
        if socket is None or not call.data:
            continue
        connection = connections.setdefault(socket.group(1), _Connection())
        if call.name in _READS:
            events += connection.read(call)
        elif call.name in _WRITES:
            events += connection.sent(call)
    events.sort(key=lambda event: event.at)
    return events


@final
class _Connection:
    """The packets of one connection."""

    def __init__(self) -> None:
        self._from_client = Decoder(PACKET_SIZE_BYTES_MAX)
        self._to_client: Decoder | None = None
        self._client_id = ""

    def read(self, call: Call) -> Iterator[Event]:
        if self._from_client_connects_again(call.data):
            self._from_client = Decoder(PACKET_SIZE_BYTES_MAX)
        self._from_client.feed(call.data)
        while (packet := self._from_client.next_packet()) is not None:
            if isinstance(packet, Connect):
                self._to_client = Decoder(PACKET_SIZE_BYTES_MAX, packet.version, server=False)
                self._client_id = packet.client_id
            yield Event(call.finished, self._client_id, False, packet)

    def sent(self, call: Call) -> Iterator[Event]:
        assert self._to_client is not None, f"line {call.started}: sent before CONNECT"
        self._to_client.feed(call.data)
        try:
            while (packet := self._to_client.next_packet()) is not None:
                yield Event(call.started, self._client_id, True, packet)
        except RemoteProtocolError as error:
            raise AssertionError(f"line {call.started}: {error}") from error

    def _from_client_connects_again(self, data: bytes) -> bool:
        """The same two ports, another connection: its first packet is a CONNECT."""
        return self._to_client is not None and data[:1] == b"\x10" and b"MQTT" in data[:12]
