"""``$penstock/flow``: to whom, when, and under which name."""

import json
from collections import defaultdict

import pytest

from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.topics import is_topic_name
from penstock.engine.wire.link import Link
from penstock.operators.flow import flow_of
from penstock.protocol import reasons
from penstock.protocol.packets import Puback, Publish, Subscribe, Subscription, Unsubscribe
from penstock.services.flow_topics import SESSIONS_A_TICK_MAX, FlowTopics, as_json, flow_topic
from tests.unit.engine.bench import Bench, Line, publishes

INTERVAL_S = 10.0


class Telling:
    """A broker that tells the flow of its clients."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self.bench = Bench(EngineLimits(connect_packet_size_bytes_max=70_000))
        self.buffered: defaultdict[Link, int] = defaultdict(int)
        self.topics = FlowTopics(self.bench.server, interval_s, self.buffered.__getitem__)

    def tick(self, seconds: float = 0.0) -> bool:
        self.bench.pass_s(seconds)
        told = self.topics.tick(self.bench.now)
        self.bench.commit()
        return told

    def watcher(self, *topic_filters: str, qos: int = 0) -> Line:
        line = self.bench.join("watcher")
        line.send(Subscribe(1, [Subscription(each, qos) for each in topic_filters]))
        self.bench.commit()
        line.read()
        return line


@pytest.fixture
def telling() -> Telling:
    return Telling()


def topics(line: Line) -> list[str]:
    return [message.topic for message in publishes(line.read())]


def test_nothing_is_said_while_nobody_asks(telling: Telling) -> None:
    telling.bench.join("a")
    telling.watcher("#", "$SYS/#", "+/flow/+", "$penstock/other/+")
    assert not telling.tick()
    assert not telling.tick(INTERVAL_S)


@pytest.mark.parametrize("topic_filter", ["$penstock/flow/#", "$penstock/#", "$penstock/+/#"])
def test_a_watcher_gets_every_session_and_then_the_summary(
    telling: Telling, topic_filter: str
) -> None:
    telling.bench.join("a")
    telling.bench.subscriber("away", "t", 1).cut()
    line = telling.watcher(topic_filter)
    assert telling.tick()
    messages = publishes(line.read())
    assert [message.topic for message in messages] == [
        "$penstock/flow/a",
        "$penstock/flow/away",
        "$penstock/flow/watcher",
        "$penstock/flow",
    ]
    assert {(message.qos, message.retain) for message in messages} == {(0, False)}
    assert json.loads(messages[1].payload)["connected"] is False
    assert json.loads(messages[3].payload) == {"sessions": 3, "at_limit": 0}


def test_a_round_comes_every_interval(telling: Telling) -> None:
    line = telling.watcher("$penstock/flow/watcher")
    telling.tick()
    assert topics(line) == ["$penstock/flow/watcher"]
    assert not telling.tick(INTERVAL_S - 1)
    assert telling.tick(1)
    assert topics(line) == ["$penstock/flow/watcher"]


def test_one_client_may_be_asked_for(telling: Telling) -> None:
    for name in ("a", "b"):
        telling.bench.join(name)
    line = telling.watcher("$penstock/flow/b")
    telling.tick()
    assert topics(line) == ["$penstock/flow/b"]


def test_the_last_one_who_asked_ends_it_and_the_next_begins_anew(telling: Telling) -> None:
    line = telling.watcher("$penstock/flow/+")
    telling.tick()
    line.send(Unsubscribe(2, ["$penstock/flow/+"]))
    telling.bench.commit()
    assert not telling.tick(INTERVAL_S)
    line = telling.watcher("$penstock/flow/+")
    assert telling.tick()
    assert topics(line) == ["$penstock/flow/watcher"]


def test_many_sessions_are_told_in_bounded_steps(telling: Telling) -> None:
    for number in range(SESSIONS_A_TICK_MAX):
        telling.bench.join(f"c{number}")
    line = telling.watcher("$penstock/flow/#")
    telling.tick()
    assert len(topics(line)) == SESSIONS_A_TICK_MAX
    telling.tick(0.25)
    assert topics(line) == ["$penstock/flow/watcher", "$penstock/flow"]


def test_a_session_that_ended_within_a_round_is_left_out(telling: Telling) -> None:
    for number in range(SESSIONS_A_TICK_MAX):
        telling.bench.join(f"c{number}")
    line = telling.watcher("$penstock/flow/+")
    late = telling.bench.join("late")
    telling.tick()
    late.cut()
    line.read()
    telling.tick(0.25)
    assert topics(line) == ["$penstock/flow/watcher"]


def test_nothing_of_it_is_stored(telling: Telling) -> None:
    line = telling.bench.subscriber("s", "$penstock/#", 2)
    telling.tick()
    assert publishes(line.read())
    line.cut()
    telling.tick(INTERVAL_S)
    assert telling.bench.server.registry.sessions["s"].queue_length == 0
    assert telling.bench.store.log_extent().end == 0


def test_clients_may_not_publish_there(telling: Telling) -> None:
    line = telling.watcher("$penstock/#")
    line.send(Publish("$penstock/flow/watcher", b"forged", 1, packet_id=7))
    telling.bench.commit()
    assert line.read() == [Puback(7, reasons.NOT_AUTHORIZED)]


def test_interval_zero_says_nothing() -> None:
    telling = Telling(interval_s=0)
    telling.watcher("$penstock/flow/+")
    assert not telling.tick(100)


@pytest.mark.parametrize(
    ("client_id", "level"),
    [
        ("plain-1_ä", "plain-1_ä"),
        ("a/b", "a%2Fb"),
        ("+", "%2B"),
        ("#", "%23"),
        ("%2F", "%252F"),
        ("$", "$"),
    ],
)
def test_a_client_identifier_is_one_level(client_id: str, level: str) -> None:
    topic = flow_topic(client_id)
    assert topic == f"$penstock/flow/{level}"
    assert is_topic_name(topic, 3)


def test_a_client_identifier_that_fills_the_topic_is_left_out(telling: Telling) -> None:
    telling.bench.join("x" * 65_530)
    line = telling.watcher("$penstock/flow/+")
    telling.tick()
    assert topics(line) == ["$penstock/flow/watcher"]


def test_the_json_tells_it_all(telling: Telling) -> None:
    telling.bench.join("a/b", receive_maximum=7)
    telling.bench.server.drops.count(0, "a/b", "t")
    flow = flow_of(telling.bench.server, "a/b", telling.bench.now)
    assert flow is not None
    at_no_limit = {"reached": False, "times": 0, "total_s": 0.0, "lasts_s": 0.0}
    assert json.loads(as_json(flow, 0)) == {
        "client_id": "a/b",
        "connected": True,
        "version": 5,
        "subscriptions": 0,
        "window": {"used": 0, "size": 7, "client_receive_maximum": 7},
        "queue": {"messages": 0, "messages_max": 1000, "bytes": 0, "bytes_max": 0},
        "inbound": {"unacknowledged": 0, "receive_maximum": 1000, "awaiting_release": 0},
        "unwritten_bytes": 0,
        "drops": {"queue_full": 1},
        "limits": dict.fromkeys(("window", "write_buffer", "queue", "inbound"), at_no_limit),
    }


def test_each_byte_that_the_wire_holds_counts_as_unwritten(telling: Telling) -> None:
    slow = telling.bench.join("slow")
    line = telling.watcher("$penstock/flow/slow")
    telling.buffered[slow.connection.link] = 1_000_000
    slow.connection.link.send_now(b"x" * 500)
    telling.topics.tick(telling.bench.now)
    telling.bench.write_ready()
    (told,) = publishes(line.read())
    assert json.loads(told.payload)["unwritten_bytes"] == 1_000_500
