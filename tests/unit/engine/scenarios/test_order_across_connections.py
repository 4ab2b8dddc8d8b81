"""A client that is back: what its earlier connection left, last of all the will, comes first."""

from collections.abc import Callable
from typing import Final

import pytest

from penstock.engine.values.limits import EngineLimits
from penstock.operators import admin_actions
from penstock.protocol.packets import Connect, Puback, Publish, Subscribe, Subscription, Will
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes

DELAY_S: Final = 10
EXPIRY_S: Final = 3600


def device(bench: Bench, version: int, will_qos: int, delay_s: int = 0) -> Line:
    """A client with a will, connected."""
    line = bench.line(version)
    line.send(connect(version, will_qos, delay_s))
    bench.commit()
    return line


def connect(version: int, will_qos: int, delay_s: int = 0, clean: bool = True) -> Connect:
    will = Will("death", b"dead", will_qos, True, Properties(will_delay_interval=delay_s))
    if version < 5:
        return Connect("device", version, clean, 0, Will("death", b"dead", will_qos, True))
    properties = Properties(session_expiry_interval=EXPIRY_S)
    return Connect("device", version, clean, 0, will, properties=properties)


def still_connected(bench: Bench, line: Line) -> None:
    del bench, line


def lost(_: Bench, line: Line) -> None:
    line.cut()


def kicked(bench: Bench, line: Line) -> None:
    admin_actions.kick(bench.server, line.session, "", bench.now)


def seen_by(subscriber: Line) -> list[bytes]:
    """The payloads that reached a subscriber, each once."""
    return list(dict.fromkeys(message.payload for message in publishes(subscriber.read())))


@pytest.mark.parametrize("end", [still_connected, lost, kicked])
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("will_qos", [0, 1, 2])
@pytest.mark.parametrize("birth_qos", [0, 1, 2])
@pytest.mark.parametrize("version", [3, 4, 5])
def test_the_will_comes_before_what_is_sent_with_the_next_connect(
    end: Callable[[Bench, Line], None], granted: int, will_qos: int, birth_qos: int, version: int
) -> None:
    """Sparkplug's NDEATH and NBIRTH, CONNECT and PUBLISH in one write [MQTT-4.6.0-5]."""
    bench = Bench()
    subscribers = [bench.subscriber(f"s{n}", "#", granted, n) for n in (4, 5)]
    line = device(bench, version, will_qos)
    end(bench, line)
    back = bench.line(version)
    packet_id = 1 if birth_qos else 0
    back.send(connect(version, will_qos), Publish("birth", b"born", birth_qos, packet_id=packet_id))
    bench.write_ready()
    if version == 3 and birth_qos == 2:
        return  # it is published with its PUBREL
    seen = [seen_by(subscriber) for subscriber in subscribers]
    bench.commit()
    for subscriber, first in zip(subscribers, seen, strict=True):
        assert first + seen_by(subscriber) == [b"dead", b"born"]


@pytest.mark.parametrize(("birth_qos", "order"), [(0, [b"born", b"dead"]), (1, [b"dead", b"born"])])
def test_a_will_that_waits_for_the_window_is_passed_by_qos_0_alone(
    birth_qos: int, order: list[bytes]
) -> None:
    """As any message (docs/flow.md); with one QoS the order holds [MQTT-4.6.0-5]."""
    bench = Bench(EngineLimits(max_inflight=1))
    subscriber = bench.subscriber("s", "#", 1)
    other = bench.join("other")
    other.send(Publish("t", b"x", 1, packet_id=1))
    bench.commit()
    [in_window] = publishes(subscriber.read())
    line = device(bench, 5, 1)
    line.cut()
    back = bench.line()
    packet_id = 1 if birth_qos else 0
    back.send(connect(5, 1), Publish("birth", b"born", birth_qos, packet_id=packet_id))
    bench.commit()
    seen = [message.payload for message in publishes(subscriber.read())]
    waiting = [in_window]
    while waiting:
        subscriber.send(*[Puback(message.packet_id) for message in waiting])
        bench.commit()
        waiting = publishes(subscriber.read())
        seen += [message.payload for message in waiting]
    assert seen == order


@pytest.mark.parametrize("clean", [False, True])
def test_a_delayed_will_of_a_session_that_ends_comes_before_too(clean: bool) -> None:
    """[MQTT-3.1.3-9]; a session that goes on has no will to be published."""
    bench = Bench()
    subscriber = bench.subscriber("s", "#", 1)
    device(bench, 5, 1, DELAY_S).cut()
    bench.commit()
    back = bench.line()
    back.send(connect(5, 1, DELAY_S, clean), Publish("birth", b"born"))
    bench.write_ready()
    first = seen_by(subscriber)
    bench.commit()
    assert first + seen_by(subscriber) == ([b"dead", b"born"] if clean else [b"born"])


def test_after_a_restart_the_wills_come_before_what_their_clients_send() -> None:
    bench = Bench()
    subscriber = bench.subscriber("s", "#", 1)
    device(bench, 5, 1)
    bench.restart()
    subscriber = bench.line()
    properties = Properties(session_expiry_interval=EXPIRY_S)
    subscriber.send(Connect("s", 5, False, 0, properties=properties))
    bench.commit()
    back = bench.line()
    back.send(connect(5, 1), Publish("birth", b"born"))
    bench.write_ready()
    first = seen_by(subscriber)
    bench.commit()
    assert first + seen_by(subscriber) == [b"dead", b"born"]


def test_the_message_retained_in_the_end_is_of_the_new_connection() -> None:
    bench = Bench()
    device(bench, 5, 1)
    back = bench.line()
    back.send(connect(5, 1), Publish("death", b"alive", 0, True))
    bench.commit()
    late = bench.line()
    late.send(Connect("late", 5, True, 0), Subscribe(1, [Subscription("death", 0)]))
    bench.commit()
    assert seen_by(late) == [b"alive"]


def test_packets_behind_connect_are_handled_in_their_order_once_connack_is_sent() -> None:
    """In one write and in several, while the commit of the CONNACK is under way."""
    bench = Bench()
    subscriber = bench.subscriber("s", "#", 0)
    back = bench.line()
    back.send(Connect("c", 5, True, 0), Publish("t", b"1"))
    under_way = bench.seal()
    back.send(Publish("t", b"2"))
    assert back.connection.is_reading_paused
    assert back.read() == []
    bench.write_ready()
    assert subscriber.read() == []
    bench.finish(under_way)
    bench.commit()
    assert seen_by(subscriber) == [b"1", b"2"]
    assert not back.connection.is_reading_paused


def test_a_client_that_waits_for_its_connack_is_not_paused() -> None:
    bench = Bench()
    line = bench.line()
    line.send(Connect("c", 5, True, 0))
    assert not line.connection.is_reading_paused


def test_a_client_that_leaves_at_once_is_heard() -> None:
    """CONNECT, PUBLISH and the end of the stream: there is nothing to wait for."""
    bench = Bench()
    subscriber = bench.subscriber("s", "#", 0)
    line = bench.line()
    line.send(Connect("c", 5, True, 0), Publish("t", b"x"))
    line.cut()
    bench.commit()
    assert seen_by(subscriber) == [b"x"]
