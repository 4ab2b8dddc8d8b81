"""The subscription trie, against the definition of matching."""

import inspect
import itertools
import sys
from inspect import isfunction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.routing.group_members import Xorshift32
from penstock.engine.routing.match_cache import MergedSubscriptions
from penstock.engine.routing.shared_group import SharedGroup
from penstock.engine.routing.trie import SubscriptionTrie
from penstock.engine.session.session import Session, SessionSubscription
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.topics import topic_matches
from penstock.engine.work_budget import WorkBudget
from penstock.protocol.packets import Subscription

TOPICS = ["a", "a/b", "a/b/c", "/", "a/", "b", "b/a", "$x", "$x/a", "a/$x"]
FILTERS = ["#", "+", "+/+", "a/#", "a/+", "a/b", "a", "+/b/#", "$x/#", "$x/+", "/+", "+/", "+/#"]


def session(name: str) -> Session:
    return Session(name, 1, 0, EngineContext(0), EngineLimits(), Drops())


def entry(topic_filter: str, qos: int, identifier: int = 0) -> SessionSubscription:
    return SessionSubscription(Subscription(topic_filter, qos), identifier)


def found(trie: SubscriptionTrie, topic: str) -> dict[str, MergedSubscriptions]:
    return {match.session.client_id: match.subscriptions for match in trie.match(topic).sessions}


CHANGE = st.tuples(st.integers(0, 2), st.sampled_from(FILTERS), st.integers(-1, 2))


@given(st.lists(CHANGE, max_size=25))
def test_against_brute_force(changes: list[tuple[int, str, int]]) -> None:
    """Subscribe (QoS 0 to 2) and unsubscribe (-1) in any order; every topic after each."""
    trie, sessions = SubscriptionTrie(), [session(str(number)) for number in range(3)]
    kept: dict[tuple[int, str], int] = {}
    for who, topic_filter, qos in changes:
        if qos < 0:
            kept.pop((who, topic_filter), None)
            trie.remove(sessions[who], topic_filter)
        else:
            kept[who, topic_filter] = qos
            trie.add(sessions[who], topic_filter, entry(topic_filter, qos))
        for topic in TOPICS:
            expected: dict[str, int] = {}
            for (owner, wanted), granted in kept.items():
                if topic_matches(wanted, topic):
                    expected[str(owner)] = max(granted, expected.get(str(owner), 0))
            assert {name: merged.qos for name, merged in found(trie, topic).items()} == expected


def test_a_group_leaves_a_filter_without_a_look_at_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One client may have thousands on one filter, and leave them in any order."""
    if not isfunction(SharedGroup.put):
        pytest.skip("comparisons of compiled objects cannot be counted")
    trie = SubscriptionTrie()
    one = session("one")
    groups = [
        SharedGroup(
            f"$share/{number}/a/b", 0, Xorshift32(1), EngineContext(0), Drops(), one, one.account
        )
        for number in range(100)
    ]
    for group in groups:
        trie.add_group(group)
    compared: list[object] = []

    def is_equal(one: object, other: object) -> bool:
        compared.append(other)
        return one is other

    monkeypatch.setattr(SharedGroup, "__hash__", object.__hash__)
    monkeypatch.setattr(SharedGroup, "__eq__", is_equal)
    for group in reversed(groups[1:]):
        trie.remove_group(group)
    assert trie.match("a/b").groups == groups[:1]
    assert len(compared) == 0
    trie.remove_group(groups[0])
    assert trie.match("a/b").groups == []


def test_overlapping_subscriptions_are_one_delivery() -> None:
    """[MQTT-3.3.4-2] [MQTT-3.3.4-4]: the greatest QoS, all identifiers."""
    trie, one = SubscriptionTrie(), session("one")
    trie.add(one, "a/#", entry("a/#", 2, 7))
    trie.add(one, "a/b", entry("a/b", 0, 9))
    trie.add(one, "+/b", entry("+/b", 1))
    (match,) = trie.match("a/b").sessions
    assert match.subscriptions.qos == 2
    assert sorted(match.subscriptions.subscription_ids) == [7, 9]


def test_no_local_leaves_out_only_what_has_it() -> None:
    """[MQTT-3.8.3-3]"""
    trie, one = SubscriptionTrie(), session("one")
    trie.add(one, "#", SessionSubscription(Subscription("#", 2, no_local=True), 1))
    assert trie.match("a").sessions[0].own_subscriptions is None
    trie.add(one, "a", SessionSubscription(Subscription("a", 1), 2))
    own = trie.match("a").sessions[0].own_subscriptions
    assert own is not None
    assert (own.qos, own.subscription_ids) == (1, (2,))


def test_a_replaced_subscription_is_forgotten() -> None:
    """[MQTT-3.8.4-3]"""
    trie, one = SubscriptionTrie(), session("one")
    trie.add(one, "a", entry("a", 2, 5))
    assert found(trie, "a")["one"].qos == 2
    trie.add(one, "a", entry("a", 0))
    assert found(trie, "a")["one"].qos == 0
    assert found(trie, "a")["one"].subscription_ids == ()


def test_unused_branches_go() -> None:
    trie, one = SubscriptionTrie(), session("one")
    trie.add(one, "a/b/c/d", entry("a/b/c/d", 0))
    trie.add(one, "a/b", entry("a/b", 0))
    trie.remove(one, "a/b/c/d")
    trie.remove(one, "x/y")
    assert found(trie, "a/b") != {}
    trie.remove(one, "a/b")
    assert trie._root.children == {}


# -- work is bounded by what there is ------------------------------------------------------


class Identifier(int):
    """A subscription identifier that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Identifier.compared += 1
        return int(self) == other

    def __hash__(self) -> int:
        return int(self)


