"""The durable form of the engine's state: what a record says of itself."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.values.access import Authorize
from penstock.engine.values.limits import PACKET_IDENTIFIERS
from penstock.engine.values.message import Message
from penstock.engine.values.records import (
    AWAIT_PUBACK,
    GROUP_KEY_PREFIX,
    PAGE_IDENTIFIERS,
    RecoveredState,
    SessionRecord,
    SessionState,
    WillRecord,
    WindowEntry,
    WindowPage,
    ids_in,
    packet_id_checksum,
    pages_of,
)

PACKET_IDS = st.lists(st.integers(1, PACKET_IDENTIFIERS), unique=True, max_size=60)


@given(PACKET_IDS)
def test_packet_identifiers_are_found_on_their_pages(packet_ids: list[int]) -> None:
    pages = pages_of(packet_ids)
    assert ids_in(pages) == sorted(packet_ids)
    numbers = [number for number, _ in pages]
    assert numbers == sorted({packet_id // PAGE_IDENTIFIERS for packet_id in packet_ids})
    assert all(0 < bits < 1 << PAGE_IDENTIFIERS for _, bits in pages)


@given(PACKET_IDS, st.integers(1, PACKET_IDENTIFIERS))
def test_a_checksum_knows_which_identifiers_there_are_and_not_their_order(
    packet_ids: list[int], other: int
) -> None:
    checksum = packet_id_checksum(packet_ids)
    assert packet_id_checksum(reversed(packet_ids)) == checksum
    if packet_ids and other not in packet_ids:
        assert packet_id_checksum([other, *packet_ids[1:]]) != checksum


def test_the_queue_of_a_group_is_no_session() -> None:
    recovered = RecoveredState("epoch", 0)
    recovered.sessions = [
        SessionRecord("$share/g/t", 1, 10, 0),  # a client may call itself that
        SessionRecord(GROUP_KEY_PREFIX + "$share/g/t", 2, 10, 0),
    ]
    assert [record.is_group_queue for record in recovered.sessions] == [False, True]
    assert recovered.session_count == 1


def test_a_window_is_read_in_the_order_of_its_pages() -> None:
    entries: list[WindowEntry] = [(n, AWAIT_PUBACK, n, n, 1, False, (), 10, None) for n in range(3)]
    pages = [WindowPage(0, entries[:2]), WindowPage(4, []), WindowPage(5, entries[2:])]
    state = SessionState(1, 1, 1, pages, [], [], [], [], [])
    assert state.in_flight() == entries


def test_a_will_that_is_due_keeps_whose_permissions_are_asked() -> None:
    will = WillRecord(Message("t", b"x"), 5, 0, "alice")
    port = Authorize()
    will.set_authorize(port)
    due = will.due_at(70)
    assert (due.message, due.delay_s, due.due_at_us) == (will.message, 5, 70)
    assert (due.username, due.authorize, due.has_own_authorize) == ("alice", port, True)
    assert will.due_at_us == 0
    will.set_authorize(None)
    assert not will.has_own_authorize
