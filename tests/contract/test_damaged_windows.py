"""Windows and inbound packet identifiers after damage: their pages are not those that the progress
of their session tells of.

A commit writes the pages that changed. So a page may be lost by itself, or one that was removed may
be back, where a block of the database or a record of the write-ahead log is damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.engine.batch.commit import Commit
from penstock.engine.session.window import PAGE_PLACES
from penstock.engine.values.records import (
    AWAIT_PUBREC,
    PAGE_IDENTIFIERS,
    SessionState,
    UnreleasedEntry,
    WindowEntry,
    WindowPage,
    ids_in,
    packet_id_checksum,
    pages_of,
)
from penstock.errors import StoreError
from penstock.store import records
from penstock.store.chunk import encode_key
from penstock.store.database import open_database
from penstock.store.examination import examine
from penstock.store.pages import page_values
from penstock.store.repair import repair
from penstock.store.rocks import RocksStore
from tests.contract.test_store import entries, rows, session

NUMBER = encode_key(1)
SENT = range(1, PAGE_PLACES + 2)  # a page, and one more
MESSAGES = 200  # all offsets that are named here


def in_flight(sequences: Sequence[int]) -> list[WindowEntry]:
    return [(n, AWAIT_PUBREC, n, n + 100, 2, False, (), 10, None) for n in sequences]


def progress(window: Sequence[int], head: int, following: int, place: int = 0) -> SessionState:
    """The progress of session 1 with these messages in flight, from ``place`` on."""
    pages: dict[int, list[int]] = {}
    for at, sequence in enumerate(window, place):
        pages.setdefault(at // PAGE_PLACES, []).append(sequence)
    stored = [WindowPage(number, in_flight(pages[number])) for number in sorted(pages)]
    return SessionState(
        *(1, head, following, stored, [], [], [], [], []),
        window_len=len(window),
        next_place=place + len(window),
        window_checksum=packet_id_checksum(window),
    )


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A store with one session, which has ``SENT`` in flight, and nothing waits."""
    store = RocksStore(tmp_path / "data")
    store.commit(rows(0, MESSAGES))
    commit = Commit(MESSAGES)
    commit.sessions = [session()]
    commit.progress = [progress(SENT, SENT.stop, SENT.stop)]
    store.commit(commit)
    store.close()
    assert examine(tmp_path / "data").problems == []
    return tmp_path / "data"


def damage(data_dir: Path, *, remove: bytes = b"", **others: dict[bytes, bytes]) -> None:
    """Take a record of the progress away, and put others, by column family."""
    database = open_database(data_dir)
    if remove:
        database.families["progress"].delete(remove)
    for family, values in others.items():
        for key, value in values.items():
            database.families[family][key] = value
    database.close()


def repaired(data_dir: Path) -> SessionState:
    """The session's progress after a repair, of which an examination has nothing to say."""
    repair(data_dir)
    assert examine(data_dir).problems == []
    store = RocksStore(data_dir)
    found: SessionState = store.recover().progress[1]
    store.close()
    return found


def sequences(found: SessionState) -> list[int]:
    return [entry[2] for entry in found.in_flight()]


def test_a_page_that_is_missing_is_told(data_dir: Path) -> None:
    damage(data_dir, remove=NUMBER + encode_key(0))
    (told,) = examine(data_dir).problems
    assert told == (
        f"{PAGE_PLACES} messages that were in flight to 'c' are missing: they are lost, or were"
        " acknowledged after its progress was written"
    )
    found = repaired(data_dir)
    assert (sequences(found), found.window_len) == ([SENT[-1]], 1)


def test_a_page_that_is_back_is_told(data_dir: Path) -> None:
    removed = records.encode_page(WindowPage(7, in_flight([60, 61])))
    damage(data_dir, progress={NUMBER + encode_key(7): removed})
    assert examine(data_dir).problems[0] == (
        "the in-flight window of 'c' has 2 messages more than its progress says: some may reach it"
        " again"
    )
    found = repaired(data_dir)
    assert sequences(found) == [*SENT, 60, 61]
    assert (found.window_len, found.queue_head) == (len(SENT) + 2, 62)


