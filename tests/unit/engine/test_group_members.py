"""The members of a group: which of them each strategy tries first."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.engine.routing.group_members import Xorshift32
from penstock.engine.values.options import SharingOptions
from penstock.protocol.packets import (
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from tests.unit.engine.bench import Bench, publishes
from tests.unit.engine.group import SHARED, acknowledge, got, member, publish, queued


def test_round_robin_takes_turns() -> None:
    bench = Bench()
    lines = [member(bench, f"m{number}") for number in range(3)]
    publish(bench, 6)
    assert [got(line) for line in lines] == [[0, 3], [1, 4], [2, 5]]


def test_each_group_and_each_ordinary_subscription_gets_its_own() -> None:
    """v5 §4.8.2: groups are known by name and filter, and a session may be in several."""
    bench = Bench()
    line = bench.join("c")
    filters = [SHARED, "$share/h/t/+", "$share/g/t/#", "t/1"]
    line.send(Subscribe(1, [Subscription(name, 1) for name in filters]))
    publish(bench, 1)
    assert got(line) == [0, 0, 0, 0]
    line.send(Unsubscribe(2, [SHARED]))
    bench.commit()
    line.read()
    publish(bench, 1, first=1)
    assert got(line) == [1, 1, 1]


def test_random_is_repeatable_and_reaches_all() -> None:
    def shares(seed: int) -> list[list[int]]:
        bench = Bench(sharing=SharingOptions(strategy="random", seed=seed))
        lines = [member(bench, f"m{number}") for number in range(3)]
        publish(bench, 30)
        return [got(line) for line in lines]

    assert shares(7) == shares(7) != shares(8)
    assert all(shares(7))


@pytest.mark.parametrize("seed", [0, 1, 2**40 + 5])
def test_the_dice_are_fair(seed: int) -> None:
    dice = Xorshift32(seed)
    counts: Counter[int] = Counter()
    for _ in range(10_000):
        counts[dice.below(5)] += 1
        dice.advance()
    assert set(counts) == set(range(5))
    assert all(1800 < count < 2200 for count in counts.values())


def test_sticky_stays_with_one_until_it_is_full_or_gone() -> None:
    bench = Bench(sharing=SharingOptions(strategy="sticky"))
    first, second = member(bench, "m1", window=2), member(bench, "m2")
    publish(bench, 4)
    assert got(first) == [0, 1]
    assert got(second) == [2, 3]
    second.cut()
    bench.commit()
    assert queued(bench) == 2  # nobody has room


def test_least_inflight_goes_where_least_waits() -> None:
    bench = Bench(sharing=SharingOptions(strategy="least_inflight"))
    first, second = member(bench, "m1"), member(bench, "m2")
    publish(bench, 4)
    taken = publishes(first.read())
    assert len(taken) == len(publishes(second.read())) == 2
    acknowledge(bench, first, taken)
    publish(bench, 2, first=4)
    assert (got(first), got(second)) == ([4, 5], [])


@pytest.mark.parametrize("strategy", ["hash_client", "hash_topic"])
def test_a_hash_keeps_a_publisher_or_a_topic_at_one_member(strategy: str) -> None:
    bench = Bench(sharing=SharingOptions(strategy=strategy))
    lines = [member(bench, f"m{number}") for number in range(3)]
    source = bench.join("source")
    for number in range(20):
        topic = f"t/{number % 5}" if strategy == "hash_topic" else f"t/{number}"
        source.send(Publish(topic, str(number % 5).encode(), 0))
    bench.commit()
    shares = [set(got(line)) for line in lines]
    assert sum(len(work_budget) for work_budget in shares) == 5
    busy = [work_budget for work_budget in shares if work_budget]
    assert len(busy) > 1 if strategy == "hash_topic" else len(busy) == 1


def test_a_group_may_have_its_own_strategy() -> None:
    bench = Bench(sharing=SharingOptions(by_group={"g": "sticky"}))
    first, second = member(bench, "m1"), member(bench, "m2")
    publish(bench, 4)
    assert (got(first), got(second)) == ([0, 1, 2, 3], [])


def test_a_member_that_leaves_does_not_change_whose_turn_it_is() -> None:
    bench = Bench()
    lines = [member(bench, f"m{number}") for number in range(4)]
    publish(bench, 2)
    lines[0].send(Unsubscribe(2, [SHARED]))
    publish(bench, 2, first=2)
    assert [got(line) for line in lines] == [[0], [1], [2], [3]]
