"""How a client's flow is seen: window, queue, inbound, limits reached, drops of its session."""

import pytest

from penstock.engine.values.drop_reasons import NO_PERMISSION, QUEUE_FULL, SLOW_CONSUMER
from penstock.engine.values.limit_usage import INBOUND, QUEUE, WINDOW, WRITE_BUFFER, LimitUsage
from penstock.engine.values.limits import EngineLimits
from penstock.operators.flow import FlowSnapshot, LimitUsageSnapshot, flow_of
from penstock.protocol.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.unit.engine.bench import Bench
from tests.unit.engine.pair import Pair, numbered

LIMITS = EngineLimits(max_inflight=4, max_mqueue_len=10, receive_maximum=3)


@pytest.fixture
def pair() -> Pair:
    return Pair(LIMITS)


def flow(bench: Bench, client_id: str = "s") -> FlowSnapshot:
    seen = flow_of(bench.server, client_id, bench.now)
    assert seen is not None
    return seen


def use(bench: Bench, limit: int, client_id: str = "s") -> LimitUsageSnapshot:
    return flow(bench, client_id).limits[limit]


def send(pair: Pair, count: int, qos: int = 1) -> None:
    """Messages, each in a commit of its own: the publisher keeps to Receive Maximum."""
    for body in numbered(count):
        pair.publish(body, qos=qos)
        pair.bench.commit()


def acknowledge(pair: Pair, count: int) -> None:
    """PUBACK for the oldest messages in the window, each in a commit of its own."""
    for _ in range(count):
        oldest = pair.line.session.transmission.window.entries()[0]
        pair.line.send(Puback(oldest.packet_id))
        pair.bench.commit()


def test_window_and_queue_are_seen(pair: Pair) -> None:
    send(pair, 6)
    seen = flow(pair.bench)
    assert (seen.window_length, seen.window_size) == (4, 4)
    assert (seen.queue_length, seen.queue_length_max) == (2, 10)
    assert (seen.connected, seen.version, seen.subscriptions) == (True, 5, 1)


@pytest.mark.parametrize(("asked", "effective"), [(2, 2), (4, 4), (65535, 4), (None, 4)])
def test_the_window_is_the_smaller_of_both_limits(
    pair: Pair, asked: int | None, effective: int
) -> None:
    """Seed "flow control": the client's Receive Maximum governs what the server sends."""
    pair.rejoin(receive_maximum=asked)
    seen = flow(pair.bench)
    assert seen.window_size == effective
    assert seen.client_receive_maximum == (asked or 65535)
    assert seen.receive_maximum == 3


def test_a_full_window_counts_when_a_message_waits(pair: Pair) -> None:
    send(pair, 4)
    assert use(pair.bench, WINDOW).times == 0
    send(pair, 1)
    pair.bench.pass_s(5)
    at = use(pair.bench, WINDOW)
    assert (at.reached, at.times, at.lasts_s, at.total_s) == (True, 1, 5, 5)


def test_a_reached_limit_lasts_until_nothing_waits_any_more(pair: Pair) -> None:
    send(pair, 6)
    pair.bench.pass_s(2)
    acknowledge(pair, 1)
    pair.bench.pass_s(2)
    assert use(pair.bench, WINDOW).lasts_s == 4, "one message still waits"
    acknowledge(pair, 5)
    pair.bench.pass_s(2)
    at = use(pair.bench, WINDOW)
    assert (at.reached, at.times, at.lasts_s, at.total_s) == (False, 1, 0, 4)
    send(pair, 5)
    assert use(pair.bench, WINDOW).times == 2


def test_a_client_that_left_is_at_no_window(pair: Pair) -> None:
    send(pair, 6)
    pair.bench.pass_s(3)
    pair.line.cut()
    pair.bench.pass_s(3)
    seen = flow(pair.bench)
    at = seen.limits[WINDOW]
    assert (at.reached, at.times, at.total_s) == (False, 1, 3)
    assert (seen.connected, seen.version, seen.receive_maximum) == (False, 0, 0)
    assert seen.queue_length == 2
    pair.rejoin()
    assert use(pair.bench, WINDOW).times == 2


def test_a_full_queue_is_full_until_less_than_half_is_taken(pair: Pair) -> None:
    send(pair, 4 + 9)
    assert use(pair.bench, QUEUE).times == 0
    send(pair, 1)
    assert use(pair.bench, QUEUE).reached
    pair.bench.pass_s(1)
    acknowledge(pair, 2)
    send(pair, 2)
    acknowledge(pair, 4)
    assert flow(pair.bench).queue_length == 6
    pair.bench.pass_s(1)
    assert use(pair.bench, QUEUE).lasts_s == 2
    acknowledge(pair, 2)
    at = use(pair.bench, QUEUE)
    assert (at.reached, at.times, at.total_s) == (False, 1, 2)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_queue_fills_while_the_client_is_away(pair: Pair, qos: int) -> None:
    pair.line.cut()
    send(pair, 10, qos)
    at = use(pair.bench, QUEUE)
    assert (at.reached, at.times) == (True, 1)


