"""Dead letters: what was dropped is published once more, and never round in circles."""

import pytest

from penstock.engine.routing import dead_letters
from penstock.engine.values import drop_reasons
from penstock.engine.values.limits import DROP_NEWEST, EngineLimits
from penstock.engine.values.memory_costs import (
    DEAD_LETTERS_BYTES_MAX,
    DEAD_LETTERS_OF_TICK_BYTES_MAX,
)
from penstock.engine.values.message import Message
from penstock.protocol.packets import Puback, Publish, Pubrec, Subscribe, Subscription
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes

TOPIC = "penstock/dead-letters"
MEGABYTE = 1_000_000
LIMITS = EngineLimits(max_mqueue_len=2, max_inflight=1)


def watched(limits: EngineLimits = LIMITS) -> tuple[Bench, Line]:
    bench = Bench(limits, dead_letters=TOPIC)
    line = bench.join("watcher")
    line.send(Subscribe(1, [Subscription(TOPIC, 0)]))
    bench.commit()
    line.read()
    return bench, line


def letters(bench: Bench, line: Line) -> list[tuple[bytes, dict[str, str]]]:
    """What comes at the next tick."""
    bench.pass_s(0.25)
    bench.commit()
    found: list[tuple[bytes, dict[str, str]]] = []
    for message in publishes(line.read()):
        assert message.topic == TOPIC
        assert message.properties is not None
        found.append((message.payload, dict(message.properties.user_properties or [])))
    return found


@pytest.mark.parametrize("durable", [True, False])
def test_a_dead_letter_says_why_for_whom_and_from_where(durable: bool) -> None:
    """Whether the body is in memory or has to be read from the log."""
    bench, watcher = watched()
    if durable:
        bench.subscriber("s", "t/+", 1).cut()
    else:
        line = bench.join("s", 4)
        line.send(Subscribe(1, [Subscription("t/+", 1)]))
        bench.commit()
        bench.publish("t/first", b"in flight")
    for number in range(4):
        bench.publish(f"t/{number}", b"%d" % number)
    told = [
        {
            "penstock-dropped-because": "queue_full",
            "penstock-dropped-for": "s",
            "penstock-topic": f"t/{number}",
        }
        for number in range(2)
    ]
    assert letters(bench, watcher) == [(b"0", told[0]), (b"1", told[1])]
    assert letters(bench, watcher) == []


def test_qos_0_makes_none_unless_asked_for() -> None:
    bench, watcher = watched()
    bench.subscriber("s", "t", 1).cut()
    for number in range(4):
        bench.publish("t", b"%d" % number, qos=0)
    assert letters(bench, watcher) == []
    assert bench.server.drops.counts[drop_reasons.QUEUE_FULL] == 2


def test_an_expired_message_is_a_dead_letter_that_does_not_expire() -> None:
    bench, watcher = watched()
    bench.subscriber("s", "t", 1).cut()
    publisher = bench.join("p")
    properties = Properties(message_expiry_interval=5, content_type="text")
    publisher.send(Publish("t", b"late", 1, packet_id=1, properties=properties))
    bench.commit()
    bench.pass_s(10)
    bench.join("s", durable=True)
    bench.commit()
    bench.pass_s(0.25)
    bench.commit()
    (message,) = publishes(watcher.read())
    assert message.properties is not None
    assert message.properties.message_expiry_interval is None
    assert message.properties.content_type == "text"


def test_a_refused_message_is_one() -> None:
    bench, watcher = watched()
    line = bench.subscriber("s", "t", 1)
    bench.publish("t", b"x")
    (message,) = publishes(line.read())
    line.send(Puback(message.packet_id, 0x99))
    bench.commit()
    ((payload, said),) = letters(bench, watcher)
    assert (payload, said["penstock-dropped-because"]) == (b"x", "rejected_by_the_receiver")


def test_each_message_that_a_session_leaves_behind_is_a_dead_letter() -> None:
    bench, watcher = watched()
    bench.subscriber("s", "t", 1).cut()
    bench.publish("t", b"1")
    bench.publish("t", b"2")
    bench.join("s", clean=True)
    assert [payload for payload, _ in letters(bench, watcher)] == [b"1", b"2"]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("qos", [1, 2])
