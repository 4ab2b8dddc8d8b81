"""The facts about a client and a topic, from an engine in which they came about."""

import msgspec

from penstock.auth.acl import AccessList, Rule
from penstock.control.diagnosis import Case, diagnose
from penstock.control.explanation import Explanation
from penstock.engine.values.bans import CLIENT, UNTIL_RESTART
from penstock.engine.values.limits import EngineLimits
from penstock.operators.explaining import MatchWalk, ReceiverWalk, explain
from penstock.protocol.packets import Connect, Publish, Subscribe, Subscription
from tests.unit.engine.bench import Bench


def facts_of(bench: Bench, client_id: str, topic: str, *offsets: int) -> Explanation:
    """The facts as an operator's command gets them."""
    walk = MatchWalk(bench.server.registry.sessions.get(client_id), topic)
    while not walk.is_finished:
        walk.step(1)
    told = explain(bench.server, client_id, topic, list(offsets), walk.found, bench.now)
    return msgspec.json.decode(msgspec.json.encode(told), type=Explanation)


def test_each_message_for_a_client_with_a_full_window_has_its_state() -> None:
    bench = Bench(EngineLimits(max_inflight=1, max_mqueue_len=1))
    client = bench.subscriber("c", "a/+", 1)
    client.send(Subscribe(2, [Subscription("x", 0), Subscription("a/#", 0)]))
    for _ in range(3):
        bench.publish("a/b", b"x")
    facts = facts_of(bench, "c", "a/b", 0, 1, 2, 99)
    assert facts.states == {"0": "in_flight", "1": "dropped:queue_full", "2": "waiting"}
    assert sorted(one.filter for one in facts.subscriptions) == ["a/#", "a/+"]
    assert facts.last_drops == [{"reason": "queue_full", "topic": "a/b", "offset": 1}]
    assert facts.drops == {"queue_full": 1}
    assert {limit.limit for limit in facts.limits} == {"window", "queue"}
    assert facts.reads is True


def test_the_reason_for_an_absence_is_known_until_it_ends() -> None:
    bench = Bench()
    client = bench.subscriber("c", "a", 1)
    client.cut()
    bench.commit()
    assert facts_of(bench, "c", "a").disconnected_because == "cut"


def test_a_ban_of_a_client_without_a_session() -> None:
    bench = Bench()
    bench.server.bans.ban(CLIENT, "c", UNTIL_RESTART, "guesses")
    facts = facts_of(bench, "c", "a")
    assert facts.session is None
    assert facts.banned_because == "client c: guesses"


def test_the_line_of_the_access_list_that_decides() -> None:
    rules = AccessList(
        anonymous=[Rule("read", "a/#", "acl line 1"), Rule("deny", "a/secret", "acl line 2")],
        patterns=[Rule("write", "devices/%c/#", "acl line 3")],
    )
    bench = Bench(authorize=rules)
    client = bench.join("c")
    client.send(Subscribe(1, [Subscription("a/+", 1)]))
    bench.commit()
    open_topic, secret = facts_of(bench, "c", "a/b"), facts_of(bench, "c", "a/secret")
    assert open_topic.may_receive
    assert open_topic.receive_rule == "is granted by 'read a/#' (acl line 1)"
    assert not open_topic.may_publish
    assert open_topic.publish_rule == "no line of the access list grants it"
    assert not secret.may_receive
    assert secret.receive_rule == "is denied by 'deny a/secret' (acl line 2)"
    own = facts_of(bench, "c", "devices/c/x")
    assert own.may_publish
    assert own.publish_rule == "is granted by 'write devices/c/#' (acl line 3)"


def test_a_message_that_waits_for_a_group_waits_there_for_each_member() -> None:
    bench = Bench(EngineLimits(max_inflight=1))
    client = bench.subscriber("c", "$share/g/a", 1)
    for _ in range(2):
        bench.publish("a", b"x")
    facts = facts_of(bench, "c", "a", 0, 1)
    assert facts.states == {"0": "in_flight", "1": "in_group"}
    (group,) = facts.groups
    assert (group.filter, group.members, group.connected, group.queue) == ("$share/g/a", 1, 1, 1)
    assert len([one for one in client.read() if isinstance(one, Publish)]) == 1


