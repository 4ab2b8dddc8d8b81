"""``$SYS``: which values, to whom, and when; with a virtual clock."""

import math
import re
from pathlib import Path

import pytest

from penstock.engine.values.drop_reasons import REASONS
from penstock.engine.values.message import Message
from penstock.engine.values.options import ServerOptions
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Puback,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from penstock.services.sys_topics import PREFIX, Load, SysTopics, _memory_values
from tests.unit.engine.bench import Bench, Line, publishes

INTERVAL_S = 10.0


def test_the_memory_resident_now_is_never_more_than_the_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system updates the two at different moments."""

    class Late:
        ru_maxrss = 1

    monkeypatch.setattr("resource.getrusage", lambda _: Late())
    found = dict(_memory_values())
    assert found.get("heap/current", found["heap/maximum"]) == found["heap/maximum"]


class Told:
    """A broker that tells about itself."""

    def __init__(self, bench: Bench, interval_s: float = INTERVAL_S) -> None:
        self.bench = bench
        self.topics = SysTopics(bench.server, bench.store, interval_s, bench.now)
        self.tick()

    def tick(self) -> bool:
        told = self.topics.tick(self.bench.now)
        self.bench.commit()
        return told

    def pass_s(self, seconds: float) -> bool:
        self.bench.pass_s(seconds)
        return self.tick()

    def values(self) -> dict[str, str]:
        return dict(self.topics.values(self.bench.now))


@pytest.fixture
def told() -> Told:
    return Told(Bench())


def received(line: Line) -> dict[str, str]:
    return {message.topic: message.payload.decode() for message in publishes(line.read())}


def subscribe(bench: Bench, line: Line, topic_filter: str, qos: int = 0, **options: bool) -> None:
    line.send(Subscribe(1, [Subscription(topic_filter, qos, **options)]))
    bench.commit()


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_new_subscription_gets_every_value_at_once(told: Told, version: int) -> None:
    line = told.bench.join("s", version)
    subscribe(told.bench, line, "$SYS/#", 2)
    messages = publishes(line.read())
    assert {message.topic for message in messages} == {PREFIX + name for name in told.values()}
    assert {(message.qos, message.retain) for message in messages} == {(0, True)}


def test_only_changed_values_are_sent_again_and_not_before_their_time(told: Told) -> None:
    line = told.bench.join("s")
    subscribe(told.bench, line, "$SYS/broker/+")
    line.read()
    assert not told.pass_s(INTERVAL_S - 0.5)
    assert line.read() == []
    assert told.pass_s(0.5)
    assert received(line) == {"$SYS/broker/uptime": "10 seconds"}


def test_a_change_has_no_retain_flag_but_for_those_who_ask_for_it(told: Told) -> None:
    """[MQTT-3.3.1-12], [MQTT-3.3.1-13]."""
    line, asking = told.bench.join("s"), told.bench.join("r")
    subscribe(told.bench, line, "$SYS/broker/uptime")
    subscribe(told.bench, asking, "$SYS/broker/uptime", retain_as_published=True)
    line.read(), asking.read()
    told.pass_s(INTERVAL_S)
    assert [message.retain for message in publishes(line.read())] == [False]
    assert [message.retain for message in publishes(asking.read())] == [True]


def test_another_interval_counts_at_once(told: Told) -> None:
    line = told.bench.join("s")
    subscribe(told.bench, line, "$SYS/broker/uptime")
    line.read()
    told.topics.set_interval(3.0, told.bench.now)
    assert told.pass_s(0.1)
    assert not told.pass_s(2.8)
    assert told.pass_s(0.3)
    assert received(line) == {"$SYS/broker/uptime": "3 seconds"}


def test_topics_that_are_turned_off_are_gone(told: Told) -> None:
    """Subscribers get an empty value, new ones none; turned on again they are there."""
    line = told.bench.join("s")
    subscribe(told.bench, line, "$SYS/broker/uptime")
    line.read()
    told.topics.set_interval(0.0, told.bench.now)
    told.bench.commit()
    assert received(line) == {"$SYS/broker/uptime": ""}
    assert not told.pass_s(INTERVAL_S)
    late = told.bench.join("late")
    subscribe(told.bench, late, "$SYS/#")
    assert publishes(late.read()) == []
    told.topics.set_interval(INTERVAL_S, told.bench.now)
    told.tick()
    assert received(line) == {"$SYS/broker/uptime": "10 seconds"}


@pytest.mark.parametrize("topic_filter", ["#", "+/broker/uptime", "+/#"])
def test_a_wildcard_in_front_does_not_see_them(told: Told, topic_filter: str) -> None:
    """[MQTT-4.7.2-1], [MQTT3-4.7.2-1]: neither the values there are nor a change."""
    line = told.bench.join("s")
    subscribe(told.bench, line, topic_filter)
    told.pass_s(INTERVAL_S)
    assert publishes(line.read()) == []


@pytest.mark.parametrize("streams", [("#",), ("$SYS/#",)])
def test_nothing_of_them_is_ever_stored(streams: tuple[str, ...]) -> None:
    told = Told(Bench(streams=streams))
    line = told.bench.subscriber("s", "$SYS/#", 2)
    for _ in range(3):
        told.pass_s(INTERVAL_S)
    assert received(line)
    assert told.bench.store.log_extent().end == 0
    assert told.bench.store.recover().retained == []
    line.cut()
    told.pass_s(INTERVAL_S)
    assert told.bench.server.registry.sessions["s"].queue_length == 0
    told.bench.restart()
    assert len(told.bench.server.router.system) == 0


def test_a_client_that_was_away_gets_changes_again(told: Told) -> None:
    told.bench.subscriber("s", "$SYS/broker/uptime", 0).cut()
    told.pass_s(INTERVAL_S)
    line = told.bench.join("s", durable=True)
    assert publishes(line.read()) == []
    told.pass_s(INTERVAL_S)
    assert received(line) == {"$SYS/broker/uptime": "20 seconds"}


def test_clients_may_not_publish_there(told: Told) -> None:
    line = told.bench.join("s")
    subscribe(told.bench, line, "$SYS/#")
    line.read()
    line.send(Publish("$SYS/broker/version", b"forged", 1, packet_id=7))
    told.bench.commit()
    answer = line.read()
    assert [packet for packet in answer if isinstance(packet, Puback)] == [
        Puback(7, reasons.NOT_AUTHORIZED)
    ]
    assert publishes(answer) == []
    assert told.values()["publish/messages/dropped/no_permission"] == "1"


def test_interval_zero_says_nothing() -> None:
    told = Told(Bench(), interval_s=0)
    line = told.bench.join("s")
    subscribe(told.bench, line, "$SYS/#")
    assert not told.pass_s(1000)
    assert publishes(line.read()) == []


def test_clients_are_counted(told: Told) -> None:
    bench = told.bench
    bench.join("brief")
    away = bench.join("away", durable=True, expiry_s=60)
    bench.join("here", durable=True)
    away.cut()
    values = told.values()
    assert values["clients/connected"] == values["clients/active"] == "2"
    assert values["clients/disconnected"] == values["clients/inactive"] == "1"
    assert (values["clients/total"], values["clients/maximum"]) == ("3", "3")
    assert values["clients/expired"] == "0"
    told.pass_s(61)
    assert told.values()["clients/expired"] == "1"
    assert told.values()["clients/total"] == "2"


def test_packets_messages_and_bytes_are_counted(told: Told) -> None:
    bench = told.bench
    line = bench.subscriber("s", "t", 1)
    publisher = bench.join("p", 4)
    before = told.values()
    publisher.send(*[Publish("t", b"12345", 1, packet_id=n) for n in (1, 2, 3)])
    bench.commit()
    line.read(), publisher.read()
    after = told.values()

    def grown(name: str) -> int:
        return int(after[name]) - int(before[name])

    assert grown("messages/received") == 3
    assert grown("messages/sent") == 6  # three PUBLISH, three PUBACK
    assert grown("publish/messages/received") == 3
    assert grown("publish/messages/sent") == 3
    assert grown("publish/bytes/received") == grown("publish/bytes/sent") == 15
    assert grown("bytes/received") == 3 * 12  # v3.1.1: 2 + 2 + 1 + 2 + 5
    assert grown("bytes/sent") == 3 * 13 + 3 * 4  # v5 with its properties' length; PUBACK
    assert grown("commits/count") >= 1
    assert grown("log/latest") == grown("messages/stored") == 3


def test_a_message_that_a_closed_connection_does_not_get_is_not_counted_as_sent(told: Told) -> None:
    bench = told.bench
    line = bench.subscriber("s", "t", 1)
    before = told.values()["messages/sent"]
    bench.server.router.publish(_message(bench), None, bench.now)
    line.cut()
    bench.commit()
    assert told.values()["messages/sent"] == before


def test_drops_are_told_by_reason(told: Told) -> None:
    bench = told.bench
    bench.subscriber("s", "t", 1).cut()
    for _ in range(bench.limits.max_mqueue_len + 2):
        bench.server.router.publish(_message(bench), None, bench.now)
    values = told.values()
    assert values["publish/messages/dropped"] == "2"
    assert values["publish/messages/dropped/queue_full"] == "2"
    by_reason = [name for name in values if name.startswith("publish/messages/dropped/")]
    assert len(by_reason) == len(REASONS)


def test_subscriptions_and_retained_messages_are_counted(told: Told) -> None:
    bench = told.bench
    line = bench.subscriber("s", "a", 1)
    line.send(Subscribe(2, [Subscription("a", 0), Subscription("b", 0)]))
    bench.publish("r", b"kept", retain=True)
    assert told.values()["subscriptions/count"] == "2"
    assert told.values()["retained messages/count"] == "1"
    assert int(told.values()["retained messages/bytes"]) > 384
    assert int(told.values()["sessions/bytes"]) > 4096
    line.send(Unsubscribe(3, ["a", "never"]))
    assert told.values()["subscriptions/count"] == "1"
    bench.restart()
    assert Told(bench).values()["subscriptions/count"] == "2", "as it was stored"
    bench.join("s", durable=False)  # a clean start ends the session
    assert Told(bench).values()["subscriptions/count"] == "0"


def test_a_group_gets_each_change_once_and_only_while_someone_is_there(told: Told) -> None:
    bench = told.bench
    lines = [bench.subscriber(name, "$share/g/$SYS/broker/uptime", 1) for name in ("a", "b")]
    assert told.values()["shared_subscriptions/count"] == "2"
    told.pass_s(INTERVAL_S)
    told.pass_s(INTERVAL_S)
    uptimes = [received(line).get("$SYS/broker/uptime") for line in lines]
    assert sorted(str(uptime) for uptime in uptimes) == ["10 seconds", "20 seconds"]
    for line in lines:
        line.cut()
    told.pass_s(INTERVAL_S)
    sessions = bench.server.registry.sessions
    assert [sessions[name].queue_length for name in ("a", "b")] == [0, 0]


def test_the_promise_of_an_acknowledgement_is_told(told: Told) -> None:
    assert told.values()["acknowledged_when"] == "memory"
    assert told.values()["acknowledged_in_memory"] == ""
    told.bench.server.options = ServerOptions(acknowledge_in_memory=("a/#", "+/b"))
    assert told.values()["acknowledged_in_memory"] == "a/#\n+/b"


def test_a_will_is_a_message_as_any_other(told: Told) -> None:
    line = told.bench.join("s")
    subscribe(told.bench, line, "w")
    told.bench.join("dies", will=Will("w", b"gone")).cut()
    told.bench.commit()
    assert told.values()["publish/messages/sent"] == "1"


def test_load_is_an_exponential_average_of_the_rate_a_minute() -> None:
    load = Load(100)
    load.update(110, 10.0)
    for average, minutes in zip(load.averages, (1, 5, 15), strict=True):
        assert average == pytest.approx(60.0 * (1 - math.exp(-10 / (60 * minutes))))
    for turn in range(10_000):
        load.update(120 + 10 * turn, 10.0)
    assert load.averages == pytest.approx([60.0, 60.0, 60.0])


def test_load_is_told(told: Told) -> None:
    told.bench.join("a")
    told.pass_s(INTERVAL_S)
    values = told.values()
    assert float(values["load/connections/1min"]) == pytest.approx(0.92, abs=0.01)
    assert float(values["load/connections/15min"]) == pytest.approx(0.07, abs=0.01)
    assert float(values["load/messages/received/1min"]) > 0


def test_every_topic_is_documented_and_no_other(told: Told) -> None:
    text = Path("docs/sys_topics.md").read_text()
    documented: set[str] = set()
    for name in re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE):
        if name.endswith("/+"):
            documented |= {name[:-1] + span for span in ("1min", "5min", "15min")}
        elif "/+/" not in name and not name.startswith(("logins/", "sockets/refused")):
            # of readers and tables: test_reader_leases; of logins and sockets: tests/network
            documented.add(name)
    assert documented == set(told.values())


def _message(bench: Bench) -> Message:
    return Message("t", b"x", 1, False, "p", bench.now.wall_us)
