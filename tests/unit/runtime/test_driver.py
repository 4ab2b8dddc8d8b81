"""The driver with a real loop and a store of the test's: how it stops, and whom it serves."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
import weakref
from collections.abc import Iterable
from typing import final

import pytest

from penstock.engine.access.authenticate import Authenticate
from penstock.engine.batch.commit import Commit
from penstock.engine.server.server import Server
from penstock.engine.values.access import AuthResult, Credentials
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Message
from penstock.engine.values.states import CLOSED
from penstock.engine.wire.link import Link
from penstock.engine.work_budget import WORK_PER_TURN_MAX
from penstock.errors import CommitUnknown, HistoryMismatch, StoreUnavailable
from penstock.protocol import reasons
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import PUBCOMP, PUBREC
from penstock.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Publish,
    Pubrel,
    Subscribe,
    Subscription,
    Will,
)
from penstock.runtime import driver, stop
from penstock.runtime.driver import Driver
from penstock.runtime.measures import SLOW_TURN_S
from penstock.runtime.peer import Peer
from penstock.store.memory import MemoryStore
from penstock.transport.hang_up import ESTABLISHED
from penstock.transport.wire import ClientCertificate
from tests.support.deadline import DEADLINE_S


@final
class SlowStore:
    """A memory store that says it syncs, and whose commits wait for ``may_commit``."""

    acknowledged_when = "fsync"
    writes_columns = False

    def __init__(self) -> None:
        self.memory = MemoryStore("e")
        self.committing = threading.Event()  # once a commit has begun
        self.may_commit = threading.Event()
        self.may_commit.set()
        self.unreadable = False
        self.reading = threading.Event()
        self.may_fail = threading.Event()
        self.broken = ""  # what it says when it is to write
        self.damaged = False
        self.attempts: list[Commit] = []

    def prepare(self, commit: Commit) -> None:
        self.memory.prepare(commit)

    def commit(self, commit: Commit) -> None:
        self.committing.set()
        assert self.may_commit.wait(DEADLINE_S)
        self.attempts.append(commit)
        if self.broken:
            raise CommitUnknown(self.broken)
        self.memory.commit(commit)

    def reopen(self) -> None:
        if self.damaged:
            raise HistoryMismatch("it lost something")
        if self.broken:
            raise StoreUnavailable(self.broken)

    def read(self, offsets: Iterable[int]) -> dict[int, Message]:
        if self.unreadable:
            self.reading.set()
            assert self.may_fail.wait(DEADLINE_S)
            raise OSError("bad sector")
        return self.memory.read(offsets)


@final
class Later(Authenticate):
    """Owes every answer."""

    def check_credentials(self, credentials: Credentials, link: Link) -> AuthResult | None:
        del credentials, link
        return None


@final
class WireInMemory:
    """A wire that keeps what is written and never sends it anywhere."""

    def __init__(self) -> None:
        self.peer = "test"
        self.listener = "test"
        self.certificate: ClientCertificate | None = None
        self.written = bytearray()
        self.closed = False
        self.reading = True
        self.unwritten = 0
        self.peer_closed = ESTABLISHED
        self.endpoint: Peer | None = None  # which is told of the end; None: the peer never closes

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self, lingers: bool = False) -> None:
        del lingers
        self.closed = True
        if self.endpoint is not None:
            asyncio.get_running_loop().call_soon(self.endpoint.connection_lost, "closed")
            self.endpoint = None

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def unwritten_bytes(self) -> int:
        return self.unwritten

    def buffered_bytes(self) -> int:
        return self.unwritten

    def peer_state(self) -> int:
        return self.peer_closed


@final
class Rig:
    """A driver on a slow store."""

    def __init__(self, limits: EngineLimits | None = None, store_retry_s_max: float = 0) -> None:
        self.store = SlowStore()
        now = Now(time.monotonic(), time.time_ns() // 1000)
        self.server = Server(
            limits or EngineLimits(), self.store.memory.recover(), ("#",), "fsync", now
        )
        self.failures: list[StoreUnavailable] = []
        self.driver = Driver(
            self.server,
            self.store,  # type: ignore[arg-type]
            2**24,
            self.failures.append,
            store_retry_s_max,
        )

    def connect(self, client_id: str, clean: bool = True) -> tuple[Peer, WireInMemory]:
        wire = WireInMemory()
        wire.endpoint = peer = self.driver.accept(wire, self.server.limits)
        send(peer, Connect(client_id, 4, clean, 0))
        return peer, wire


def send(peer: Peer, *packets: Packet) -> None:
    peer.data_received(b"".join(encode(packet, 4) for packet in packets))


async def until(condition: object) -> None:
    """Turns of the loop until ``condition()`` holds."""
    assert callable(condition)
    ends_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < ends_s
        await asyncio.sleep(0.001)


async def test_stop_after_a_failed_read_during_a_commit_does_not_spin(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The loop must go on turning while the last commit is under way.

    What could not be read is not gone, and asked for again.
    """
    rig = Rig()
    first, _ = rig.connect("s", clean=False)
    send(first, Subscribe(1, [Subscription("t", 1)]))
    await until(lambda: rig.store.memory.recover().subscriptions)
    first.connection_lost("gone")
    publisher, _ = rig.connect("p")
    send(publisher, Publish("t", b"x", 1, packet_id=1))
    await until(lambda: rig.store.memory.read([0]))
    rig.store.unreadable = True
    rig.connect("s", clean=False)  # its queue's body is asked for once this is committed
    await until(rig.store.reading.is_set)
    rig.store.may_commit.clear()
    send(publisher, Publish("t", b"y", 1, packet_id=2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    rig.store.may_fail.set()
    await until(lambda: "bad sector; look into the kernel's log" in caplog.text)
    assert not rig.failures
    stopping = asyncio.create_task(rig.driver.stop())
    asyncio.get_running_loop().call_later(0.05, rig.store.may_commit.set)
    await asyncio.wait_for(stopping, DEADLINE_S)


async def test_qos_0_that_waits_for_a_client_is_counted_and_told_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    subscriber, _ = rig.connect("s", clean=False)
    send(subscriber, Subscribe(1, [Subscription("t", 1)]))
    await until(lambda: rig.store.memory.recover().subscriptions)
    subscriber.connection_lost("gone")
    publisher, wire = rig.connect("p")
    await until(lambda: wire.written)
    send(publisher, Publish("t", b"1"), Publish("t", b"2"))
    with caplog.at_level(logging.WARNING):
        await rig.driver.stop()
    assert rig.server.drops.counts[1] == 2
    assert "dropped 2 messages (client s): QoS 0 while offline" in caplog.text


async def test_a_change_after_the_last_commit_is_said_to_be_lost() -> None:
    """An operator's request that takes long: the stop waits for it, and it for no commit."""
    rig = Rig()
    await rig.driver.stop()
    rig.server.context.batch.end_session("removed", 7)
    with pytest.raises(StoreUnavailable, match="stopped"):
        await asyncio.wait_for(rig.driver.wait_durable(), DEADLINE_S)


async def test_nothing_is_left_of_a_client_that_is_gone_although_its_deadline_is_to_come() -> None:
    rig = Rig()

    async def come_and_go() -> weakref.ref[WireInMemory]:
        wire = WireInMemory()
        peer = rig.driver.accept(wire, rig.server.limits)
        send(peer, Connect("a", 4, True, 65_535))
        await until(lambda: wire.written)
        peer.connection_lost("gone")
        return weakref.ref(wire)  # which its peer, and nobody else, keeps

    kept = await come_and_go()
    await until(lambda: kept() is None)


async def test_a_greedy_client_leaves_others_their_turn() -> None:
    """A whole read of the smallest packets is handled in portions; its socket rests meanwhile."""
    rig = Rig()
    greedy, greedy_wire = rig.connect("a")
    modest, modest_wire = rig.connect("b")
    await until(lambda: greedy_wire.written and modest_wire.written)
    modest_before = len(modest_wire.written)
    send(greedy, *[Pingreq()] * 10_000)
    assert not greedy.connection.link.is_closed
    paused = not greedy_wire.reading
    send(modest, Pingreq())
    for _ in range(5):  # turns, and not milliseconds
        await asyncio.sleep(0)
    assert len(modest_wire.written) > modest_before
    assert len(greedy_wire.written) < 2 * 10_000
    await until(lambda: len(greedy_wire.written) == 4 + 2 * 10_000)
    await until(lambda: greedy_wire.reading)  # the turn after the last portion finds nothing left
    assert paused
    await rig.driver.stop()


async def test_a_long_turn_makes_the_next_ones_smaller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    greedy, wire = rig.connect("a")
    await until(lambda: wire.written)
    await asyncio.sleep(0)  # the turn is over
    work_budget = rig.server.context.turn.work_budget
    slow = itertools.count(time.monotonic())  # a second from each look to the next
    monkeypatch.setattr(time, "monotonic", lambda: next(slow))
    send(greedy, *[Pingreq()] * 10_000)
    assert work_budget.work_of_all_max == WORK_PER_TURN_MAX, "the turn goes on"
    await asyncio.sleep(0)
    assert work_budget.work_of_all_max == WORK_PER_TURN_MAX // 2, "what came in one read"
    for _ in range(3):
        await asyncio.sleep(0)
    assert work_budget.work_of_all_max < WORK_PER_TURN_MAX // 2, "and what went on in the next turn"
    monkeypatch.undo()
    await rig.driver.stop()


async def test_the_store_knows_the_clock_from_the_start_to_the_end() -> None:
    rig = Rig()
    await rig.driver.wait_durable()
    began = rig.store.memory.recover().clock
    assert began is not None
    await rig.driver.stop()
    ended = rig.store.memory.recover().clock
    assert ended is not None
    assert ended.steady_us > began.steady_us


@pytest.mark.parametrize("decided", [True, False])
async def test_a_client_that_left_before_its_verdict_is_kept_until_then_and_no_longer(
    decided: bool,
) -> None:
    rig = Rig(EngineLimits(connect_timeout_s=60 if decided else 0.01))
    rig.server.authenticate = Later()
    wire = WireInMemory()
    wire.endpoint = peer = rig.driver.accept(wire, rig.server.limits)
    connect = Connect("c", 4, True, 0, username="alice", password=b"secret")
    send(peer, connect, Publish("t", b"x", 1, packet_id=1))
    assert not wire.reading
    peer.connection_lost("connection closed by the peer")
    assert list(rig.driver._peers.values()) == [peer]
    if decided:
        rig.driver.deliver_verdict(peer.connection.link, AuthResult(reasons.SUCCESS, "alice"))
        assert rig.server.context.batch.next_offset == 1
    await until(lambda: not rig.driver._peers)
    assert peer.connection.state == CLOSED
    assert not wire.reading
    assert not rig.driver._read_control.paused._since_s
    await rig.driver.stop()


# -- take-over ---------------------------------------------------------------------------------


async def test_a_take_over_while_the_first_connack_is_held() -> None:
    """[MQTT3-3.1.4-2]: each is let in once that is on disk; all but the last are closed then."""
    rig = Rig()
    rig.store.may_commit.clear()
    _, first_wire = rig.connect("c", clean=False)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    _, second_wire = rig.connect("c", clean=False)
    _, third_wire = rig.connect("c", clean=False)
    assert (bytes(first_wire.written), bytes(second_wire.written)) == (b"", b"")
    rig.store.may_commit.set()
    await until(lambda: third_wire.written)
    await until(lambda: first_wire.closed and second_wire.closed)
    assert bytes(first_wire.written) == b"\x20\x02\x00\x00"
    assert bytes(second_wire.written) == bytes(third_wire.written) == b"\x20\x02\x01\x00"
    assert not third_wire.closed
    assert len(rig.server.registry.sessions) == 1
    await rig.driver.stop()


async def test_a_take_over_with_a_message_under_way_acknowledges_it_and_keeps_it_once() -> None:
    rig = Rig()
    first, first_wire = rig.connect("c", clean=False)
    await until(lambda: first_wire.written)
    rig.store.may_commit.clear()
    send(first, Publish("t", b"x", 2, packet_id=1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second, second_wire = rig.connect("c", clean=False)
    send(second, Publish("t", b"x", 2, dup=True, packet_id=1))
    rig.store.may_commit.set()
    await until(lambda: len(second_wire.written) == 8)
    assert bytes(first_wire.written) == b"\x20\x02\x00\x00" + b"\x50\x02\x00\x01"
    assert bytes(second_wire.written) == b"\x20\x02\x01\x00" + b"\x50\x02\x00\x01"
    assert rig.store.memory.recover().next_offset == 1, "once"
    await rig.driver.stop()


async def in_flight(rig: Rig) -> Peer:
    """A subscriber that was sent one message of QoS 1."""
    subscriber, wire = rig.connect("s", clean=False)
    send(subscriber, Subscribe(1, [Subscription("t", 1)]))
    await until(lambda: bytes(wire.written).endswith(b"\x90\x03\x00\x01\x01"))
    wire.written.clear()  # behind SUBACK, which follows the commit
    publisher, _ = rig.connect("p")
    send(publisher, Publish("t", b"x", 1, packet_id=1))
    await until(lambda: wire.written)
    assert windows(rig) == [1]
    return subscriber


def windows(rig: Rig) -> list[int]:
    """How many messages are on their way, by what is stored of each session."""
    return [len(progress.in_flight()) for progress in rig.store.memory.recover().progress.values()]


async def test_the_progress_of_a_session_is_stored_a_little_later() -> None:
    rig = Rig()
    subscriber = await in_flight(rig)
    await until(lambda: not rig.server.context.batch.changed_states)
    commits = rig.server.context.batch.latest_sealed
    send(subscriber, Puback(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert rig.server.context.batch.latest_sealed == commits
    await until(lambda: windows(rig) == [0])
    await rig.driver.stop()


async def test_the_progress_of_a_session_is_stored_with_what_somebody_waits_for() -> None:
    rig = Rig()
    subscriber = await in_flight(rig)
    await until(lambda: not rig.server.context.batch.changed_states)
    send(subscriber, Puback(1))
    await asyncio.sleep(0)
    await rig.driver.wait_durable()
    assert windows(rig) == [0]
    await rig.driver.stop()


async def test_the_progress_of_a_session_is_stored_before_the_end() -> None:
    rig = Rig()
    subscriber = await in_flight(rig)
    send(subscriber, Puback(1))
    await rig.driver.stop()
    assert windows(rig) == [0]


async def test_a_failed_commit_is_written_again_unchanged_and_nothing_leaves_before() -> None:
    rig = Rig(store_retry_s_max=60)
    publisher, wire = rig.connect("p")
    await until(lambda: wire.written)
    wire.written.clear()
    rig.store.broken = "the disk is full"
    send(publisher, Publish("t", b"1", 1, packet_id=1))
    await until(lambda: rig.server.context.store_health.is_failing)
    assert rig.server.context.store_health.failure == "the disk is full"
    send(publisher, Publish("t", b"2", 1, packet_id=2))  # MQTT 3.1.1: it waits
    await asyncio.sleep(0.2)
    assert not wire.written
    rig.store.broken = ""
    await until(lambda: len(wire.written) == 8)
    assert bytes(wire.written) == encode(Puback(1), 4) + encode(Puback(2), 4)
    failed, again = rig.store.attempts[-3:-1]
    assert failed is again
    assert [message.payload for message in rig.store.memory.read([0, 1]).values()] == [b"1", b"2"]
    assert not rig.failures
    assert not rig.server.context.store_health.is_failing
    await rig.driver.stop()


@pytest.mark.parametrize(("retry_s_max", "damaged"), [(0.0, False), (0.3, False), (60.0, True)])
async def test_a_store_that_stays_broken_or_is_damaged_ends_the_broker(
    retry_s_max: float, damaged: bool
) -> None:
    """Fail closed: nothing is acknowledged, and the clients' connections end."""
    rig = Rig(store_retry_s_max=retry_s_max)
    publisher, wire = rig.connect("p")
    await until(lambda: wire.written)
    wire.written.clear()
    rig.store.broken = "the disk is full"
    rig.store.damaged = damaged
    send(publisher, Publish("t", b"1", 1, packet_id=1))
    await until(lambda: rig.failures)
    assert str(rig.failures[0]) == ("it lost something" if damaged else "the disk is full")
    assert wire.closed
    assert not wire.written
    await rig.driver.stop()


async def test_a_broker_is_stopped_while_its_store_fails() -> None:
    """The commit that waits is given up at once: it was not acknowledged."""
    rig = Rig(store_retry_s_max=3600)
    publisher, wire = rig.connect("p")
    await until(lambda: wire.written)
    rig.store.broken = "the disk is full"
    send(publisher, Publish("t", b"1", 1, packet_id=1))
    await until(lambda: rig.server.context.store_health.is_failing)
    await asyncio.wait_for(rig.driver.stop(), 5.0)
    assert rig.failures


async def test_a_client_not_yet_connected_is_not_served_after_the_stop() -> None:
    """Nor is one whose connection stands only then: its handshake was under way."""
    rig = Rig()
    waiting_wire = WireInMemory()
    waiting_wire.endpoint = waiting = rig.driver.accept(waiting_wire, rig.server.limits)
    await rig.driver.stop()
    late_wire = WireInMemory()
    late_wire.endpoint = late = rig.driver.accept(late_wire, rig.server.limits)
    for peer, wire in ((waiting, waiting_wire), (late, late_wire)):
        send(peer, Connect("c", 4, False, 0), Publish("t", b"x", 1, packet_id=1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert wire.closed
        assert not wire.written
        peer.connection_lost("gone")
    assert not rig.server.registry.sessions
    assert not [commit for commit in rig.store.attempts if commit.appended_count or commit.sessions]
    assert not rig.driver._peers


async def test_a_client_not_yet_connected_is_not_served_after_the_store_failed() -> None:
    rig = Rig()
    wire = WireInMemory()
    wire.endpoint = peer = rig.driver.accept(wire, rig.server.limits)
    publisher, _ = rig.connect("p")
    rig.store.broken = "the disk is full"
    send(publisher, Publish("t", b"1", 1, packet_id=1))
    await until(lambda: rig.failures)
    send(peer, Connect("c", 4, True, 0))
    assert wire.closed
    assert not wire.written
    await rig.driver.stop()


@final
class Sleepy(Authenticate):
    """Takes long to answer for one client, on the loop, which no real one may."""

    def check_credentials(self, credentials: Credentials, link: Link) -> AuthResult | None:
        del link
        if credentials.client_id == "slow":
            time.sleep(2 * SLOW_TURN_S)
        return AuthResult(reasons.SUCCESS)


async def test_a_client_whose_packets_take_long_is_the_worst_that_was_measured() -> None:
    rig = Rig()
    rig.server.authenticate = Sleepy()
    quick, _ = rig.connect("quick")
    await until(lambda: len(rig.server.connections) == 1)
    rig.driver.measures.take_worst()
    rig.connect("slow")
    send(quick, Pingreq())
    await asyncio.sleep(0)
    worst = rig.driver.measures.take_worst()
    assert worst.read_client == "slow at test"
    assert worst.read_s >= 2 * SLOW_TURN_S
    assert rig.driver.measures.slow_turns == 1
    send(quick, Pingreq())
    await asyncio.sleep(0)
    assert rig.driver.measures.take_worst().read_s == 0
    await rig.driver.stop()


async def test_the_time_of_a_commit_is_measured_with_its_size() -> None:
    rig = Rig()
    publisher, _ = rig.connect("p")
    await until(lambda: rig.store.attempts)
    await until(lambda: rig.driver.commit_waits_s() == 0)
    rig.driver.measures.take_worst()
    rig.store.may_commit.clear()
    rig.store.committing.clear()
    send(publisher, Publish("t", b"x", 1, packet_id=1))
    await until(rig.store.committing.is_set)
    began_s = time.monotonic()
    await until(lambda: time.monotonic() > began_s + 0.05)
    rig.store.may_commit.set()
    await until(lambda: rig.driver.commit_waits_s() == 0)
    worst = rig.driver.measures.take_worst()
    assert worst.commit_messages == 1
    assert 0.05 < worst.commit_write_s <= worst.commit_s
    await rig.driver.stop()


async def test_a_handover_sends_each_listeners_clients_to_the_next_primary() -> None:
    """v5 §4.11; older clients are closed, and wills stay stored for the next primary."""
    rig = Rig()
    decoders, wires = {}, {}
    for listener in ("main", "other", "without"):
        wire = WireInMemory()
        wire.endpoint = peer = rig.driver.accept(wire, EngineLimits(listener))
        will = Will("will", b"w", 1, False)
        peer.data_received(encode(Connect(listener, 5, True, 0, will), 5))
        wires[listener] = wire
        decoders[listener] = Decoder(2**16, 5, server=False)
    _, old_wire = rig.connect("old")
    await until(lambda: all(wire.written for wire in (*wires.values(), old_wire)))
    sent = len(old_wire.written)
    await rig.driver.stop({"main": "b:1883", "other": "b:1884", "without": ""})
    for listener, reference in (("main", "b:1883"), ("other", "b:1884"), ("without", None)):
        decoder = decoders[listener]
        decoder.feed(bytes(wires[listener].written))
        assert isinstance(decoder.next_packet(), Connack)
        farewell = decoder.next_packet()
        assert isinstance(farewell, Disconnect)
        assert farewell.reason_code == reasons.USE_ANOTHER_SERVER
        assert farewell.properties is not None
        assert farewell.properties.server_reference == reference
        assert wires[listener].closed
    assert old_wire.closed
    assert len(old_wire.written) == sent
    assert set(rig.store.memory.recover().wills) == {"main", "other", "without"}


# -- a planned stop: runtime/stop.py ---------------------------------------------------------------

PUBACK_1 = b"\x40\x02\x00\x01"


def limit(monkeypatch: pytest.MonkeyPatch, s_max: float, *names: str) -> None:
    """Give the states of a stop with these names another limit."""
    other = {state: state._replace(s_max=s_max) for state in (getattr(stop, one) for one in names)}
    for name in names:
        monkeypatch.setattr(driver, name, other[getattr(stop, name)])
    following = {other.get(one, one): other.get(then, then) for one, then in stop.NEXT.items()}
    monkeypatch.setattr(driver, "NEXT", following)


async def test_a_message_taken_over_is_acknowledged_before_the_sockets_are_closed() -> None:
    rig = Rig()
    publisher, wire = rig.connect("p")
    await until(lambda: wire.written)
    rig.store.may_commit.clear()
    send(publisher, Publish("t", b"x", 1, packet_id=1))
    stopping = asyncio.create_task(rig.driver.stop())
    await until(lambda: publisher.connection.state == CLOSED)
    send(publisher, Publish("t", b"not taken over", 1, packet_id=2))
    closed = [wire.closed]
    rig.store.may_commit.set()
    assert await asyncio.wait_for(stopping, DEADLINE_S)
    assert [*closed, wire.closed] == [False, True]
    assert bytes(wire.written[4:]) == PUBACK_1
    assert rig.store.memory.recover().next_offset == 1


def handshake(packet_type: int, packet_id: int) -> bytes:
    return bytes((packet_type << 4, 2, 0, packet_id))


async def test_a_client_completes_what_the_log_has_before_its_connection_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PUBREL is read, and nothing that begins: a program may take a message without PUBCOMP for one
    that failed, and publish it again."""
    limit(monkeypatch, 2 * DEADLINE_S, "FINISHING")
    rig = Rig()
    publisher, wire = rig.connect("p")
    await until(lambda: wire.written)
    send(publisher, Publish("t", b"x", 2, packet_id=1), Publish("t", b"y", 2, packet_id=2))
    await until(lambda: wire.written.endswith(handshake(PUBREC, 2)))
    _, idle = rig.connect("idle")
    stopping = asyncio.create_task(rig.driver.stop())
    await asyncio.sleep(0)
    send(
        publisher,
        Pubrel(1),
        Publish("t", b"not taken over", 2, packet_id=3),
        Publish("t", b"nor this", 0),
        Subscribe(4, [Subscription("t", 1)]),
        Pingreq(),
        Pubrel(2),
    )
    assert await asyncio.wait_for(stopping, DEADLINE_S)
    assert (wire.closed, idle.closed) == (True, True)
    answers = bytes(wire.written[4:])
    assert answers.count(handshake(PUBCOMP, 1)) == answers.count(handshake(PUBCOMP, 2)) == 1
    assert answers.endswith(handshake(PUBCOMP, 2))
    assert handshake(PUBREC, 3) not in answers
    assert rig.store.memory.recover().next_offset == 2


async def test_a_client_that_releases_nothing_holds_no_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit(monkeypatch, 0.05, "FINISHING")
    rig = Rig()
    publisher, wire = rig.connect("p")
    send(publisher, Publish("t", b"x", 2, packet_id=1))
    await until(lambda: wire.written.endswith(handshake(PUBREC, 1)))
    assert await asyncio.wait_for(rig.driver.stop(), DEADLINE_S)
    assert wire.closed


async def test_a_client_that_ends_with_a_message_under_way_holds_no_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit(monkeypatch, 2 * DEADLINE_S, "FINISHING")
    rig = Rig()
    publisher, wire = rig.connect("p")
    send(publisher, Publish("t", b"x", 2, packet_id=1))
    await until(lambda: wire.written.endswith(handshake(PUBREC, 1)))
    stopping = asyncio.create_task(rig.driver.stop())
    await asyncio.sleep(0)
    publisher.connection_lost("gone")
    assert await asyncio.wait_for(stopping, DEADLINE_S)


async def test_a_store_that_hangs_holds_no_stop_and_acknowledges_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limit(monkeypatch, 0.05, "COMMITTING", "FLUSHING")
    rig = Rig()
    publisher, wire = rig.connect("p")
    await until(lambda: wire.written)
    rig.store.may_commit.clear()
    send(publisher, Publish("t", b"x", 1, packet_id=1))
    assert not await asyncio.wait_for(rig.driver.stop(), DEADLINE_S)
    assert wire.closed
    assert "did not finish the last commit" in caplog.text
    rig.store.may_commit.set()
    await until(lambda: rig.driver.commit_waits_s() == 0.0)
    assert len(wire.written) == 4, "the CONNACK alone"


async def test_a_peer_that_never_closes_holds_no_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 0.05, "FLUSHING")
    rig = Rig()
    _, wire = rig.connect("deaf")
    await until(lambda: wire.written)
    wire.endpoint = None
    assert await asyncio.wait_for(rig.driver.stop(), DEADLINE_S)
    assert wire.closed


async def test_a_client_sent_away_does_not_wait_for_ever_for_a_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "DRAIN_S_MAX", 0.1)
    rig = Rig()
    publisher, wire = rig.connect("p")
    await until(lambda: wire.written)
    rig.store.may_commit.clear()
    send(publisher, Publish("t", b"x", 1, packet_id=1))
    await until(rig.store.committing.is_set)
    publisher.connection.close(reasons.ADMINISTRATIVE_ACTION, "kicked", rig.driver.now())
    rig.driver.end_turn_soon()
    await until(lambda: wire.closed)
    rig.store.may_commit.set()
    await rig.driver.stop()
    assert len(wire.written) == 4, "the CONNACK alone"


async def test_a_client_sent_away_is_closed_when_the_store_begins_to_fail() -> None:
    rig = Rig(store_retry_s_max=3600)
    publisher, wire = rig.connect("p")
    await until(lambda: wire.written)
    rig.store.may_commit.clear()
    send(publisher, Publish("t", b"x", 1, packet_id=1))
    await asyncio.sleep(0)
    publisher.connection.close(reasons.ADMINISTRATIVE_ACTION, "kicked", rig.driver.now())
    rig.driver.end_turn_soon()
    await asyncio.sleep(0)
    assert not wire.closed
    rig.store.broken = "the disk is full"
    rig.store.may_commit.set()
    await until(lambda: wire.closed)
    assert len(wire.written) == 4, "the CONNACK alone"
    await rig.driver.stop()
