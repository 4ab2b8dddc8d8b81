"""The in-flight window."""

import pytest

from penstock.engine.session.window import (
    FREED,
    PAGE_PLACES,
    REJECTED,
    RELEASE,
    UNKNOWN,
    VIOLATION,
    InFlightWindow,
)
from penstock.engine.values.limits import PACKET_IDENTIFIERS
from penstock.engine.values.message import Delivery, Message
from penstock.engine.values.priorities import PRIORITY_SHIFT
from penstock.engine.values.records import (
    AWAIT_PUBACK,
    AWAIT_PUBCOMP,
    AWAIT_PUBREC,
    packet_id_checksum,
)
from penstock.protocol.kinds import PUBACK, PUBCOMP, PUBREC

ACKNOWLEDGEMENTS = (PUBACK, PUBREC, PUBCOMP)


def delivery(qos: int, offset: int = 0) -> Delivery:
    return Delivery(Message("t", b"", qos), offset, qos, sequence=1)


def added(window: InFlightWindow, item: Delivery) -> Delivery:
    window.add(item)
    return item


def in_state(state: int) -> tuple[InFlightWindow, int]:
    """A window with one entry in that state."""
    window = InFlightWindow(10)
    entry = added(window, delivery(1 if state == AWAIT_PUBACK else 2))
    if state == AWAIT_PUBCOMP:
        window.acknowledge(PUBREC, entry.packet_id, 0)
    return window, entry.packet_id


@pytest.mark.parametrize(
    ("state", "acknowledgement", "verdict", "left"),
    [
        (AWAIT_PUBACK, PUBACK, FREED, 0),
        (AWAIT_PUBACK, PUBREC, VIOLATION, 1),
        (AWAIT_PUBACK, PUBCOMP, VIOLATION, 1),
        (AWAIT_PUBREC, PUBACK, VIOLATION, 1),
        (AWAIT_PUBREC, PUBREC, RELEASE, 1),
        (AWAIT_PUBREC, PUBCOMP, VIOLATION, 1),
        (AWAIT_PUBCOMP, PUBACK, VIOLATION, 1),
        (AWAIT_PUBCOMP, PUBREC, RELEASE, 1),
        (AWAIT_PUBCOMP, PUBCOMP, FREED, 0),
    ],
)
def test_the_whole_table(state: int, acknowledgement: int, verdict: int, left: int) -> None:
    window, packet_id = in_state(state)
    assert window.acknowledge(acknowledgement, packet_id, 0) == verdict
    assert len(window) == left
    if verdict == VIOLATION:
        assert window.entries()[0].state == state


@pytest.mark.parametrize("acknowledgement", ACKNOWLEDGEMENTS)
def test_an_unknown_packet_identifier_is_told(acknowledgement: int) -> None:
    window, packet_id = in_state(AWAIT_PUBACK)
    assert window.acknowledge(acknowledgement, packet_id + 1, 0) == UNKNOWN
    assert len(window) == 1


@pytest.mark.parametrize(
    ("state", "acknowledgement"), [(AWAIT_PUBACK, PUBACK), (AWAIT_PUBREC, PUBREC)]
)
def test_a_refusal_frees_the_place(state: int, acknowledgement: int) -> None:
    window, packet_id = in_state(state)
    assert window.acknowledge(acknowledgement, packet_id, 0x97) == REJECTED
    assert len(window) == 0


def test_pubcomp_frees_whatever_its_reason_code() -> None:
    """MQTT 5 §4.9: a PUBCOMP frees, regardless of an error code in it."""
    window, packet_id = in_state(AWAIT_PUBCOMP)
    assert window.acknowledge(PUBCOMP, packet_id, 0x92) == FREED


def test_the_body_goes_when_the_receiver_has_it() -> None:
    window, _ = in_state(AWAIT_PUBCOMP)
    assert window.entries()[0].message is None
    assert window.undelivered_entries() == []


