"""A device of the simulation: a correct MQTT client over real protocol bytes.

It keeps its session state over connections and, as the protocol asks, sends unacknowledged packets
again when it is back: PUBLISH with DUP and PUBREL, in order, with their packet identifiers. It
tells the ledger what it sent, what was acknowledged and what arrived, and checks what only the
receiver can see: no more in flight than it allowed, no packet identifier used twice at the same
time.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final, final

from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
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
    Unsuback,
    Unsubscribe,
    Will,
)
from penstock.protocol.properties import Properties
from penstock.protocol.reasons import SERVER_SHUTTING_DOWN, SERVER_UNAVAILABLE
from tests.model.ledger import Ledger

PACKET_IDENTIFIERS: Final = 40  # few, so that they are used again soon
NEVER_S: Final = 0xFFFFFFFF
EXPIRY_MARGIN_S: Final = 30.0  # a CONNECT takes less than this to arrive
OWN_QUOTA: Final = 12  # unacknowledged messages of a client that is told no limit


@final
class Profile:
    """The kind of client that a device is."""

    def __init__(self, client_id: str, random: Random, window: int) -> None:
        self.client_id = client_id
        self.version = random.choice((3, 4, 4, 5, 5, 5))
        self.durable = random.random() < 0.8
        self.expiry_s = 0
        if self.durable:
            brief = self.version == 5 and random.random() < 0.2
            self.expiry_s = 60 if brief else NEVER_S
        self.receive_maximum = random.choice((1, 2, 3, 20)) if self.version == 5 else 65535
        self.window = min(window, self.receive_maximum)
        self.max_packet_size = 100 if self.version == 5 and random.random() < 0.1 else 0
        self.has_will = random.random() < 0.3
        self.retain_handling = random.randrange(3) if self.version == 5 else 0


@final
class Outbound:
    """A message in flight from the device; ``released`` is set when PUBREC arrived."""

    def __init__(self, packet: Publish, key: str) -> None:
        self.packet = packet
        self.key = key
        self.released = False


@final
class Device:
    """One client identifier and its application."""

    def __init__(self, profile: Profile, ledger: Ledger, random: Random) -> None:
        self.profile = profile
        self.connected = False  # CONNACK arrived
        self.may_be_refused = False  # by a broker that cannot write
        self.is_refused = False  # this connection
        self.online = False  # there is a socket
        self.output = bytearray()  # for the socket
        self.deferred_acks: list[Packet] = []  # acknowledgements the application delays
        self.outbox: deque[Publish] = deque()  # not sent yet
        self.accepted_wills: list[str] = []  # of connections that ended without DISCONNECT
        self.gone_since_s = 0.0
        self._ledger = ledger
        self._random = random
        self._decoder = Decoder(1_000_000, profile.version, server=False)
        self._in_flight: dict[int, Outbound] = {}
        self._unsent: deque[int] = deque()  # in flight, to be sent again
        self._inbound: dict[int, str] = {}  # QoS 2, received and not released
        self._unanswered: set[int] = set()  # PUBLISH of this connection not yet acknowledged
        self._asked: dict[int, tuple[str, int]] = {}  # SUBSCRIBE: filter, QoS
        self._quota = 0
        self._quota_max = 0
        self._cursor = 0
        self._numbers = 0
        self._has_session = False
        self._starts_clean = False  # until a CONNACK says that it did
        self._expects_session = False
        self._will_key = ""
        self._aliases: dict[str, int] = {}

    @property
    def client_id(self) -> str:
        """Return its client identifier."""
        return self.profile.client_id

    @property
    def idle(self) -> bool:
        """Return whether no message or acknowledgement of its own waits."""
        return not (self.outbox or self._in_flight or self.deferred_acks or self._inbound)

    # -- the application ---------------------------------------------------------------

    def publish(self, topic: str, qos: int, retain: bool, size: int, expiry_s: int) -> None:
        """Queue a message; it is sent when connection and quota allow."""
        self._numbers += 1
        key = f"{self.client_id}|{self._numbers}"
        payload = key.encode() + b"." * size
        properties = None
        if expiry_s > 0 and self.profile.version == 5:
            properties = Properties(message_expiry_interval=expiry_s)
        self.outbox.append(Publish(topic, payload, qos, retain, properties=properties))
        self._pump()

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Send SUBSCRIBE if connected."""
        if not self.connected:
            return
        packet_id = self._packet_id()
        if packet_id == 0:
            return
        self._asked[packet_id] = (topic_filter, qos)
        handling = self.profile.retain_handling
        self._send(
            Subscribe(packet_id, [Subscription(topic_filter, qos, retain_handling=handling)])
        )

    def unsubscribe(self, topic_filter: str) -> None:
        """Send UNSUBSCRIBE if connected."""
        if not self.connected:
            return
        packet_id = self._packet_id()
        if packet_id == 0:
            return
        for number, asked in self._asked.items():
            if asked[0] == topic_filter:
                self._asked[number] = ("", 0)
        self._asked[packet_id] = ("", 0)
        self._ledger.unsubscribing(self.client_id, topic_filter)
        self._send(Unsubscribe(packet_id, [topic_filter]))

    def flush_acks(self, count: int) -> None:
        """Send ``count`` delayed acknowledgements, in their order."""
        for packet in self.deferred_acks[:count]:
            if isinstance(packet, Puback | Pubcomp):
                self._unanswered.discard(packet.packet_id)
            self._send(packet)
        del self.deferred_acks[:count]

    # -- connections -------------------------------------------------------------------

    def connect(self, clean: bool, now_s: float) -> None:
        """Open a connection; the caller provides the socket.

        A session that may have expired starts clean: if a CONNACK was lost, its successor could be
        taken for it.
        """
        profile = self.profile
        over = now_s - self.gone_since_s >= profile.expiry_s - EXPIRY_MARGIN_S
        clean = clean or over or not profile.durable or self._starts_clean
        self.online = True
        self.is_refused = False
        self._decoder = Decoder(1_000_000, profile.version, server=False)
        self._expects_session = self._has_session and not clean
        if clean:
            self._starts_clean = True
            self._forget_session()
        properties = None
        if profile.version == 5:
            properties = Properties(
                session_expiry_interval=profile.expiry_s or None,
                receive_maximum=profile.receive_maximum,
                maximum_packet_size=profile.max_packet_size or None,
            )
        will = None
        if profile.has_will:
            self._numbers += 1
            self._will_key = f"{self.client_id}|{self._numbers}"
            will = Will("wills", self._will_key.encode(), 1)
            self._ledger.sent(self._will_key, self.client_id, "wills", 1)
        packet = Connect(profile.client_id, profile.version, clean, 0, will, properties=properties)
        self.output += encode(packet, profile.version)

    def leave(self, now_s: float) -> None:
        """Send DISCONNECT, then nothing more; the caller closes the socket after the last byte."""
        self._will_key = ""
        self._send(Disconnect())
        self._ended(now_s)

    def cut(self, now_s: float) -> None:
        """Note that the socket is gone, without DISCONNECT."""
        if self.connected and self._will_key:
            self.accepted_wills.append(self._will_key)
        self._ended(now_s)

    def _ended(self, now_s: float) -> None:
        if self.connected:
            self.gone_since_s = now_s
        self.online = False
        self.connected = False
        self.deferred_acks.clear()
        self._unanswered.clear()
        self._asked.clear()
        self._aliases.clear()
        self._will_key = ""
        if not self.profile.durable:
            self._forget_session()

    def _forget_session(self) -> None:
        self._has_session = False
        self._in_flight.clear()  # abandoned: whether it arrived stays unknown
        self._unsent.clear()
        self._inbound.clear()
        self._ledger.session_lost(self.client_id)

    # -- packets -----------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Handle bytes from the broker."""
        self._decoder.feed(data)
        while (packet := self._decoder.next_packet()) is not None:
            self._handle(packet)
        self._pump()

    def _handle(self, packet: Packet) -> None:
        if isinstance(packet, Connack):
            self._accepted(packet)
        elif isinstance(packet, Publish):
            self._arrival(packet)
        elif isinstance(packet, Pubrel):
            self._inbound.pop(packet.packet_id, None)
            self._acknowledge(Pubcomp(packet.packet_id))
        elif isinstance(packet, Puback):
            if packet.reason_code >= 0x80:  # refused: nobody got it
                self._forget_refused(packet.packet_id)
            else:
                self._done(packet.packet_id, 1)
        elif isinstance(packet, Pubrec):
            self._received(packet)
        elif isinstance(packet, Pubcomp):
            self._done(packet.packet_id, 2)
        elif isinstance(packet, Suback):
            topic_filter, qos = self._asked.pop(packet.packet_id, ("", 0))
            assert packet.reason_codes == [qos] or not topic_filter, packet
            if topic_filter and self.profile.durable:
                self._ledger.subscribed(self.client_id, topic_filter, qos)
        elif isinstance(packet, Unsuback):
            self._asked.pop(packet.packet_id, None)
        else:
            stopped = isinstance(packet, Disconnect) and packet.reason_code == SERVER_SHUTTING_DOWN
            assert stopped, f"{self.client_id}, a correct client, was sent {packet}"

    def _accepted(self, packet: Connack) -> None:
        if self.may_be_refused and packet.reason_code == SERVER_UNAVAILABLE:
            self.is_refused = True
            return
        assert packet.reason_code == 0, packet
        self.connected = True
        if self.profile.version > 3:
            if self._expects_session:
                assert packet.session_present, f"{self.client_id} lost its session"
            if not packet.session_present:
                self._forget_session()
        self._has_session = self.profile.durable
        self._starts_clean = False
        self._quota_max = OWN_QUOTA
        if packet.properties is not None and packet.properties.receive_maximum is not None:
            self._quota_max = packet.properties.receive_maximum
        self._quota = self._quota_max
        self._unsent = deque(self._in_flight)

    def _arrival(self, packet: Publish) -> None:
        packet_id = packet.packet_id
        key = packet.payload.decode().rstrip(".")
        if packet.qos > 0:
            if packet_id in self._unanswered:  # v3.1 §4.1: sent again after a time, with DUP
                assert self.profile.version == 3, f"{packet} is in flight already"
                assert packet.dup, f"{packet} is in flight already"
            elif self.profile.version == 3 and packet.dup:
                pass  # it may have crossed our answer: the broker no longer counts it
            else:
                self._unanswered.add(packet_id)
            assert len(self._unanswered) <= self.profile.window, (
                f"{self.client_id} has {len(self._unanswered)} in flight, {self.profile.window=}"
            )
        if packet.qos == 2:
            known = self._inbound.get(packet_id)
            if known is not None:
                assert packet.dup, f"{packet_id} given again to {key} while {known} is not released"
                assert known == key, f"{packet_id} was {known} and is {key}"
                self._acknowledge(Pubrec(packet_id))
                return
            self._inbound[packet_id] = key
        self._ledger.arrival(self.client_id, packet)
        if packet.qos == 1:
            self._acknowledge(Puback(packet_id))
        elif packet.qos == 2:
            self._acknowledge(Pubrec(packet_id))

    def _acknowledge(self, packet: Packet) -> None:
        self.deferred_acks.append(packet)
        if self._random.random() < 0.7:
            self.flush_acks(len(self.deferred_acks))

    def _received(self, packet: Pubrec) -> None:
        outbound = self._in_flight.get(packet.packet_id)
        if outbound is not None:
            if packet.reason_code >= 0x80:
                self._forget_refused(packet.packet_id)
                return
            if self.profile.version > 3:  # in 3.1 it is published by PUBREL (v3.1 §3.6)
                self._ledger.acknowledged(outbound.key)
            outbound.released = True
            self._ledger.released(outbound.key)
        self._send(Pubrel(packet.packet_id))

    def _forget_refused(self, packet_id: int) -> None:
        if self._in_flight.pop(packet_id, None) is not None:
            self._quota = min(self._quota + 1, self._quota_max)

    def _done(self, packet_id: int, qos: int) -> None:
        outbound = self._in_flight.get(packet_id)
        if outbound is None:
            return
        assert outbound.packet.qos == qos
        self._ledger.acknowledged(outbound.key)
        del self._in_flight[packet_id]
        self._quota = min(self._quota + 1, self._quota_max)

    def was_refused(self, packet_id: int) -> None:
        """Note that the broker refused a message, whether or not the answer arrives."""
        outbound = self._in_flight.get(packet_id)
        if outbound is not None and outbound.key in self._ledger.messages:
            self._ledger.messages[outbound.key].may_be_late = True

    def _pump(self) -> None:
        """Send what quota and packet identifiers allow: first the repeats, then new messages."""
        if not self.connected:
            return
        while self._unsent:
            packet_id = self._unsent[0]
            outbound = self._in_flight.get(packet_id)
            if outbound is not None and outbound.released:
                self._send(Pubrel(packet_id))  # takes nothing of the quota (MQTT 5 §4.9)
            elif outbound is not None:
                if self._quota == 0:
                    return
                self._quota -= 1
                outbound.packet.dup = True
                self._send(outbound.packet)
            self._unsent.popleft()
        while self.outbox:
            packet = self.outbox[0]
            key = packet.payload.decode().rstrip(".")
            if packet.qos > 0:
                packet_id = self._packet_id()
                if self._quota == 0 or packet_id == 0:
                    return
                self._quota -= 1
                packet.packet_id = packet_id
                self._in_flight[packet_id] = Outbound(packet, key)
            self.outbox.popleft()
            held = packet.qos == 2 and self.profile.version == 3
            self._ledger.sent(key, self.client_id, packet.topic, packet.qos, held)
            if packet.retain:
                self._ledger.retained[packet.topic] = key
            self._send_with_alias(packet)

    def _send_with_alias(self, packet: Publish) -> None:
        alias = self._aliases.get(packet.topic, 0)
        if self.profile.version != 5 or (alias == 0 and self._random.random() < 0.7):
            self._send(packet)
            return
        topic = packet.topic if alias == 0 else ""
        alias = alias or len(self._aliases) + 1
        self._aliases[packet.topic] = alias
        properties = Properties(topic_alias=alias)
        if packet.properties is not None:
            properties.message_expiry_interval = packet.properties.message_expiry_interval
        self._send(
            Publish(
                topic,
                packet.payload,
                packet.qos,
                packet.retain,
                False,
                packet.packet_id,
                properties,
            )
        )

    def _send(self, packet: Packet) -> None:
        self.output += encode(packet, self.profile.version)

    def _packet_id(self) -> int:
        """Return a free packet identifier, 0 if there is none."""
        for step in range(1, PACKET_IDENTIFIERS + 1):
            packet_id = (self._cursor + step - 1) % PACKET_IDENTIFIERS + 1
            if packet_id not in self._in_flight and packet_id not in self._asked:
                self._cursor = packet_id
                return packet_id
        return 0
