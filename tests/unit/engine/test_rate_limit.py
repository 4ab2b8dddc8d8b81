"""Rate limits, on a virtual clock."""

import pytest

from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.rate_limit import PAUSE_S_MIN, TokenBucket
from penstock.engine.values.states import CLOSED
from penstock.protocol.encode import encode
from penstock.protocol.packets import Pingreq, Puback, Publish
from tests.unit.engine.bench import Bench, Line


def waited(line: Line) -> float:
    """Go on to when reading is resumed; how long that took."""
    before_s = line.bench.now.monotonic_s
    seconds = line.connection.resume_at_s - before_s
    assert line.connection.is_reading_paused
    assert seconds > 0
    line.bench.pass_s(seconds + 1e-6)
    line.connection.resume(line.bench.now)
    line.bench.turns()
    return seconds


def test_a_second_s_worth_may_come_at_once() -> None:
    bucket = TokenBucket(10, 0.0)
    assert [bucket.take(1, 0.0) for _ in range(10)] == [0.0] * 10
    assert bucket.take(1, 0.0) == pytest.approx(0.1 + PAUSE_S_MIN)


def test_bytes_beyond_the_rate_are_made_up_for() -> None:
    bucket = TokenBucket(100, 0.0)
    wait_s = bucket.take(1100, 0.0)
    assert wait_s == pytest.approx(10.0 + PAUSE_S_MIN)
    assert bucket.take(1, wait_s) == 0.0
    assert bucket.take(1, wait_s) > 0.0


def test_rest_saves_no_more_than_a_second_s_worth() -> None:
    bucket = TokenBucket(10, 0.0)
    assert bucket.take(10, 1000.0) == 0.0
    assert bucket.take(1, 1000.0) > 0.0


@pytest.mark.parametrize("version", [3, 4, 5])
def test_messages_above_the_rate_wait_and_all_arrive(version: int) -> None:
    """500 messages at 100 a second take 4 seconds after the first 100; none is dropped."""
    bench = Bench(EngineLimits(messages_per_s_max=100))
    line = bench.join("c", version)
    line.send(*[Publish("t", b"x", 1, packet_id=n) for n in range(1, 501)])
    assert len(bench.seal().messages) == 101
    passed_s = 0.0
    while line.connection.is_reading_paused:
        passed_s += waited(line)
    assert passed_s == pytest.approx(4.0, rel=0.05)
    assert bench.server.context.turn.counters.total().rate_pauses > 100
    line.send(Pingreq())
    assert not line.connection.is_reading_paused


def test_all_acknowledgements_come() -> None:
    bench = Bench(EngineLimits(messages_per_s_max=50))
    line = bench.join("c", 4)
    line.send(*[Publish("t", b"x", 1, packet_id=n) for n in range(1, 201)])
    while line.connection.is_reading_paused:
        waited(line)
    bench.commit()
    assert line.read() == [Puback(n) for n in range(1, 201)]


def test_bytes_above_the_rate_pause_reading() -> None:
    """Also in the middle of a packet, when there is nothing to decode yet."""
    bench = Bench(EngineLimits(bytes_per_s_max=1000))
    line = bench.join("c", 4)
    data = encode(Publish("t", bytes(10_000)), 4)
    for start in range(0, len(data), 500):
        if line.connection.is_reading_paused:
            assert waited(line) < 0.7
        line.receive(data[start : start + 500])
    assert bench.now.monotonic_s - 1000.0 > 8.5
    while line.connection.is_reading_paused:
        waited(line)
    assert bench.seal().messages[0].payload == bytes(10_000)


def test_the_pause_is_not_the_clients_silence() -> None:
    bench = Bench(EngineLimits(bytes_per_s_max=10))
    line = bench.join("c", 4, keep_alive_s=1)
    line.send(Publish("t", bytes(100)))
    for _ in range(3):
        bench.pass_s(2.0)
        line.connection.tick(bench.now)
    assert not line.connection.link.is_closed


def test_the_connect_timeout_stands_for_who_sends_connect_too_fast() -> None:
    """Bytes without end of a CONNECT that never ends, from one paused again and again."""
    bench = Bench(EngineLimits(bytes_per_s_max=100, connect_timeout_s=10))
    connection = bench.line().connection
    connection.receive(bytes([0x10, 0x80, 0x80, 0x03]) + b"\0\4MQTT\5\2\0\0", bench.now)
    passed_s = 0.0
    while connection.state != CLOSED and passed_s < 30.0:
        bench.pass_s(0.5)
        passed_s += 0.5
        if 0.0 < connection.resume_at_s <= bench.now.monotonic_s:
            connection.resume(bench.now)
        connection.tick(bench.now)
        if not connection.is_reading_paused:
            connection.receive(b"a" * 150, bench.now)
    assert passed_s == pytest.approx(10.0, abs=0.5)
    assert connection.close_reason == "no CONNECT within the connect timeout"