def test_a_message_that_the_receiver_has_is_neither_supplied_nor_given_up() -> None:
    """Another copy of the same message, in the window too, is what was asked for."""
    window, _ = in_state(AWAIT_PUBCOMP)
    entry = window.entries()[0]
    entry.offset = 7
    waiting = added(window, Delivery(None, 7, 1))
    body = Message("t", b"x")
    assert window.supply({7: body}, set()) == []
    assert (entry.message, waiting.message) == (None, body)
    waiting.message = None
    assert [item.offset for item in window.supply({}, {7})] == [7]
    assert [left.state for left in window.entries()] == [AWAIT_PUBCOMP]


def test_the_window_is_full_at_its_capacity() -> None:
    window = InFlightWindow(2)
    first = added(window, delivery(2))
    assert window.has_room()
    window.add(delivery(1))
    assert not window.has_room()
    window.acknowledge(PUBREC, first.packet_id, 0)
    assert not window.has_room(), "PUBREC frees nothing (MQTT 5 §4.9)"
    window.acknowledge(PUBCOMP, first.packet_id, 0)
    assert window.has_room()


def test_every_packet_identifier_is_used_and_none_twice() -> None:
    """[MQTT-2.2.1-4]; all of them fit at once, and the freed one is found again."""
    window = InFlightWindow(65535)
    given = {added(window, delivery(1)).packet_id for _ in range(65535)}
    assert given == set(range(1, 65536))
    assert not window.has_room()
    window.acknowledge(PUBACK, 777, 0)
    assert added(window, delivery(1)).packet_id == 777


