"""Devices that keep their own books while broker and connections die under them.

A publisher and a subscriber, each in a thread. They behave as MQTT asks of a client with a session
that stays: reconnect, send again what is unacknowledged in its order and with its packet
identifiers, and remember which QoS 2 messages were received. What they write down is the ground
truth; the broker is asked nothing.

::

    publisher   PUBLISH ─▶ sent ── PUBACK | PUBREC ─▶ acknowledged (in the ledger)
    subscriber  PUBLISH ─▶ received (in the ledger) ─▶ PUBACK | PUBREC
"""

import contextlib
import random
import threading
import time
from typing import Final, Protocol, final

from penstock.protocol.kinds import V5
from penstock.protocol.packets import (
    Connack,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
)
from tests.support.broker import Address, Broker
from tests.support.deadline import DEADLINE_S
from tests.support.raw_client import ConnectionEndedError, NothingReceivedError, RawClient

QUOTA_EXCEEDED: Final = 0x97

_WINDOW: Final = 16
_IDENTIFIERS_A_PLACE: Final = 6  # of the window: few, so that they are used again and again
_DROPS: Final = 0.002
_RECONNECT_S: Final = 0.02
_LISTEN_S: Final = 0.05
_ERRORS: Final = (ConnectionEndedError, OSError)


class Entrance(Protocol):
    """The way of one device to its broker.

    Attributes:
        losses: exceptions by which a connection is lost.
    """

    losses: tuple[type[BaseException], ...]

    def dial(self, version: int) -> RawClient:
        """Return a connection; raise OSError where there is none."""

    def serves(self, answer: Connack) -> bool:
        """Return whether this is the broker that serves it; if not, it is to dial again."""


@final
class OneAddress:
    """The entrance to one broker, which is always the right one."""

    losses: tuple[type[BaseException], ...] = _ERRORS

    def __init__(self, address: Address) -> None:
        self._address = address

    def dial(self, version: int) -> RawClient:
        """See ``Entrance``."""
        return RawClient(self._address, version)

    def serves(self, answer: Connack) -> bool:
        """See ``Entrance``."""
        assert answer.reason_code == 0, answer
        return True


