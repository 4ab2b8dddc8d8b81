"""The router: log, retained messages, sessions."""

import pytest

from penstock.engine.routing.router import SYSTEM_TOPICS_MAX
from penstock.engine.values.drop_reasons import RETAINED_FULL
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.topics import bridge_state_topic
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes


def log(bench: Bench) -> list[bytes]:
    """The payloads in the log."""
    bench.commit()
    kept = bench.store.read(range(1000))
    return [kept[offset].payload for offset in sorted(kept)]


def retained(bench: Bench, line: Line, packet: Subscribe) -> list[Publish]:
    """What a SUBSCRIBE brings at once."""
    line.send(packet)
    bench.commit()
    answer = line.read()
    assert isinstance(answer[0], Suback), "the SUBACK goes first"
    return publishes(answer)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_that_a_stream_wants_go_into_the_log(qos: int) -> None:
    bench = Bench(streams=("plant/#", "yard"))
    bench.publish("plant/1", b"in", qos)
    bench.publish("yard", b"in too", qos)
    bench.publish("other", b"out", qos)
    assert log(bench) == [b"in", b"in too"]


def test_the_default_stream_leaves_system_topics_out() -> None:
    bench = Bench(streams=("#",))
    bench.publish("$other/1", b"out")
    bench.publish("a/$1", b"in")
    assert log(bench) == [b"in"]


def test_without_streams_only_what_a_stored_session_must_get_goes_into_the_log() -> None:
    bench = Bench(streams=())
    bench.subscriber("s", "wanted/+", 1).cut()
    bench.subscriber("zero", "zero", 0).cut()
    brief = bench.join("brief", 4)
    brief.send(Subscribe(1, [Subscription("brief", 1)]))
    bench.publish("wanted/1", b"in", 1)
    bench.publish("wanted/0", b"qos 0", 0)
    bench.publish("zero", b"granted qos 0", 1)
    bench.publish("brief", b"session ends with its connection", 1)
    assert log(bench) == [b"in"]


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_the_smaller_qos_is_delivered(published: int, granted: int) -> None:
    """[MQTT-3.8.4-8]"""
    bench = Bench()
    line = bench.subscriber("s", "t", granted)
    bench.publish("t", b"x", published)
    assert [message.qos for message in publishes(line.read())] == [min(published, granted)]


def test_no_local() -> None:
    """[MQTT-3.8.3-3]"""
    bench = Bench()
    line = bench.join("c", 5)
    line.send(Subscribe(1, [Subscription("t", 1, no_local=True)]), Publish("t", b"own"))
    bench.publish("t", b"other's", 0)
    bench.commit()
    assert [message.payload for message in publishes(line.read())] == [b"other's"]


def test_overlapping_subscriptions_bring_one_message_with_all_identifiers() -> None:
    """[MQTT-3.3.4-4]"""
    bench = Bench()
    line = bench.join("c", 5)
    for number, topic_filter in enumerate(("a/#", "a/+"), 1):
        properties = Properties(subscription_identifiers=[number])
        line.send(Subscribe(number, [Subscription(topic_filter, 1)], properties))
    bench.publish("a/b", b"x")
    (message,) = publishes(line.read())
    assert message.properties is not None
    assert sorted(message.properties.subscription_identifiers or []) == [1, 2]


# -- retained messages ---------------------------------------------------------------------


def test_a_new_subscription_gets_the_retained_message() -> None:
    """[MQTT-3.3.1-9] [MQTT3-3.3.1-6] [MQTT3-3.3.1-8]"""
    bench = Bench()
    bench.publish("a", b"old", 1, retain=True)
    bench.publish("a", b"new", 2, retain=True)
    bench.publish("a", b"not retained", 1)
    line = bench.join("c", 4)
    (message,) = retained(bench, line, Subscribe(1, [Subscription("+", 1)]))
    assert (message.payload, message.qos, message.retain) == (b"new", 1, True)


def test_an_empty_payload_removes_it_and_is_delivered() -> None:
    """[MQTT-3.3.1-6] [MQTT-3.3.1-7]"""
    bench = Bench()
    bench.publish("a", b"x", 1, retain=True)
    watcher = bench.subscriber("w", "a", 0)
    watcher.read()
    bench.publish("a", b"", 1, retain=True)
    assert [message.payload for message in publishes(watcher.read())] == [b""]
    assert retained(bench, bench.join("c", 4), Subscribe(1, [Subscription("#", 1)])) == []
    assert bench.store.recover().retained == []


@pytest.mark.parametrize("as_published", [False, True])
def test_the_retain_flag_of_a_live_message(as_published: bool) -> None:
    """[MQTT-3.3.1-12] [MQTT-3.3.1-13]"""
    bench = Bench()
    line = bench.join("c", 5)
    line.send(Subscribe(1, [Subscription("a", 0, retain_as_published=as_published)]))
    bench.publish("a", b"x", 0, retain=True)
    bench.commit()
    assert [message.retain for message in publishes(line.read())] == [as_published]


