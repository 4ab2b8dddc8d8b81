"""Wills: the drawing in ``engine.wills``, arrow by arrow."""

import pytest

from penstock.engine.values.clock import Now
from penstock.protocol import reasons
from penstock.protocol.packets import Connect, Disconnect, Publish, Subscribe, Subscription, Will
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes


class Watched:
    """A bench with a watcher of all wills."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.watcher = self.bench.join("watcher", 5)
        self.watcher.send(Subscribe(1, [Subscription("#", 1)]))
        self.bench.commit()
        self.watcher.read()

    def join(self, delay_s: int = 0, expiry_s: int = 0, version: int = 5) -> Line:
        """The client with the will."""
        properties = Properties(will_delay_interval=delay_s or None) if version == 5 else None
        will = Will("will", b"gone", 1, False, properties)
        return self.bench.join("c", version, durable=expiry_s > 0, expiry_s=expiry_s, will=will)

    def published(self) -> list[bytes]:
        """Wills that were published since the last call."""
        self.bench.commit()
        return [message.payload for message in publishes(self.watcher.read())]

    def stored(self) -> list[str]:
        """Whose wills the store holds."""
        self.bench.commit()
        return list(self.bench.store.recover().wills)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_lost_connection_publishes(version: int) -> None:
    """[MQTT-3.1.2-8]"""
    watched = Watched()
    line = watched.join(version=version)
    assert watched.stored() == ["c"]
    line.cut()
    assert watched.published() == [b"gone"]
    assert watched.stored() == []


@pytest.mark.parametrize("qos", [0, 1])
def test_a_client_gets_its_own_will_when_it_is_back(qos: int) -> None:
    """It waits in the session as whatever is published while the client is away."""
    bench = Bench()
    line = bench.join("c", durable=True, will=Will("state", b"gone", qos))
    line.send(Subscribe(1, [Subscription("state", 1)]))
    bench.commit()
    line.cut()
    bench.commit()
    line = bench.join("c", durable=True)
    bench.commit()
    assert [message.payload for message in publishes(line.read())] == [b"gone"]
    assert sum(bench.server.drops.counts) == 0


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_farewell_disarms(version: int) -> None:
    """[MQTT-3.1.2-10] [MQTT-3.14.4-3]"""
    watched = Watched()
    watched.join(version=version).send(Disconnect())
    assert watched.published() == []
    assert watched.stored() == []


@pytest.mark.parametrize("code", [reasons.DISCONNECT_WITH_WILL, reasons.UNSPECIFIED_ERROR])
def test_only_a_normal_farewell_disarms(code: int) -> None:
    """MQTT 5 §3.1.2.5: published when the client closes without DISCONNECT 0x00."""
    watched = Watched()
    watched.join().send(Disconnect(code))
    assert watched.published() == [b"gone"]


def test_a_protocol_error_publishes() -> None:
    watched = Watched()
    watched.join().receive(b"\x00\x00")
    assert watched.published() == [b"gone"]


def test_silence_publishes() -> None:
    watched = Watched()
    will = Will("will", b"gone")
    line, _ = watched.bench.connect(Connect("c", 4, True, 10, will))
    watched.bench.pass_s(16)
    line.connection.tick(watched.bench.now)
    assert watched.published() == [b"gone"]


def test_the_delay_is_waited_for() -> None:
    watched = Watched()
    watched.join(delay_s=10, expiry_s=100).cut()
    watched.bench.pass_s(9)
    assert watched.published() == []
    assert watched.stored() == ["c"]
    watched.bench.pass_s(1)
    assert watched.published() == [b"gone"]
    watched.bench.pass_s(1000)
    assert watched.published() == []


def test_the_session_taken_up_again_within_the_delay_disarms() -> None:
    """[MQTT-3.1.3-9]"""
    watched = Watched()
    watched.join(delay_s=10, expiry_s=100).cut()
    watched.bench.pass_s(9)
    watched.bench.join("c", durable=True)
    watched.bench.pass_s(100)
    assert watched.published() == []
    assert watched.stored() == []


def test_a_will_that_is_due_is_published_though_its_client_comes_back() -> None:
    """[MQTT-3.1.3-9]: the delay has passed; that nobody looked since changes nothing."""
    watched = Watched()
    bench = watched.bench
    watched.join(delay_s=10, expiry_s=100).cut()
    watched.published()
    bench.now = Now(bench.now.monotonic_s + 11, bench.now.wall_us + 11_000_000)
    watched.join(delay_s=10, expiry_s=100)
    assert watched.published() == [b"gone"]


def test_the_end_of_the_session_publishes_before_the_delay_does() -> None:
    """[MQTT-3.1.3-9] [MQTT-3.1.2-8]."""
    watched = Watched()
    watched.join(delay_s=100, expiry_s=10).cut()
    watched.bench.pass_s(10)
    assert watched.published() == [b"gone"]


def test_a_session_that_ends_with_its_connection_has_no_delay() -> None:
    watched = Watched()
    watched.join(delay_s=100).cut()
    assert watched.published() == [b"gone"]


def test_clean_start_within_the_delay_publishes() -> None:
    watched = Watched()
    watched.join(delay_s=100, expiry_s=1000).cut()
    watched.bench.join("c", clean=True)
    assert watched.published() == [b"gone"]


@pytest.mark.parametrize("delay_s", [0, 10])
def test_a_take_over_publishes_at_once_or_not_at_all(delay_s: int) -> None:
    watched = Watched()
    watched.join(delay_s=delay_s, expiry_s=100)
    watched.bench.join("c", durable=True)
    assert watched.published() == ([b"gone"] if delay_s == 0 else [])


@pytest.mark.parametrize("connected", [True, False])
def test_a_crash_loses_no_will(connected: bool) -> None:
    watched = Watched()
    watched.bench.subscriber("s", "will", 1).cut()
    line = watched.join(delay_s=10, expiry_s=100)
    if not connected:
        line.cut()
    watched.bench.commit()
    watched.bench.restart()
    watched.bench.pass_s(10)
    watched.bench.commit()
    watched.bench.restart()
    subscriber = watched.bench.join("s", durable=True)
    assert [message.payload for message in publishes(subscriber.read())] == [b"gone"]


def test_a_crash_before_the_will_was_durable_finds_none() -> None:
    watched = Watched()
    watched.bench.line(4).send(Connect("c", 4, True, 0, Will("will", b"gone")))
    watched.bench.restart()
    assert watched.bench.store.recover().wills == {}


def test_shutting_down_leaves_wills_armed_for_the_restart() -> None:
    watched = Watched()
    watched.join()
    watched.bench.server.shut_down(reasons.SERVER_SHUTTING_DOWN, "bye", watched.bench.now)
    assert watched.stored() == ["c"]


def test_a_will_may_be_retained_and_carries_its_properties() -> None:
    bench = Bench()
    properties = Properties(content_type="text", message_expiry_interval=60)
    bench.join("c", will=Will("will", b"gone", 0, True, properties)).cut()
    bench.commit()
    line = bench.subscriber("late", "other", 0)
    bench.pass_s(20)
    line.send(Subscribe(2, [Subscription("will", 0)]))
    bench.commit()
    (message,) = publishes(line.read())
    assert message.retain
    assert message.properties == Properties(content_type="text", message_expiry_interval=40)


@pytest.mark.parametrize("topic", ["$SYS/broker", "$SYS"])
def test_a_will_no_client_may_publish_is_refused(topic: str) -> None:
    bench = Bench()
    line = bench.line(5)
    line.send(Connect("c", 5, True, 0, Will(topic, b"")))
    assert line.connection.link.is_closed
    assert bench.server.registry.sessions == {}


def test_waiting_again_and_again_leaves_nothing_behind() -> None:
    watched = Watched()
    for _ in range(500):
        watched.join(delay_s=1000, expiry_s=10_000).cut()
        watched.bench.pass_s(0.5)
    assert len(watched.bench.server.wills._due) < 100
    watched.bench.pass_s(1000)
    assert watched.published() == [b"gone"]


def test_a_will_is_a_message_like_any_other() -> None:
    """It goes to the log, and to the queues of those who are away."""
    bench = Bench()
    bench.subscriber("s", "will", 1).cut()
    bench.join("c", will=Will("will", b"gone", 2)).cut()
    bench.commit()
    line = bench.join("s", durable=True)
    assert publishes(line.read()) == [Publish("will", b"gone", 1, packet_id=1)]
    assert bench.store.read([0])[0].payload == b"gone"
