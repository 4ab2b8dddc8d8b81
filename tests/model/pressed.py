"""A client under pressure: little room everywhere, late answers, and a queue of its own.

It publishes and subscribes on one connection, keeps its session state over cuts and take-overs,
sends again what the protocol allows (MQTT 3.1 by time), and obeys the server's Receive Maximum
exactly as MQTT 5 §4.9 says, no stricter. Packets in both directions wait in ``outbox`` and
``inbox`` until the test lets them pass, one by one.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final, final

from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line

IDENTIFIERS: Final = 9  # few, so that they are used again soon


@final
class Sent:
    """One message of a client, as its publisher sees it."""

    def __init__(self, name: str, topic: str, qos: int) -> None:
        self.name = name
        self.topic = topic
        self.qos = qos
        self.released = False  # QoS 2: PUBREC came
        self.here = False  # sent on this connection
        self.times = 0
        self.taken = False  # the server answered for it
        self.refused = False
        self.may_be_late = False  # refused once, it may be, and the answer lost: MQTT 5 only
        self.maybe = False  # it may arrive or not: no permission, or an ambiguous answer


@final
class Pressed:
    """One client under pressure.

    Args:
        bench: the broker.
        client_id: its client identifier.
        version: its protocol level, 3, 4 or 5.
        random: draws what it does.
    """

    def __init__(self, bench: Bench, client_id: str, version: int, random: Random) -> None:
        self.bench = bench
        self.client_id = client_id
        self.version = version
        self.window = random.randint(1, IDENTIFIERS)
        self.line: Line | None = None
        self.connected = False
        self.outbox: deque[bytes] = deque()
        self.inbox: deque[Packet] = deque()
        self.open: dict[int, Sent] = {}  # by packet identifier, oldest first
        self.all: list[Sent] = []
        self.got: list[str] = []
        self._got_ids: set[int] = set()
        self._next_id = 0
        self._quota = 0
        self._quota_max = 0
        self._expects: dict[int, deque[int]] = {1: deque(), 2: deque()}
        self._repeated: set[int] = set()  # identifiers whose PUBACK may come twice

    # -- connections -------------------------------------------------------------------

    def connect(self) -> None:
        """Open a new connection, which takes over from an older one; it is up with the CONNACK."""
        self.gone()
        line = self.bench.line(self.version)
        self.line = line
        properties = None
        if self.version == 5:
            properties = Properties(session_expiry_interval=3600, request_problem_information=0)
        packet = Connect(self.client_id, self.version, False, 0, None, properties=properties)
        line.receive(encode(packet, self.version))

    def cut(self) -> None:
        """Cut the connection."""
        if self.line is not None:
            self.line.cut()
        self.gone()

    def gone(self) -> None:
        """Forget the packets under way: the connection is lost."""
        self.line = None
        self.connected = False
        self.outbox.clear()
        self.inbox.clear()
        self._repeated.clear()
        for expected in self._expects.values():
            expected.clear()
        for sent in self.open.values():
            sent.here = False

    def close_reason(self) -> str:
        """Return why the server closed the connection; empty if it did not."""
        if self.line is None or not self.line.connection.link.is_closed:
            return ""
        return self.line.connection.close_reason

    # -- publishing --------------------------------------------------------------------

    def publish(self, topic: str, qos: int) -> Sent | None:
        """Publish a new message, if the protocol allows; return it, or None."""
        if not self.connected or any(not sent.here for sent in self.open.values()):
            return None
        if qos > 0 and (len(self.open) >= self.window or self._quota <= 0):
            return None
        sent = Sent(f"{self.client_id} {topic} {qos} {len(self.all)}", topic, qos)
        packet_id = 0
        if qos > 0:
            packet_id = self._next_id % IDENTIFIERS + 1
            while packet_id in self.open:
                packet_id = packet_id % IDENTIFIERS + 1
            self._next_id = packet_id
            sent.maybe = qos == 1 and packet_id in self._repeated
            self.open[packet_id] = sent
        self.all.append(sent)
        self._send(packet_id, sent, False)
        return sent

    def send_again(self) -> None:
        """Send unacknowledged messages again after a reconnect: in order, with their packet
        identifiers."""
        if not self.connected:
            return
        for packet_id, sent in self.open.items():
            if sent.here:
                continue
            if sent.released:
                sent.here = True
                self._queue(Pubrel(packet_id))
            elif self._quota > 0:
                self._send(packet_id, sent, True)
            else:
                return

    def retry(self) -> None:
        """Send unanswered packets again by time, as MQTT 3.1 allows."""
        if self.version != 3 or not self.connected:
            return
        for packet_id, sent in self.open.items():
            if sent.here and sent.released:
                self._queue(Pubrel(packet_id, dup=True))
            elif sent.here:
                self._repeated.add(packet_id)
                self._queue(
                    Publish(sent.topic, sent.name.encode(), sent.qos, False, True, packet_id)
                )

    def _send(self, packet_id: int, sent: Sent, dup: bool) -> None:
        sent.here = True
        sent.times += 1
        sent.may_be_late = dup and self.version == 5
        if sent.qos > 0:
            self._quota -= 1
            self._expects[sent.qos].append(packet_id)
        self._queue(Publish(sent.topic, sent.name.encode(), sent.qos, False, dup, packet_id))

    def _queue(self, packet: Packet) -> None:
        self.outbox.append(encode(packet, self.version))

    # -- the network -------------------------------------------------------------------

    def push(self, count: int) -> None:
        """Deliver ``count`` packets to the server in one read."""
        data = b""
        while self.outbox and count > 0:
            data += self.outbox.popleft()
            count -= 1
        if data and self.line is not None:
            self.line.receive(data)

    def pull(self, count: int) -> None:
        """Take the packets that left the server, and handle ``count`` of them."""
        if self.line is None:
            return
        self.inbox.extend(self.line.read())
        while self.inbox and count > 0:
            self._handle(self.inbox.popleft())
            count -= 1

    def _handle(self, packet: Packet) -> None:
        if isinstance(packet, Connack):
            assert packet.reason_code == 0
            self.connected = True
            self._quota_max = 65535
            if packet.properties is not None and packet.properties.receive_maximum is not None:
                self._quota_max = packet.properties.receive_maximum
            self._quota = self._quota_max
            self.send_again()
        elif isinstance(packet, Publish):
            self._receive(packet)
        elif isinstance(packet, Pubrel):
            self._got_ids.discard(packet.packet_id)
            self._queue(Pubcomp(packet.packet_id))
        elif isinstance(packet, Puback):
            self._answered(1, packet.packet_id)
            self._finished(packet.packet_id, 1, packet.reason_code)
        elif isinstance(packet, Pubrec):
            self._answered(2, packet.packet_id)
            if packet.reason_code >= 0x80:
                self._finished(packet.packet_id, 2, packet.reason_code)
                return
            sent = self.open.get(packet.packet_id)
            if sent is not None and sent.qos == 2:
                sent.released = True
                sent.taken = True
            self._queue(Pubrel(packet.packet_id))
        elif isinstance(packet, Pubcomp):
            sent = self.open.get(packet.packet_id)
            self._raise_quota()
            if sent is not None and sent.released:
                del self.open[packet.packet_id]

    def _receive(self, packet: Publish) -> None:
        name = packet.payload.decode()
        if packet.qos == 2:
            if packet.packet_id not in self._got_ids:
                self._got_ids.add(packet.packet_id)
                self.got.append(name)
            self._queue(Pubrec(packet.packet_id))
            return
        self.got.append(name)
        if packet.qos == 1:
            self._queue(Puback(packet.packet_id))

    def _answered(self, qos: int, packet_id: int) -> None:
        """Check that answers come in the order of the messages [MQTT-4.6.0-2] [MQTT-4.6.0-3]."""
        if self.version != 3:
            first = self._expects[qos].popleft()
            assert first == packet_id, f"{packet_id} is answered before {first}"

    def _finished(self, packet_id: int, qos: int, code: int) -> None:
        self._raise_quota()
        sent = self.open.get(packet_id)
        if sent is not None and sent.qos == qos:
            del self.open[packet_id]
            sent.taken = code < 0x80
            sent.refused = not sent.taken

    def _raise_quota(self) -> None:
        self._quota = min(self._quota_max, self._quota + 1)