def test_as_many_other_messages_are_told(data_dir: Path) -> None:
    """So it is with a client whose window is full at any time."""
    place = 3 * PAGE_PLACES
    store = RocksStore(data_dir)
    commit = Commit(MESSAGES)
    following = progress(range(60, 60 + PAGE_PLACES + 1), 70, 70, place)
    following.pages += [WindowPage(0, []), WindowPage(1, [])]
    commit.progress = [following]
    store.commit(commit)
    store.close()
    assert examine(data_dir).problems == []
    removed = records.encode_page(WindowPage(0, in_flight(SENT[:PAGE_PLACES])))
    damage(data_dir, remove=NUMBER + encode_key(3), progress={NUMBER + encode_key(0): removed})
    (told,) = examine(data_dir).problems
    assert told == (
        "the in-flight window of 'c' has other messages than its progress says: some are lost, or"
        " were acknowledged after its progress was written, and some may reach it again"
    )
    found = repaired(data_dir)
    assert sequences(found) == [*SENT[:PAGE_PLACES], 60 + PAGE_PLACES]


def test_of_two_pages_with_one_packet_identifier_the_live_one_stays(data_dir: Path) -> None:
    """Places go on after a start: a page that comes back has a smaller number than a live one."""
    store = RocksStore(data_dir)
    commit = Commit(MESSAGES)
    acknowledged = progress((), SENT.stop, SENT.stop, place=SENT.stop)
    acknowledged.pages = [WindowPage(0, []), WindowPage(1, [])]
    commit.progress = [acknowledged]
    store.commit(commit)
    store.close()
    store = RocksStore(data_dir)
    place = store.recover().progress[1].next_place
    assert place == SENT.stop
    commit = Commit(MESSAGES)
    commit.progress = [progress([20], 21, 21, place=2 * PAGE_PLACES)]
    commit.progress[0].pages[0].entries = [(1, AWAIT_PUBREC, 20, 120, 2, False, (), 10, None)]
    store.commit(commit)
    store.close()
    damage(
        data_dir,
        progress={NUMBER + encode_key(0): records.encode_page(WindowPage(0, in_flight([1])))},
    )
    assert sequences(repaired(data_dir)) == [20]


def test_of_two_messages_with_one_packet_identifier_the_later_page_is_right(data_dir: Path) -> None:
    copied = records.encode_page(WindowPage(9, in_flight(SENT[:PAGE_PLACES])))
    damage(data_dir, progress={NUMBER + encode_key(9): copied})
    (told,) = examine(data_dir).problems
    assert told == (
        f"the in-flight window of 'c' has {PAGE_PLACES} messages with packet identifiers of later"
        " ones"
    )
    assert sequences(repaired(data_dir)) == [SENT[-1], *SENT[:PAGE_PLACES]]


def test_a_session_whose_progress_is_lost_goes_on_behind_what_is_in_flight(data_dir: Path) -> None:
    store = RocksStore(data_dir)
    commit = Commit(MESSAGES)
    commit.progress = [progress(SENT, SENT.stop, SENT.stop + 5)]
    commit.progress[0].segments = entries(SENT.stop, 5)
    store.commit(commit)
    store.close()
    damage(data_dir, remove=NUMBER)
    with pytest.raises(StoreError, match="the progress of session 1 is missing"):
        RocksStore(data_dir).recover()
    assert examine(data_dir).problems == [
        "the progress of 'c' is lost, or older than its queue: some messages may reach it again"
    ]
    found = repaired(data_dir)
    assert sequences(found) == [*SENT]
    assert (found.queue_head, found.next_sequence) == (SENT.stop, SENT.stop + 5)


def test_progress_that_is_older_than_its_window_goes_on_behind_it(data_dir: Path) -> None:
    """With a backlog: what is in flight is not queued as well."""
    older = progress((), 3, 21)
    (segment,) = entries(5, 16)
    damage(
        data_dir,
        progress={NUMBER: records.encode_progress(older)},
        queue={NUMBER + encode_key(5): records.encode_segment(segment)},
    )
    told = examine(data_dir).problems
    assert "the progress of 'c' is lost, or older than its queue: some messages may" in told[-1]
    found = repaired(data_dir)
    assert sequences(found) == [*SENT]
    assert (found.queue_head, found.next_sequence) == (SENT.stop, 21)


