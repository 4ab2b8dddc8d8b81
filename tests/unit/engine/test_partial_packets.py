"""Memory for large packets that have not arrived whole: somebody can always finish."""

import tracemalloc

import pytest

from penstock.engine.values.limits import FREE_BYTES, EngineLimits
from penstock.protocol.encode import encode
from penstock.protocol.packets import Disconnect, Puback, Publish
from tests.unit.engine.bench import Bench, Line

LARGE = encode(Publish("t", bytes(100_000), 1, packet_id=1), 5)
SMALL = encode(Publish("t", bytes(60_000), 1, packet_id=1), 5)
FREE = encode(Publish("t", bytes(FREE_BYTES - 10), 1, packet_id=1), 5)
ROUGHLY_BYTES = 1_048_576


def bench(places: int, slow_s: float = 60.0) -> Bench:
    """A broker with room for so many large packets."""
    limits = EngineLimits(half_received_bytes_max=places * len(LARGE), slow_peer_timeout_s=slow_s)
    return Bench(limits)


def begun(rig: Bench, *names: str) -> list[Line]:
    """Clients that sent the beginning of a large packet."""
    lines = [rig.join(name) for name in names]
    for line in lines:
        line.receive(LARGE[:1000])
    return lines


def is_read(line: Line) -> bool:
    return not line.connection.is_reading_paused


def is_closed(line: Line) -> bool:
    return line.connection.link.is_closed


def is_acknowledged(line: Line) -> bool:
    line.bench.commit()
    return any(isinstance(packet, Puback) for packet in line.read())


def test_a_client_that_would_exceed_the_budget_is_not_read_until_there_is_room() -> None:
    rig = bench(2)
    one, two, three, four = begun(rig, "1", "2", "3", "4")
    assert [is_read(line) for line in (one, two, three, four)] == [True, True, False, False]
    assert rig.server.partial_packets.size_bytes == 2 * len(LARGE)
    two.receive(LARGE[1000:])
    assert is_acknowledged(two)
    assert [is_read(line) for line in (one, three, four)] == [True, True, False], "first come"
    for line in (one, three):
        line.receive(LARGE[1000:])
        assert is_acknowledged(line)
    assert is_read(four)
    four.receive(LARGE[1000:])
    assert is_acknowledged(four)
    assert rig.server.partial_packets.size_bytes == 0


def test_a_place_that_is_large_enough_for_two_lets_two_in() -> None:
    rig = bench(2)
    two_places = encode(Publish("t", bytes(2 * len(LARGE) - 50), 1, packet_id=1), 5)
    first = rig.join("1")
    first.receive(two_places[:1000])
    two, three, four = begun(rig, "2", "3", "4")
    first.receive(two_places[1000:])
    assert [is_read(line) for line in (two, three, four)] == [True, True, False]


def test_a_client_that_has_its_turn_and_waits_for_something_else_does_not_keep_it() -> None:
    limits = EngineLimits(half_received_bytes_max=len(LARGE), write_buffer_bytes_max=1000)
    rig = Bench(limits)
    rig.subscriber("2", "t", 0)
    one = begun(rig, "1")[0]
    two = rig.join("2", durable=True)
    two.receive(LARGE[:1000])
    (three,) = begun(rig, "3")
    rig.publish_qos0("t", bytes(2000))  # which client 2 does not take
    one.receive(LARGE[1000:])
    assert [is_read(line) for line in (two, three)] == [False, True]
    three.receive(LARGE[1000:])
    two.read()
    rig.commit()
    assert is_read(two)
    two.receive(LARGE[1000:])
    assert is_acknowledged(two)


@pytest.mark.parametrize("small", [SMALL, FREE])
def test_small_packets_need_none(small: bytes) -> None:
    rig = bench(1)
    begun(rig, "1")
    line = rig.join("2")
    line.receive(small[:1000])
    assert is_read(line)
    line.receive(small[1000:])
    assert is_acknowledged(line)


def test_a_packet_larger_than_the_budget_is_read_where_nobody_else_holds_any() -> None:
    limits = EngineLimits(half_received_bytes_max=70_000)
    one, two = begun(Bench(limits), "1", "2")
    assert is_read(one)
    assert not is_read(two)
    one.receive(LARGE[1000:])
    assert is_read(two)


@pytest.mark.parametrize("holds", [True, False])
def test_a_client_that_is_lost_gives_its_place_up(holds: bool) -> None:
    rig = bench(1)
    one, two, three = begun(rig, "1", "2", "3")
    (one if holds else two).cut()
    rig.turns()
    if not holds:
        assert not is_read(three)
        one.receive(LARGE[1000:])
    assert is_read(two if holds else three)


def test_nothing_of_what_was_received_is_kept_behind_the_end() -> None:
    """The connection itself is kept, as it is while its socket takes what it is still sent."""
    rig = Bench(EngineLimits(max_packet_size_bytes=4 * ROUGHLY_BYTES))
    line = rig.join("c")
    tracemalloc.start()
    try:
        line.receive(encode(Publish("t", bytes(2 * ROUGHLY_BYTES), 1, packet_id=1), 5)[:-1])
        assert tracemalloc.get_traced_memory()[0] > ROUGHLY_BYTES
        line.cut()
        assert tracemalloc.get_traced_memory()[0] < ROUGHLY_BYTES
    finally:
        tracemalloc.stop()
    assert is_closed(line)


def test_a_client_that_does_not_finish_is_closed_if_others_wait() -> None:
    rig = bench(2)
    one, two = begun(rig, "1", "2")
    rig.pass_s(70)
    assert not is_closed(one), "nobody waits"
    (three,) = begun(rig, "3")
    two.receive(LARGE[1000:])
    assert is_read(three)
    (four,) = begun(rig, "4")
    rig.pass_s(1)
    rig.turns()
    assert rig.server.partial_packets.closed_count == 1
    assert is_closed(one)
    farewell = one.read()[-1]
    assert isinstance(farewell, Disconnect)
    assert farewell.reason_code == 0x97
    assert is_read(four)


def test_a_client_that_is_not_read_is_not_late() -> None:
    """While the store is slow nobody's packets are decoded: what came of it is here."""
    rig = bench(1)
    one, _ = begun(rig, "1", "2")
    context = rig.server.context
    context.store_health.waiting_bytes_max = 10_000
    rig.join("3", 4).send(Publish("t", bytes(10_000), 1, packet_id=1))
    one.connection.receive(LARGE[1000:], rig.now)
    assert not is_read(one)
    rig.pass_s(70)
    assert not is_closed(one)
    rig.commit()
    assert is_acknowledged(one)


def test_without_a_time_limit_nobody_is_closed() -> None:
    rig = bench(1, slow_s=0.0)
    one, _ = begun(rig, "1", "2")
    rig.pass_s(100_000)
    assert not is_closed(one)


def test_a_client_that_sends_as_fast_as_it_may_has_the_time_for_it() -> None:
    """At ``bytes_per_s_max`` this packet takes 100 s: our own bound is no reason to close."""
    limits = EngineLimits(
        half_received_bytes_max=len(LARGE), bytes_per_s_max=1000, slow_peer_timeout_s=60
    )
    rig = Bench(limits)
    one, two = begun(rig, "1", "2")
    for at in range(1000, len(LARGE), 900):
        rig.pass_s(1)
        one.connection.resume(rig.now)
        assert is_read(one)
        one.receive(LARGE[at : at + 900])
        assert not is_closed(one)
    assert is_acknowledged(one)
    rig.turns()
    rig.pass_s(200)
    two.connection.resume(rig.now)
    begun(rig, "3")
    rig.pass_s(1)
    assert is_closed(two)
