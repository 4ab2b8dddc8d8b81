"""Publishers that wait for room: who is asked again when a place is given up, and who is not."""

from __future__ import annotations

from penstock.engine.access.access import Permissions
from penstock.engine.batch.blocked_publishers import RoomLine, Waiting
from penstock.engine.limits import REJECT, EngineLimits
from penstock.engine.server.server_connection import ServerConnection
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connect,
    Disconnect,
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


def away(bench: Bench, topic_filter: str = "t") -> None:
    """A client that is away, its queue full."""
    bench.subscriber("s", topic_filter, 1).cut()
    bench.publish("t", b"early")


def waiting(bench: Bench, count: int = MANY, size: int = 1) -> list[Line]:
    """Publishers before MQTT 5 that wait, with one message each."""
    lines = [bench.join(f"p{number}", 4) for number in range(count)]
    for line in lines:
        line.send(Publish("t", b"x" * size, 1, packet_id=1))
        assert line.connection.held_back_count == 1
    bench.commit()
    return lines


def went_on(lines: list[Line]) -> int:
    return sum(line.connection.held_back_count == 0 for line in lines)


def line_of(bench: Bench, client_id: str = "s") -> RoomLine:
    line = bench.server.registry.sessions[client_id].room_line
    assert line is not None
    return line


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
    line = line_of(bench)
    before = line.looked_at
    for number in range(1, 51):
        take(bench, back)
        assert went_on(publishers) == 1 + number
    assert line.looked_at - before == 50
    assert line.length == MANY - 51
    assert [one.connection.held_back_count for one in publishers] == [0] * 51 + [1] * 49


def test_one_place_in_a_group_lets_one_go_on() -> None:
    bench = Bench(FULL, streams=())
    away(bench, SHARED)
    publishers = waiting(bench)
    queue = bench.server.router.sharing.groups[SHARED].queue
    room_line = queue.room_line
    assert room_line is not None
    assert room_line.length == MANY
    member = bench.join("m", durable=True)
    member.send(Subscribe(1, [Subscription(SHARED, 1)]))
    bench.commit()
    assert went_on(publishers) == 2  # it takes what was there, and adds a place
    before = room_line.looked_at
    for number in range(1, 21):
        take(bench, member)
        assert went_on(publishers) == 2 + number
    assert room_line.looked_at - before <= 40


def test_who_has_no_room_for_much_lets_those_with_little_go_on() -> None:
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
    assert line_of(bench).length == 1
    take(bench, line)
    take(bench, line)
    assert (went_on([much]), went_on([little])) == (1, 1)


def test_who_is_refused_elsewhere_now_waits_there() -> None:
    bench = Bench(FULL, streams=())
    for name in ("s", "z"):
        bench.subscriber(name, "t", 1).cut()
    bench.publish("t", b"early")
    publishers = waiting(bench, 3)
    assert publishers[0].connection._publishing._waiting().looked_at == 0  # it was not asked again
    first, second = [bench.server.registry.sessions[name] for name in ("s", "z")]
    if first.room_line is None:
        first, second = second, first
    line = line_of(bench, first.client_id)
    assert line.length == 3
    bench.join(first.client_id, durable=True)
    bench.commit()
    assert line.length == 0
    assert line_of(bench, second.client_id).length == 3
    assert publishers[0].connection._publishing._waiting().looked_at == 2  # behind the other
    assert went_on(publishers) == 0
    bench.join(second.client_id, durable=True)
    bench.commit()
    assert went_on(publishers) == 1
    assert line_of(bench, second.client_id).length + line.length == 2


def test_who_leaves_waits_nowhere() -> None:
    """Else a client that comes again and again would fill the line."""
    bench = Bench(FULL, streams=())
    away(bench)
    for _ in range(5):
        (line,) = waiting(bench, 1)
        line.cut()
    bench.server.effects.store.cannot_write("full")
    other = bench.line(4)
    other.send(Connect("other", 4))
    other.send(Publish("free", b"x", 1, packet_id=1))
    assert bench.server.effects.store_line.length == 1
    other.cut()
    assert bench.server.effects.store_line.length == 0
    assert line_of(bench).length == 0


def test_who_is_no_subscriber_any_more_is_in_nobodys_way() -> None:
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


def test_who_may_not_publish_any_more_does_not_wait() -> None:
    """Without a tick: what it holds back is refused, and answered."""
    bench = Bench(FULL, streams=())
    away(bench)
    (line,) = waiting(bench, 1)
    line.session.identify(None, NoPermissions())
    bench.commit()
    assert line.read() == [Puback(1)]
    assert line_of(bench).length == 0


def test_who_may_receive_again_is_told_without_a_tick() -> None:
    """A QoS 2 message of its own was forgotten: there is room for the next."""
    bench = Bench(EngineLimits(max_awaiting_rel=1, await_rel_timeout_s=10), streams=())
    line = bench.join("p", 4)
    line.send(Publish("t", b"1", 2, packet_id=1), Publish("t", b"2", 2, packet_id=2))
    bench.commit()
    assert line.read() == [Pubrec(1)]
    bench.server.effects.timers.wake_due(bench.now)
    bench.pass_s(11)
    bench.commit()
    assert line.read() == [Pubrec(2)]


