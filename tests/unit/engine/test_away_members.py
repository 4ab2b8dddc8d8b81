"""Members of a group that are away: who of them is asked for room, and how often."""

from __future__ import annotations

from random import Random
from typing import final

import pytest

from penstock.engine import drop_counts
from penstock.engine.access import Authorize, Permissions
from penstock.engine.away_members import AwayMembers
from penstock.engine.limits import DROP_NEWEST, DROP_OLDEST, REJECT, SPILL, EngineLimits
from penstock.engine.message import Message
from penstock.engine.options import STRATEGIES, SharingOptions
from penstock.engine.session import Session
from penstock.protocol.packets import Connect, Puback, Subscribe, Subscription, Unsubscribe
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes

SHARED = "$share/g/t"
MANY = 100


def bench_of(limits: EngineLimits | None = None) -> Bench:
    return Bench(limits, streams=())


def away(bench: Bench, count: int) -> list[Line]:
    """Members that left."""
    lines = [bench.subscriber(f"s{number}", SHARED, 1) for number in range(count)]
    for line in lines:
        line.cut()
    bench.commit()
    return lines


def members(bench: Bench) -> AwayMembers:
    return bench.server.router.sharing.groups[SHARED].away


def publish(bench: Bench, count: int = 1, size: int = 1) -> None:
    for _ in range(count):
        message = Message("t", b"x" * size, 1, False, "p", bench.now.wall_us)
        bench.server.router.publish(message, None, bench.now)
    bench.commit()


def waiting(lines: list[Line]) -> list[int]:
    return [line.session.queue_length for line in lines]


def test_nobody_who_is_away_is_asked_while_one_is_there() -> None:
    bench = bench_of()
    away(bench, MANY)
    line = bench.subscriber("here", SHARED, 1)
    publish(bench, 20)
    assert len(publishes(line.read())) == 20
    assert members(bench).looked_at == 0


@pytest.mark.parametrize("overflow", [DROP_OLDEST, DROP_NEWEST, SPILL])
def test_who_is_full_is_not_asked_again(overflow: str) -> None:
    """Each was asked for each message: milliseconds with thousands of members."""
    bench = bench_of(EngineLimits(max_mqueue_len=1, mqueue_overflow=overflow))
    lines = away(bench, MANY)
    publish(bench, MANY)
    assert waiting(lines) == [1] * MANY
    before = members(bench).looked_at
    assert before <= 2 * MANY
    publish(bench, 50)
    assert members(bench).looked_at - before <= MANY + 3 * 50  # each once, then one a message
    lost = 0 if overflow == SPILL else 50
    assert bench.server.drops.counts[drop_counts.QUEUE_FULL] == lost


def test_who_is_full_by_number_is_not_asked_for_less_either() -> None:
    bench = bench_of(EngineLimits(max_mqueue_len=1, mqueue_overflow=DROP_NEWEST))
    away(bench, MANY)
    publish(bench, MANY + 1, 100)
    before = members(bench).looked_at
    for size in range(50, 0, -1):
        publish(bench, 1, size)
    assert members(bench).looked_at - before == 0


def test_those_who_refuse_are_not_all_asked_either() -> None:
    bench = bench_of(EngineLimits(max_mqueue_len=1, mqueue_overflow=REJECT))
    away(bench, MANY)
    publish(bench, MANY)
    publisher = bench.join("p").session
    before = members(bench).looked_at
    for _ in range(50):
        message = Message("t", b"x", 1, False, "p", bench.now.wall_us)
        assert bench.server.router.refuses(message, publisher)
    assert members(bench).looked_at - before <= MANY + 3 * 50


def test_who_has_no_room_for_much_is_asked_for_less() -> None:
    bench = bench_of(
        EngineLimits(max_mqueue_len=0, max_mqueue_bytes=1000, mqueue_overflow=DROP_NEWEST)
    )
    lines = away(bench, 2)
    publish(bench, 2, 700)
    assert waiting(lines) == [1, 1]
    publish(bench, 1, 500)  # has room nowhere
    publish(bench, 1, 20)
    publish(bench, 1, 300)  # nor has this
    publish(bench, 1, 20)
    assert sum(waiting(lines)) == 4
    assert bench.server.drops.counts[drop_counts.QUEUE_FULL] == 2


def test_who_gave_some_to_others_is_asked_again() -> None:
    bench = bench_of(EngineLimits(max_mqueue_len=2, mqueue_overflow=DROP_NEWEST))
    lines = away(bench, 2)
    publish(bench, 5)
    assert bench.server.drops.counts[drop_counts.QUEUE_FULL] == 1
    helper = bench.join("helper", durable=True, receive_maximum=1)
    helper.send(Subscribe(1, [Subscription(SHARED, 1)]))
    bench.commit()
    bench.pass_s(1)
    bench.commit()
    assert helper.session.window_length + helper.session.queue_length == 3
    helper.cut()
    assert sum(waiting(lines)) == 1
    publish(bench, 3)
    assert sum(waiting(lines)) + helper.session.window_length == 5
    assert bench.server.drops.counts[drop_counts.QUEUE_FULL] == 1


