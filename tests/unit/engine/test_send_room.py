"""Room for a message to one client: each question, and what wakes the client where it has none."""

from __future__ import annotations

import pytest

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.memory.pool import MemoryLimits, Pool
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.session.backlog import Backlog
from penstock.engine.session.congestion import NOTHING
from penstock.engine.session.send_room import ANY_QOS, NO_ROOM, ONLY_QOS_0, SendRoom
from penstock.engine.session.window import InFlightWindow
from penstock.engine.values.limit_usage import WINDOW, WRITE_BUFFER
from penstock.engine.values.limits import (
    DROP_OLDEST,
    FREE_BYTES,
    LARGE_BYTES,
    REJECT,
    SMALL_BYTES,
    EngineLimits,
)
from penstock.engine.values.memory_costs import UNCOUNTED_MAX
from penstock.engine.values.message import Delivery, Message
from penstock.engine.waiting import Resumable
from penstock.engine.wire.link import Link

NOTHING_WAKES, A_TICK, THE_LINK = "nothing", "a tick", "the link"


class Place:
    """A connected client of a broker with these limits, whose session is not stored."""

    def __init__(
        self,
        capacity: int = 2,
        queue_len: int = 2,
        overflow: str = DROP_OLDEST,
        memory: MemoryLimits | None = None,
    ) -> None:
        self.context = EngineContext(0, Pool(None, memory or MemoryLimits()))
        limits = EngineLimits(max_mqueue_len=queue_len, mqueue_overflow=overflow)
        account = self.context.accounts.common
        self.backlog = Backlog("c", False, self.context, limits, Drops(), account)
        self.backlog.is_offline = False
        self.window = InFlightWindow(capacity, False, account)
        self.room = SendRoom(self.window, self.backlog, self.context)
        self.link = Link(self.context.turn)
        self.link.resumable = Resumable()

    def fly(self, count: int = 1) -> None:
        """Put messages into the window."""
        for _ in range(count):
            self.window.add(Delivery(Message("t", b""), -1, 1))

    def queue(self, count: int = 1, qos: int = 1) -> None:
        """Put messages into the queue."""
        for _ in range(count):
            self.backlog.push(Delivery(Message("t", b"", qos), -1, qos), 0)

    def fill_link(self) -> None:
        """Write as much to the link as it takes."""
        self.link.send_now(bytes(self.link.pending_bytes_max))

    def others_fill_memory(self, left: int) -> None:
        """Have other links take the memory of all but ``left`` bytes."""
        self.context.turn.buffered_bytes = self.context.turn.buffers_bytes_max - left

    def woken_by(self) -> str:
        """Return what wakes the client now."""
        self.context.turn.waiting.tick()
        by_tick = self.context.has_work
        self.link.take_ready()
        if by_tick:
            return A_TICK
        return THE_LINK if self.context.has_work else NOTHING_WAKES


def crowded(left: int = 0) -> Place:
    """A place with room in its own link, where all links together have ``left`` bytes."""
    place = Place(memory=MemoryLimits(unsent_bytes_max=1_000_000))
    place.link.send_now(bytes(FREE_BYTES))
    place.others_fill_memory(left + FREE_BYTES)
    return place


def short_of_memory() -> Place:
    """A place where messages of QoS 1 and 2 have no memory."""
    place = Place(memory=MemoryLimits(waiting_bytes_max=1000))
    place.context.accounts.common.count_waiting(1000)
    return place


def test_a_packet_waits_for_its_link() -> None:
    place = Place()
    assert place.room.has_room_for_packet(place.link)
    place.fill_link()
    assert not place.room.has_room_for_packet(place.link)
    assert place.woken_by() == THE_LINK


def test_qos_0_has_the_free_bytes_of_its_link_whatever_others_take() -> None:
    place = crowded()
    assert not place.room.has_room_for_qos0(place.link, 1)
    assert place.woken_by() == A_TICK
    place.link.take_ready()
    assert place.room.has_room_for_qos0(place.link, FREE_BYTES)
    assert not place.room.has_room_for_qos0(place.link, FREE_BYTES + 1)


def test_a_flight_needs_the_window_and_a_store_that_can_write() -> None:
    place = Place(capacity=1)
    assert place.room.has_room_for_flight()
    place.context.commit_failed("the disk is full")
    assert not place.room.has_room_for_flight()
    place.context.store_recovered()
    place.fly()
    assert not place.room.has_room_for_flight()


def test_a_new_message_overtakes_nothing_that_waits() -> None:
    new = Message("t", b"x")
    for hold_up in (Place.queue, Place.fill_link, lambda place: place.fly(2)):
        place = Place()
        assert place.room.has_room_for_new(place.link, new)
        hold_up(place)
        assert not place.room.has_room_for_new(place.link, new)


def test_a_new_message_needs_memory_unless_it_is_one_of_few_and_small() -> None:
    small, larger = Message("t", bytes(SMALL_BYTES)), Message("t", bytes(SMALL_BYTES + 1))
    place = short_of_memory()
    assert place.room.has_room_for_new(place.link, small)
    assert not place.room.has_room_for_new(place.link, larger)
    place.window.capacity = 1000
    place.fly(UNCOUNTED_MAX)
    assert not place.room.has_room_for_new(place.link, small)


def test_a_large_new_message_needs_room_in_all_links_together() -> None:
    place = crowded()
    assert not place.room.has_room_for_new(place.link, Message("t", bytes(LARGE_BYTES)))
    place.others_fill_memory(1_000_000)
    assert place.room.has_room_for_new(place.link, Message("t", bytes(LARGE_BYTES)))


