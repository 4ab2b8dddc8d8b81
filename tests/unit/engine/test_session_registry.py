"""Sessions by client identifier: opened, taken over, taken up again, expired."""

import pytest

from penstock.engine.values.drop_reasons import SESSION_ENDED
from penstock.engine.values.limits import NEVER_EXPIRES_S, EngineLimits
from penstock.protocol import reasons
from penstock.protocol.packets import Connect, Disconnect, Publish, Subscribe, Subscription
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, publishes


def durable(client_id: str, clean: bool = False, expiry_s: int = 100) -> Connect:
    return Connect(client_id, 5, clean, 0, properties=Properties(session_expiry_interval=expiry_s))


@pytest.mark.parametrize("version", [4, 5])
def test_a_session_is_taken_up_again(version: int) -> None:
    """[MQTT-3.1.2-5] [MQTT-3.2.2-3]"""
    bench = Bench()
    first = bench.subscriber("c", "t", 1, version)
    session = first.session
    first.cut()
    bench.publish("t", b"while away")
    packet = durable("c") if version == 5 else Connect("c", 4, False, 0)
    line, connack = bench.connect(packet)
    assert connack.session_present
    assert line.session is session
    (message,) = publishes(line.read())
    assert message.payload == b"while away"


@pytest.mark.parametrize("version", [4, 5])
def test_clean_start_ends_the_session_before(version: int) -> None:
    """[MQTT-3.1.2-4]: nothing of it is left, in the store either."""
    bench = Bench()
    first = bench.subscriber("c", "t", 1, version)
    first.cut()
    bench.publish("t", b"lost with the session")
    packet = durable("c", clean=True) if version == 5 else Connect("c", 4, True, 0)
    line, connack = bench.connect(packet)
    assert not connack.session_present
    assert line.read() == []
    assert bench.server.drops.counts[SESSION_ENDED] == 1
    recovered = bench.store.recover()
    assert recovered.subscriptions == []
    assert recovered.queues == {}
    assert len(recovered.sessions) == (1 if version == 5 else 0)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_second_connection_takes_over(version: int) -> None:
    """[MQTT-3.1.4-3]: the first is closed, and told in MQTT 5."""
    bench = Bench()
    first = bench.join("c", version, durable=True)
    second = bench.join("c", version, durable=True)
    farewell = first.read()
    if version == 5:
        (packet,) = farewell
        assert isinstance(packet, Disconnect)
        assert packet.reason_code == reasons.SESSION_TAKEN_OVER
    else:
        assert farewell == []
    assert first.connection.link.is_closed
    assert bench.server.connections["c"] is second.connection
    first.connection.lost("cut", bench.now)
    assert bench.server.connections["c"] is second.connection
    assert second.session.link is second.connection.link


def test_the_first_connection_is_not_heard_after_the_take_over() -> None:
    bench = Bench()
    first = bench.join("c", 4, durable=True)
    bench.join("c", 4, durable=True)
    end = bench.server.context.batch.next_offset
    first.send(Publish("t", b"", 1, packet_id=1))
    assert bench.server.context.batch.next_offset == end


def test_a_session_ends_with_its_connection_when_it_does_not_expire_later() -> None:
    bench = Bench()
    line = bench.join("c", 5)
    assert line.session.is_stored is False
    line.cut()
    bench.commit()
    assert bench.server.registry.sessions == {}
    assert bench.store.recover().sessions == []


def test_a_session_expires() -> None:
    """[MQTT-3.1.2-23] [MQTT-4.1.0-2]."""
    bench = Bench()
    line = bench.join("c", durable=True, expiry_s=100)
    bench.pass_s(1000)
    assert "c" in bench.server.registry.sessions, "not while it is connected"
    line.cut()
    bench.pass_s(99)
    assert "c" in bench.server.registry.sessions
    bench.pass_s(1)
    bench.commit()
    assert bench.server.registry.sessions == {}
    assert bench.store.recover().sessions == []


def test_expiry_counts_from_the_last_connection() -> None:
    bench = Bench()
    bench.join("c", durable=True, expiry_s=100).cut()
    bench.pass_s(90)
    bench.join("c", durable=True, expiry_s=100).cut()
    bench.pass_s(90)
    assert "c" in bench.server.registry.sessions
    bench.pass_s(10)
    assert bench.server.registry.sessions == {}


def test_a_later_connection_may_shorten_it() -> None:
    bench = Bench()
    bench.join("c", durable=True, expiry_s=10_000).cut()
    bench.join("c", durable=True, expiry_s=5).cut()
    bench.pass_s(5)
    assert bench.server.registry.sessions == {}


@pytest.mark.parametrize("later_s", [10_000, NEVER_EXPIRES_S])
def test_a_later_connection_may_lengthen_it(later_s: int) -> None:
    """What was due first does not count any more."""
    bench = Bench()
    bench.join("c", durable=True, expiry_s=5).cut()
    bench.join("c", durable=True, expiry_s=later_s).cut()
    bench.pass_s(9_999)
    assert "c" in bench.server.registry.sessions
    bench.pass_s(1)
    assert ("c" in bench.server.registry.sessions) is (later_s == NEVER_EXPIRES_S)


def test_a_session_of_an_older_client_never_expires() -> None:
    bench = Bench()
    bench.join("c", 4, durable=True).cut()
    bench.pass_s(10 * 365 * 86400)
    assert bench.server.registry.sessions["c"].expiry_interval_s == NEVER_EXPIRES_S


