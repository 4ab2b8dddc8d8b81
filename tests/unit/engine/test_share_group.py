"""One group: what it knows of its members, and what asking it for one changes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import SupportsIndex, final

from penstock.engine.away_members import Member
from penstock.engine.drop_counts import Drops
from penstock.engine.effects import Effects
from penstock.engine.limits import EngineLimits
from penstock.engine.options import ROUND_ROBIN
from penstock.engine.session import Session, SessionSubscription
from penstock.engine.share_group import Dice, ShareGroup
from penstock.protocol.packets import Subscription

SHARED = "$share/g/t"


@final
class Watched(list[Member]):
    """Counts who is looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[Member]:
        for member in super().__iter__():
            self.looked_at += 1
            yield member

    def __getitem__(self, position: SupportsIndex | slice) -> Member:  # type: ignore[override]
        self.looked_at += 1
        return super().__getitem__(position)  # type: ignore[return-value]


def group_of(strategy: int = ROUND_ROBIN) -> ShareGroup:
    return ShareGroup(SHARED, strategy, Dice(1))


def session(number: int, stored: bool = True) -> Session:
    effects = Effects(0)
    return Session(f"s{number}", number, 3600 if stored else 0, effects, EngineLimits(), Drops())


def entry(qos: int) -> SessionSubscription:
    return SessionSubscription(Subscription(SHARED, qos), 0)


def test_subscribing_again_and_leaving_do_not_look_at_all_members() -> None:
    """A client could make the broker do so with each SUBSCRIBE."""
    group = group_of()
    sessions = [session(number) for number in range(1000)]
    for one in sessions:
        group.put(one, entry(1))
    watched = group._all = Watched(group._all)
    for _ in range(10):
        group.put(sessions[-1], entry(2))
        group.put(sessions[-1], entry(1))
    group.remove(sessions[-1])
    assert watched.looked_at < 50


def test_the_greatest_stored_qos_is_known() -> None:
    random = Random(1)
    group = group_of()
    sessions = [session(number, number % 3 > 0) for number in range(12)]
    granted: dict[Session, int] = {}
    for _ in range(500):
        one = random.choice(sessions)
        if random.random() < 0.4:
            group.remove(one)
            granted.pop(one, None)
        else:
            granted[one] = random.choice((0, 0, 0, 1, 2))
            group.put(one, entry(granted[one]))
        stored = [qos for member, qos in granted.items() if member.stored]
        assert group.stored_qos == max(stored, default=-1)