@pytest.mark.parametrize(("handling", "first", "second"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_retain_handling(handling: int, first: int, second: int) -> None:
    """[MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11]"""
    bench = Bench()
    bench.publish("a", b"x", 0, retain=True)
    line = bench.join("c", 5)
    for number, expected in ((1, first), (2, second)):
        packet = Subscribe(number, [Subscription("a", 0, retain_handling=handling)])
        assert len(retained(bench, line, packet)) == expected


def test_an_expired_retained_message_is_removed() -> None:
    bench = Bench()
    publisher = bench.join("p", 5)
    properties = Properties(message_expiry_interval=10)
    publisher.send(Publish("a", b"x", 0, True, properties=properties))
    bench.commit()
    bench.pass_s(10)
    assert retained(bench, bench.join("c", 5), Subscribe(1, [Subscription("#", 0)])) == []
    assert bench.store.recover().retained == []


def test_a_restart_keeps_retained_messages() -> None:
    bench = Bench()
    bench.publish("a", b"x", 1, retain=True)
    bench.store.trim_log(2**62, 0, 2**62)
    bench.restart()
    (message,) = retained(bench, bench.join("c", 4), Subscribe(1, [Subscription("a", 1)]))
    assert message.payload == b"x"


def test_a_retained_message_for_a_stored_session_survives_a_crash() -> None:
    """It is put into the log once more, in no stream: its first row may be past retention."""
    bench = Bench()
    bench.publish("a", b"x", 1, retain=True)
    bench.store.trim_log(2**62, 0, 2**62)
    line = bench.join("s", 4, durable=True)
    line.send(Subscribe(1, [Subscription("a", 1)]))
    bench.commit()
    bench.restart()
    again = bench.join("s", 4, durable=True)
    (message,) = publishes(again.read())
    assert (message.payload, message.retain, message.dup) == (b"x", True, True)
    assert [row.internal for row in bench.store.read(range(10)).values()] == [True]


def test_more_topics_than_the_limit_are_not_retained() -> None:
    bench = Bench(EngineLimits(retained_messages_max=1))
    bench.publish("a", b"x", 0, retain=True)
    bench.publish("b", b"x", 0, retain=True)
    messages = retained(bench, bench.join("c", 4), Subscribe(1, [Subscription("#", 0)]))
    assert [message.topic for message in messages] == ["a"]
    assert bench.server.drops.counts[RETAINED_FULL] == 1
    assert len(bench.store.recover().retained) == 1


def test_a_live_message_does_not_overtake_the_retained_one() -> None:
    """[MQTT-4.6.0-6]: SUBSCRIBE waits for its commit, and the retained message with it."""
    bench = Bench()
    bench.publish("a", b"retained", 0, retain=True)
    publisher = bench.join("p", 4)
    line = bench.join("c", 4, durable=True)
    line.send(Subscribe(1, [Subscription("a", 0)]))
    commit = bench.seal()
    publisher.send(Publish("a", b"live"))
    assert line.read() == []
    bench.finish(commit)
    bench.commit()
    assert [message.payload for message in publishes(line.read())] == [b"retained", b"live"]


def test_unsubscribing_stops_delivery() -> None:
    """[MQTT-3.10.4-2]"""
    bench = Bench()
    line = bench.subscriber("s", "a", 1)
    line.send(Unsubscribe(2, ["a"]))
    bench.commit()
    line.read()
    bench.publish("a", b"x")
    assert line.read() == []
    bench.restart()
    assert bench.server.router.trie.match("a").sessions == []


def test_subscriptions_survive_a_crash_with_their_options() -> None:
    bench = Bench()
    line = bench.join("s", durable=True)
    subscription = Subscription("a", 1, no_local=True, retain_as_published=True)
    line.send(Subscribe(1, [subscription], Properties(subscription_identifiers=[9])))
    bench.commit()
    bench.restart()
    line = bench.join("s", durable=True)
    line.send(Publish("a", b"own", 0))
    bench.publish("a", b"x", 1, retain=True)
    (message,) = publishes(line.read())
    assert (message.payload, message.retain) == (b"x", True)
    assert message.properties == Properties(subscription_identifiers=[9])


def test_the_state_of_an_own_bridge_is_the_brokers_alone() -> None:
    """Any client that was permitted to publish there said that the bridge was connected."""
    bench = Bench()
    router = bench.server.router
    own, foreign = bridge_state_topic("own"), bridge_state_topic("foreign")
    router.own_bridge_states.add(own)
    router.publish_bridge_state(own, b"0", bench.now)
    line = bench.join("forges", will=Will(own, b"1"))
    line.send(Publish(own, b"1", 1, packet_id=1), Publish(foreign, b"1", 1, packet_id=2))
    bench.commit()
    codes = [one.reason_code for one in line.read() if isinstance(one, Puback)]
    assert codes == [reasons.NOT_AUTHORIZED, reasons.SUCCESS]
    line.cut()
    bench.commit()
    told = [router.system.get(topic) for topic in (own, foreign)]
    assert [one and one.payload for one in told] == [b"0", b"1"]


def test_bridges_of_others_take_half_of_the_places_for_the_broker_at_most() -> None:
    """What finds none is told to those who are there, and one that is known is still kept."""
    bench = Bench()
    router = bench.server.router
    places = SYSTEM_TOPICS_MAX // 2
    for number in range(places + 1):
        router.publish_bridge_state(f"$SYS/broker/connection/{number}/state", b"1", bench.now)
    assert len(router.system) == places
    last = f"$SYS/broker/connection/{places}/state"
    line = bench.subscriber("watches", last, 0)
    router.publish_bridge_state(last, b"0", bench.now)
    bench.commit()
    assert [message.payload for message in publishes(line.read())] == [b"0"]
    router.publish_bridge_state("$SYS/broker/connection/0/state", b"0", bench.now)
    kept = router.system.get("$SYS/broker/connection/0/state")
    assert kept is not None
    assert kept.payload == b"0"
