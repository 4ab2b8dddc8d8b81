"""SUBSCRIBE and UNSUBSCRIBE: each filter by itself, and a large packet in portions."""

import pytest

from penstock.engine.server.subscribe_handler import FILTER_WORK
from penstock.engine.values.limits import EngineLimits
from penstock.engine.work_budget import (
    WORK_PER_TURN_MAX,
)
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Connect,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from tests.unit.engine.bench import Bench, arrive, publishes

VERSIONS = (3, 4, 5)
PORTION = WORK_PER_TURN_MAX // FILTER_WORK
FILTERS = [f"f/{number}" for number in range(3 * PORTION)]


# -- a packet with thousands of filters ----------------------------------------------------


def test_a_large_subscribe_is_handled_in_portions_and_answered_once() -> None:
    """What stands behind it waits: the answers come in the order of the packets."""
    bench = Bench()
    line = bench.join("c", 4)
    arrive(line, Subscribe(1, [Subscription(one, 1) for one in FILTERS]), Pingreq())
    first = len(line.session.subscriptions)
    assert PORTION - len(FILTERS) // 60 <= first < PORTION  # the bytes of the packet count too
    assert line.connection.is_reading_paused
    bench.server.resume(bench.now)
    assert len(line.session.subscriptions) == first + PORTION
    bench.turns()
    bench.commit()
    suback = next(packet for packet in line.read() if isinstance(packet, Suback))
    assert (suback.packet_id, suback.reason_codes) == (1, [1] * len(FILTERS))
    assert (len(line.session.subscriptions), line.connection.is_reading_paused) == (
        len(FILTERS),
        False,
    )


def test_a_large_unsubscribe_is_handled_in_portions() -> None:
    bench = Bench()
    line = bench.join("c", 5)
    line.send(Subscribe(1, [Subscription(one, 0) for one in FILTERS]))
    bench.commit()
    line.read()
    arrive(line, Unsubscribe(2, FILTERS))
    assert len(FILTERS) - PORTION < len(line.session.subscriptions) < len(FILTERS)
    bench.turns()
    bench.commit()
    assert line.read() == [Unsuback(2, [0] * len(FILTERS))]
    assert line.session.subscriptions == {}


def test_others_have_their_turn_while_a_subscribe_goes_on() -> None:
    bench = Bench()
    greedy, modest = bench.join("a", 4), bench.join("b", 4)
    arrive(greedy, Subscribe(1, [Subscription(one, 1) for one in FILTERS]))
    arrive(modest, Pingreq())
    assert modest.read() == [Pingresp()]


def test_retained_messages_follow_the_answer_of_a_large_subscribe() -> None:
    bench = Bench()
    publisher = bench.join("p", 4)
    publisher.send(*[Publish(one, b"x", retain=True) for one in FILTERS[::100]])
    line = bench.join("c", 4)
    line.send(Subscribe(1, [Subscription(one, 0) for one in FILTERS]))
    bench.commit()
    bench.turns()
    first, *others = line.read()
    assert isinstance(first, Suback)
    assert [one.topic for one in publishes(others)] == FILTERS[::100]


@pytest.mark.parametrize("how", ["cut", "taken over"])
def test_a_client_that_is_gone_leaves_its_large_subscribe_unfinished(how: str) -> None:
    bench = Bench()
    line = bench.join("c", 4, durable=True)
    arrive(line, Subscribe(1, [Subscription(one, 1) for one in FILTERS]))
    if how == "cut":
        line.cut()
    again = bench.join("c", 4, durable=True)
    bench.turns()
    bench.commit()
    assert 0 < len(again.session.subscriptions) < PORTION
    assert not any(isinstance(packet, Suback) for packet in [*line.read(), *again.read()])
    again.send(Pingreq())
    assert again.read() == [Pingresp()]


@pytest.mark.parametrize("version", VERSIONS)
def test_suback_grants_or_refuses_each_filter(version: int) -> None:
    """[MQTT-3.8.4-6] [MQTT-3.9.3-1]"""
    bench = Bench(EngineLimits(subscriptions_per_session_max=3))
    line = bench.join("c", version)
    filters = ["a", "b/#", "c/+", "d", "a", "bad/#/filter", "$share/g"]
    line.send(Subscribe(5, [Subscription(name, n % 3) for n, name in enumerate(filters)]))
    bench.commit()
    (answer,) = line.read()
    assert isinstance(answer, Suback)
    refused = [
        reasons.QUOTA_EXCEEDED,
        reasons.TOPIC_FILTER_INVALID,
        reasons.TOPIC_FILTER_INVALID,
    ]
    if version != 5:
        refused = [reasons.UNSPECIFIED_ERROR] * 3
    assert answer.reason_codes == [0, 1, 2, refused[0], 1, refused[1], refused[2]]
    assert set(line.session.subscriptions) == {"a", "b/#", "c/+"}


def test_unsuback_says_which_subscriptions_existed() -> None:
    """[MQTT-3.11.3-1]"""
    bench = Bench()
    line = bench.join("c", 5)
    line.send(Subscribe(1, [Subscription("a", 0)]), Unsubscribe(2, ["a", "b"]))
    bench.commit()
    answer = line.read()[-1]
    assert answer == Unsuback(2, [0, reasons.NO_SUBSCRIPTION_EXISTED])


@pytest.mark.parametrize("version", [3, 4])
def test_a_foreign_bridge_subscribes_as_its_dialect_means(version: int) -> None:
    """A shared subscription has no No Local [MQTT-3.8.3-4]."""
    line, _ = Bench().connect(Connect("c", version, is_bridge=True))
    line.send(Subscribe(1, [Subscription("t", 1), Subscription("$share/g/t", 1)]))
    asked = [entry.subscription for entry in line.session.subscriptions.values()]
    assert [one.no_local for one in asked] == [True, False]
    assert [one.retain_as_published for one in asked] == [True, True]