def test_who_dropped_much_for_little_is_asked_again() -> None:
    bench = bench_of(
        EngineLimits(max_mqueue_len=0, max_mqueue_bytes=1000, mqueue_overflow=DROP_OLDEST)
    )
    lines = away(bench, 2)
    publish(bench, 2, 900)
    publish(bench, 1, 50)  # 900 bytes go for it at one of them
    assert bench.server.drops.counts[drop_counts.QUEUE_FULL] == 1
    publish(bench, 6, 50)
    assert sorted(waiting(lines)) == [1, 7]
    assert bench.server.drops.counts[drop_counts.QUEUE_FULL] == 1


def test_who_is_back_is_asked_like_any_other() -> None:
    bench = bench_of(EngineLimits(max_mqueue_len=1, mqueue_overflow=DROP_NEWEST))
    lines = away(bench, 2)
    publish(bench, 3)
    back = bench.join("s0", durable=True)
    bench.commit()
    for _ in range(2):  # its own, and what the other waits with
        (packet,) = publishes(back.read())
        back.send(Puback(packet.packet_id))
        bench.commit()
    back.cut()
    assert waiting(lines) == [0, 0]
    publish(bench, 2)
    assert waiting(lines) == [1, 1]
    assert bench.server.drops.counts[drop_counts.QUEUE_FULL] == 1


def test_what_goes_by_hash_to_one_who_is_away_goes_to_all_who_are_there() -> None:
    """And not to the neighbour, which would get what is for all that are away."""
    bench = Bench(EngineLimits(), (), SharingOptions(strategy="hash_client"))
    away(bench, MANY)
    lines = [bench.subscriber(f"here{number}", SHARED, 1) for number in range(3)]
    for number in range(90):
        message = Message("t", b"x", 1, False, f"p{number}", bench.now.wall_us)
        bench.server.router.publish(message, None, bench.now)
    bench.commit()
    assert min(len(publishes(line.read())) for line in lines) >= 15


@final
class Deaf(Permissions):
    """Some topics may not be received; asking is counted."""

    asked = 0

    def may_receive(self, topic: str) -> bool:
        """Unless it is secret."""
        Deaf.asked += 1
        return not topic.startswith("secret")


def group_away(bench: Bench, count: int) -> AwayMembers:
    """Members of ``$share/g/#`` that left, and may not receive what is secret."""
    for number in range(count):
        line = bench.subscriber(f"s{number}", "$share/g/#", 1)
        line.session.permissions = Deaf()
        line.cut()
    bench.commit()
    return bench.server.router.sharing.groups["$share/g/#"].away


def send(bench: Bench, topic: str, size: int = 1) -> None:
    message = Message(topic, b"x" * size, 1, False, "p", bench.now.wall_us)
    bench.server.router.publish(message, None, bench.now)


def test_what_fits_nowhere_does_not_ask_everybody_each_time() -> None:
    bench = bench_of(EngineLimits(max_mqueue_len=0, max_mqueue_bytes=1000, mqueue_overflow=REJECT))
    group = group_away(bench, MANY)
    send(bench, "t", 2000)
    before, asked = group.looked_at, Deaf.asked
    for size in range(2001, 2051):
        send(bench, "t", size)
    assert group.looked_at - before <= 3 * 50
    assert Deaf.asked - asked <= 6 * 50
    assert bench.server.drops.counts[drop_counts.QUEUE_FULL] == 51


@pytest.mark.parametrize("overflow", [DROP_OLDEST, DROP_NEWEST, REJECT])
def test_who_may_not_receive_it_is_not_asked_each_time(overflow: str) -> None:
    """Not for each of many topics, nor when others of the members fill and empty."""
    bench = bench_of(EngineLimits(max_mqueue_len=2, mqueue_overflow=overflow))
    group = group_away(bench, MANY)
    topics = [f"secret/{number}" for number in range(20)]
    for topic in topics:
        send(bench, topic)
    before, asked = group.looked_at, Deaf.asked
    for number in range(10):
        for topic in topics:
            send(bench, topic)
        send(bench, f"t/{number}")
    assert group.looked_at - before <= 5 * 200
    assert Deaf.asked - asked <= 5 * 200
    assert bench.server.drops.counts[drop_counts.NO_PERMISSION] == 220


def test_the_one_that_may_receive_it_is_found_without_asking_the_others() -> None:
    bench = bench_of(EngineLimits(max_mqueue_len=50, mqueue_overflow=DROP_NEWEST))
    group = group_away(bench, MANY)
    free = bench.subscriber("free", "$share/g/#", 1)
    free.cut()
    send(bench, "secret")
    before, asked = group.looked_at, Deaf.asked
    for _ in range(99):
        send(bench, "secret")
    assert group.looked_at - before <= 3 * 100
    assert Deaf.asked - asked <= 3 * 100
    assert waiting([free]) == [50]


