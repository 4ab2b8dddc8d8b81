"""A broker's engine on a test bench: real protocol bytes, a virtual clock, commits by hand.

::

      bench.join("a") ─▶ Line ── send(packet) ─▶ engine ─▶ commit() ─▶ read() ─▶ packets

``commit`` seals the open batch, stores it and lets go what waited for it; ``seal`` and
``finish`` do it in two steps. ``restart`` is a crash: what was not stored is gone.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.access.authenticate import Authenticate
from penstock.engine.batch.commit import Commit
from penstock.engine.server.server import Server
from penstock.engine.server.server_connection import ServerConnection
from penstock.engine.session.session import Session
from penstock.engine.values.access import Authorize, AuthResult, Credentials
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Message
from penstock.engine.values.options import EventOptions, ServerOptions, SharingOptions
from penstock.engine.wire.link import Link
from penstock.protocol import reasons
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Subscribe,
    Subscription,
    Will,
)
from penstock.protocol.properties import Properties
from penstock.store.memory import MemoryStore
from tests.support.waiting import forget_who_waits

START_US: Final = 1_800_000_000_000_000
EPOCH: Final = "20270115T080000-00000000"


@final
class Line:
    """A client's end of a connection to the bench."""

    def __init__(self, bench: Bench, version: int, limits_name: str = "") -> None:
        limits = bench.limits_by_name.get(limits_name, bench.server.limits)
        self.connection = ServerConnection(bench.server, limits, bench.now)
        self.version = version
        self.bench = bench
        bench.lines.append(self)
        self._decoder = Decoder(1_000_000, version, server=False)

    def send(self, *packets: Packet) -> None:
        """Packets from the client, in one read."""
        self.receive(b"".join(encode(packet, self.version) for packet in packets))

    def receive(self, data: bytes) -> None:
        """Bytes from the client; turns go by until all that may be is handled."""
        self.connection.receive(data, self.bench.now)
        self.bench.turns()

    def cut(self) -> None:
        """The broker finds the socket dead."""
        self.connection.lost("cut", self.bench.now)

    def read(self) -> list[Packet]:
        """What reached the client since the last call."""
        data = self.bench.take_ready(self)
        return self.parse(data) if data else []

    def parse(self, data: bytes) -> list[Packet]:
        """The packets in ``data``."""
        self._decoder.feed(data)
        packets: list[Packet] = []
        while (packet := self._decoder.next_packet()) is not None:
            packets.append(packet)
        return packets

    @property
    def session(self) -> Session:
        """The session of this client, as the engine has it."""
        return self.bench.server.registry.sessions[self.connection.client_id]


