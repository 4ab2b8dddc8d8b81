"""The store contract: one suite for every store (``store.port``).

Each test says what must be so after a restart and after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from penstock.engine.batch.commit import Commit
from penstock.engine.values.message import Message
from penstock.engine.values.packed_run import PackedRun
from penstock.engine.values.records import (
    AWAIT_PUBACK,
    AWAIT_PUBCOMP,
    ProducerRecord,
    RecoveredState,
    SessionRecord,
    SessionState,
    SubscriptionRecord,
    WillRecord,
    WindowEntry,
    WindowPage,
)
from penstock.engine.values.steady_clock import ClockRecord, Leads
from penstock.protocol.packets import Subscription
from penstock.protocol.properties import Properties, encode_properties
from penstock.store.mark import NO_MARK
from penstock.store.port import Store
from tests.contract.places import MemoryPlace, Place, RocksPlace

Restart: TypeAlias = Callable[[], Store]

PROPERTIES = encode_properties(Properties(content_type="text", user_properties=[("a", "b")]))


@pytest.fixture(params=[MemoryPlace, RocksPlace])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made: Place = request.param(tmp_path)
    yield made
    made.close()


@pytest.fixture(params=["reopen", "crash"])
def restart(request: pytest.FixtureRequest, place: Place) -> Restart:
    """Both ways to start again."""
    chosen: Restart = getattr(place, request.param)
    return chosen


def rows(base_offset: int, count: int, received_at_us: int = 1_000, size: int = 10) -> Commit:
    """A commit of ``count`` messages and nothing else."""
    commit = Commit(base_offset)
    for number in range(base_offset, base_offset + count):
        payload = str(number).encode().rjust(size, b"x")
        message = Message(f"t/{number % 3}", payload, number % 3, False, "c", received_at_us)
        message.offset = number
        commit.messages.append(message)
    return commit


def session(client_id: str = "c", number: int = 1) -> SessionRecord:
    return SessionRecord(client_id, number, 3600, 77, "main")


def progress(
    number: int = 1,
    head: int = 1,
    following: int = 1,
    segment: list[PackedRun] | None = None,
    finished: list[int] | None = None,
) -> SessionState:
    return SessionState(number, head, following, [], [], segment or [], finished or [], [], [])


def entries(first: int, count: int) -> list[PackedRun]:
    run = PackedRun(first)
    for n in range(first, first + count):
        assert run.add(n, n + 100, n % 7, (n % 3, n % 2 == 0, (n,), None))
    return [run]


def told(runs: list[PackedRun]) -> list[tuple[object, ...]]:
    """What runs hold, however they are cut."""
    return [
        (
            item.sequence,
            item.offset,
            item.size_bytes,
            item.qos,
            item.retain,
            item.subscription_ids,
        )
        for run in runs
        for item in map(run.delivery, range(len(run)))
    ]


def fields(value: object) -> object:
    """What a record says, for comparison."""
    if isinstance(value, Message):
        return (
            value.topic,
            value.payload,
            value.qos,
            value.retain,
            value.client_id,
            value.received_at_us,
            value.properties,
        )
    if isinstance(value, SessionRecord):
        at_us = value.disconnected_at_us
        return (value.client_id, value.number, value.expiry_interval_s, at_us, value.limits_name)
    if isinstance(value, SubscriptionRecord):
        return (value.number, value.topic_filter, value.subscription, value.identifier)
    if isinstance(value, WillRecord):
        return (fields(value.message), value.delay_s, value.due_at_us)
    assert isinstance(value, SessionState)
    return (
        value.number,
        value.queue_head,
        value.next_sequence,
        [(page.number, page.entries) for page in value.pages],
        value.inbound,
        value.lanes,
        value.unreleased,
    )


# -- the empty store, the epoch ------------------------------------------------------------


def test_a_new_store_is_empty(place: Place) -> None:
    recovered = place.store.recover()
    assert recovered.next_offset == 0
    assert recovered.epoch != ""
    lists: list[object] = [recovered.sessions, recovered.subscriptions, recovered.retained]
    assert lists == [[], [], []]
    assert not recovered.progress
    assert not recovered.queues
    assert not recovered.segments
    assert not recovered.wills
    assert place.store.read([0, 1]) == {}
    assert place.store.trim_log(2**62, 0, 2**62) == 0


def test_the_epoch_stays(place: Place, restart: Restart) -> None:
    epoch = place.store.recover().epoch
    assert restart().recover().epoch == epoch


# -- the log -------------------------------------------------------------------------------


def test_messages_are_read_back(place: Place, restart: Restart) -> None:
    commit = Commit(0)
    commit.messages = [
        Message("a/b", b"\x00\xff", 2, True, "ü", 1_800_000_000_123_456, PROPERTIES, 0),
        Message("$SYS", b"", 0, False, "", 0, b"", 1, internal=True),
    ]
    place.store.commit(commit)
    store = restart()
    read = store.read([0, 1])
    assert [fields(read[n]) for n in (0, 1)] == [fields(message) for message in commit.messages]
    assert [(read[n].offset, read[n].internal) for n in (0, 1)] == [(0, False), (1, True)]
    assert store.recover().next_offset == 2


@pytest.mark.parametrize(
    "offsets", [[], [0], [9], [4, 5], [9, 0, 5, 5, 2], list(range(10)), [10, 11, 3], [2**40]]
)
def test_reads_go_across_chunks(place: Place, offsets: list[int]) -> None:
    for base, count in ((0, 1), (1, 4), (5, 2), (7, 3)):
        place.store.commit(rows(base, count))
    read = place.store.read(offsets)
    assert sorted(read) == sorted({offset for offset in offsets if offset < 10})
    assert all(int(message.payload.lstrip(b"x")) == n for n, message in read.items())
    assert all(message.offset == n for n, message in read.items())


def test_offsets_go_on_after_a_restart(place: Place, restart: Restart) -> None:
    place.store.commit(rows(0, 3))
    store = restart()
    assert store.recover().next_offset == 3
    store.commit(rows(3, 2))
    assert sorted(restart().read(range(9))) == [0, 1, 2, 3, 4]


def test_a_commit_without_messages_moves_no_offset(place: Place, restart: Restart) -> None:
    place.store.commit(rows(0, 3))
    commit = Commit(3)
    commit.sessions = [session()]
    place.store.commit(commit)
    recovered = restart().recover()
    assert recovered.next_offset == 3
    assert len(recovered.sessions) == 1


# -- retention -----------------------------------------------------------------------------


def test_old_chunks_go_from_the_front(place: Place, restart: Restart) -> None:
    for base in range(0, 10, 2):
        place.store.commit(rows(base, 2, received_at_us=1000 + base))
    assert place.store.trim_log(1004, 2**62, 2**62) == 4
    store = restart()
    assert sorted(store.read(range(10))) == list(range(4, 10))
    assert store.recover().next_offset == 10


def test_nothing_needed_goes(place: Place) -> None:
    for base in range(0, 10, 2):
        place.store.commit(rows(base, 2))
    starts_at = place.store.trim_log(2**62, 0, 5)
    assert starts_at in (4, 5), "a chunk goes whole or not at all"
    assert set(range(5, 10)) <= set(place.store.read(range(10)))
    assert place.store.trim_log(2**62, 0, 0) == starts_at, "and none comes back"


def test_chunks_go_while_the_log_is_too_large(place: Place) -> None:
    for base in range(20):
        place.store.commit(rows(base, 1, size=100_000))
    starts_at = place.store.trim_log(0, 1_000_000, 2**62)
    assert 9 <= starts_at <= 12
    for _ in range(3):
        assert place.store.trim_log(0, 1_000_000, 2**62) == starts_at, "not more than asked"


def test_held_messages_go_only_while_the_log_is_too_large_to_hold_them(place: Place) -> None:
    for base in range(20):
        place.store.commit(rows(base, 1, size=100_000))
    assert place.store.trim_log(2**62, 0, 2**62, 5, 2**62) == 5, "what is not held goes at once"
    assert place.store.trim_log(2**62, 0, 2**62, 5, 2**62) == 5
    assert place.store.trim_log(0, 2**62, 2**62, 5, 0) == 5, "nobody wants to have it removed"
    starts_at = place.store.trim_log(2**62, 0, 2**62, 5, 1_000_000)
    assert 9 <= starts_at <= 12
    assert place.store.trim_log(2**62, 0, starts_at, 5, 0) == starts_at, "a session needs it"


def test_the_size_of_the_log_is_known_after_a_restart(place: Place, restart: Restart) -> None:
    for base in range(20):
        place.store.commit(rows(base, 1, size=100_000))
    starts_at = place.store.trim_log(0, 1_000_000, 2**62)
    store = restart()
    assert store.trim_log(0, 1_000_000, 2**62) == starts_at
    assert store.trim_log(0, 500_000, 2**62) > starts_at


def test_the_extent_of_the_log_is_told(place: Place, restart: Restart) -> None:
    assert place.store.log_extent() == (0, 0, 0)
    for base in range(20):
        place.store.commit(rows(base, 1, size=10_000))
    whole = place.store.log_extent()
    assert (whole.earliest, whole.end) == (0, 20)
    assert whole.size_bytes >= 20 * 10_000
    starts_at = place.store.trim_log(0, 100_000, 2**62)
    trimmed = place.store.log_extent()
    assert (trimmed.earliest, trimmed.end) == (starts_at, 20)
    assert trimmed.size_bytes < whole.size_bytes
    assert restart().log_extent() == trimmed


def test_offsets_never_restart(place: Place, restart: Restart) -> None:
    """However much retention takes, the end of the log is known after a restart."""
    place.store.commit(rows(0, 3))
    place.store.commit(rows(3, 3))
    place.store.trim_log(2**62, 0, 2**62)
    assert restart().recover().next_offset == 6
    place.store.trim_log(2**62, 0, 2**62)
    assert restart().recover().next_offset == 6


# -- sessions ------------------------------------------------------------------------------


def test_sessions_and_their_parts_are_recovered(place: Place, restart: Restart) -> None:
    commit = Commit(0)
    commit.sessions = [session("a", 1), session("ü/2", 2)]
    subscription = Subscription("a/#", 2, True, True, 2)
    commit.subscriptions = [
        SubscriptionRecord(1, "a/#", subscription, 268_435_455),
        SubscriptionRecord(2, "ü", Subscription("ü", 0)),
    ]
    pages = [
        WindowPage(2, [(65535, AWAIT_PUBACK, 5, 105, 1, True, (3, 4), 9, ("$share/g/t", 2, True))]),
        WindowPage(1 << 40, [(1, AWAIT_PUBCOMP, 6, 106, 2, False, (), 10, None)]),
    ]
    commit.progress = [
        SessionState(
            1,
            7,
            9,
            pages,
            [(0, 2), (2047, 1 << 31)],
            entries(7, 2),
            [],
            [(9, 5, 6)],
            [(65535, 104, 99)],
        )
    ]
    place.store.commit(commit)
    recovered = restart().recover()
    assert {fields(record) for record in recovered.sessions} == {
        fields(record) for record in commit.sessions
    }
    assert [fields(record) for record in recovered.subscriptions] == [
        fields(record) for record in commit.subscriptions
    ]
    assert fields(recovered.progress[1]) == fields(commit.progress[0])
    assert told(recovered.queues[1]) == told(entries(7, 2))
    assert recovered.segments == {1: [7]}


def test_a_record_is_replaced(place: Place, restart: Restart) -> None:
    for qos, head in ((0, 1), (2, 4)):
        commit = Commit(0)
        commit.sessions = [SessionRecord("c", 1, 10 + qos, head)]
        commit.subscriptions = [SubscriptionRecord(1, "a", Subscription("a", qos))]
        commit.progress = [progress(1, head, head)]
        place.store.commit(commit)
    recovered = restart().recover()
    assert [fields(record) for record in recovered.sessions] == [("c", 1, 12, 4, "")]
    assert [record.subscription for record in recovered.subscriptions] == [Subscription("a", 2)]
    assert recovered.progress[1].queue_head == 4


def test_a_subscription_is_removed(place: Place, restart: Restart) -> None:
    for subscription in (Subscription("a", 1), None):
        commit = Commit(0)
        commit.subscriptions = [
            SubscriptionRecord(1, "a", subscription),
            SubscriptionRecord(1, "a/b", Subscription("a/b", 1)),
        ]
        place.store.commit(commit)
    recovered = restart().recover()
    assert [record.topic_filter for record in recovered.subscriptions] == ["a/b"]


def test_segments_join_in_order_and_go_when_they_are_finished(
    place: Place, restart: Restart
) -> None:
    for first in (1, 3, 200, 70_000):
        commit = Commit(0)
        commit.progress = [progress(1, 1, first + 2, entries(first, 2))]
        place.store.commit(commit)
    commit = Commit(0)
    commit.progress = [progress(1, 4, 70_002, [], [1])]
    place.store.commit(commit)
    recovered = restart().recover()
    assert recovered.segments[1] == [3, 200, 70_000]
    expected = entries(3, 2) + entries(200, 2) + entries(70_000, 2)
    assert told(recovered.queues[1]) == told(expected)


def in_flight(*packet_ids: int) -> list[WindowEntry]:
    return [(number, AWAIT_PUBACK, number, number, 1, False, (), 9, None) for number in packet_ids]


def test_a_page_of_the_window_is_stored_anew_and_no_other(place: Place, restart: Restart) -> None:
    for pages in (
        [WindowPage(0, in_flight(1, 2)), WindowPage(1, in_flight(3))],
        [WindowPage(256, in_flight(5)), WindowPage(1, in_flight(3, 4))],
        [WindowPage(0, in_flight(2))],
        [WindowPage(1, []), WindowPage(7, [])],
    ):
        commit = Commit(0)
        commit.progress = [progress(1)]
        commit.progress[0].pages = pages
        place.store.commit(commit)
    recovered = restart().recover().progress[1]
    assert [(page.number, page.entries) for page in recovered.pages] == [
        (0, in_flight(2)),
        (256, in_flight(5)),
    ]


def test_a_page_of_inbound_identifiers_is_stored_anew_and_no_other(
    place: Place, restart: Restart
) -> None:
    for inbound in ([(0, 6), (3, 1)], [(3, 5), (2047, 9)], [(0, 0), (7, 0)]):
        commit = Commit(0)
        commit.progress = [progress(1)]
        commit.progress[0].inbound = inbound
        commit.progress[0].pages = [WindowPage(1, in_flight(3))]
        place.store.commit(commit)
    recovered = restart().recover().progress[1]
    assert recovered.inbound == [(3, 5), (2047, 9)]
    assert recovered.in_flight() == in_flight(3)


def test_an_ended_session_vanishes_and_no_other(place: Place, restart: Restart) -> None:
    commit = Commit(0)
    for number in (1, 2, 3):
        commit.sessions.append(session(f"c{number}", number))
        commit.subscriptions.append(SubscriptionRecord(number, "a", Subscription("a", 1)))
        commit.progress.append(progress(number, 1, 3, entries(1, 2)))
        commit.progress[-1].pages = [WindowPage(0, in_flight(1)), WindowPage(9, in_flight(2))]
        commit.progress[-1].inbound = [(1, 1), (9, 1)]
    place.store.commit(commit)
    ending = Commit(0)
    ending.ended = [("c2", 2)]
    place.store.commit(ending)
    recovered = restart().recover()
    assert {record.number for record in recovered.sessions} == {1, 3}
    assert {record.number for record in recovered.subscriptions} == {1, 3}
    assert set(recovered.progress) == set(recovered.queues) == set(recovered.segments) == {1, 3}


def test_a_session_may_be_replaced_in_one_commit(place: Place, restart: Restart) -> None:
    """Clean start: the old one ends and its successor is stored, in this order."""
    commit = Commit(0)
    commit.sessions = [session("c", 1)]
    commit.subscriptions = [SubscriptionRecord(1, "old", Subscription("old", 1))]
    commit.progress = [progress(1, 1, 3, entries(1, 2))]
    place.store.commit(commit)
    commit = Commit(0)
    commit.ended = [("c", 1)]
    commit.sessions = [session("c", 2)]
    commit.subscriptions = [SubscriptionRecord(2, "new", Subscription("new", 1))]
    commit.progress = [progress(2, 1, 2, entries(1, 1))]
    place.store.commit(commit)
    recovered = restart().recover()
    assert [record.number for record in recovered.sessions] == [2]
    assert [record.topic_filter for record in recovered.subscriptions] == ["new"]
    assert set(recovered.queues) == {2}
    assert told(recovered.queues[2]) == told(entries(1, 1))


# -- retained messages, wills --------------------------------------------------------------


def test_retained_messages_are_kept_replaced_and_removed(place: Place, restart: Restart) -> None:
    first = Message("a", b"1", 1, True, "c", 5, PROPERTIES)
    second = Message("a", b"2", 2, True, "d", 6, b"")
    other = Message("ü/", b"3", 0, True, "", 7, b"")
    commit = Commit(0)
    commit.retained = [("a", first), ("ü/", other), ("gone", Message("gone", b"x"))]
    place.store.commit(commit)
    commit = Commit(0)
    commit.retained = [("a", second), ("gone", None), ("never", None)]
    place.store.commit(commit)
    recovered = restart().recover()
    kept = {message.topic: fields(message) for message in recovered.retained}
    assert kept == {"a": fields(second), "ü/": fields(other)}


def test_wills_are_kept_replaced_and_removed(place: Place, restart: Restart) -> None:
    first = WillRecord(Message("w", b"1", 1, True, "c", 0, PROPERTIES), 10, 0)
    second = WillRecord(first.message, 10, 1_800_000_000_000_000)
    commit = Commit(0)
    commit.wills = [("c", first), ("gone", first)]
    place.store.commit(commit)
    commit = Commit(0)
    commit.wills = [("c", second), ("gone", None)]
    place.store.commit(commit)
    recovered = restart().recover()
    assert {name: fields(will) for name, will in recovered.wills.items()} == {"c": fields(second)}


def test_the_numbers_of_producers_are_kept_moved_and_removed(
    place: Place, restart: Restart
) -> None:
    commit = rows(0, 1)
    commit.producers = [
        ("\0ü", ProducerRecord("\0ü", 1, 5)),
        ("u\0gone", ProducerRecord("u\0gone", 9, 5)),
    ]
    place.store.commit(commit)
    commit = Commit(1)
    commit.producers = [
        ("\0ü", ProducerRecord("\0ü", 2**40, 7, "plan")),
        ("u\0gone", None),
        ("never", None),
    ]
    place.store.commit(commit)
    recovered = restart().recover()
    assert [producer(one) for one in recovered.producers] == [("\0ü", 2**40, 7, "plan")]


def producer(record: ProducerRecord) -> tuple[str, int, int, str]:
    return (record.key, record.sequence, record.used_at_us, record.mark)


# -- everything together -------------------------------------------------------------------


def state(recovered: RecoveredState) -> object:
    """All of it, for comparison."""
    return (
        recovered.epoch,
        recovered.next_offset,
        sorted(map(repr, map(fields, recovered.sessions))),
        sorted(map(repr, map(fields, recovered.subscriptions))),
        {number: fields(value) for number, value in recovered.progress.items()},
        {number: told(runs) for number, runs in recovered.queues.items()},
        recovered.segments,
        sorted(map(repr, map(fields, recovered.retained))),
        {name: fields(will) for name, will in recovered.wills.items()},
        sorted(map(producer, recovered.producers)),
    )


def test_every_restart_finds_the_same(place: Place) -> None:
    commit = rows(0, 5)
    commit.sessions = [session()]
    commit.subscriptions = [SubscriptionRecord(1, "a", Subscription("a", 1))]
    commit.progress = [progress(1, 1, 3, entries(1, 2))]
    commit.retained = [("a", Message("a", b"x"))]
    commit.wills = [("c", WillRecord(Message("w", b"x"), 1, 2))]
    commit.producers = [("u\0p", ProducerRecord("u\0p", 3, 4))]
    place.store.commit(commit)
    before = state(place.store.recover())
    assert state(place.store.recover()) == before, "recovering changes nothing"
    assert state(place.crash().recover()) == before
    assert state(place.reopen().recover()) == before


# -- the clock -----------------------------------------------------------------------------


def clock(steady_us: int, *leads: tuple[int, int]) -> ClockRecord:
    return ClockRecord(steady_us, steady_us + 5, 77, "boot", Leads(list(leads)))


def test_the_state_of_the_clock_is_recovered(place: Place, restart: Restart) -> None:
    assert place.store.recover().clock is None
    commit = Commit(0)
    commit.clock = clock(1_000, (0, 0))
    assert commit.has_writes
    place.store.commit(commit)
    commit = rows(0, 1)
    commit.clock = clock(2_000, (0, 0), (4, -50))
    place.store.commit(commit)
    place.store.commit(rows(1, 1))
    found = restart().recover().clock
    assert found is not None
    assert (found.steady_us, found.wall_us, found.boot_us) == (2_000, 2_005, 77)
    assert (found.boot_id, found.leads.entries) == ("boot", [(0, 0), (4, -50)])


def dated(offset: int, steady_us: int, lead_us: int) -> Commit:
    """A commit of one message that was received then, and expires a second later."""
    commit = Commit(offset)
    properties = encode_properties(Properties(message_expiry_interval=1))
    date_us = steady_us + lead_us
    message = Message("t", b"", 1, False, "c", date_us, properties, offset, lead_us=lead_us)
    commit.messages.append(message)
    commit.retained.append((f"t/{offset}", message))
    return commit


def test_messages_expire_by_the_steady_clock(place: Place, restart: Restart) -> None:
    """Their dates are in the log, which cannot be rewritten when the wall clock is set."""
    place.store.commit(dated(0, 5_000_000, 0))
    jump = dated(1, 6_000_000, -4_000_000)
    jump.clock = clock(6_000_000, (0, 0), (1, -4_000_000))
    place.store.commit(jump)
    for begins_anew in (False, True):
        store = restart() if begins_anew else place.store
        found = store.read([0, 1])
        assert [found[offset].received_at_us for offset in (0, 1)] == [5_000_000, 2_000_000]
        assert [found[offset].expires_at_us for offset in (0, 1)] == [6_000_000, 7_000_000]
        retained = sorted(store.recover().retained, key=lambda message: message.steady_us)
        assert [message.expires_at_us for message in retained] == [6_000_000, 7_000_000]


def test_the_log_is_trimmed_by_the_steady_clock(place: Place) -> None:
    for offset, (steady_us, lead_us) in enumerate(((5_000, 0), (6_000, 9_000), (7_000, -6_500))):
        commit = dated(offset, steady_us, lead_us)
        leads = [(0, 0), (1, 9_000), (2, -6_500)][: offset + 1]
        commit.clock = clock(steady_us, *leads)
        place.store.commit(commit)
    place.store.commit(dated(3, 8_000, -6_500))
    assert place.store.trim_log(5_000, 2**62, 2**62) == 0
    assert place.store.trim_log(5_001, 2**62, 2**62) == 1
    assert place.store.trim_log(6_001, 2**62, 2**62) == 2
    assert place.store.trim_log(7_001, 2**62, 2**62) == 3


# -- the history ---------------------------------------------------------------------------


def test_a_position_of_the_log_is_known_again_and_one_of_another_log_is_not(
    place: Place, restart: Restart
) -> None:
    epoch = place.store.recover().epoch
    place.store.commit(rows(0, 5))
    mark = place.store.mark_at(3)
    store = restart()
    assert store.judge(epoch, 3, mark).is_same
    assert store.judge(epoch, 0, NO_MARK).is_same
    assert not store.judge("20200101T000000-00000000", 3, NO_MARK).is_same
