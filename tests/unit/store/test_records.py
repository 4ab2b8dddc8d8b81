"""The bytes of every record of the file store can be read back."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.values.message import Message
from penstock.engine.values.packed_run import Kind, PackedRun
from penstock.engine.values.records import (
    SessionRecord,
    SessionState,
    WillRecord,
    WindowEntry,
    WindowPage,
    ids_in,
    pages_of,
)
from penstock.protocol.packets import Subscription
from penstock.store import records

NUMBER = st.integers(0, 2**63 - 1)
TEXT = st.text(max_size=10)
QOS = st.integers(0, 2)
IDS = st.lists(st.integers(1, 268_435_455), max_size=3).map(tuple)
PACKET_ID = st.integers(1, 65535)
SIZE = st.integers(0, 2**32 - 1)
KIND = st.tuples(QOS, st.booleans(), IDS, st.none())
SHARED = st.none() | st.tuples(TEXT, QOS, st.booleans())
WINDOW_ENTRY = st.tuples(
    PACKET_ID, st.integers(1, 3), NUMBER, NUMBER, QOS, st.booleans(), IDS, SIZE, SHARED
)
MESSAGE = st.builds(
    Message,
    topic=TEXT,
    payload=st.binary(max_size=20),
    qos=QOS,
    retain=st.booleans(),
    client_id=TEXT,
    received_at_us=NUMBER,
    properties=st.sampled_from([b"", b"\x01\x01", b"\x02\x00\x00\x00\x09"]),
)


def fields(message: Message) -> tuple[object, ...]:
    return (
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.client_id,
        message.received_at_us,
        message.properties,
        message.expires_at_us,
    )


@given(TEXT, NUMBER, st.integers(1, 0xFFFFFFFF), NUMBER, TEXT, st.none() | TEXT)
def test_sessions(
    client_id: str, number: int, expiry_s: int, at_us: int, limits_name: str, username: str | None
) -> None:
    value = records.encode_session(
        SessionRecord(client_id, number, expiry_s, at_us, limits_name, username)
    )
    read = records.decode_session(client_id, value)
    assert read.client_id == client_id
    assert (
        read.number,
        read.expiry_interval_s,
        read.disconnected_at_us,
        read.limits_name,
        read.username,
    ) == (number, expiry_s, at_us, limits_name, username)


def test_an_anonymous_client_owns_a_session() -> None:
    value = records.encode_session(SessionRecord("c", 7, 3600, 99, "main", None, True))
    assert records.decode_session("c", value).is_owner_known


@given(
    st.builds(Subscription, TEXT, QOS, st.booleans(), st.booleans(), QOS),
    st.integers(0, 268_435_455),
)
def test_subscriptions(subscription: Subscription, identifier: int) -> None:
    value = records.encode_subscription(subscription, identifier)
    read = records.decode_subscription(5, subscription.topic_filter, value)
    assert (read.number, read.subscription, read.identifier) == (5, subscription, identifier)


@given(
    NUMBER,
    NUMBER,
    st.lists(st.tuples(NUMBER, NUMBER, NUMBER), max_size=3),
    st.lists(st.tuples(PACKET_ID, NUMBER, NUMBER), max_size=3),
)
def test_progress(
    head: int,
    following: int,
    lanes: list[tuple[int, int, int]],
    held: list[tuple[int, int, int]],
) -> None:
    value = records.encode_progress(
        SessionState(9, head, following, [], [], [], [], lanes, held, following, 3, 70, 14, 4, 30)
    )
    read = records.decode_progress(9, value)
    assert (read.number, read.queue_head, read.next_sequence) == (9, head, following)
    assert (read.lanes, read.unreleased) == (lanes, held)
    assert (read.pages, read.inbound, read.sent_below) == ([], [], following)
    assert (read.window_len, read.next_place, read.window_checksum) == (3, 70, 14)
    assert (read.inbound_len, read.inbound_checksum) == (4, 30)
    assert read.segments == []
    assert read.finished_segments == []


@given(NUMBER, st.lists(WINDOW_ENTRY, max_size=5))
def test_pages_of_a_window(number: int, entries: list[WindowEntry]) -> None:
    read = records.decode_page(number, records.encode_page(WindowPage(number, entries)))
    assert (read.number, read.entries) == (number, entries)


@given(st.sets(PACKET_ID, max_size=20))
def test_pages_of_inbound_packet_identifiers(packet_ids: set[int]) -> None:
    pages = pages_of(list(packet_ids))
    read = [
        (number, records.decode_inbound(records.encode_inbound(bits))) for number, bits in pages
    ]
    assert ids_in(read) == sorted(packet_ids)


def told(run: PackedRun) -> list[tuple[object, ...]]:
    return [
        (
            item.sequence,
            item.offset,
            item.size_bytes,
            item.qos,
            item.retain,
            item.subscription_ids,
        )
        for item in map(run.delivery, range(len(run)))
    ]


@given(NUMBER, st.lists(st.tuples(NUMBER, SIZE, KIND), min_size=1, max_size=5))
def test_segments(first: int, deliveries: list[tuple[int, int, Kind]]) -> None:
    segment = PackedRun(first)
    for number, (offset, size_bytes, kind) in enumerate(deliveries):
        assert segment.add(first + number, offset, size_bytes, kind)
    read = records.decode_segment(records.encode_segment(segment))
    assert told(read) == told(segment)


@given(MESSAGE)
def test_retained_messages(message: Message) -> None:
    assert fields(records.decode_message(records.encode_message(message))) == fields(message)


@given(MESSAGE, NUMBER, NUMBER, st.none() | st.text())
def test_wills(message: Message, delay_s: int, due_at_us: int, username: str | None) -> None:
    will = WillRecord(message, delay_s, due_at_us, username)
    read = records.decode_will(records.encode_will(will))
    assert fields(read.message) == fields(message)
    assert (read.delay_s, read.due_at_us, read.username) == (delay_s, due_at_us, username)


def test_a_will_of_version_0_1_0_has_no_port_of_its_own() -> None:
    row = ("t", b"x", 1, False, "c", 5, b"")
    read = records.decode_will(msgspec.msgpack.encode((1, row, 7, 9, "alice")))
    assert (read.message.topic, read.delay_s, read.due_at_us, read.username) == ("t", 7, 9, "alice")
    assert not read.has_own_authorize


@pytest.mark.parametrize(
    "damage",
    [
        lambda run: run.offsets.append(9),
        lambda run: run.sizes.pop(),
        lambda run: run.kinds.append(0),
        lambda run: run.table.clear(),
    ],
    ids=["an offset too many", "a size too few", "a kind too many", "kinds that nobody knows"],
)
def test_a_segment_whose_columns_do_not_fit_is_refused(
    damage: Callable[[PackedRun], object],
) -> None:
    """Taken as it is, every later message of the queue would be another one."""
    run = PackedRun(1)
    assert run.add(1, 40, 10, (1, False, (), None))
    damage(run)
    with pytest.raises(msgspec.ValidationError, match="do not fit together"):
        records.decode_segment(records.encode_segment(run))