def test_who_may_not_receive_it_is_asked_again_when_that_changes() -> None:
    bench = bench_of(EngineLimits(max_mqueue_len=2, mqueue_overflow=REJECT))
    group_away(bench, 3)
    send(bench, "secret")
    assert bench.server.drops.counts[drop_counts.NO_PERMISSION] == 1
    for session in bench.server.registry.sessions.values():
        session.identified = True
    bench.server.authorize_anew(Authorize(), set(), bench.now)
    send(bench, "secret")
    assert sum(bench.server.drops.counts) == 1


def test_numbers_of_members_that_left_are_used_again() -> None:
    """What is known of members has a place for each number."""
    bench = bench_of(EngineLimits(max_mqueue_len=1, mqueue_overflow=DROP_NEWEST))
    lines = away(bench, 3)
    for number in range(300):
        line = bench.subscriber(f"x{number}", SHARED, 1)
        line.send(Unsubscribe(2, [SHARED]))
    group = bench.server.router.sharing.groups[SHARED]
    assert max(member.order for member in group.members.values()) < 200
    publish(bench, 4)
    assert sum(bench.server.drops.counts) == 1
    assert waiting(lines) == [1, 1, 1]


# -- the oracle asks everybody ---------------------------------------------------------------


class BarredNow(Permissions):
    """May receive or not, as the test likes."""

    barred = False

    def may_receive(self, topic: str) -> bool:
        """Unless barred."""
        del topic
        return not self.barred


def rank(
    line: Line, message: Message, from_log: bool, apart: Session | None, taken: dict[Session, int]
) -> int:
    """How early a member is chosen; greater is later, 9 never."""
    session = line.session
    size, before = message.size_bytes(), taken.get(session, 0)
    if session is apart or not session.may_receive(None if from_log else message):
        return 9
    if session.takes(size, from_log, before):
        if session.link is None:
            return 1
        return 0 if session.link.has_room() else 2
    if session.rejects:
        return 5 if session.refuses(size, before) else 6
    return 3 if session.link is not None else 4


@pytest.mark.parametrize("seed", range(40))
def test_it_chooses_as_if_it_asked_everybody(seed: int) -> None:
    random = Random(seed)
    policies = random.choice(([REJECT], [DROP_OLDEST], [DROP_NEWEST, REJECT], [SPILL, REJECT]))
    zones = {
        f"z{number}": EngineLimits(
            max_inflight=random.choice((1, 3)),
            max_mqueue_len=random.choice((0, 2, 5)),
            max_mqueue_bytes=random.choice((0, 900)),
            mqueue_overflow=policy,
        )
        for number, policy in enumerate(policies * 2)
    }
    strategy = random.choice(list(STRATEGIES))
    bench = Bench(None, (), SharingOptions(strategy=strategy, seed=seed), zones=zones)
    lines: dict[str, Line] = {}

    def connect(name: str) -> None:
        if name in lines:
            lines[name].cut()
        wish = Properties(session_expiry_interval=3600)
        clean = random.random() < 0.2
        zone = random.choice(list(zones))
        line, _ = bench.connect(Connect(name, 5, clean, properties=wish), zone)
        line.send(Subscribe(1, [Subscription(SHARED, 1)]))
        line.session.permissions = BarredNow()
        lines[name] = line

    for number in range(6):
        connect(f"s{number}")
    group = bench.server.router.sharing.groups[SHARED]
    for _ in range(400):
        line = random.choice(list(lines.values()))
        dice = random.random()
        if dice < 0.04:
            connect(line.connection.client_id)
        elif dice < 0.14:
            line.cut()
        elif dice < 0.2:
            line.send(*[Puback(packet.packet_id) for packet in publishes(line.read())])
        elif dice < 0.22 and isinstance(line.session.permissions, BarredNow):
            line.session.permissions.barred = not line.session.permissions.barred
            bench.server.router.sharing.permissions_changed()
        elif dice < 0.25:
            bench.pass_s(1)
            bench.commit()
        elif dice < 0.26:
            group._renumber()
        payload = b"x" * random.choice((1, 100, 400, 2000))
        message = Message("t", payload, 1, False, str(random.random()), bench.now.wall_us)
        from_log = random.random() < 0.2
        apart = random.choice([None, line.session])
        taken = {other.session: 1 for other in lines.values() if random.random() < 0.1}
        ranks = {one.session: rank(one, message, from_log, apart, taken) for one in lines.values()}
        best = min(ranks.values())
        chosen = group.choose(
            None if from_log else message, message.size_bytes(), apart, False, taken
        )
        if chosen is None:
            assert best == 9
        else:
            assert ranks[chosen.session] == best, ranks
        before = sum(bench.server.drops.counts)
        had_room = any(rank(one, message, False, None, {}) <= 2 for one in lines.values())
        bench.server.router.publish(message, None, bench.now)
        assert not had_room or sum(bench.server.drops.counts) == before