def test_a_packet_identifier_in_the_window_is_jumped_over() -> None:
    window = InFlightWindow(10)
    stays = added(window, delivery(1)).packet_id
    for _ in range(3 * 65535 // 2):
        packet_id = added(window, delivery(1)).packet_id
        assert packet_id != stays
        window.acknowledge(PUBACK, packet_id, 0)


def resend_all(window: InFlightWindow) -> list[int]:
    sent = []
    while (entry := window.next_to_resend()) is not None:
        sent.append(entry.packet_id)
        window.mark_sent(entry)
    return sent


def test_unfinished_messages_are_sent_again_in_order() -> None:
    """[MQTT-4.6.0-1]"""
    window = InFlightWindow(10)
    ids = [added(window, delivery(qos)).packet_id for qos in (1, 2, 1, 2)]
    window.acknowledge(PUBREC, ids[1], 0)
    window.acknowledge(PUBACK, ids[2], 0)
    window.begin_connection(10)
    assert not window.has_room(), "nothing new may pass what is to be sent again"
    assert resend_all(window) == [ids[0], ids[1], ids[3]]
    assert window.has_room()


def test_a_smaller_receive_maximum_holds_back_what_is_sent_again() -> None:
    window = InFlightWindow(10)
    ids = [added(window, delivery(1)).packet_id for _ in range(5)]
    window.begin_connection(2)
    assert resend_all(window) == ids[:2]
    window.acknowledge(PUBACK, ids[0], 0)
    assert resend_all(window) == ids[2:3]
    window.acknowledge(PUBACK, ids[2], 0)
    window.acknowledge(PUBACK, ids[1], 0)
    assert resend_all(window) == ids[3:5]
    assert not window.has_room()


def test_a_message_acknowledged_before_it_was_sent_again_is_not_sent_again() -> None:
    window = InFlightWindow(10)
    ids = [added(window, delivery(1)).packet_id for _ in range(3)]
    window.begin_connection(1)
    assert resend_all(window) == ids[:1]
    window.acknowledge(PUBACK, ids[1], 0)
    window.acknowledge(PUBACK, ids[0], 0)
    assert resend_all(window) == ids[2:]


def test_a_second_reconnect_starts_over() -> None:
    window = InFlightWindow(10)
    ids = [added(window, delivery(1)).packet_id for _ in range(3)]
    window.begin_connection(2)
    assert resend_all(window) == ids[:2]
    window.begin_connection(10)
    assert resend_all(window) == ids


def test_restored_entries_wait_and_keep_their_packet_identifiers() -> None:
    window = InFlightWindow(10)
    window.restore(41, AWAIT_PUBCOMP, delivery(2))
    window.restore(42, AWAIT_PUBACK, delivery(1))
    window.begin_connection(10)
    assert resend_all(window) == [41, 42]
    for _ in range(41):
        assert added(window, Delivery(Message("t", b"", 1), 0, 1)).packet_id not in (41, 42)


def test_a_stored_delivery_has_the_packet_identifier_of_its_sequence_unless_that_is_taken() -> None:
    window = InFlightWindow(10, is_stored=True)
    of_another_lane = Delivery(None, 0, 1, sequence=(1 << PRIORITY_SHIFT) + 3)
    ids = [added(window, Delivery(None, 0, 1, sequence=7)).packet_id for _ in range(2)]
    assert [*ids, added(window, of_another_lane).packet_id] == [7, 65_535, 65_534]


def test_after_a_restart_an_identifier_that_was_freed_is_not_the_next() -> None:
    """MQTT 3.1 sends again by time, so that its acknowledgement may come twice."""
    window = InFlightWindow(10, is_stored=True)
    window.restore(65_534, AWAIT_PUBCOMP, Delivery(None, 0, 2, sequence=1 << PRIORITY_SHIFT))
    window.restore(7, AWAIT_PUBACK, Delivery(None, 0, 1, sequence=7))
    assert window.acknowledge(PUBCOMP, 65_534, 0) == FREED
    assert added(window, Delivery(Message("t", b"", 2), 0, 2)).packet_id == 65_533


def test_identifiers_of_what_may_leave_are_given_to_others_only_where_there_is_no_other() -> None:
    window = InFlightWindow(10, is_stored=True)
    window.limit_packet_ids(6)
    window.reserved_ids.reserve(3, 6)
    assert [window.allocate_request_id() for _ in range(6)] == [6, 2, 1, 5, 4, 3]
    assert window.allocate_request_id() == 0
    window.reserved_ids.reserve(6, 3)  # none
    for packet_id in range(1, 7):
        window.free_request_id(packet_id)
    assert window.allocate_request_id() == 2


def test_a_sequence_whose_identifier_is_in_the_window_is_not_free() -> None:
    window = InFlightWindow(10, is_stored=True)
    assert window.free_below(5, 20) == 20
    window.restore(4, AWAIT_PUBACK, Delivery(None, 0, 1, sequence=4))
    assert window.free_below(5, 20) == 20
    window.restore(9, AWAIT_PUBACK, Delivery(None, 0, 1, sequence=(1 << PRIORITY_SHIFT) + 1))
    assert window.free_below(5, 20) == 9
    assert window.free_below(5, 7) == 7
    assert window.free_below(9, 20) == 9
    assert window.free_below(10, 10 + 2 * PACKET_IDENTIFIERS) == 4 + PACKET_IDENTIFIERS
    assert window.free_below(30, 20) == 30


def test_bodies_are_asked_for_in_the_order_of_sending() -> None:
    window = InFlightWindow(10)
    for offset in range(4):
        window.restore(offset + 1, AWAIT_PUBACK, Delivery(None, offset, 1, sequence=offset + 1))
    window.restore(9, AWAIT_PUBCOMP, Delivery(None, 9, 2, sequence=9))
    window.begin_connection(10)
    assert window.resend_offsets_without_body(2) == [0, 1]
    assert window.resend_offsets_without_body(100) == [0, 1, 2, 3], "PUBREL needs no body"


# -- what is stored of it ------------------------------------------------------------------


def stored_window(length: int) -> InFlightWindow:
    """A window of stored QoS 2 messages, of which all is stored already."""
    window = InFlightWindow(PACKET_IDENTIFIERS, is_stored=True)
    for sequence in range(1, length + 1):
        window.add(Delivery(Message("t", b"", 2), sequence, 2, sequence=sequence))
    window.take_pages()
    return window


def taken(window: InFlightWindow) -> dict[int, list[int]]:
    """Sequences of what is in flight, by the number of the page, of those that changed."""
    return {page.number: [entry[2] for entry in page.entries] for page in window.take_pages()}


def test_only_pages_in_which_something_changed_are_stored_anew() -> None:
    window = stored_window(1000)
    assert taken(window) == {}
    window.acknowledge(PUBREC, 1, 0)
    last = 1000 // PAGE_PLACES
    window.add(Delivery(None, 0, 1, sequence=1001))
    assert taken(window) == {0: list(range(1, PAGE_PLACES + 1)), last: [1001]}
    window.acknowledge(PUBREC, 1, 0)
    assert taken(window) == {}, "the same again"
    window.acknowledge(PUBCOMP, 1, 0)
    window.acknowledge(PUBREC, 500, 0x97)
    page = 499 // PAGE_PLACES
    first = page * PAGE_PLACES + 1
    assert taken(window) == {
        0: list(range(2, PAGE_PLACES + 1)),
        page: [number for number in range(first, first + PAGE_PLACES) if number != 500],
    }


def test_a_page_in_which_nothing_is_left_is_stored_as_empty_once() -> None:
    window = stored_window(2 * PAGE_PLACES)
    for packet_id in range(1, PAGE_PLACES + 1):
        window.drop(packet_id)
    assert taken(window) == {0: []}
    assert taken(window) == {}
    assert window.entries()[0].sequence == PAGE_PLACES + 1


def test_an_entry_given_up_or_lowered_is_stored_anew() -> None:
    window = stored_window(3 * PAGE_PLACES)
    entries = window.entries()
    window.give_up(entries[0])
    window.lower_qos(entries[-1], 1)
    assert sorted(taken(window)) == [0, 2]
    window.lower_qos(entries[-1], 1)
    assert taken(window) == {}


def test_after_a_restart_places_follow_the_last_page() -> None:
    window = stored_window(PAGE_PLACES + 1)
    window.acknowledge(PUBREC, 3, 0)
    window.add(Delivery(None, 0, 1, sequence=100))
    pages = {page.number: page for page in window.take_pages()}
    again = InFlightWindow(PACKET_IDENTIFIERS, is_stored=True)
    for number in sorted(pages):
        for packet_id, state, sequence, offset, qos, *_ in pages[number].entries:
            again.restore(packet_id, state, Delivery(None, offset, qos, sequence=sequence), number)
    assert taken(again) == {}
    again.add(Delivery(None, 0, 1, sequence=101))
    assert taken(again) == {2: [101]}
    assert [entry.sequence for entry in again.entries()][-3:] == [PAGE_PLACES + 1, 100, 101]
    assert again.stored_checksum == packet_id_checksum(entry.packet_id for entry in again.entries())


def test_places_are_given_out_once_whatever_is_left_of_a_window() -> None:
    window = stored_window(PAGE_PLACES + 1)
    for packet_id in range(1, PAGE_PLACES + 2):
        window.drop(packet_id)
    assert (taken(window), window.stored_len, window.stored_checksum) == ({0: [], 1: []}, 0, 0)
    again = InFlightWindow(PACKET_IDENTIFIERS, is_stored=True)
    again.next_place = window.next_place
    again.add(Delivery(None, 0, 1, sequence=PAGE_PLACES + 2))
    assert (taken(again), again.stored_len) == ({1: [PAGE_PLACES + 2]}, 1)


def test_a_window_that_is_not_stored_has_no_pages() -> None:
    window = InFlightWindow(10)
    entry = added(window, Delivery(None, 0, 1))
    assert taken(window) == {}
    window.acknowledge(PUBACK, entry.packet_id, 0)
    assert taken(window) == {}