def test_a_queue_is_full_by_bytes_when_a_message_does_not_fit() -> None:
    pair = Pair(EngineLimits(max_inflight=1, max_mqueue_len=0, max_mqueue_bytes=1000))
    send(pair, 1)
    pair.publish(b"x" * 400)
    pair.publish(b"x" * 400)
    seen = flow(pair.bench)
    assert (seen.queue_length, seen.limits[QUEUE].times) == (2, 0)
    assert 800 < seen.queue_bytes < seen.queue_bytes_max == 1000
    pair.publish(b"x" * 400)
    assert use(pair.bench, QUEUE).reached


def test_a_queue_without_limit_is_never_full() -> None:
    pair = Pair(EngineLimits(max_inflight=1, max_mqueue_len=0))
    send(pair, 5)
    assert use(pair.bench, QUEUE).times == 0


@pytest.mark.parametrize("qos", [0, 1])
def test_a_client_that_does_not_read(pair: Pair, qos: int) -> None:
    pair.line.connection.link.mark_socket_full()
    send(pair, 2, qos)
    pair.bench.pass_s(7)
    assert use(pair.bench, WRITE_BUFFER).lasts_s == 7
    pair.line.connection.writable(pair.bench.now)
    at = use(pair.bench, WRITE_BUFFER)
    assert (at.reached, at.times, at.total_s) == (False, 1, 7)


def test_the_inbound_quota_in_use_is_seen() -> None:
    bench = Bench(LIMITS)
    line = bench.join("p")
    line.send(Publish("t", b"", 2, packet_id=1), Publish("t", b"", 1, packet_id=2))
    assert flow(bench, "p").inbound_unacknowledged == 2
    bench.commit()
    assert flow(bench, "p").inbound_unacknowledged == 1, "QoS 2 counts until PUBREL [MQTT-3.3.4-7]"
    line.send(Pubrel(1))
    bench.commit()
    assert flow(bench, "p").inbound_unacknowledged == 0


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_client_that_may_send_no_more(version: int) -> None:
    bench = Bench(LIMITS)
    line = bench.join("p", version)
    line.send(*[Publish("t", b"", 1, packet_id=number) for number in (1, 2, 3)])
    assert use(bench, INBOUND, "p").reached
    bench.pass_s(2)
    bench.commit()
    bench.server.resume(bench.now)
    at = use(bench, INBOUND, "p")
    assert (at.reached, at.times, at.total_s) == (False, 1, 2), "without another packet from it"


def test_qos_2_messages_that_are_not_released_keep_the_quota() -> None:
    bench = Bench(LIMITS)
    line = bench.join("p")
    line.send(*[Publish("t", b"", 2, packet_id=number) for number in (1, 2, 3)])
    bench.commit()
    bench.pass_s(40)
    bench.server.resume(bench.now)
    assert use(bench, INBOUND, "p").lasts_s == 40
    line.send(Pubrel(2))
    bench.commit()
    bench.server.resume(bench.now)
    assert not use(bench, INBOUND, "p").reached


def test_drops_are_told_by_session_and_reason(pair: Pair) -> None:
    pair.line.cut()
    other = pair.bench.join("other")
    send(pair, 13)
    other.send(Publish("$SYS/x", b"", 0))
    assert flow(pair.bench).drops == {QUEUE_FULL: 3}
    assert flow(pair.bench, "other").drops == {NO_PERMISSION: 1}
    assert flow(pair.bench, "p").drops == {}


def test_a_new_session_starts_without_drops(pair: Pair) -> None:
    pair.line.connection.link.mark_socket_full()
    send(pair, 1, 0)
    assert flow(pair.bench).drops == {SLOW_CONSUMER: 1}
    pair.bench.join("s", durable=False)
    assert flow(pair.bench).drops == {}
    pair.bench.server.drops.count(QUEUE_FULL, "nobody", "t")
    assert pair.bench.server.drops.counts_by_reason("nobody") == {}


def test_pubrec_does_not_free_a_place_and_pubcomp_does(pair: Pair) -> None:
    """Seed "flow control": the counter falls with PUBCOMP, not with a successful PUBREC."""
    send(pair, 5, 2)
    for number in range(1, 6):
        pair.publisher.send(Pubrel(number))
    pair.bench.commit()
    pair.line.read()
    pair.line.send(Pubrec(1))
    pair.bench.commit()
    assert (flow(pair.bench).window_length, use(pair.bench, WINDOW).reached) == (4, True)
    pair.line.send(Pubcomp(1))
    pair.bench.commit()
    assert (flow(pair.bench).window_length, use(pair.bench, WINDOW).reached) == (4, False)


def test_there_is_no_flow_without_a_session(pair: Pair) -> None:
    assert flow_of(pair.bench.server, "nobody", pair.bench.now) is None


def test_each_limit_is_noted_once_while_it_is_watched() -> None:
    bench = Bench(LIMITS)
    limit_usage = LimitUsage("s", WINDOW)
    for _ in range(3):
        bench.server.context.reach(limit_usage, bench.now)
        limit_usage.mark_left(bench.now.monotonic_s)
    assert limit_usage.times == 3
    assert bench.server.context.newly_reached == [limit_usage]