def test_a_drop_from_a_group_is_told_of_its_members_alone() -> None:
    """A client may choose the name of a group as its identifier, and has no part in its drops."""
    bench = Bench(EngineLimits(max_inflight=1, max_mqueue_len=1), recorded_clients=9)
    bench.subscriber("member", "$share/g/a", 1)
    bench.subscriber("$share/g/a", "a", 1)
    bench.subscriber("$share/g/b", "b", 1)
    for _ in range(3):
        bench.publish("a", b"x")
    facts = facts_of(bench, "member", "a", 0, 1, 2)
    assert facts.states == {"0": "in_flight", "1": "dropped:queue_full", "2": "in_group"}
    (group,) = facts.group_drops
    assert (group.filter, group.drops) == ("$share/g/a", {"queue_full": 1})
    assert group.last_drops == [{"reason": "queue_full", "topic": "a", "offset": 1}]
    assert not facts.drops
    assert "1 messages for the members of '$share/g/a' were dropped" in diagnose(Case(facts)).reason
    twin = facts_of(bench, "$share/g/a", "a")
    assert (twin.drops, twin.group_drops) == ({"queue_full": 1}, [])
    assert facts_of(bench, "$share/g/b", "a").drops == {}
    bench.server.router.unsubscribe(bench.lines[0].session, "$share/g/a")
    assert bench.server.drops.group_drops.counts_by_reason("$share/g/a") == {}


def test_the_record_of_a_client_that_is_gone_is_told() -> None:
    bench = Bench(recorded_clients=9)
    bench.join("c").cut()
    bench.commit()
    facts = facts_of(bench, "c", "a")
    assert facts.session is None
    assert "it was disconnected at 08:00:00 UTC: cut" in diagnose(Case(facts)).reason
    bench.server.bans.ban(CLIENT, "d", UNTIL_RESTART, "guesses")
    bench.line().send(Connect("d", 5, clean_start=True))
    bench.server.bans.lift(CLIENT, "d")
    refused = diagnose(Case(facts_of(bench, "d", "a")))
    assert "under this name was refused once, at 08:00:00 UTC: banned" in refused.reason


def test_a_message_from_before_a_client_is_recorded_is_not_known_to_have_been_left_out() -> None:
    bench = Bench(recorded_clients=9)
    bench.subscriber("early", "b", 1)
    bench.publish("a", b"x")
    bench.jump_s(-3600.0)
    bench.subscriber("late", "a", 1)
    bench.lines[0].send(Subscribe(2, [Subscription("a", 1)]))
    walk = ReceiverWalk(bench.server, "a", 0)
    while not walk.is_finished:
        walk.step()
    assert {one["name"]: one["is_recorded"] for one in walk.found} == {"early": True, "late": False}
    assert not any(one["times"] for one in walk.found)


def test_one_message_has_its_state_for_everyone_its_topic_reaches() -> None:
    bench = Bench(EngineLimits(max_inflight=1))
    bench.subscriber("c", "a/+", 1)
    bench.subscriber("d", "a/b", 0)
    bench.subscriber("m", "$share/g/a/#", 1)
    for _ in range(2):
        bench.publish("a/b", b"x")

    def found(offset: int) -> list[tuple[object, object, object]]:
        walk = ReceiverWalk(bench.server, "a/b", offset)
        while not walk.is_finished:
            walk.step()
        assert walk.count == 3
        return sorted((one["name"], one["kind"], one["state"]) for one in walk.found)

    assert found(0) == [
        ("c", "client", "in_flight"),
        ("d", "client", ""),
        ("m of $share/g/a/#", "group", "in_flight"),
    ]
    assert found(1) == [
        ("$share/g/a/#", "group", "in_group"),
        ("c", "client", "waiting"),
        ("d", "client", ""),
    ]
