"""Publishers that wait for room: who is asked again when there is room, and who is not."""

from __future__ import annotations

from penstock.engine.batch.blocked_publishers import BlockedPublishers
from penstock.engine.server.server_connection import ServerConnection
from penstock.engine.session.outlet import Outlet
from penstock.engine.session.session import Session
from penstock.engine.values.access import Permissions
from penstock.engine.values.limits import REJECT, EngineLimits
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connect,
    Disconnect,
    Pingreq,
    Puback,
    Publish,
    Pubrec,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line, publishes

SHARED = "$share/g/t"
FULL = EngineLimits(max_inflight=1, max_mqueue_len=1, mqueue_overflow=REJECT)
MANY = 100


class NoPermissions(Permissions):
    """Nothing may be published or received."""

    def may_publish(self, topic: str) -> bool:
        """No."""
        del topic
        return False

    def may_receive(self, topic: str) -> bool:
        """No."""
        del topic
        return False


class Without(Permissions):
    """Everything but one topic may be received."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def may_receive(self, topic: str) -> bool:
        """Unless it is that one."""
        return topic != self.topic


def away(bench: Bench, topic_filter: str = "t") -> None:
    """A client that is away, its queue full."""
    bench.subscriber("s", topic_filter, 1).cut()
    bench.publish("t", b"early")


def waiting(bench: Bench, count: int = MANY, size: int = 1) -> list[Line]:
    """Publishers before MQTT 5 that wait, with one message each."""
    lines = [bench.join(f"p{number}", 4) for number in range(count)]
    for line in lines:
        line.send(Publish("t", b"x" * size, 1, packet_id=1))
        assert line.connection.pending_publish_count == 1
    bench.commit()
    return lines


def went_on(lines: list[Line]) -> int:
    return sum(line.connection.pending_publish_count == 0 for line in lines)


def blocked_of(bench: Bench) -> BlockedPublishers:
    return bench.server.context.blocked_publishers


def session_of(bench: Bench, client_id: str = "s") -> Session:
    return bench.server.registry.sessions[client_id]


def blocked_by(bench: Bench, client_id: str = "s") -> int:
    """How many publishers the queue of this client blocks."""
    return blocked_of(bench).count_blocked_by(session_of(bench, client_id))


def take(bench: Bench, line: Line) -> None:
    """Take and acknowledge one message."""
    (message,) = publishes(line.read())
    line.send(Puback(message.packet_id))
    bench.commit()


def test_room_elsewhere_wakes_nobody() -> None:
    """Each PUBACK of any client made all who waited try again."""
    bench = Bench(FULL, streams=())
    away(bench)
    publishers = waiting(bench)
    other = bench.join("other", 4)
    other.send(Subscribe(1, [Subscription("other", 1)]))
    bench.publish("other", b"x")
    (message,) = publishes(other.read())
    other.connection.receive(encode(Puback(message.packet_id), 4), bench.now)
    tried = [user for user in bench.server.resume(bench.now) if isinstance(user, ServerConnection)]
    assert not any(line.connection in tried for line in publishers)
    bench.pass_s(1)
    assert not any(line.connection in bench.server.resume(bench.now) for line in publishers)
    assert went_on(publishers) == 0


def test_one_place_lets_one_go_on_and_asks_no_other() -> None:
    bench = Bench(FULL, streams=())
    away(bench)
    publishers = waiting(bench)
    back = bench.join("s", durable=True)
    bench.commit()
    assert went_on(publishers) == 1  # from the queue to the window
    before = blocked_of(bench).rechecks
    for number in range(1, 51):
        take(bench, back)
        assert went_on(publishers) == 1 + number
    assert blocked_of(bench).rechecks - before == 50
    assert blocked_by(bench) == MANY - 51
    assert [one.connection.pending_publish_count for one in publishers] == [0] * 51 + [1] * 49


def test_one_place_in_a_group_lets_one_go_on() -> None:
    bench = Bench(FULL, streams=())
    away(bench, SHARED)
    publishers = waiting(bench)
    queue = bench.server.router.sharing.groups[SHARED].queue
    blocked = blocked_of(bench)
    assert blocked.count_blocked_by(queue) == MANY
    member = bench.join("m", durable=True)
    member.send(Subscribe(1, [Subscription(SHARED, 1)]))
    bench.commit()
    assert went_on(publishers) == 2  # it takes what was there, and adds room for one
    before = blocked.rechecks
    for number in range(1, 21):
        take(bench, member)
        assert went_on(publishers) == 2 + number
    assert blocked.rechecks - before <= 40


def test_a_queue_without_room_for_a_large_message_lets_a_small_one_in() -> None:
    limits = EngineLimits(
        max_inflight=1, max_mqueue_len=0, max_mqueue_bytes=2000, mqueue_overflow=REJECT
    )
    bench = Bench(limits, streams=())
    line = bench.subscriber("s", "t", 1)
    for size in (1, 500, 1000):
        bench.publish("t", b"x" * size)
    much, little = bench.join("much", 4), bench.join("little", 4)
    much.send(Publish("t", b"x" * 1500, 1, packet_id=1))
    little.send(Publish("t", b"x" * 400, 1, packet_id=1))
    bench.commit()
    take(bench, line)
    assert (went_on([much]), went_on([little])) == (0, 1)
    assert blocked_by(bench) == 1
    take(bench, line)
    take(bench, line)
    assert (went_on([much]), went_on([little])) == (1, 1)


def test_a_publisher_that_another_queue_refuses_waits_for_that_one() -> None:
    bench = Bench(FULL, streams=())
    for name in ("s", "z"):
        bench.subscriber(name, "t", 1).cut()
    bench.publish("t", b"early")
    publishers = waiting(bench, 3)
    assert blocked_of(bench).rechecks == 0
    first, second = ("s", "z") if blocked_by(bench, "s") else ("z", "s")
    assert (blocked_by(bench, first), blocked_by(bench, second)) == (3, 0)
    before = blocked_of(bench).work
    bench.join(first, durable=True)
    bench.commit()
    assert (blocked_by(bench, first), blocked_by(bench, second)) == (0, 3)
    assert 3 <= blocked_of(bench).rechecks <= 6  # when it came, and when it took what waited
    assert blocked_of(bench).work - before >= 3 * 2  # each looked at both
    assert went_on(publishers) == 0
    bench.join(second, durable=True)
    bench.commit()
    assert went_on(publishers) == 1
    assert blocked_by(bench, first) + blocked_by(bench, second) == 2


def test_a_publisher_that_another_queue_refuses_keeps_its_number() -> None:
    """It goes on before those who came there after it was blocked."""
    bench = Bench(FULL, streams=())
    for topic_filter in ("one/#", "+/two"):
        bench.subscriber(topic_filter, topic_filter, 1).cut()
    bench.publish("one/x", b"early")
    first, later = bench.join("first", 4), bench.join("later", 4)
    first.send(Publish("one/two", b"x", 1, packet_id=1))
    assert blocked_by(bench, "one/#") == 1
    bench.publish("x/two", b"early")
    later.send(Publish("x/two", b"x", 1, packet_id=1))
    assert blocked_by(bench, "+/two") == 1
    back = bench.join("one/#", durable=True)
    bench.commit()
    assert (blocked_by(bench, "one/#"), blocked_by(bench, "+/two")) == (0, 2)
    assert first.connection._publishing.number < later.connection._publishing.number
    assert (went_on([first]), went_on([later])) == (0, 0)
    bench.join("+/two", durable=True)
    bench.commit()
    assert (went_on([first]), went_on([later])) == (1, 0)
    assert len(publishes(back.read())) == 1


def test_a_publisher_that_went_on_and_is_blocked_again_stands_behind_the_others() -> None:
    """Else one publisher with much to say would have all the places."""
    bench = Bench(FULL, streams=())
    away(bench)
    greedy, other = bench.join("greedy", 4), bench.join("other", 4)
    greedy.send(*[Publish("t", b"g%d" % number, 1, packet_id=number) for number in (1, 2, 3)])
    other.send(Publish("t", b"o", 1, packet_id=1))
    back = bench.join("s", durable=True)
    received: list[bytes] = []
    bench.commit()
    while found := publishes(back.read()):
        for one in found:
            received.append(one.payload)
            back.send(Puback(one.packet_id))
        bench.commit()
    assert received == [b"early", b"g1", b"o", b"g2", b"g3"]


def test_a_publisher_that_leaves_waits_nowhere() -> None:
    """Else a client that comes again and again would fill the line."""
    bench = Bench(FULL, streams=())
    away(bench)
    for _ in range(5):
        (line,) = waiting(bench, 1)
        line.cut()
    bench.server.context.store_health.mark_failed("full")
    other = bench.line(4)
    other.send(Connect("other", 4))
    other.send(Publish("free", b"x", 1, packet_id=1))
    blocked = blocked_of(bench)
    assert (blocked.count_blocked_by(blocked.store), blocked.count) == (1, 1)
    other.cut()
    assert (blocked.count_blocked_by(blocked.store), blocked.count) == (0, 0)
    assert blocked._lines == {}


def test_a_former_subscriber_is_in_nobodys_way() -> None:
    for farewell in (
        Unsubscribe(2, ["t"]),
        Subscribe(2, [Subscription("t", 0)]),
        Disconnect(0, Properties(session_expiry_interval=0)),
    ):
        bench = Bench(FULL, streams=())
        line = bench.subscriber("s", "t", 1)
        bench.publish("t", b"window")
        bench.publish("t", b"queue")
        publishers = waiting(bench, 5)
        line.send(farewell)
        bench.commit()
        assert went_on(publishers) == 5


def test_the_last_member_that_leaves_is_in_nobodys_way() -> None:
    bench = Bench(FULL, streams=())
    line = bench.subscriber("s", SHARED, 1)
    bench.publish("t", b"window")
    bench.publish("t", b"queue")
    publishers = waiting(bench, 5)
    line.send(Unsubscribe(2, [SHARED]))
    bench.commit()
    assert went_on(publishers) == 5


def test_a_publisher_that_may_not_publish_any_more_does_not_wait() -> None:
    """Without a tick: what it holds back is refused, and answered."""
    bench = Bench(FULL, streams=())
    away(bench)
    (line,) = waiting(bench, 1)
    line.session.set_user(None, NoPermissions())
    bench.commit()
    assert line.read() == [Puback(1)]
    assert blocked_of(bench).count == 0


def test_a_publisher_whose_unreleased_message_is_forgotten_goes_on_without_a_tick() -> None:
    """A QoS 2 message of its own was forgotten: there is room for the next."""
    bench = Bench(EngineLimits(max_awaiting_rel=1, await_rel_timeout_s=10), streams=())
    line = bench.join("p", 4)
    line.send(Publish("t", b"1", 2, packet_id=1), Publish("t", b"2", 2, packet_id=2))
    bench.commit()
    assert line.read() == [Pubrec(1)]
    bench.server.context.timers.wake_due(bench.now)
    bench.pass_s(11)
    bench.commit()
    assert line.read() == [Pubrec(2)]


def test_a_subscriber_that_may_not_receive_any_more_is_in_nobodys_way() -> None:
    for topic_filter in ("t", SHARED):
        bench = Bench(FULL, streams=())
        away(bench, topic_filter)
        publishers = waiting(bench, 5)
        bench.server.registry.sessions["s"].set_user(None, NoPermissions())
        bench.server.router.sharing.permissions_changed()
        bench.commit()
        assert went_on(publishers) == 5


def test_a_subscriber_that_comes_back_with_other_bounds_may_be_in_nobodys_way() -> None:
    limits_by_name = {"dropping": EngineLimits(max_inflight=1, max_mqueue_len=1)}
    for topic_filter in ("t", SHARED):
        bench = Bench(FULL, streams=(), limits_by_name=limits_by_name)
        away(bench, topic_filter)
        publishers = waiting(bench, 5)
        wish = Properties(session_expiry_interval=3600)
        bench.connect(Connect("s", 5, False, properties=wish), "dropping")
        assert went_on(publishers) == 5


def test_publishers_that_wait_for_the_store_go_on_when_it_works() -> None:
    bench = Bench(FULL, streams=())
    publishers = [bench.join(f"p{number}", 4) for number in range(3)]
    bench.server.context.store_health.mark_failed("full")
    for line in publishers:
        line.send(Publish("t", b"x", 1, packet_id=1))
    blocked = blocked_of(bench)
    assert blocked.count_blocked_by(blocked.store) == 3
    bench.server.context.store_recovered()
    bench.commit()
    assert went_on(publishers) == 3
    assert blocked.count == 0


def test_a_publisher_that_waits_for_a_queue_when_the_store_fails_keeps_its_number() -> None:
    bench = Bench(FULL, streams=())
    away(bench)
    first, second = waiting(bench, 2)
    context = bench.server.context
    blocked = context.blocked_publishers
    context.store_health.mark_failed("full")
    blocked.wake(session_of(bench), True)
    bench.turns()
    assert blocked.count_blocked_by(blocked.store) == 2
    context.store_recovered()
    bench.turns()
    assert blocked_by(bench) == 2
    bench.join("s", durable=True)
    bench.commit()
    assert (went_on([first]), went_on([second])) == (1, 0)


def test_a_turn_asks_a_portion_of_those_who_wait() -> None:
    bench = Bench(FULL, streams=())
    away(bench)
    publishers = waiting(bench, 60)
    blocked = blocked_of(bench)
    blocked.work_max = 100
    blocked.wake(session_of(bench), True)
    portions = []
    before = blocked.rechecks
    while bench.server.resume(bench.now):
        portions.append(blocked.rechecks - before)
        before = blocked.rechecks
    assert sum(portions) == len(publishers)
    assert 1 < max(portions) <= 10


def test_the_last_publisher_in_line_is_asked_however_often_the_line_is_woken() -> None:
    """A turn asks one at least, and goes on where the last one stopped."""
    bench = Bench(FULL, streams=())
    away(bench)
    publishers = waiting(bench, 20)
    blocked = blocked_of(bench)
    blocked.work_max = 1
    for turn in range(1, len(publishers) + 1):
        blocked.wake(session_of(bench), True)
        bench.server.resume(bench.now)
        assert blocked.rechecks == turn
    assert blocked._lines[session_of(bench)].is_round_over


def test_no_room_for_the_smallest_asks_nobody() -> None:
    """Whoever waits with much was asked whenever there was room for a little."""
    limits = EngineLimits(max_mqueue_len=0, max_mqueue_bytes=10_000, mqueue_overflow=REJECT)
    bench = Bench(limits, streams=())
    line = bench.join("s", durable=True, receive_maximum=1)
    line.send(Subscribe(1, [Subscription("t", 1)]))
    bench.commit()
    line.read()
    other = bench.join("other", 4)
    for number in range(150):
        other.send(Publish("t", b"x", 1, packet_id=1 + number))
    publishers = waiting(bench, 50, 5000)
    looked_at = []
    for _ in range(50):
        before = blocked_of(bench).work
        take(bench, line)
        looked_at.append(blocked_of(bench).work - before)
    assert blocked_of(bench).rechecks == 0
    assert max(looked_at) <= 3  # not at those who wait, but at the smallest
    while went_on(publishers) == 0:
        take(bench, line)
    assert went_on(publishers) == 1
    assert blocked_of(bench).rechecks == 1


def test_the_smallest_is_known_when_it_left() -> None:
    """Of one that left, all that remains is one look at each of the others."""
    limits = EngineLimits(max_mqueue_len=0, max_mqueue_bytes=2000, mqueue_overflow=REJECT)
    bench = Bench(limits, streams=())
    bench.subscriber("s", "t", 1).cut()
    bench.publish("t", b"x" * 1200)
    waiting(bench, 50, 1500)
    small = bench.join("small", 4)
    small.send(Publish("t", b"x" * 800, 1, packet_id=1))
    bench.commit()
    blocked = blocked_of(bench)
    line = blocked._lines[session_of(bench)]
    small_bytes = line.smallest_bytes
    small.cut()
    session = session_of(bench)
    assert line.smallest_bytes == small_bytes  # not yet
    session.backlog.queue.max_bytes = small_bytes + session.backlog.queue_bytes
    for most in (3 * len(line.publishers), 1):
        before = blocked.work
        blocked.wake(session)
        bench.turns()
        assert blocked.work - before <= most
    assert line.smallest_bytes > small_bytes
    assert blocked.rechecks == 0


def test_a_line_that_is_woken_during_its_round_begins_another() -> None:
    bench = Bench(FULL, streams=())
    away(bench)
    publishers = waiting(bench, 3)
    blocked = blocked_of(bench)
    blocked.work_max = 1  # one a turn
    blocked.wake(session_of(bench), True)
    bench.server.resume(bench.now)
    assert blocked.rechecks == 1
    blocked.wake(session_of(bench), True)
    bench.turns()
    assert blocked.rechecks == 2 * len(publishers)
    assert blocked._lines[session_of(bench)].is_idle


def crossed(bench: Bench, count: int) -> list[Line]:
    """As many publishers, each blocked by the queue of a client of its own that is away."""
    publishers = []
    for number in range(count):
        bench.subscriber(f"s{number}", f"t{number}", 1).cut()
        bench.publish(f"t{number}", b"early")
        publisher = bench.join(f"p{number}", 4)
        publisher.send(Publish(f"t{number}", b"x", 1, packet_id=1))
        publishers.append(publisher)
    bench.commit()
    return publishers


def test_a_portion_is_of_all_lines_together() -> None:
    bench = Bench(FULL, streams=())
    crossed(bench, 8)
    blocked = blocked_of(bench)
    blocked.work_max = 1
    for number in range(8):
        blocked.wake(session_of(bench, f"s{number}"), True)
    for turn in range(1, 9):
        bench.server.resume(bench.now)
        assert blocked.rechecks == turn
    assert bench.server.resume(bench.now) == []


def test_many_full_queues_keep_nobody_who_may_go_on() -> None:
    """All queues are woken in every turn and stay full but one: its publisher has its turn."""
    bench = Bench(FULL, streams=())
    publishers = crossed(bench, 100)
    blocked = blocked_of(bench)
    blocked.work_max = 30
    sessions = [session_of(bench, f"s{number}") for number in range(100)]
    sessions[77].backlog.queue.max_len = 2  # there is room
    turns = 0
    while went_on(publishers) == 0:
        for session in sessions:
            blocked.wake(session)
        before = blocked.work
        bench.server.resume(bench.now)
        assert blocked.work - before <= 30 + 25  # the last that is asked and goes on
        turns += 1
    assert turns <= 1 + 100 // 30
    assert went_on(publishers[77:78]) == 1
    assert blocked.rechecks == 1


def test_many_blocked_elsewhere_cost_a_place_nothing() -> None:
    bench = Bench(FULL, streams=())
    publishers = crossed(bench, 50)
    before = blocked_of(bench).work
    bench.join("s7", durable=True)
    bench.commit()
    assert went_on(publishers) == 1
    assert blocked_of(bench).work - before < 50


def test_a_publisher_that_waits_with_another_message_now_is_asked_about_that() -> None:
    """Which is the smallest is known by what waits, not by what came first."""
    limits = EngineLimits(max_mqueue_len=0, max_mqueue_bytes=1000, mqueue_overflow=REJECT)
    bench = Bench(limits, streams=())
    bench.subscriber("s", "t", 1).cut()
    bench.publish("t", b"x" * 500)
    first, second = [line.connection._publishing for line in waiting(bench, 2, 700)]
    blocked = blocked_of(bench)
    session = session_of(bench)
    blocked.wake(session)
    bench.turns()
    assert blocked.rechecks == 0  # it is full for both
    blocked.block(second, session, 10)
    blocked.wake(session)
    bench.turns()
    assert blocked.rechecks == 1
    assert (first.number, second.number, blocked_by(bench)) == (1, 2, 2)


def test_a_change_during_a_round_is_looked_at_by_another_round() -> None:
    """Also where the round ends early, because there is no more room."""
    bench = Bench(FULL, streams=())
    away(bench)
    waiting(bench, 3)
    blocked = blocked_of(bench)
    session = session_of(bench)
    blocked.work_max = 1  # one a turn
    session.backlog.queue.max_len = 2  # there is room for one
    blocked.wake(session)
    bench.server.resume(bench.now)
    assert (blocked.rechecks, blocked_by(bench)) == (1, 2)
    blocked.wake(session, True)
    bench.turns()
    assert (blocked.rechecks, blocked_by(bench)) == (3, 2)


def test_a_publisher_with_a_smaller_message_during_a_round_is_not_forgotten() -> None:
    limits = EngineLimits(max_mqueue_len=0, max_mqueue_bytes=2000, mqueue_overflow=REJECT)
    bench = Bench(limits, streams=())
    bench.subscriber("s", "t", 1).cut()
    bench.publish("t", b"x" * 1500)
    small, *others = [line.connection._publishing for line in waiting(bench, 3, 1000)]
    blocked = blocked_of(bench)
    session = session_of(bench)
    blocked.work_max = 1
    blocked.wake(session, True)
    bench.server.resume(bench.now)
    assert blocked.rechecks == 1
    blocked.block(small, session, 10)  # the round has passed it
    bench.turns()
    assert blocked.rechecks == 1 + len(others)
    assert blocked._lines[session].smallest_bytes == 10


def test_room_at_a_member_that_the_queue_has_nothing_for_lets_one_go_on() -> None:
    """The queue of the group stays full of what the member may not receive."""
    bench = Bench(FULL, streams=())
    group = "$share/g/+"
    bench.subscriber("away", group, 1).cut()
    member = bench.subscriber("m", group, 1)
    member.session.transmission.outlet = Outlet(Without("secret"))
    for _ in range(2):
        bench.publish("secret", b"x")
    bench.publish("t", b"early")
    publishers = waiting(bench, 3)
    queue = bench.server.router.sharing.groups[group].queue
    assert (queue.queue_length, blocked_of(bench).count_blocked_by(queue)) == (2, 3)
    take(bench, member)
    assert (queue.queue_length, went_on(publishers)) == (2, 1)
    take(bench, member)
    assert (queue.queue_length, went_on(publishers)) == (2, 2)


def test_a_member_that_reads_again_lets_one_go_on_without_a_tick() -> None:
    bench = Bench(FULL, streams=())
    member = bench.subscriber("m", SHARED, 1)
    link = member.connection.link
    may_be_sent = link.pending_bytes_max
    link.pending_bytes_max = 0
    bench.publish("t", b"early")
    (publisher,) = waiting(bench, 1)
    link.pending_bytes_max = may_be_sent
    member.send(Pingreq())
    bench.commit()
    assert went_on([publisher]) == 1
