"""The mount point of a listener: nothing but what is below it is seen through it."""

from __future__ import annotations

import pytest

from penstock.engine.values import drop_reasons
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.options import Offers
from penstock.protocol import reasons
from penstock.protocol.packets import Connect, Disconnect, Publish, Subscribe, Subscription
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes

MOUNTED = EngineLimits(name="tenant")
MOUNTED.offers = Offers(mount_point="tenant/")


def behind(bench: Bench, version: int, client_id: str = "t") -> Line:
    """A client of the listener with a mount point, whose session lasts."""
    properties = Properties(session_expiry_interval=3600) if version == 5 else None
    line, _ = bench.connect(Connect(client_id, version, False, 0, properties=properties), "tenant")
    return line


def seen(line: Line) -> list[tuple[str, bytes]]:
    """What the client got."""
    line.bench.commit()
    return [(packet.topic, packet.payload) for packet in publishes(line.read())]


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_a_topic_that_is_no_more_than_the_mount_point_is_not_seen(
    version: int, qos: int, retain: bool
) -> None:
    """Another listener's client may publish there, and ``#`` matches it [MQTT-4.7.3-1]."""
    bench = Bench(limits_by_name={"tenant": MOUNTED})
    line = behind(bench, version)
    if not retain:
        line.send(Subscribe(1, [Subscription("#", 2)]))
    for topic in ("tenant", "tenant/", "tenant/a"):
        bench.publish(topic, b"x", qos, retain)
    if retain:
        line.send(Subscribe(1, [Subscription("#", 2)]))
    assert seen(line) == [("a", b"x")]
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 2
    assert bench.server.drops.counts[drop_reasons.PACKET_TOO_LARGE] == 0


@pytest.mark.parametrize("version", [4, 5])
def test_a_session_of_another_listener_shows_nothing_beyond_the_mount_point(version: int) -> None:
    """What waited in it and what it subscribed to there stays there."""
    bench = Bench(limits_by_name={"tenant": MOUNTED})
    outside = bench.join("t", version, durable=True)
    outside.send(Subscribe(1, [Subscription("#", 1)]))
    bench.commit()
    outside.cut()
    bench.publish("elsewhere/a", b"1")
    bench.publish("tenant/a", b"2")
    line = behind(bench, version)
    bench.publish("elsewhere/a", b"3")
    bench.publish("tenant/b", b"4")
    assert seen(line) == [("a", b"2"), ("b", b"4")]
    line.send(Publish("c", b"5", 0))
    assert seen(line) == [("c", b"5")]


def test_a_topic_alias_stands_for_the_mounted_topic() -> None:
    bench = Bench(EngineLimits(topic_alias_maximum=1), limits_by_name={"tenant": MOUNTED})
    all_of_it = bench.subscriber("all", "#", 0)
    line = behind(bench, 5)
    for topic, payload in (("a", b"1"), ("", b"2")):
        line.send(Publish(topic, payload, 0, properties=Properties(topic_alias=1)))
    assert seen(all_of_it) == [("tenant/a", b"1"), ("tenant/a", b"2")]


def test_a_topic_that_is_too_long_with_its_mount_point_is_refused_by_its_bytes() -> None:
    bench = Bench(limits_by_name={"tenant": MOUNTED})
    for characters, is_refused in ((32_764, False), (32_765, True)):
        line = behind(bench, 5)
        line.send(Publish(characters * "é", b"", 0))  # two bytes each, and seven of "tenant/"
        farewell = [packet for packet in line.read() if isinstance(packet, Disconnect)]
        assert line.connection.link.is_closed is is_refused
        assert [packet.reason_code for packet in farewell] == (
            [reasons.TOPIC_NAME_INVALID] if is_refused else []
        )