class Device:
    """What both have in common: a thread, a session, and reconnecting until told to end.

    Args:
        broker: to connect to, wherever it is just now in its life; or the way to several.
        client_id: of its session.
        version: protocol level.
        seed: of its own faults: now and then it drops its connection.
    """

    def __init__(self, broker: Broker | Entrance, client_id: str, version: int, seed: int) -> None:
        self.client_id = client_id
        self.connections = 0
        self.failure: BaseException | None = None
        self.ending = threading.Event()
        self.ready = threading.Event()
        self.drops = _DROPS  # of all turns, as a share: those in which it drops its connection
        self.entrance: Entrance = (
            OneAddress(broker.address) if isinstance(broker, Broker) else broker
        )
        self._version = version
        self._random = random.Random(seed)
        self._thread = threading.Thread(target=self._run, name=client_id, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end of the thread, and raise what went wrong in it."""
        self._thread.join(2 * DEADLINE_S)
        assert not self._thread.is_alive(), f"{self.client_id} does not end"
        if self.failure is not None:
            raise self.failure

    def finished(self) -> bool:
        """Whether nothing is left to do once ``ending`` is set."""
        return True

    def session(self, client: RawClient) -> None:
        """Use one connection until it ends."""

    def _run(self) -> None:
        try:
            while not (self.ending.is_set() and self.finished()):
                with contextlib.suppress(*self.entrance.losses):
                    self._connect()
        except BaseException as error:  # shown by the test that joins
            self.failure = error

    def _connect(self) -> None:
        try:
            client = self.entrance.dial(self._version)
        except OSError:
            time.sleep(_RECONNECT_S)  # the broker is down: the pause of any reconnecting client
            return
        with client:
            expiry_s = 3600 if self._version == V5 else None
            answer = client.connect(self.client_id, clean_start=False, expiry_s=expiry_s)
            if not self.entrance.serves(answer):
                time.sleep(_RECONNECT_S)
                return
            if self.connections > 0:
                assert answer.session_present, f"{self.client_id}: its session is gone"
            self.connections += 1
            self.session(client)

    def _fails(self) -> bool:
        return self._random.random() < self.drops


@final
class Publisher(Device):
    """Publishes numbered messages to its own topic, as fast as its window allows."""

    def __init__(
        self,
        broker: Broker | Entrance,
        client_id: str,
        version: int,
        qos: int,
        seed: int,
        window: int = _WINDOW,
    ) -> None:
        super().__init__(broker, client_id, version, seed)
        self.topic = f"ledger/{qos}/{client_id}"
        self.acknowledged: set[int] = set()
        self.refused = 0  # a broker that cannot commit says so to MQTT 5; they are not sent again
        self.sent = 0
        self.pause_s = 0.0  # between two messages; a load that should be small is given one
        self.until: int | None = None  # how many messages there are to send so far; None: no end
        self._window = window
        self._identifiers = _IDENTIFIERS_A_PLACE * window
        self._qos = qos
        self._unacknowledged: dict[int, int] = {}  # packet identifier: number, in order
        self._unreleased: dict[int, None] = {}  # PUBREL sent, PUBCOMP not received
        self._cursor = 0

    def finished(self) -> bool:
        """Everything sent is acknowledged."""
        return not self._unacknowledged and not self._unreleased

    def session(self, client: RawClient) -> None:
        """Send again what is open, then go on."""
        again: list[Packet] = [
            self._message(packet_id, number, dup=True)
            for packet_id, number in self._unacknowledged.items()
        ]
        client.send(*again, *(Pubrel(packet_id) for packet_id in self._unreleased))
        self.ready.set()
        due_s = time.monotonic()
        while not (self.ending.is_set() and self.finished()):
            if self._fails():
                return
            fresh: list[Packet] = []
            while self._may_send() and time.monotonic() >= due_s:
                fresh.append(self._next())
                due_s += self.pause_s
            if fresh:
                client.send(*fresh)
            due_s = max(due_s, time.monotonic())  # what it missed is not made up for
            if self.finished():
                self.ending.wait(self.pause_s or _LISTEN_S)
            elif self._may_send():  # an answer is taken as soon as it is there
                with contextlib.suppress(NothingReceivedError):
                    self._take(client, client.receive(due_s - time.monotonic()))
            else:
                self._take(client, client.receive())

    def _may_send(self) -> bool:
        is_done = self.ending.is_set() or (self.until is not None and self.sent >= self.until)
        return not is_done and len(self._unacknowledged) < self._window

    def _next(self) -> Publish:
        packet_id = self._cursor % self._identifiers + 1
        while packet_id in self._unacknowledged or packet_id in self._unreleased:
            packet_id = packet_id % self._identifiers + 1
        self._cursor = packet_id
        number = self.sent
        self.sent += 1
        self._unacknowledged[packet_id] = number
        return self._message(packet_id, number, dup=False)

    def _message(self, packet_id: int, number: int, dup: bool) -> Publish:
        return Publish(self.topic, b"%d" % number, self._qos, False, dup, packet_id)

    def _take(self, client: RawClient, packet: Packet) -> None:
        if isinstance(packet, (Puback, Pubrec)) and packet.packet_id in self._unacknowledged:
            number = self._unacknowledged.pop(packet.packet_id)
            if packet.reason_code != 0:
                assert packet.reason_code == QUOTA_EXCEEDED, packet
                self.refused += 1
                return
            self.acknowledged.add(number)
        if isinstance(packet, Pubrec):
            self._unreleased[packet.packet_id] = None
            client.send(Pubrel(packet.packet_id))
        elif isinstance(packet, Pubcomp):
            self._unreleased.pop(packet.packet_id, None)


@final
class Subscriber(Device):
    """Receives everything, and writes it down before it acknowledges."""

    def __init__(
        self,
        broker: Broker | Entrance,
        client_id: str,
        version: int,
        seed: int,
        topic_filter: str = "ledger/#",
        qos: int = 2,
    ) -> None:
        super().__init__(broker, client_id, version, seed)
        self.qos = qos
        self._filter = topic_filter
        self.received: dict[str, list[int]] = {}  # numbers by topic, in the order they came
        self._unreleased: set[int] = set()

    def session(self, client: RawClient) -> None:
        """Receive until told to end."""
        if not self.ready.is_set():
            client.send(Subscribe(1, [Subscription(self._filter, self.qos)]))
        while not self.ending.is_set():
            if self._fails():
                return
            try:
                packet = client.receive(_LISTEN_S)
            except NothingReceivedError:
                continue
            self._take(client, packet)

    def _take(self, client: RawClient, packet: Packet) -> None:
        if isinstance(packet, Publish):
            if packet.qos == 1:
                self._write_down(packet)
                client.send(Puback(packet.packet_id))
            else:
                if packet.packet_id not in self._unreleased:
                    self._write_down(packet)
                    self._unreleased.add(packet.packet_id)
                client.send(Pubrec(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self._unreleased.discard(packet.packet_id)
            client.send(Pubcomp(packet.packet_id))
        else:
            self.ready.set()  # SUBACK

    def _write_down(self, message: Publish) -> None:
        self.received.setdefault(message.topic, []).append(int(message.payload))
