"""Retained messages: found as matching is defined, and delivered in portions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.session.retained import PORTION, RetainedMessages
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Message
from penstock.engine.values.topics import topic_matches
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Puback,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from tests.unit.engine.bench import Bench, Line, publishes

TOPICS = ["a", "a/b", "a/b/c", "/", "a/", "b", "b/a", "$x", "$x/a", "a/$x", "$x/a/b"]
FILTERS = ["#", "+", "+/+", "a/#", "a/+", "a/b", "a", "+/b/#", "$x/#", "$x/+", "/+", "+/", "+/#"]


@given(st.lists(st.tuples(st.sampled_from(TOPICS), st.booleans()), max_size=30))
def test_against_brute_force(changes: list[tuple[str, bool]]) -> None:
    retained, kept = RetainedMessages(100), dict[str, bytes]()
    for number, (topic, keeps) in enumerate(changes):
        if keeps:
            kept[topic] = str(number).encode()
            assert retained.put(Message(topic, kept[topic], retain=True))
        else:
            assert retained.remove(topic) == (kept.pop(topic, None) is not None)
        assert len(retained) == len(kept)
    for topic_filter in FILTERS:
        matched = retained.match(topic_filter)
        expected = {topic for topic in kept if topic_matches(topic_filter, topic)}
        assert {message.topic for message in matched} == expected
        assert retained.may_match(topic_filter) or not expected
        assert len(matched) == len(expected)
        assert all(kept[message.topic] == message.payload for message in matched)
    for topic in TOPICS:
        message = retained.get(topic)
        assert (message and message.payload) == kept.get(topic)


def test_a_filter_whose_first_level_has_no_topic_matches_none() -> None:
    retained = RetainedMessages(10)
    retained.put(Message("a/b", b"1"))
    assert not retained.may_match("b/#")
    assert not retained.may_match("/a")
    retained.remove("a/b")
    assert not retained.may_match("a/b")


def test_the_limit_refuses_new_topics_only() -> None:
    retained = RetainedMessages(2)
    assert retained.put(Message("a", b"1"))
    assert retained.put(Message("b", b"1"))
    assert not retained.put(Message("c", b"1"))
    assert retained.put(Message("a", b"2"))
    assert retained.remove("b")
    assert retained.put(Message("c", b"1"))


def test_unused_branches_go() -> None:
    retained = RetainedMessages(10)
    retained.put(Message("a/b/c/d", b"1"))
    retained.put(Message("a/b", b"1"))
    retained.remove("a/b/c/d")
    assert retained.get("a/b") is not None
    retained.remove("a/b")
    assert retained._root.children == {}


# -- for a new subscription: all of them, in bounded memory, in portions ---------------------------


WALKED_TOPICS = [
    "a",
    "a/b",
    "a/b/c",
    "/",
    "a/",
    "b",
    "b/a",
    "$x",
    "$x/a",
    "a/$x",
    "c/d/e/f",
    "c/d/g",
]


WALKED_FILTERS = ["#", "+", "+/+", "a/#", "a/+", "a/b", "+/b/#", "$x/#", "+/#", "c/+/+/f", "c/#"]


def bench_with(
    count: int, qos: int = 1, limits: EngineLimits | None = None, size: int = 10
) -> Bench:
    """``count`` retained messages, as after a recovery."""
    bench = Bench(limits)
    for number in range(count):
        topic = f"site/{number % 7}/{number}"
        bench.server.router.retained.put(Message(topic, b"%d" % number + bytes(size), qos, True))
    return bench


def subscribe(line: Line, topic_filter: str = "#", qos: int = 1) -> None:
    line.connection.receive(
        encode(Subscribe(1, [Subscription(topic_filter, qos)]), line.version), line.bench.now
    )


def take_all(line: Line, seen: dict[str, int]) -> int:
    """Read and acknowledge until nothing more comes; the most that was on its way at once."""
    most = 0
    while True:
        line.bench.commit()
        messages = publishes(line.read())
        if not messages:
            return most
        most = max(most, len(messages))
        for message in messages:
            assert message.retain
            seen[message.topic] = seen.get(message.topic, 0) + 1
            if message.qos:
                line.receive(encode(Puback(message.packet_id), line.version))


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("qos", [0, 1])
def test_more_than_the_queue_holds_arrives_whole(qos: int, durable: bool) -> None:
    bench = bench_with(5000, qos, EngineLimits(max_mqueue_len=100))
    line = bench.join("c", 4, durable=durable)
    subscribe(line, qos=qos)
    seen: dict[str, int] = {}
    take_all(line, seen)
    assert len(seen) == 5000
    assert set(seen.values()) == {1}
    assert sum(bench.server.drops.counts) == 0


def test_the_suback_goes_first() -> None:
    """[MQTT-3.3.1-9]"""
    bench = bench_with(10, 0)
    line = bench.join("c", 4)
    subscribe(line)
    bench.commit()
    assert line.read()[0] == Suback(1, [1])


def test_one_turn_visits_a_bounded_part() -> None:
    bench = bench_with(10 * PORTION, 0)
    line = bench.join("c", 4)
    subscribe(line, qos=0)
    assert 0 < line.connection.link.deferred_qos0 <= PORTION
    bench.server.resume(bench.now)
    assert PORTION < line.connection.link.deferred_qos0 <= 2 * PORTION


def test_a_client_that_does_not_read_costs_no_more_than_its_buffer() -> None:
    """And gets everything when it does: nothing is dropped as for a slow consumer."""
    limit = 50_000
    bench = bench_with(1000, 0, EngineLimits(write_buffer_bytes_max=limit), size=1000)
    line = bench.join("c", 4)
    link = line.connection.link
    link.mark_socket_full()
    for _ in range(400):
        subscribe(line, qos=0)
    received = 0
    for _ in range(10):
        bench.commit()
        received += len(bench.take_ready(line))
        assert link.pending_bytes + link.congested_bytes < limit + 2000
    assert received < 3000
    line.connection.writable(bench.now)
    seen: dict[str, int] = {}
    take_all(line, seen)
    assert len(seen) == 1000
    assert sum(bench.server.drops.counts) == 0


def test_a_value_that_changes_meanwhile_is_not_followed_by_an_older_one() -> None:
    bench = bench_with(1000, 1, EngineLimits(max_inflight=10))
    line = bench.join("c", 4)
    subscribe(line)
    bench.commit()
    first = publishes(line.read())
    bench.publish("site/2/996", b"new", retain=True)
    bench.publish("site/1/995", b"", retain=True)
    seen: dict[str, list[bytes]] = {}
    while True:
        for message in first:
            seen.setdefault(message.topic, []).append(message.payload)
            line.send(Puback(message.packet_id))
        bench.commit()
        first = publishes(line.read())
        if not first:
            break
    assert seen["site/2/996"] == [b"new"]
    assert seen["site/1/995"] == [b""], "the removal, as it was published"
    assert len(seen) == 1000


def test_the_rest_waits_for_the_client_to_come_back() -> None:
    bench = bench_with(1000, 1, EngineLimits(max_mqueue_len=100))
    line = bench.join("c", 4, durable=True)
    subscribe(line)
    bench.commit()
    line.cut()
    bench.commit()
    line = bench.join("c", 4, durable=True)
    seen: dict[str, int] = {}
    take_all(line, seen)
    assert len(seen) == 1000


def test_a_set_that_fits_into_half_the_queue_survives_a_crash() -> None:
    bench = bench_with(400, 1)
    line = bench.join("c", 4, durable=True)
    subscribe(line)
    bench.commit()
    bench.restart()
    line = bench.join("c", 4, durable=True)
    seen: dict[str, int] = {}
    take_all(line, seen)
    assert len(seen) == 400


def test_unsubscribe_ends_it() -> None:
    """[MQTT-3.10.4-2]"""
    bench = bench_with(1000, 1)
    line = bench.join("c", 4)
    subscribe(line)
    line.send(Unsubscribe(2, ["#"]))
    seen: dict[str, int] = {}
    take_all(line, seen)
    assert 0 < len(seen) < 100


@given(
    st.lists(st.sampled_from(WALKED_TOPICS), max_size=12),
    st.lists(st.tuples(st.sampled_from(WALKED_TOPICS), st.booleans()), max_size=12),
    st.sampled_from(WALKED_FILTERS),
    st.integers(1, 5),
)
def test_a_walk_sees_what_was_there_and_still_is(
    before: list[str], changes: list[tuple[str, bool]], topic_filter: str, steps: int
) -> None:
    """Whatever comes and goes while it is under way, each message once and none that is newer."""
    retained = RetainedMessages(100)
    for topic in before:
        retained.put(Message(topic, b"old", retain=True))
    stays = {topic for topic in before if topic_matches(topic_filter, topic)}
    walk = retained.walk(topic_filter)
    seen: list[str] = []
    pending = list(changes)
    while not walk.is_finished:
        for _ in range(steps):
            if not walk.is_finished:
                message = walk.step()
                if message is not None:
                    assert message.payload == b"old"
                    seen.append(message.topic)
        if pending:
            topic, keeps = pending.pop()
            if topic not in seen:
                stays.discard(topic)
            if keeps:
                retained.put(Message(topic, b"new", retain=True))
            else:
                retained.remove(topic)
    assert len(seen) == len(set(seen))
    assert stays <= set(seen)
    assert {message.topic for message in retained.match("#")} == {
        topic for topic in WALKED_TOPICS if retained.get(topic) and not topic.startswith("$")
    }