def test_who_may_not_receive_any_more_is_in_nobodys_way() -> None:
    for topic_filter in ("t", SHARED):
        bench = Bench(FULL, streams=())
        away(bench, topic_filter)
        publishers = waiting(bench, 5)
        bench.server.registry.sessions["s"].identify(None, NoPermissions())
        bench.server.router.sharing.permissions_changed()
        bench.commit()
        assert went_on(publishers) == 5


def test_who_comes_back_with_other_bounds_may_be_in_nobodys_way() -> None:
    zones = {"dropping": EngineLimits(max_inflight=1, max_mqueue_len=1)}
    for topic_filter in ("t", SHARED):
        bench = Bench(FULL, streams=(), zones=zones)
        away(bench, topic_filter)
        publishers = waiting(bench, 5)
        wish = Properties(session_expiry_interval=3600)
        bench.connect(Connect("s", 5, False, properties=wish), "dropping")
        assert went_on(publishers) == 5


def test_who_waits_for_the_store_goes_on_when_it_works() -> None:
    bench = Bench(FULL, streams=())
    publishers = [bench.join(f"p{number}", 4) for number in range(3)]
    bench.server.effects.store.cannot_write("full")
    for line in publishers:
        line.send(Publish("t", b"x", 1, packet_id=1))
    assert bench.server.effects.store_line.length == 3
    bench.server.effects.store_works()
    bench.commit()
    assert went_on(publishers) == 3
    assert bench.server.effects.store_line.length == 0


def test_a_turn_asks_a_portion_of_those_who_wait() -> None:
    bench = Bench(FULL, streams=())
    away(bench)
    publishers = waiting(bench, 60)
    line = line_of(bench)
    bench.server.effects.told_lines.work_max = 100
    line.tell_all()
    portions = []
    before = line.looked_at
    while bench.server.resume(bench.now):
        portions.append(line.looked_at - before)
        before = line.looked_at
    assert sum(portions) == len(publishers)
    assert 1 < max(portions) <= 10


def test_who_stands_at_the_end_is_asked_however_often_the_line_is_told() -> None:
    """A turn asks one at least, and goes on where the last one stopped."""
    bench = Bench(FULL, streams=())
    away(bench)
    publishers = waiting(bench, 20)
    told = bench.server.effects.told_lines
    told.work_max = 1
    line = line_of(bench)
    for _ in publishers:
        line.tell_all()
        bench.server.resume(bench.now)
    last = publishers[-1].connection._publishing._waiting()
    assert line.looked_at == len(publishers)
    assert last.refused_at == told.times


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
    for _ in range(50):
        take(bench, line)
    assert line_of(bench).looked_at == 0
    while went_on(publishers) == 0:
        take(bench, line)
    assert went_on(publishers) == 1
    assert line_of(bench).looked_at == 1


def test_a_line_that_is_told_during_its_round_begins_another() -> None:
    bench = Bench(FULL, streams=())
    away(bench)
    publishers = waiting(bench, 3)
    line = line_of(bench)
    told = bench.server.effects.told_lines
    told.work_max = 1  # one a turn
    line.tell_all()
    bench.server.resume(bench.now)
    assert line.looked_at == 1
    line.tell_all()
    bench.turns()
    assert line.looked_at == 4  # the first again; the others were asked after it was told
    assert line.rests
    for publisher in publishers:
        assert publisher.connection._publishing._waiting().refused_at == told.times


def test_a_portion_is_of_all_lines_together() -> None:
    bench = Bench(FULL, streams=())
    for number in range(8):
        bench.subscriber(f"s{number}", f"t{number}", 1).cut()
        bench.publish(f"t{number}", b"early")
        bench.join(f"p{number}", 4).send(Publish(f"t{number}", b"x", 1, packet_id=1))
    bench.commit()
    lines = [line_of(bench, f"s{number}") for number in range(8)]
    bench.server.effects.told_lines.work_max = 1
    for line in lines:
        line.tell_all()
    for turn in range(1, 9):
        bench.server.resume(bench.now)
        assert sum(line.looked_at for line in lines) == turn
    assert bench.server.resume(bench.now) == []


def test_who_waits_with_another_message_now_is_asked_about_that() -> None:
    """Which is the smallest is known by what waits, not by what came first."""
    limits = EngineLimits(max_mqueue_len=0, max_mqueue_bytes=1000, mqueue_overflow=REJECT)
    bench = Bench(limits, streams=())
    bench.subscriber("s", "t", 1).cut()
    bench.publish("t", b"x" * 500)
    line = bench.server.registry.sessions["s"].line_for_room()
    first, second = Waiting(), Waiting()
    for one in (first, second):
        one.size_bytes = 700
        one.wait_in([line])
    assert line.ask_some(100, [], bench.now) == 1  # it is full for both
    second.size_bytes = 10
    second.wait_in([line])
    line.tell()
    bench.turns()
    assert (line.looked_at, line.length) == (1, 1)
    assert first.lines == [line]
    assert second.lines == []
    assert line.ask_some(100, [], bench.now) == 1
