"""What `penstock store check` finds: every damage by its offsets, and nothing that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.values.message import Message
from penstock.engine.values.packed_run import PackedRun
from penstock.engine.values.records import (
    AWAIT_PUBACK,
    AWAIT_PUBCOMP,
    SubscriptionRecord,
    WillRecord,
    WindowPage,
)
from penstock.errors import StoreError, StoreFormatError
from penstock.protocol.packets import Subscription
from penstock.store.chunk import encode_key
from penstock.store.database import STORE_DIRECTORY, open_database
from penstock.store.examination import examine
from penstock.store.findings import PROBLEMS_MAX, Examination
from penstock.store.rocks import RocksStore
from tests.contract.test_store import progress, rows, session

ROWS = 10
CHUNKS = 40
END = ROWS * CHUNKS


def queue(*offsets: int, first: int = 1) -> list[PackedRun]:
    run = PackedRun(first)
    for sequence, offset in enumerate(offsets, start=first):
        assert run.add(sequence, offset, 10, (1, False, (), None))
    return [run]


def filled(data_dir: Path) -> None:
    """Chunks large enough to lie in blocks of their own."""
    store = RocksStore(data_dir)
    for number in range(CHUNKS):
        store.commit(rows(number * ROWS, ROWS, size=1_000))
    commit = rows(END, 0)
    commit.sessions = [session("c", 1), session("d", 2)]
    commit.subscriptions = [SubscriptionRecord(1, "a", Subscription("a", 1))]
    waiting = progress(1, head=5, following=7, segment=queue(3, 20, 399, first=4))
    waiting.pages = [
        WindowPage(0, [(1, AWAIT_PUBACK, 2, 17, 1, False, (), 9, None)]),
        WindowPage(1, [(2, AWAIT_PUBCOMP, 3, 10**9, 2, False, (), 9, None)]),
    ]
    commit.progress = [waiting]
    commit.retained = [("a", Message("a", b"x"))]
    commit.wills = [("c", WillRecord(Message("w", b"x"), 1, 2))]
    store.commit(commit)
    store.close()


def examined(data_dir: Path) -> list[str]:
    return examine(data_dir).problems


def test_a_whole_store_is_counted(tmp_path: Path) -> None:
    filled(tmp_path)
    found = examine(tmp_path)
    assert found.problems == []
    assert (found.begin, found.end, found.messages, found.chunks) == (0, END, END, CHUNKS)
    assert (found.sessions, found.subscriptions, found.queued, found.in_flight) == (2, 1, 2, 2)
    assert (found.retained, found.wills, found.commits) == (1, 1, CHUNKS + 1)
    assert found.log_size_bytes > END * 1_000
    RocksStore(tmp_path).close()


def test_an_empty_store_is_whole(tmp_path: Path) -> None:
    RocksStore(tmp_path).close()
    found = examine(tmp_path)
    assert (found.problems, found.messages, found.commits) == ([], 0, 0)


def tampered(data_dir: Path, family: str, key: bytes, value: bytes | None) -> None:
    database = open_database(data_dir)
    if value is None:
        database.families[family].delete(key)
    else:
        database.families[family].put(key, value)
    database.close()


@pytest.mark.parametrize(
    ("family", "key", "value", "says"),
    [
        ("sessions", b"c", b"\xff", "sessions: the value of b'c' cannot be understood"),
        ("retained", b"a", b"", "retained: the value of b'a' cannot be understood"),
        ("wills", b"c", b"\x93", "wills: the value of b'c' cannot be understood"),
        ("sessions", b"c", None, "a subscription to a belongs to no session"),
        ("sessions", b"c", None, "2 queued messages belong to no session"),
        ("log", encode_key(20), None, "the offsets 20 to 29: there is no chunk with them"),
        ("log", encode_key(20), b"no chunk", "the offsets 20 to 29: a chunk of the log cannot be"),
        ("log", encode_key(20), None, "the message queue of 'c' refers to offset 20, which is not"),
        ("log", encode_key(10), None, "in-flight window of 'c' refers to offset 17, which is not"),
        ("log", encode_key(390), None, "it has lost 10 acknowledged messages, those with"),
        (
            "log",
            encode_key(390),
            b"no chunk",
            "the messages with the offsets 390 and above: a chunk of the log cannot",
        ),
    ],
)
def test_a_missing_or_unreadable_record_is_told(
    tmp_path: Path, family: str, key: bytes, value: bytes | None, says: str
) -> None:
    filled(tmp_path)
    tampered(tmp_path, family, key, value)
    assert [problem for problem in examined(tmp_path) if says in problem]


def flip(data_dir: Path, *places: float) -> None:
    """Change bytes of the largest table file, at shares of its length."""
    tables = (data_dir / STORE_DIRECTORY).glob("*.sst")
    path = max(tables, key=lambda table: table.stat().st_size)
    data = bytearray(path.read_bytes())
    for place in places:
        data[int(len(data) * place)] ^= 0x40
    path.write_bytes(data)


def with_incompressible_chunks(data_dir: Path) -> None:
    import random

    source = random.Random(7)
    store = RocksStore(data_dir)
    for number in range(CHUNKS):
        commit = rows(number * ROWS, ROWS, received_at_us=(number + 1) * 1_000_000)
        for message in commit.messages:
            message.payload = source.randbytes(1_000)
        store.commit(commit)
    store.close()


@pytest.mark.parametrize("places", [(0.5,), (0.02,), (0.2, 0.7), (0.97,), (0.3, 0.31, 0.32, 0.36)])
def test_a_damaged_block_is_named_by_its_offsets_and_what_follows_is_read(
    tmp_path: Path, places: tuple[float, ...]
) -> None:
    with_incompressible_chunks(tmp_path)
    flip(tmp_path, *places)
    found = examine(tmp_path)
    damaged = spans(found)
    assert 0 < len(damaged) <= len(places)
    assert found.messages == END - sum(last + 1 - first for first, last in damaged)
    for place in places:
        assert any(first - ROWS <= END * place <= last + ROWS for first, last in damaged), damaged


def spans(found: Examination) -> list[tuple[int, int]]:
    """The damaged offsets, as the problems name them."""
    told: list[tuple[int, int]] = []
    for problem in found.problems:
        words = problem.partition("with the offsets ")[2].partition(":")[0].split()
        if words[1:2] == ["to"]:
            told.append((int(words[0]), int(words[2])))
        elif words[1:] == ["and", "above"]:
            told.append((int(words[0]), END - 1))
    return told


def test_many_problems_are_counted_and_not_all_told(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    commit = rows(0, 0)
    commit.sessions = [session(f"c{number}", number) for number in range(500)]
    commit.progress = [progress(number, 1, 2, queue(7)) for number in range(500)]
    store.commit(commit)
    store.close()
    found = examine(tmp_path)
    assert len(found.problems) == PROBLEMS_MAX
    assert found.problems_unlisted == 500 - PROBLEMS_MAX


def test_a_queue_whose_bodies_are_gone_is_told_in_one_line(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    for number in range(CHUNKS):
        store.commit(rows(number * ROWS, ROWS, size=1_000))
    commit = rows(END, 0)
    commit.sessions = [session("c", 1)]
    waits = [3, *range(40, 60), 399]
    commit.progress = [progress(1, head=1, following=1 + len(waits), segment=queue(*waits))]
    store.commit(commit)
    store.close()
    for key in (40, 50):
        tampered(tmp_path, "log", encode_key(key), None)
    found = examine(tmp_path)
    (told,) = (problem for problem in found.problems if "'c'" in problem)
    assert told == (
        "the message queue of 'c' refers to 20 messages with offsets from 40 to 59, which are not"
        " in the log"
    )
    assert found.removed_messages == {"c": 20}


def test_a_missing_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store in"):
        examine(tmp_path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    RocksStore(tmp_path).close()
    tampered(tmp_path, "meta", b"format", b"99")
    with pytest.raises(StoreFormatError, match="format 99"):
        examine(tmp_path)
