"""One group: what it knows of its members, and what asking it for one changes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import SupportsIndex, final

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.routing.group_members import Member, Xorshift32
from penstock.engine.routing.shared_group import SharedGroup
from penstock.engine.session.outlet import Outlet
from penstock.engine.session.session import Session, SessionSubscription
from penstock.engine.values import drop_reasons
from penstock.engine.values.access import Permissions
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Message
from penstock.engine.values.options import ROUND_ROBIN
from penstock.protocol.packets import Subscribe, Subscription
from tests.unit.engine.bench import Bench, publishes

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


def group_of(first: Session, strategy: int = ROUND_ROBIN) -> SharedGroup:
    return SharedGroup(
        SHARED, strategy, Xorshift32(1), EngineContext(0), Drops(), first, first.account
    )


def session(number: int, stored: bool = True) -> Session:
    context = EngineContext(0)
    return Session(f"s{number}", number, 3600 if stored else 0, context, EngineLimits(), Drops())


def entry(qos: int) -> SessionSubscription:
    return SessionSubscription(Subscription(SHARED, qos), 0)


def test_subscribing_again_and_leaving_do_not_look_at_all_members() -> None:
    """A client could make the broker do so with each SUBSCRIBE."""
    sessions = [session(number) for number in range(1000)]
    group = group_of(sessions[0])
    for one in sessions:
        group.put(one, entry(1))
    watched = group.members._all_members = Watched(group.members._all_members)
    for _ in range(10):
        group.put(sessions[-1], entry(2))
        group.put(sessions[-1], entry(1))
    group.remove(sessions[-1])
    assert watched.looked_at < 50


def test_the_greatest_stored_qos_is_known() -> None:
    random = Random(1)
    sessions = [session(number, number % 3 > 0) for number in range(12)]
    group = group_of(sessions[0])
    granted: dict[Session, int] = {}
    for _ in range(500):
        one = random.choice(sessions)
        if random.random() < 0.4:
            group.remove(one)
            granted.pop(one, None)
        else:
            granted[one] = random.choice((0, 0, 0, 1, 2))
            group.put(one, entry(granted[one]))
        stored = [qos for member, qos in granted.items() if member.is_stored]
        assert group.members.stored_qos == max(stored, default=-1)


class Deaf(Permissions):
    """Of somebody who may receive nothing."""

    def may_receive(self, topic: str) -> bool:
        """No."""
        del topic
        return False


def test_system_messages_wait_in_no_queue() -> None:
    """It was counted as forbidden where a queue had no room for so many bytes."""
    name = "$share/g/$SYS/#"
    limits = EngineLimits(max_inflight=1, max_mqueue_len=0, max_mqueue_bytes=1000)
    bench = Bench(limits, streams=())
    line = bench.join("m")
    line.send(Subscribe(1, [Subscription(name, 1), Subscription("own", 1)]))
    for _ in range(2):
        bench.publish("own", b"x" * 700)
    line.read()
    bench.server.router.publish_system("$SYS/a", b"y" * 500, bench.now)
    bench.commit()
    assert [packet.topic for packet in publishes(line.read())] == ["$SYS/a"]
    assert sum(bench.server.drops.counts) == 0


def test_a_system_message_that_no_member_got_is_counted_with_its_reason() -> None:
    bench = Bench(EngineLimits(max_mqueue_len=1), streams=())
    name = "$share/g/$SYS/#"
    free, deaf = bench.subscriber("free", name, 1), bench.subscriber("deaf", name, 1)
    deaf.session.transmission.outlet = Outlet(Deaf())
    free.connection.link.mark_socket_full()
    free.session.outbound.deliver(Message("own", b"", 1), 1, False, (), False, bench.now)
    bench.server.router.publish_system("$SYS/a", b"1", bench.now)
    counts = bench.server.drops.counts
    assert (counts[drop_reasons.SLOW_CONSUMER], sum(counts)) == (1, 1)
    free.session.transmission.outlet = Outlet(Deaf())
    bench.server.router.publish_system("$SYS/a", b"2", bench.now)
    assert (counts[drop_reasons.NO_PERMISSION], sum(counts)) == (1, 2)
