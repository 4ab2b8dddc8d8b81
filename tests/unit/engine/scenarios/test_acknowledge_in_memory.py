"""Topics whose PUBACK does not wait for the disk: ``durability.acknowledge_in_memory``."""

from __future__ import annotations

from penstock.engine.server.grants import ACKNOWLEDGED_IN_MEMORY, ACKNOWLEDGED_WHEN
from penstock.engine.values.access import Authorize, Permissions
from penstock.engine.values.options import ServerOptions
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Connect,
    Packet,
    Puback,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    Subscription,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes


def made(authorize: Authorize | None = None) -> Bench:
    options = ServerOptions(acknowledge_in_memory=("fast/#", "+/now"))
    return Bench(options=options, authorize=authorize)


def at_once(bench: Bench, line: Line) -> list[Packet]:
    """What leaves in this turn, without a commit."""
    bench.write_ready()
    return line.read()


def test_puback_leaves_before_the_commit() -> None:
    for topic, waits in (("fast/a", False), ("x/now", False), ("slow/a", True), ("fast", False)):
        bench = made()
        line = bench.join("a")
        line.send(Publish(topic, b"x", 1, packet_id=1))
        assert at_once(bench, line) == ([] if waits else [Puback(1)])
        assert len(bench.seal().messages) == 1


def test_a_topic_alias_stands_for_its_topic() -> None:
    bench = made()
    line = bench.join("a")
    for packet_id, topic in ((1, "fast/a"), (2, "")):
        properties = Properties(topic_alias=1)
        line.send(Publish(topic, b"x", 1, packet_id=packet_id, properties=properties))
    assert at_once(bench, line) == [Puback(1), Puback(2)]


def test_qos_2_waits_all_the_same() -> None:
    bench = made()
    line = bench.join("a")
    line.send(Publish("fast/a", b"x", 2, packet_id=1))
    assert at_once(bench, line) == []
    bench.commit()
    assert line.read() == [Pubrec(1)]


def test_answers_keep_their_order() -> None:
    """[MQTT-4.6.0-2]."""
    bench = made()
    line = bench.join("a")
    line.send(
        Publish("fast/a", b"1", 1, packet_id=1),
        Publish("slow/a", b"2", 1, packet_id=2),
        Publish("fast/a", b"3", 1, packet_id=3),
        Subscribe(4, [Subscription("y", 1)]),
        Publish("fast/a", b"4", 1, packet_id=5),
    )
    assert at_once(bench, line) == [Puback(1)]
    bench.commit()
    assert line.read() == [Puback(2), Puback(3), Suback(4, [1]), Puback(5)]
    line.send(Publish("fast/a", b"5", 1, packet_id=6))
    assert at_once(bench, line) == [Puback(6)]


def test_subscribers_get_it_once_it_is_on_disk() -> None:
    bench = made()
    reader = bench.subscriber("r", "#", 1)
    line = bench.join("a")
    line.send(Publish("fast/a", b"x", 1, packet_id=1))
    assert at_once(bench, line) == [Puback(1)]
    assert at_once(bench, reader) == []
    bench.commit()
    assert [one.payload for one in publishes(reader.read())] == [b"x"]


def test_a_crash_may_take_it() -> None:
    """That is what the setting says, and what the default does not."""
    bench = made()
    line = bench.join("a")
    line.send(Publish("fast/a", b"x", 1, packet_id=1))
    assert at_once(bench, line) == [Puback(1)]
    bench.restart()
    assert bench.store.log_extent().end == 0


class Nothing(Permissions):
    def may_publish(self, topic: str) -> bool:
        del topic
        return False


class Nobody(Authorize):
    def permissions(self, username: str | None, client_id: str) -> Permissions | None:
        del username, client_id
        return Nothing()


def test_a_refusal_is_a_refusal() -> None:
    bench = made(Nobody())
    line = bench.join("a")
    line.send(Publish("fast/a", b"x", 1, packet_id=1))
    bench.commit()
    assert line.read() == [Puback(1, reasons.NOT_AUTHORIZED)]


def test_clients_are_told() -> None:
    _, connack = made().connect(Connect("a", 5))
    assert connack.properties is not None
    assert connack.properties.user_properties == [
        (ACKNOWLEDGED_WHEN, "memory"),
        (ACKNOWLEDGED_IN_MEMORY, "fast/#"),
        (ACKNOWLEDGED_IN_MEMORY, "+/now"),
    ]