def test_thousands_of_identifiers_are_merged_without_comparing_each_with_each() -> None:
    trie, one = SubscriptionTrie(), session("one")
    filters = ["/".join(levels) + "/#" for levels in itertools.product("a+", repeat=10)]
    for number, topic_filter in enumerate(filters, 1):
        trie.add(one, topic_filter, entry(topic_filter, 0, Identifier(number)))
    Identifier.compared = 0
    merged = found(trie, "/".join("a" * 10))["one"]
    assert sorted(merged.subscription_ids) == list(range(1, 1025))
    assert Identifier.compared <= 2 * len(filters)


def test_an_identifier_that_several_subscriptions_share_is_there_once() -> None:
    trie, one = SubscriptionTrie(), session("one")
    for topic_filter in ("#", "a/#", "a"):
        trie.add(one, topic_filter, entry(topic_filter, 0, 7))
    assert found(trie, "a")["one"].subscription_ids == (7,)


def test_the_walk_is_counted_node_by_node_and_a_cached_match_costs_none() -> None:
    work_budget = WorkBudget()
    trie, one = SubscriptionTrie(work_budget), session("one")
    for levels in itertools.product("a+", repeat=5):
        trie.add(one, "/".join(levels), entry("/".join(levels), 0))
    trie.match("a/a/a/a/a")
    assert work_budget.work_done == (2**6 - 1) + 2**5  # all nodes, and what ends at the last level
    trie.match("a/a/a/a/a")
    assert work_budget.work_done == (2**6 - 1) + 2**5


def test_the_walk_counts_whom_it_collects_under_a_hash_too() -> None:
    work_budget = WorkBudget()
    trie = SubscriptionTrie(work_budget)
    for number in range(100):
        trie.add(session(str(number)), "a/#", entry("a/#", 0))
    trie.match("a")
    trie.match("a/b")
    assert work_budget.work_done == 2 * (2 + 100)  # the root and "a", and what is below it by "#"


def test_a_thousand_levels_are_matched_and_forgotten_without_recursion() -> None:
    """``topic_levels_max`` may be 1,000; the stack is what any caller may have left."""
    trie, one = SubscriptionTrie(), session("one")
    deep = "/".join(["a"] * 1000)
    filters = [deep, "/".join(["+"] * 1000), "a/" * 999 + "#", "#"]
    allowed = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        for topic_filter in filters:
            trie.add(one, topic_filter, entry(topic_filter, 1, 1 + filters.index(topic_filter)))
            trie.match(deep)
        assert len(found(trie, deep)["one"].subscription_ids) == 4
        for topic_filter in filters:
            trie.match(deep)
            trie.remove(one, topic_filter)
        assert found(trie, deep) == {}
    finally:
        sys.setrecursionlimit(allowed)