def test_the_configured_limit_shortens_it_and_the_client_is_told() -> None:
    bench = Bench(EngineLimits(session_expiry_s_max=60))
    line, connack = bench.connect(durable("c", expiry_s=1000))
    assert connack.properties is not None
    assert connack.properties.session_expiry_interval == 60
    line.cut()
    bench.join("old", 4, durable=True).cut()
    bench.pass_s(60)
    assert bench.server.registry.sessions == {}


def test_time_passes_while_the_broker_is_down() -> None:
    bench = Bench()
    bench.subscriber("c", "t", 1).cut()
    bench.commit()
    bench.pass_s(3599)
    bench.restart()
    assert "c" in bench.server.registry.sessions
    bench.pass_s(1)
    bench.restart()
    _, connack = bench.connect(durable("c"))
    assert not connack.session_present, "though no tick came between start and CONNECT"


def test_a_client_connected_at_the_crash_counts_from_the_restart() -> None:
    bench = Bench()
    bench.join("c", durable=True, expiry_s=100)
    bench.pass_s(1000)
    bench.restart()
    bench.pass_s(99)
    assert "c" in bench.server.registry.sessions
    bench.pass_s(1)
    assert bench.server.registry.sessions == {}


def test_disconnect_may_end_the_session() -> None:
    """MQTT 5 §3.14.2.2.2"""
    bench = Bench()
    line = bench.join("c", durable=True)
    line.send(Disconnect(0, Properties(session_expiry_interval=0)))
    assert bench.server.registry.sessions == {}


def test_disconnect_may_not_make_a_session_last() -> None:
    """MQTT 5 §3.14.2.2.2: expiry was 0 in CONNECT."""
    bench = Bench()
    line = bench.join("c", 5)
    line.send(Disconnect(0, Properties(session_expiry_interval=10)))
    (packet,) = line.read()
    assert isinstance(packet, Disconnect)
    assert packet.reason_code == reasons.PROTOCOL_ERROR


@pytest.mark.parametrize("longest_s", [0, 30])
def test_disconnect_may_ask_for_more_than_is_granted(longest_s: int) -> None:
    """What counts is what CONNECT asked for (MQTT 5 §3.14.2.2.2), not what it was granted."""
    bench = Bench(EngineLimits(session_expiry_s_max=longest_s))
    line, _ = bench.connect(durable("c"))
    line.send(Disconnect(0, Properties(session_expiry_interval=100)))
    bench.commit()
    assert line.read() == []
    assert line.connection.close_reason == "client disconnected"
    assert len(bench.server.registry.sessions) == (1 if longest_s > 0 else 0)
    bench.pass_s(longest_s)
    assert bench.server.registry.sessions == {}


def test_sessions_are_limited() -> None:
    bench = Bench(EngineLimits(sessions_max=2))
    bench.join("a", durable=True).cut()
    bench.join("b", 4)
    _, connack = bench.connect(Connect("c", 5, True, 0))
    assert connack.reason_code == reasons.QUOTA_EXCEEDED
    _, connack = bench.connect(Connect("c", 4, True, 0))
    assert connack.reason_code == reasons.SERVER_UNAVAILABLE
    bench.join("a", durable=True)


def test_session_numbers_are_not_given_again_after_a_restart() -> None:
    bench = Bench()
    numbers = {bench.join(name, durable=True).session.number for name in "abc"}
    bench.restart()
    assert bench.join("d", durable=True).session.number not in numbers


def test_reconnecting_leaves_nothing_behind() -> None:
    bench = Bench()
    for _ in range(500):
        bench.join("c", durable=True, expiry_s=86400).cut()
        bench.join("d", durable=True, clean=True, expiry_s=86400).cut()
        bench.pass_s(1)
    bench.commit()
    assert len(bench.server.registry._expiring) < 200
    assert len(bench.server.registry._scheduled) == 2
    recovered = bench.store.recover()
    assert len(recovered.sessions) == 2
    assert len(recovered.progress) <= 2


def test_subscriptions_of_an_ended_session_get_nothing() -> None:
    bench = Bench()
    line = bench.join("c", 4)
    line.send(Subscribe(1, [Subscription("#", 2)]))
    assert len(bench.server.router.trie.match("t").sessions) == 1
    line.cut()
    assert bench.server.router.trie.match("t").sessions == []


def test_names_that_clients_took_ahead_of_the_broker_are_passed_over_once() -> None:
    """Who knows the epoch may take many: nobody looks at all of them for each new client."""
    bench = Bench()
    epoch = bench.server.epoch
    registry = bench.server.registry
    session = bench.join("taken").session
    begin = int(registry.unused_client_id(epoch).rpartition("-")[2])
    for number in range(begin, begin + 50):
        registry.sessions[f"auto-{epoch}-{number}"] = session
    _, connack = bench.connect(Connect("", 5, True, 0))
    assert connack.properties is not None
    name = connack.properties.assigned_client_identifier
    assert name is not None
    assert int(name.rpartition("-")[2]) >= begin + 50
    for number in range(begin, begin + 50):
        del registry.sessions[f"auto-{epoch}-{number}"]
    following = int(registry.unused_client_id(epoch).rpartition("-")[2])
    assert following > int(name.rpartition("-")[2])