@pytest.mark.parametrize(
    ("size_bytes", "woken_by"), [(LARGE_BYTES - 1, NOTHING_WAKES), (LARGE_BYTES, A_TICK)]
)
def test_a_large_message_that_waits_needs_room_in_all_links_together(
    size_bytes: int, woken_by: str
) -> None:
    place = crowded()
    has_room = place.room.has_room_for_next(place.link, size_bytes)
    assert has_room is (woken_by == NOTHING_WAKES)
    assert place.woken_by() == woken_by


@pytest.mark.parametrize("is_congested", [False, True])
def test_a_message_behind_a_link_that_is_not_read_waits_for_the_link_alone(
    is_congested: bool,
) -> None:
    place = Place()
    if is_congested:
        place.link.mark_socket_full()
    else:
        place.fill_link()
    assert not place.room.has_room_for_next(place.link, 1)
    assert place.woken_by() == THE_LINK


def test_the_limit_that_holds_a_message_up_is_known() -> None:
    congested, full, short, free = Place(), Place(capacity=1), short_of_memory(), Place()
    congested.fill_link()
    congested.link.mark_socket_full()
    full.fly()
    found = [place.room.wait_for_room(place.link, 1) for place in (congested, full, short, free)]
    assert found == [WRITE_BUFFER, WINDOW, NOTHING, NOTHING]
    woken = [place.woken_by() for place in (congested, full, short, free)]
    assert woken == [THE_LINK, NOTHING_WAKES, A_TICK, NOTHING_WAKES]


def test_a_member_takes_what_does_not_pass_its_own_messages() -> None:
    place = Place(capacity=1)
    room, link = place.room, place.link
    assert room.has_room_for_group(link, is_next=True) == ANY_QOS
    assert room.has_room_for_group(link, is_next=False) == ONLY_QOS_0
    place.fly()
    assert room.has_room_for_group(link, is_next=True) == ONLY_QOS_0
    place.queue(qos=0)
    assert room.has_room_for_group(link, is_next=True) == NO_ROOM
    assert place.woken_by() == NOTHING_WAKES
    place.fill_link()
    assert room.has_room_for_group(link, is_next=True) == NO_ROOM
    assert place.woken_by() == THE_LINK


def test_a_message_of_a_group_needs_memory_where_it_was_not_counted_before() -> None:
    place = short_of_memory()
    room, link = place.room, place.link
    assert not room.has_room_for_group_message(None, 1, 0, is_new=True)
    assert room.has_room_for_group_message(link, SMALL_BYTES, 1, is_new=True)
    assert not room.has_room_for_group_message(link, SMALL_BYTES + 1, 1, is_new=True)
    assert room.has_room_for_group_message(link, SMALL_BYTES + 1, 1, is_new=False)
    place = crowded()
    for qos in (0, 1):
        for size_bytes in (LARGE_BYTES - 1, LARGE_BYTES):
            has_room = place.room.has_room_for_group_message(place.link, size_bytes, qos, False)
            assert has_room is (size_bytes < LARGE_BYTES)
    assert place.woken_by() == A_TICK


def test_a_retained_message_waits_behind_the_queue_of_a_session_that_is_not_stored() -> None:
    place = Place(capacity=1, queue_len=10)
    assert place.room.has_room_for_retained(0)
    assert place.room.has_room_for_retained(1)
    place.queue(qos=0)
    assert not place.room.has_room_for_retained(1)  # the window has room, and it would overtake
    assert not place.room.has_room_for_retained(0)
    place.backlog.queue.pop()
    place.fly()
    assert not place.room.has_room_for_retained(1)


def test_a_retained_message_may_take_half_of_the_queue_of_a_stored_session() -> None:
    place = Place(capacity=1, queue_len=10)
    place.backlog.is_stored = True
    place.fly()
    place.queue(4)
    assert place.room.has_room_for_retained(1)
    place.queue()
    assert not place.room.has_room_for_retained(1)


def test_one_more_has_the_queue_or_the_window() -> None:
    place = Place(capacity=1, queue_len=1)
    room = place.room
    place.queue()
    assert not room.has_room_for_one_more(place.link, 1)  # nothing passes the queue
    place.backlog.queue.pop()
    place.backlog.queue.set_bounds(1, 10, DROP_OLDEST)
    assert room.has_room_for_one_more(None, 10)
    assert not room.has_room_for_one_more(None, 11)  # the client is away
    assert room.has_room_for_one_more(place.link, 11)
    place.fly()
    assert not room.has_room_for_one_more(place.link, 11)
    short = short_of_memory()
    assert not short.room.has_room_for_one_more(short.link, 1)


@pytest.mark.parametrize("overflow", [REJECT, DROP_OLDEST])
def test_a_message_without_room_is_refused_where_the_policy_says_so(overflow: str) -> None:
    place = Place(capacity=1, queue_len=1, overflow=overflow)
    assert not place.room.refuses(place.link, 1)
    place.fly()
    place.queue()
    assert place.room.refuses(place.link, 1) is (overflow == REJECT)


def test_bodies_are_read_when_memory_has_room_for_them() -> None:
    place = Place(memory=MemoryLimits(waiting_bytes_max=4000))
    assert place.room.has_room_for_bodies_to_read(place.link, 1000)
    place.context.budget.count_fetching(1000)
    assert not place.room.has_room_for_bodies_to_read(None, 1)
    assert place.woken_by() == NOTHING_WAKES
    assert not place.room.has_room_for_bodies_to_read(place.link, 1)
    assert place.woken_by() == A_TICK