@final
class Bench:
    """One broker without sockets.

    Args:
        limits: bounds.
        streams: topic filters of the configured streams.
        sharing: how shared subscriptions are handed out.
        authenticate: who a client is; everyone is let in without.
        authorize: what a client may do; everything without.
        options: what clients are told.
        dead_letters: their topic; none without.
        limits_by_name: bounds of further listeners, by name.
        events: what the broker tells of its own life.
        recorded_clients: of how many clients the flight recorder has the last events.
    """

    def __init__(
        self,
        limits: EngineLimits | None = None,
        streams: tuple[str, ...] = ("#",),
        sharing: SharingOptions | None = None,
        authenticate: Authenticate | None = None,
        authorize: Authorize | None = None,
        options: ServerOptions | None = None,
        dead_letters: str = "",
        limits_by_name: dict[str, EngineLimits] | None = None,
        events: EventOptions | None = None,
        recorded_clients: int = 0,
    ) -> None:
        self.limits = limits or EngineLimits()
        self.store = MemoryStore(EPOCH)
        self.now = Now(1000.0, START_US)
        self.lines: list[Line] = []
        self.authorize = authorize
        self._authenticate = authenticate
        self._streams = streams
        self._sharing = sharing
        self._options = options
        self._dead_letters = dead_letters
        self.limits_by_name = limits_by_name or {}
        self._events = events
        self._recorded_clients = recorded_clients
        self.server = self._start()
        self._written: dict[object, bytearray] = {}

    def _start(self) -> Server:
        return Server(
            self.limits,
            self.store.recover(),
            self._streams,
            "memory",
            self.now,
            self._sharing,
            self._authenticate,
            self.authorize,
            self._options,
            self._dead_letters,
            limits_by_name=self.limits_by_name,
            events=self._events,
            recorded_clients=self._recorded_clients,
        )

    def pass_s(self, seconds: float) -> None:
        """Time passes; then what is due happens."""
        wall_us = self.now.wall_us + int(seconds * 1_000_000)
        self.now = Now(self.now.monotonic_s + seconds, wall_us, self.now.lead_us)
        if self.server.context.events is not None:
            self.server.context.events.now_us = wall_us
        if self.server.context.recorder is not None:
            self.server.context.recorder.clock.set(self.now)
        self.server.tick(self.now)

    def jump_s(self, seconds: float) -> None:
        """The wall clock is set, and no time passes; what the shell does then."""
        by_us = int(seconds * 1_000_000)
        now = self.now
        self.now = Now(now.monotonic_s, now.wall_us + by_us, now.lead_us + by_us)
        self.server.clock_jumped(self.now)

    # -- connections -------------------------------------------------------------------

    def line(self, version: int = 5, limits_name: str = "") -> Line:
        """A connection without CONNECT."""
        return Line(self, version, limits_name)

    def connect(self, packet: Connect, limits_name: str = "") -> tuple[Line, Connack]:
        """A connection with CONNECT sent and answered."""
        line = self.line(packet.version, limits_name)
        line.send(packet)
        self.commit()
        answer = line.read()
        assert len(answer) > 0, line.connection.close_reason
        connack = answer[0]
        assert isinstance(connack, Connack)
        self._written[line.connection.link] = bytearray(
            b"".join(encode(packet, line.version) for packet in answer[1:])
        )
        return line, connack

    def join(
        self,
        client_id: str,
        version: int = 5,
        *,
        durable: bool = False,
        clean: bool | None = None,
        receive_maximum: int | None = None,
        max_packet_size: int | None = None,
        expiry_s: int = 3600,
        will: Will | None = None,
        keep_alive_s: int = 0,
    ) -> Line:
        """An accepted connection; ``durable``: its session outlives it."""
        properties = None
        if version == 5:
            properties = Properties(
                request_problem_information=0,  # no reason strings: answers are compared
                session_expiry_interval=expiry_s if durable else None,
                receive_maximum=receive_maximum,
                maximum_packet_size=max_packet_size,
            )
        clean_start = not durable if clean is None else clean
        packet = Connect(client_id, version, clean_start, keep_alive_s, will, properties=properties)
        line, connack = self.connect(packet)
        assert connack.reason_code == 0, connack
        return line

    def subscriber(self, client_id: str, topic_filter: str, qos: int, version: int = 5) -> Line:
        """A durable client with one subscription."""
        line = self.join(client_id, version, durable=True)
        line.send(Subscribe(1, [Subscription(topic_filter, qos)]))
        self.commit()
        line.read()
        return line

    # -- turns -------------------------------------------------------------------------

    def seal(self) -> Commit:
        """Close the open batch."""
        return self.server.context.seal()

    def finish(self, commit: Commit) -> None:
        """``commit`` is durable: what waited for it leaves."""
        if commit.has_writes:
            self.store.commit(commit)
        self.release(commit)

    def release(self, commit: Commit) -> None:
        """What waited for ``commit`` leaves; bodies it allows to be read are supplied."""
        if self.server.context.events is not None:
            self.server.context.events.note_committed()
        self.server.context.store_health.mark_committed(commit)
        for release in commit.deferred_packets:
            written = self._written.setdefault(release.link, bytearray())
            if release.link.sends_deferred:
                written += b"".join(release.pieces)
            release.mark_sent()
        for stored, asked in commit.body_requests:
            stored.supply(asked, self.store.read(asked), self.now)

    def commit(self) -> None:
        """Everything that is open becomes durable, and all that follows from it."""
        for _ in range(1000):
            self.turns()
            self.write_ready()
            commit = self.seal()
            self.finish(commit)
            if self.is_idle:
                return
        raise AssertionError("the engine never comes to rest")

    @property
    def is_idle(self) -> bool:
        """Whether nothing is open: nothing to go on with, to write, or to commit."""
        context = self.server.context
        return not (
            context.turn.waiting.has_turn
            or context.turn.ready
            or context.batch.changed_states
            or context.needs_commit
        )

    def turns(self) -> None:
        """As many turns as it takes until nothing is left over."""
        for _ in range(10_000):
            if not self.server.resume(self.now):
                return
        raise AssertionError("the engine never comes to rest")

    def write_ready(self) -> None:
        """What needs no commit leaves: the end of a turn."""
        context = self.server.context
        ready = context.turn.ready
        if not ready:
            return
        context.turn.ready = []
        for link in ready:
            written = self._written.setdefault(link, bytearray())
            written += b"".join(link.take_ready())

    def take_ready(self, line: Line) -> bytes:
        """The bytes that left on ``line`` since the last call."""
        link = line.connection.link
        data = self._written.pop(link, None)
        ready = b"".join(link.take_ready())
        return ready if data is None else bytes(data) + ready

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> None:
        """A message from a client that is gone again at once, committed."""
        line = self.join("bench-publisher", 4)
        line.send(Publish(topic, payload, qos, retain, packet_id=1 if qos else 0))
        self.commit()
        line.cut()
        self.commit()

    def publish_qos0(self, topic: str, payload: bytes) -> None:
        """A QoS 0 message of the broker's own, without a commit."""
        message = Message(topic, payload, 0, False, "", self.now.wall_us)
        self.server.router.publish(message, None, self.now)

    def restart(self) -> None:
        """The broker crashes and starts again on what its store holds."""
        self._written = {}
        forget_who_waits(self.store)
        self.server = self._start()


def publishes(packets: list[Packet]) -> list[Publish]:
    """Only the messages."""
    return [packet for packet in packets if isinstance(packet, Publish)]


def arrive(line: Line, *packets: Packet) -> None:
    """Packets in one read, and no turn after it."""
    data = b"".join(encode(packet, line.version) for packet in packets)
    line.connection.receive(data, line.bench.now)


def farewell(line: Line) -> int:
    """The reason code of the DISCONNECT that closed ``line``, behind what waits for a commit."""
    line.bench.commit()
    packet = line.read()[-1]
    assert isinstance(packet, Disconnect)
    assert line.connection.link.is_closed
    return packet.reason_code


@final
class ByName(Authenticate):
    """Believes every user name."""

    def check_credentials(self, credentials: Credentials, link: Link) -> AuthResult | None:
        del link
        return AuthResult(reasons.SUCCESS, credentials.username)
