"""A client's connection without a socket: what it says when the server says something."""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.dialling.client_connection import ClientConnection
from penstock.engine.dialling.client_inbound import ClientCallbacks
from penstock.engine.dialling.unacknowledged import ReceivedMessage, UnacknowledgedMessages
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.session.session import Session
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import NEVER_EXPIRES_S, EngineLimits
from penstock.engine.values.message import Message
from penstock.engine.values.states import CONNECTED
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.packets import Connack, Connect, Packet, Subscription
from penstock.protocol.properties import Properties
from penstock.store.memory import MemoryStore

DONE: Final = 0


@final
class Rig(ClientCallbacks):
    """A client, its session, and what it writes; each turn is committed at once."""

    def __init__(
        self,
        version: int = 5,
        clean: bool = False,
        known: bool = True,
        limits: EngineLimits | None = None,
        stored: bool = True,
    ) -> None:
        self.context = EngineContext(0)
        self.store = MemoryStore("e")
        self.limits = limits or EngineLimits(max_inflight=10)
        self.drops = Drops()
        expiry_s = NEVER_EXPIRES_S if stored else 0
        self.session = Session("c", 1, expiry_s, self.context, self.limits, self.drops)
        self.arrivals = UnacknowledgedMessages()
        self.came: list[ReceivedMessage] = []
        self.told: list[Packet] = []
        self.ends = 0
        self.answer: bytes | None = None
        self.subscribes_at_once = False
        self.now_s = 100.0
        self.known = known
        self.needs_packet_id_cleanup = False
        self.connect = Connect("c", version, clean, 60)
        self.dial()

    @property
    def now(self) -> Now:
        return Now(self.now_s, int(self.now_s * 1_000_000))

    def dial(self) -> list[Packet]:
        """A new connection; what it says."""
        self.connection = ClientConnection(
            self.context,
            self.session,
            self.arrivals,
            self.connect,
            self.limits,
            self,
            self.known,
            self.now,
            self.needs_packet_id_cleanup,
        )
        self._listener = Decoder(1_000_000)
        return self.turn()

    def on_connected(self, connack: Connack, now: Now) -> None:
        del now
        self.told.append(connack)
        if self.subscribes_at_once:
            self.connection.subscribe([Subscription("a", 1)])

    def on_message(self, arrival: ReceivedMessage, now: Now) -> None:
        del now
        self.came.append(arrival)

    def on_answer(self, packet: Packet, now: Now) -> None:
        del now
        self.told.append(packet)

    def authenticate(self, data: bytes | None) -> bytes | None:
        del data
        return self.answer

    def on_end(self, now: Now) -> None:
        del now
        self.ends += 1

    def turn(self) -> list[Packet]:
        """Commit, and read what was written."""
        data = b""
        for _ in range(3):
            for link in self.context.turn.ready:
                ready = b"".join(link.take_ready())
                data += ready if link is self.connection.link else b""
            self.context.turn.ready = []
            commit = self.context.seal()
            self.store.commit(commit)
            self.context.store_health.mark_committed(commit)
            for release in commit.deferred_packets:
                data += b"".join(release.pieces) if release.link is self.connection.link else b""
                release.mark_sent()
            for stored, offsets in commit.body_requests:
                stored.supply(offsets, self.store.read(offsets), self.now)
        self._listener.feed(data)
        packets: list[Packet] = []
        while (packet := self._listener.next_packet()) is not None:
            packets.append(packet)
        return packets

    def says(self, *packets: Packet) -> list[Packet]:
        """The server sends packets; the answers."""
        for packet in packets:
            self.connection.receive(encode(packet, self.connect.version), self.now)
        return self.turn()

    def publish(self, payload: bytes, qos: int, retain: bool = False) -> list[Packet]:
        message = Message("t", payload, qos, retain, "c", self.now.wall_us)
        self.context.batch.append(message)
        self.session.outbound.deliver(message, qos, retain, (), False, self.now)
        return self.turn()

    def settle(self, number: int, code: int = DONE) -> list[Packet]:
        self.connection.settle(self.came[number], code, self.now)
        return self.turn()

    def again(self, present: bool = True) -> list[Packet]:
        """The connection breaks and a new one is let in; what it says after CONNECT."""
        self.connection.lost("cut", self.now)
        self.dial()
        return self.says(Connack(0, present))


def opened(version: int = 5, properties: Properties | None = None, present: bool = True) -> Rig:
    """A rig whose server let it in."""
    rig = Rig(version)
    rig.says(Connack(0, present, properties))
    assert rig.connection.state == CONNECTED
    return rig
