"""Permissions: what a client may publish, subscribe to and receive, whenever it is asked."""

from typing import Final

import pytest

from penstock.auth.acl import AccessList, Rule
from penstock.engine.values import drop_reasons
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from tests.unit.engine.bench import Bench, ByName, Line, publishes

VERSIONS: Final = (3, 4, 5)


# -- permissions -----------------------------------------------------------------------------


def rules(*lines: tuple[str, str]) -> AccessList:
    return AccessList(anonymous=[Rule(access, topic_filter) for access, topic_filter in lines])


def ruled(*lines: tuple[str, str]) -> Bench:
    return Bench(authorize=rules(*lines))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publish_that_is_not_allowed(version: int, qos: int) -> None:
    """[MQTT3-3.3.5-2]: refused in MQTT 5, acknowledged and dropped before; counted always."""
    bench = ruled(("write", "mine/#"))
    line = bench.join("c", version)
    line.send(Publish("other", b"x", qos, packet_id=7 if qos else 0))
    bench.commit()
    code = reasons.NOT_AUTHORIZED if version == 5 else 0
    answers: dict[int, list[Packet]] = {0: [], 1: [Puback(7, code)], 2: [Pubrec(7, code)]}
    assert line.read() == answers[qos]
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1
    assert bench.server.context.batch.next_offset == 0
    line.send(Publish("mine/x", b"x", qos, packet_id=8 if qos else 0))
    if qos == 2 and version == 3:
        line.send(Pubrel(8))
    assert bench.server.context.batch.next_offset == 1


@pytest.mark.parametrize("version", [3, 4])
def test_the_flow_of_a_dropped_qos_2_message_is_finished(version: int) -> None:
    bench = ruled()
    line = bench.join("c", version)
    line.send(Publish("other", b"x", 2, packet_id=7), Pubrel(7))
    bench.commit()
    assert line.read() == [Pubrec(7), Pubcomp(7)]


def test_a_message_received_before_is_not_refused_when_it_comes_again() -> None:
    bench = ruled(("write", "t"))
    line = bench.join("c", 5)
    line.send(Publish("t", b"x", 2, packet_id=7))
    bench.server.set_authorize(rules(), set(), bench.now)
    line.send(Publish("t", b"x", 2, dup=True, packet_id=7))
    bench.commit()
    assert line.read() == [Pubrec(7), Pubrec(7)]
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 0


@pytest.mark.parametrize(
    ("version", "code"), [(3, 1), (4, reasons.UNSPECIFIED_ERROR), (5, reasons.NOT_AUTHORIZED)]
)
def test_a_subscription_that_is_not_allowed(version: int, code: int) -> None:
    """v3.1 §3.8: a server that does not authorize a SUBSCRIBE "has no way of informing that
    client" and "must therefore make a positive acknowledgement". [MQTT3-3.8.4-5]"""
    bench = ruled(("read", "mine/#"))
    line = bench.join("c", version)
    line.send(Subscribe(1, [Subscription("mine/+", 1), Subscription("#", 1)]))
    bench.commit()
    assert line.read() == [Suback(1, [1, code])]
    assert list(line.session.subscriptions) == ["mine/+"]


def test_a_deny_within_a_subscription_is_not_delivered() -> None:
    bench = ruled(("read", "#"), ("deny", "secret"))
    line = bench.join("c", 5)
    line.send(Subscribe(1, [Subscription("#", 1)]))
    publisher = Bench.join(bench, "p", 5)
    bench.server.registry.sessions["p"].transmission.outlet = None
    for topic, qos in (("open", 0), ("secret", 0), ("secret", 1), ("open", 1)):
        publisher.send(Publish(topic, b"", qos, packet_id=qos))
    bench.commit()
    assert [message.topic for message in publishes(line.read())] == ["open", "open"]
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 2


def test_permissions_are_asked_again_when_a_message_leaves_the_queue() -> None:
    bench = ruled(("readwrite", "#"))
    line = bench.subscriber("c", "#", 1)
    line.cut()
    for topic in ("a", "b", "c"):
        bench.publish(topic, b"")
    bench.server.set_authorize(rules(("read", "b")), set(), bench.now)
    bench.authorize = rules(("read", "b"))
    line = bench.join("c", 5, durable=True)
    bench.commit()
    assert [message.topic for message in publishes(line.read())] == ["b"]
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 2


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_in_flight_is_not_sent_again_without_permission(qos: int) -> None:
    bench = ruled(("readwrite", "#"))
    line = bench.subscriber("c", "#", qos)
    publisher = bench.join("p", 5)
    publisher.send(Publish("t", b"", qos, packet_id=1))
    bench.commit()
    assert len(publishes(line.read())) == 1
    line.cut()
    bench.server.set_authorize(rules(), set(), bench.now)
    line = bench.join("c", 5, durable=True)
    bench.commit()
    released = [packet for packet in line.read() if not isinstance(packet, Connack)]
    assert released == ([Pubrel(1)] if qos == 2 else []), "at QoS 2 the client may have it"
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1


