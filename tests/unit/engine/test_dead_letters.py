"""Dead letters: what was dropped is published once more, and never round in circles."""

import pytest

from penstock.engine import drop_counts as drops
from penstock.engine.limits import DROP_NEWEST, EngineLimits
from penstock.protocol.packets import Puback, Publish, Subscribe, Subscription
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes

TOPIC = "penstock/dead-letters"
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
def test_it_says_why_for_whom_and_from_where(durable: bool) -> None:
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
    assert bench.server.drops.counts[drops.QUEUE_FULL] == 2


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


def test_what_a_session_leaves_behind_is_one_each() -> None:
    bench, watcher = watched()
    bench.subscriber("s", "t", 1).cut()
    bench.publish("t", b"1")
    bench.publish("t", b"2")
    bench.join("s", clean=True)
    assert [payload for payload, _ in letters(bench, watcher)] == [b"1", b"2"]


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