def test_each_message_in_flight_when_a_session_ends_is_a_dead_letter(
    qos: int, durable: bool
) -> None:
    """Not what its client took over already: PUBREC."""
    bench, watcher = watched(EngineLimits(max_inflight=3))
    line = bench.join("s", durable=durable)
    line.send(Subscribe(1, [Subscription("t", qos)]))
    bench.commit()
    for number in range(5):
        bench.publish("t", b"%d" % number, qos)
    _, *messages = line.read()
    taken = messages[0]
    assert isinstance(taken, Publish)
    line.send(Puback(taken.packet_id) if qos == 1 else Pubrec(taken.packet_id))
    bench.commit()
    line.cut()
    if durable:
        bench.join("s", clean=True)
    assert [payload for payload, _ in letters(bench, watcher)] == [b"1", b"2", b"3", b"4"]
    assert bench.server.drops.counts[drop_reasons.SESSION_ENDED] == 4


@pytest.mark.parametrize("with_qos0", [True, False])
def test_a_session_leaves_no_more_than_can_wait_and_the_others_are_counted(
    with_qos0: bool,
) -> None:
    count = dead_letters.PENDING_MAX
    bench = Bench(EngineLimits(max_mqueue_len=0), streams=(), dead_letters=TOPIC)
    bench.server.drops.drop_handler = None
    letter_box = dead_letters.DeadLetters(
        TOPIC, with_qos0, bench.server.router, bench.server.context, bench.server.drops
    )
    line = bench.join("s", durable=True)
    line.send(Subscribe(1, [Subscription("t", 1)]))
    bench.commit()
    line.cut()
    publisher = bench.join("p", 4)
    publisher.send(*[Publish("t", b"x", 1, packet_id=1) for _ in range(count)])
    publisher.send(Publish("t", b"x", 0), Publish("t", b"x", 1, packet_id=1))
    bench.commit()
    session = bench.server.registry.sessions["s"]
    bench.server.registry.end(session, bench.now)
    assert bench.server.drops.counts[drop_reasons.SESSION_ENDED] == count + 2
    assert bench.server.drops.counts[drop_reasons.DEAD_LETTER_LOST] == (2 if with_qos0 else 1)
    letter_box.tick(bench.now)


def test_a_message_that_expires_while_it_is_handed_on_is_a_dead_letter() -> None:
    bench, watcher = watched()
    first = bench.join("a")
    first.send(Subscribe(1, [Subscription("$share/g/t", 1)]))
    bench.commit()
    publisher = bench.join("p")
    properties = Properties(message_expiry_interval=5)
    publisher.send(Publish("t", b"late", 1, packet_id=1, properties=properties))
    bench.commit()
    bench.subscriber("b", "$share/g/t", 1)
    bench.pass_s(6)
    first.cut()
    ((payload, said),) = letters(bench, watcher)
    assert (payload, said["penstock-dropped-because"]) == (b"late", "expired")
    assert said["penstock-dropped-for"] == "$share/g/t"


@pytest.mark.parametrize("policy", ["drop_oldest", DROP_NEWEST])
def test_full_queues_that_get_dead_letters_too_make_no_loop(policy: str) -> None:
    """Two sessions away that subscribe to everything, both full."""
    limits = EngineLimits(max_mqueue_len=2, max_inflight=1, mqueue_overflow=policy)
    bench, watcher = watched(limits)
    for client_id in ("a", "b"):
        bench.subscriber(client_id, "#", 1).cut()
    for number in range(3):
        bench.publish("t", b"%d" % number)
    assert len(letters(bench, watcher)) == 2
    for _ in range(5):
        assert letters(bench, watcher) == []


def test_bodies_that_wait_have_a_bound_and_are_published_a_few_at_a_time() -> None:
    """Ten thousand of the largest packets would be 10 GiB."""
    limits = EngineLimits(max_inflight=1, max_mqueue_len=1)
    bench = Bench(limits, streams=(), dead_letters="lost")
    greedy = bench.join("greedy")
    greedy.send(Subscribe(1, [Subscription("t", 1)]))
    reader = bench.subscriber("reader", "lost", 0)
    dropped = 2 + DEAD_LETTERS_BYTES_MAX // MEGABYTE
    for _ in range(2 + dropped):
        message = Message("t", bytes(MEGABYTE), 1, False, "p", bench.now.wall_us)
        bench.server.router.publish(message, None, bench.now)
    bench.commit()
    assert bench.server.drops.counts[drop_reasons.QUEUE_FULL] == dropped
    lost = bench.server.drops.counts[drop_reasons.DEAD_LETTER_LOST]
    assert lost == 2
    came: list[int] = []
    for _ in range(10):
        bench.pass_s(0.25)
        bench.commit()
        came.append(len(bench.take_ready(reader)) // MEGABYTE)
    assert max(came) <= DEAD_LETTERS_OF_TICK_BYTES_MAX // MEGABYTE
    assert sum(came) == dropped - lost