def test_a_message_for_an_offline_client_takes_no_room_without_permission() -> None:
    bench = ruled(("readwrite", "#"))
    bench.subscriber("c", "#", 1).cut()
    bench.join("p", 5)
    bench.server.set_authorize(rules(("write", "#")), set(), bench.now)
    bench.publish("t", b"")
    assert bench.server.registry.sessions["c"].queue_length == 0


def test_permissions_are_kept_for_recovered_sessions_until_their_client_returns() -> None:
    """Who they belong to is known then; nothing leaves before."""
    bench = ruled(("readwrite", "#"))
    bench.subscriber("c", "#", 1).cut()
    bench.authorize = rules(("write", "#"))
    bench.restart()
    bench.publish("t", b"")
    assert bench.server.registry.sessions["c"].queue_length == 1
    line = bench.join("c", 5, durable=True)
    bench.commit()
    assert publishes(line.read()) == []


def test_a_shared_subscription_passes_over_who_may_not_receive() -> None:
    access = AccessList(
        users={"a": [Rule("read", "t/#"), Rule("deny", "t/x")], "b": [Rule("read", "t/#")]},
    )
    bench = Bench(authenticate=ByName(), authorize=access)
    lines = {}
    for name in ("a", "b"):
        lines[name], _ = bench.connect(Connect(name, 5, True, 0, username=name))
        lines[name].send(Subscribe(1, [Subscription("$share/g/t/#", 1)]))
        lines[name].send(Subscribe(2, [Subscription("$share/g/#", 1)]))
    bench.commit()
    for line in lines.values():
        codes = [packet.reason_codes for packet in line.read() if isinstance(packet, Suback)]
        assert codes == [[1], [reasons.NOT_AUTHORIZED]]
    publisher = bench.join("p", 5)
    publisher.session.transmission.outlet = None
    for number in range(1, 5):
        publisher.send(Publish("t/x", b"", 1, packet_id=number))
    bench.commit()
    assert [len(publishes(lines[name].read())) for name in ("a", "b")] == [0, 4]
    bench.server.set_authorize(AccessList(), set(), bench.now)
    bench.server.registry.sessions["p"].transmission.outlet = None
    publisher.send(Publish("t/x", b"", 1, packet_id=5))
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1


def test_retained_messages_are_checked() -> None:
    bench = ruled(("readwrite", "#"), ("deny", "secret"))
    publisher = bench.join("p", 5)
    bench.server.registry.sessions["p"].transmission.outlet = None
    publisher.send(Publish("open", b"x", 1, True, packet_id=1))
    publisher.send(Publish("secret", b"x", 1, True, packet_id=2))
    line = bench.join("c", 5)
    line.send(Subscribe(1, [Subscription("#", 1)]))
    bench.commit()
    assert [message.topic for message in publishes(line.read())] == ["open"]


def test_without_an_access_list_nothing_is_asked() -> None:
    bench = Bench()
    line = bench.join("c", 5)
    assert line.session.permissions is None


# -- wills -----------------------------------------------------------------------------------


def watched() -> tuple[Bench, Line]:
    bench = ruled(("readwrite", "#"))
    watcher = bench.join("watcher", 5)
    watcher.send(Subscribe(1, [Subscription("will", 0)]))
    bench.join("c", 5, durable=True, will=Will("will", b"gone"))
    bench.commit()
    watcher.read()
    return bench, watcher


@pytest.mark.parametrize("allowed", [True, False])
def test_a_will_is_checked_again_when_it_is_published(allowed: bool) -> None:
    bench, watcher = watched()
    access = rules(("readwrite", "#")) if allowed else rules(("read", "#"))
    bench.server.set_authorize(access, set(), bench.now)
    bench.server.connections["c"].lost("cut", bench.now)
    bench.commit()
    assert len(publishes(watcher.read())) == allowed
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == (not allowed)
    assert bench.store.recover().wills == {}, "and forgotten"


def test_a_will_found_at_the_start_is_checked_with_its_user() -> None:
    bench = Bench(
        authenticate=ByName(),
        authorize=AccessList(users={"alice": [Rule("write", "will")]}),
    )
    bench.line(5).send(Connect("alice", 5, True, 0, Will("will", b"alice"), username="alice"))
    bench.commit()
    assert bench.store.recover().wills["alice"].username == "alice"
    bench.restart()
    bench.commit()
    assert bench.store.read([0])[0].payload == b"alice"
    assert bench.store.recover().wills == {}


def test_a_will_found_at_the_start_is_not_published_without_permission() -> None:
    bench = Bench(
        authenticate=ByName(), authorize=AccessList(users={"alice": [Rule("write", "will")]})
    )
    bench.line(5).send(Connect("alice", 5, True, 0, Will("will", b""), username="alice"))
    bench.commit()
    bench.authorize = AccessList(anonymous=[Rule("write", "#")])
    bench.restart()
    bench.commit()
    assert bench.server.context.batch.next_offset == 0
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 1
