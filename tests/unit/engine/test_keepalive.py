"""Keep alive: deadlines, and what a connection does when one has passed."""

from penstock.engine.connection.keepalive import KeepAlive
from penstock.engine.values.clock import NO_DEADLINE
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.states import CONNECTED
from penstock.protocol.packets import (
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
)
from penstock.protocol.reasons import KEEP_ALIVE_TIMEOUT
from tests.unit.engine.bench import Bench

MAXIMUM = 3


def test_the_connect_timeout_stands_before_connect() -> None:
    assert KeepAlive(10.0, 5.0).deadline_s() == 15.0


def test_one_and_a_half_intervals() -> None:
    """[MQTT-3.1.2-22]"""
    keep_alive = KeepAlive(10.0, 0.0)
    keep_alive.set_interval(20)
    keep_alive.note_packet(100.0)
    assert keep_alive.deadline_s() == 130.0


def test_zero_turns_it_off() -> None:
    keep_alive = KeepAlive(10.0, 0.0)
    keep_alive.set_interval(0)
    assert keep_alive.deadline_s() == NO_DEADLINE


def test_a_silent_client_is_closed_and_told() -> None:
    bench = Bench()
    line, _ = bench.connect(Connect("c", 5, True, 10))
    bench.pass_s(14.9)
    line.connection.tick(bench.now)
    assert not line.connection.link.is_closed
    bench.pass_s(0.2)
    line.connection.tick(bench.now)
    (farewell,) = line.read()
    assert isinstance(farewell, Disconnect)
    assert farewell.reason_code == KEEP_ALIVE_TIMEOUT
    assert line.connection.link.is_closed


def test_any_packet_keeps_it_alive() -> None:
    bench = Bench()
    line, _ = bench.connect(Connect("c", 4, True, 10))
    for _ in range(5):
        bench.pass_s(14)
        line.send(Pingreq())
        line.connection.tick(bench.now)
    assert line.read() == [Pingresp()] * 5


def test_half_a_packet_does_not() -> None:
    bench = Bench()
    line, _ = bench.connect(Connect("c", 4, True, 10))
    bench.pass_s(14)
    line.receive(b"\x30")
    bench.pass_s(2)
    line.connection.tick(bench.now)
    assert line.connection.link.is_closed


def test_a_connection_without_connect_is_closed() -> None:
    bench = Bench(EngineLimits(connect_timeout_s=5))
    line = bench.line()
    bench.pass_s(5)
    line.connection.tick(bench.now)
    assert line.connection.link.is_closed
    assert line.read() == []


def test_the_server_may_demand_a_shorter_one() -> None:
    """[MQTT-3.1.2-21] [MQTT-3.2.2-22]"""
    bench = Bench(EngineLimits(keep_alive_s_max=60))
    for asked_s, told_s in ((0, 60), (61, 60), (60, None), (5, None)):
        line, connack = bench.connect(Connect("c", 5, True, asked_s))
        assert connack.properties is not None
        assert connack.properties.server_keep_alive == told_s
        expected_s = 1.5 * (told_s or asked_s)
        assert line.connection.deadline_s() == bench.now.monotonic_s + expected_s


def test_clients_that_cannot_be_told_keep_theirs() -> None:
    bench = Bench(EngineLimits(keep_alive_s_max=60))
    line, _ = bench.connect(Connect("c", 4, True, 100))
    assert line.connection.deadline_s() == bench.now.monotonic_s + 150


def test_our_pause_is_not_the_clients_silence() -> None:
    """[MQTT-3.1.2-22]: keep alive strikes silence, not what we do not read."""
    bench = Bench(EngineLimits(receive_maximum=MAXIMUM))
    line = bench.join("c", 4, keep_alive_s=10)
    line.send(*[Publish("t", b"x", 1, packet_id=n) for n in range(1, 10)])
    assert line.connection.is_reading_paused
    for _ in range(10):
        bench.pass_s(14.0)
        line.connection.tick(bench.now)
    assert not line.connection.link.is_closed
    bench.commit()
    assert (line.connection.is_reading_paused, line.connection.state) == (False, CONNECTED)
    bench.pass_s(14.0)
    line.connection.tick(bench.now)
    assert line.connection.state == CONNECTED, "it had no time to be heard"
    bench.pass_s(2.0)
    line.connection.tick(bench.now)
    assert line.connection.close_reason == "nothing heard for 1.5 x keep alive"