# -- inbound packet identifiers ------------------------------------------------------------------

FIRST_PAGE = [1, 5, PAGE_IDENTIFIERS - 1]
LAST_PAGE = [65_534, 65_535]


def receives(
    data_dir: Path,
    packet_ids: Sequence[int],
    released: Sequence[int] = (),
    held: Sequence[UnreleasedEntry] = (),
) -> dict[bytes, bytes]:
    """Let session 1 have received messages with ``packet_ids``; return the pages as stored."""
    commit = Commit(MESSAGES)
    received = progress((), SENT.stop, SENT.stop, place=SENT.stop)
    received.pages = [WindowPage(0, []), WindowPage(1, [])]
    received.inbound = [*((page, 0) for page, _ in pages_of(list(released)))]
    received.inbound += pages_of(list(packet_ids))
    received.unreleased = list(held)
    received.inbound_len = len(packet_ids)
    received.inbound_checksum = packet_id_checksum(list(packet_ids))
    commit.progress = [received]
    store = RocksStore(data_dir)
    store.commit(commit)
    store.close()
    assert examine(data_dir).problems == []
    return {key: value for key, value in page_values(received) if value is not None}


def told(there: int, due: int) -> str:
    return (
        "the packet identifiers of QoS 2 messages received from 'c' are not those in its progress"
        f" ({there} where it has {due}): they are dropped, and messages that it sends again may be"
        " published twice"
    )


def test_a_page_of_inbound_identifiers_that_is_missing_is_told(data_dir: Path) -> None:
    first, _ = receives(data_dir, FIRST_PAGE + LAST_PAGE)
    damage(data_dir, remove=first)
    assert examine(data_dir).problems == [told(2, 5)]
    found = repaired(data_dir)
    assert (found.inbound, found.inbound_len, found.inbound_checksum) == ([], 0, 0)


def test_a_page_of_inbound_identifiers_that_is_back_is_told(data_dir: Path) -> None:
    """Its identifiers would make messages that are new repeats of others, and lose them."""
    ((key, value),) = receives(data_dir, LAST_PAGE).items()
    receives(data_dir, FIRST_PAGE, LAST_PAGE)
    damage(data_dir, progress={key: value})
    assert examine(data_dir).problems == [told(5, 3)]
    assert repaired(data_dir).inbound == []


def test_of_inbound_identifiers_as_many_others_are_told(data_dir: Path) -> None:
    """So it is with a client that keeps its window full: it has as many at any time."""
    ((key, value),) = receives(data_dir, [40, 41, 42]).items()
    (live,) = receives(data_dir, FIRST_PAGE, [40, 41, 42])
    damage(data_dir, remove=live, progress={key: value})
    assert examine(data_dir).problems == [told(3, 3)]
    assert repaired(data_dir).inbound == []


def test_inbound_identifiers_that_are_left_of_a_lost_progress_stay(data_dir: Path) -> None:
    receives(data_dir, FIRST_PAGE + LAST_PAGE)
    damage(data_dir, remove=NUMBER)
    assert [line for line in examine(data_dir).problems if "the progress of 'c' is lost" in line]
    assert ids_in(repaired(data_dir).inbound) == FIRST_PAGE + LAST_PAGE


def test_messages_that_wait_for_pubrel_stay_with_their_identifiers(data_dir: Path) -> None:
    """Those of MQTT 3.1 clients: the progress itself names them."""
    first, _ = receives(data_dir, FIRST_PAGE + LAST_PAGE, held=[(5, 17, 9)])
    damage(data_dir, remove=first)
    assert examine(data_dir).problems == [told(2, 5)]
    found = repaired(data_dir)
    assert (ids_in(found.inbound), found.inbound_len) == ([5], 1)
    assert found.unreleased == [(5, 17, 9)]
