"""Large values are kept in parts (``store.parts``): whole for whoever reads them, or not there."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rocksdict import WriteBatch, WriteOptions

from penstock.engine.batch.commit import Commit
from penstock.engine.values.log_columns import columns_of
from penstock.engine.values.message import Message
from penstock.engine.values.records import WillRecord
from penstock.errors import CommitUnknown, OffsetOutOfRange, StoreFormatError
from penstock.store.archive import decode_span
from penstock.store.backup import back_up_offline, restore
from penstock.store.chunk import chunk_note, decode_key, encode_key
from penstock.store.compaction import compact
from penstock.store.database import FORMAT, FORMAT_KEY, PARTS_KEY, Database, open_database
from penstock.store.examination import examine
from penstock.store.identity import find_end
from penstock.store.large_retained import LargeRetained
from penstock.store.log import chunk_from_columns
from penstock.store.parts import (
    LARGE_BYTES,
    PART_BYTES,
    PARTS_FAMILY,
    LargeValue,
    new_write_id,
    read_head,
)
from penstock.store.records import encode_will
from penstock.store.repair import repair
from penstock.store.rocks import RocksStore
from penstock.store.secondary import LogFollower
from tests.contract.archived import ALARMS, ALL, FOREVER, START_US

SMALL = b"small"


def large(text: str, size_bytes: int = LARGE_BYTES + PART_BYTES // 2) -> bytes:
    """Bytes that differ from part to part."""
    words = b"".join(f"{text} {number:08} ".encode() for number in range(4096))
    return (words * (size_bytes // len(words) + 1))[:size_bytes]


class Log:
    """A broker's store, and what was published to it."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.published: list[bytes] = []
        self.open()

    def open(self) -> None:
        """Open the store."""
        self.store = RocksStore(self.data_dir, (ALL, ALARMS))
        self._is_open = True

    def close(self) -> None:
        """Let go of the store; once."""
        if self._is_open:
            self._is_open = False
            self.store.close()

    def publish(self, *payloads: bytes, topic: str = "t", retain: bool = False) -> None:
        """One commit."""
        commit = Commit(len(self.published))
        for payload in payloads:
            message = Message(topic, payload, 1, retain, "c", START_US + len(self.published))
            message.offset = len(self.published)
            commit.messages.append(message)
            if retain:
                commit.retained.append((topic, message if payload else None))
            self.published.append(payload)
        self.store.commit(commit)

    def reopen(self) -> None:
        """A start."""
        self.close()
        self.open()

    def check(self, begin: int = 0) -> None:
        """All that was published is there, for the broker and for readers beside it."""
        found = self.store.read(range(begin, len(self.published)))
        assert [found[n].payload for n in sorted(found)] == self.published[begin:]
        follower = LogFollower(self.data_dir)
        try:
            assert rows_of(follower, begin, len(self.published)) == self.published[begin:]
        finally:
            follower.close()

    def parts(self) -> list[bytes]:
        """The keys of all parts."""
        return parts_in(self.store._database)


def parts_in(database: Database) -> list[bytes]:
    """The keys of all parts."""
    return [key for key, _ in database.items(PARTS_FAMILY)]


def rows_of(follower: LogFollower, begin: int, end: int) -> list[bytes]:
    """Payloads as a reader beside the broker sees them."""
    found: list[bytes] = []
    for rows in follower.rows(begin, end):
        found += rows.batch.column("payload").to_pylist()
    return found


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A store with large and small messages."""
    made = Log(tmp_path / "data")
    made.publish(SMALL)
    made.publish(large("first"))
    made.publish(SMALL, large("second"), SMALL, large("third", 3 * PART_BYTES))
    made.publish(SMALL)
    yield made
    made.close()


def test_large_messages_are_whole_for_all_readers_and_after_a_start(log: Log) -> None:
    log.check()
    assert len(log.parts()) == 5 + 8
    log.reopen()
    log.check()
    assert log.store.log_extent().end == 7


def test_the_log_may_end_with_a_large_message(log: Log) -> None:
    log.publish(large("last"))
    log.reopen()
    assert log.store.log_extent().end == 8
    log.publish(SMALL)
    log.check()


def test_a_reader_beside_the_broker_meets_the_first_large_message(tmp_path: Path) -> None:
    log = Log(tmp_path / "data")
    log.publish(SMALL)
    follower = LogFollower(log.data_dir)
    assert rows_of(follower, 0, follower.extent().end) == [SMALL]
    log.publish(large("first"))
    assert rows_of(follower, 0, follower.extent().end) == log.published
    follower.close()
    log.close()


def test_retention_takes_the_parts_too(log: Log) -> None:
    moved_bytes = log.store.log_extent().size_bytes
    assert moved_bytes > sum(map(len, log.published))
    assert log.store.trim_log(FOREVER, 0, 2) == 2
    assert len(log.parts()) == 8
    log.check(2)
    assert log.store.trim_log(FOREVER, 0, 7) == 6
    assert log.parts() == []
    assert 0 < log.store.log_extent().size_bytes < 2000
    log.reopen()
    log.check(6)


def test_a_value_that_retention_removes_during_a_read_is_gone(log: Log) -> None:
    log.publish(large("next"))
    log.publish(SMALL)
    follower = LogFollower(log.data_dir)
    rows = follower.rows(0, follower.extent().end)
    assert next(rows).batch.column("payload").to_pylist() == log.published[:6]
    log.store.trim_log(FOREVER, 0, 9)
    log.publish(SMALL)
    follower.extent()
    with pytest.raises(OffsetOutOfRange, match="no longer in the log"):
        list(rows)
    follower.close()
    assert list(log.store.read(range(10))) == [8, 9]


def test_large_messages_move_into_the_archive_of_their_stream(log: Log) -> None:
    log.publish(large("alarm"), topic="plant/1/alarm")
    log.publish(SMALL)
    log.publish(SMALL)
    assert log.store.trim_log(FOREVER, 0, 9) == 9
    assert [key[:1] for key in log.parts()] == [b"a"] * 5
    [(_, piece)] = [one for one in log.store._database.items("archive") if read_head(one[1])]
    assert decode_span(piece)[0] == 8
    follower = LogFollower(log.data_dir)
    follower.extent()
    rows = [row for rows in follower.rows(0, 10, ALARMS) for row in rows.batch.to_pylist()]
    assert [row["payload"] for row in rows[:1]] == [large("alarm")]
    follower.close()
    log.store.trim_archives(FOREVER)
    assert log.parts() == []


def test_a_check_a_backup_and_a_compaction_have_all_of_it(log: Log, tmp_path: Path) -> None:
    log.close()
    assert examine(log.data_dir).problems == []
    compact(log.data_dir)
    back_up_offline(log.data_dir, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    restored = Log(tmp_path / "restored")
    restored.published = log.published
    restored.check()
    restored.publish(large("later"))
    restored.check()
    restored.close()


@pytest.mark.parametrize("is_last", [False, True])
def test_a_missing_part_is_damage_and_a_repair_keeps_the_rest(log: Log, is_last: bool) -> None:
    log.close()
    database = open_database(log.data_dir)
    batch = WriteBatch(raw_mode=True)
    keys = parts_in(database)
    batch.delete(keys[-1 if is_last else 1], database.handles[PARTS_FAMILY])
    database.write(batch)
    database.close()
    lost = range(2, 6) if is_last else range(1, 2)
    [problem] = examine(log.data_dir).problems
    assert "of its" in problem
    store = RocksStore(log.data_dir, (ALL, ALARMS))
    with pytest.raises(StoreFormatError, match="of its"):
        store.read(lost)
    store.close()
    assert repair(log.data_dir).is_new_epoch
    assert examine(log.data_dir).problems == []
    repaired = RocksStore(log.data_dir, (ALL, ALARMS))
    found = repaired.read(range(7))
    expected = {n: payload for n, payload in enumerate(log.published) if n not in lost}
    assert {n: message.payload for n, message in found.items()} == expected
    repaired.close()


def test_parts_without_a_head_are_nobodys_and_go_at_the_next_start(log: Log) -> None:
    end = len(log.published)
    chunk = [large("never acknowledged", 2 * LARGE_BYTES)]
    left = LargeValue("log", encode_key(end), chunk, new_write_id(), chunk_note(1, START_US))
    log.store._database.write_parts(left)  # and the process is gone
    assert len(log.parts()) == 5 + 8 + 8
    log.close()
    assert examine(log.data_dir).problems == []
    log.open()
    assert len(log.parts()) == 5 + 8
    assert log.store.log_extent().end == end
    log.publish(large("another"))
    log.reopen()
    log.check()
    assert len(log.parts()) == 5 + 8 + 5


@pytest.mark.parametrize("last", [SMALL, large("alarm")])
def test_parts_that_a_departure_left_go_and_those_of_the_archive_stay(
    log: Log, last: bytes
) -> None:
    log.publish(last, topic="plant/1/alarm")
    log.publish(SMALL)
    log.store.trim_log(FOREVER, 0, 8)
    before = log.parts()
    database = log.store._database
    [(key, _)] = database.items("archive")
    for base in (decode_key(key[8:]), 8) if last == SMALL else (8,):
        place = key[:8] + encode_key(base)
        database.write_parts(LargeValue("archive", place, [large("left")], new_write_id()))
    log.reopen()
    assert log.parts() == before
    follower = LogFollower(log.data_dir)
    follower.extent()
    rows = [row for rows in follower.rows(7, 8, ALARMS) for row in rows.batch.to_pylist()]
    assert [row["payload"] for row in rows] == [last]
    follower.close()


def test_writing_a_commit_once_more_leaves_no_other_parts(log: Log) -> None:
    commit = Commit(len(log.published))
    payload = large("twice")
    commit.messages.append(Message("t", payload, 1, offset=len(log.published)))
    log.published.append(payload)
    log.store.commit(commit)
    before = log.parts()
    log.store.reopen()
    log.store.commit(commit)
    assert log.parts() == before
    log.check()


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """This process cannot write larger files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_commit_that_fails_among_its_parts_is_written_again(log: Log) -> None:
    log.reopen()  # a write-ahead log of its own
    before = log.parts()
    commit = Commit(len(log.published))
    payload = large("again", 3 * LARGE_BYTES)
    commit.messages.append(Message("t", payload, 1, offset=len(log.published)))
    with files_of_at_most(LARGE_BYTES), pytest.raises(CommitUnknown, match="File too large"):
        log.store.commit(commit)
    log.check()
    log.store.reopen()
    log.store.commit(commit)
    log.published.append(payload)
    log.check()
    assert len(log.parts()) == len(before) + 3 * LARGE_BYTES // PART_BYTES + 1
    log.close()
    assert examine(log.data_dir).problems == []
    log.reopen()
    log.check()


def test_a_store_that_never_has_room_again_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB waits for its own tables for ever where nothing may be written any more."""
    monkeypatch.setattr("penstock.store.database._FULL_S_MAX", 0.02)
    database = open_database(tmp_path)
    part = LargeValue("log", encode_key(0), [large("a")], new_write_id())
    database.write_parts(part)

    class Full:
        def __init__(self, rocks: Any) -> None:
            self._rocks = rocks
            self.asked = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._rocks, name)

        def write(self, *_: object) -> None:
            self.asked += 1
            raise Exception("Result incomplete: Write stall")  # as rocksdict says it

    full: Any = Full(database.rocks)
    database.rocks = full
    try:
        with pytest.raises(CommitUnknown, match="Write stall"):
            database.write_parts(part)
        assert full.asked > 1
    finally:
        database.rocks = full._rocks
        database.close()


@pytest.mark.parametrize("lacks", [3, 1_000_000])
def test_a_large_batch_is_written_when_there_is_room_and_after_a_while_in_any_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: int
) -> None:
    """RocksDB would wait with the interpreter's lock held: everybody was held up for seconds."""
    monkeypatch.setattr("penstock.store.database._ROOM_S_MAX", 0.05)
    database = open_database(tmp_path)
    rocks = database.rocks
    refused = 0

    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(rocks, name)

        def write(self, batch: WriteBatch, options: WriteOptions) -> None:
            nonlocal refused
            if options.no_slowdown and refused < lacks:
                refused += 1
                raise Exception("Result incomplete: Write stall")
            rocks.write(batch, options)

    full: Any = Full()
    database.rocks = full
    try:
        for size, asked in ((1000, 0), (300_000, min(lacks, 3))):
            batch = WriteBatch(raw_mode=True)
            batch.put(encode_key(size), bytes(size), database.handles["log"])
            database.write(batch)
            assert refused >= asked
            assert bool(refused) == bool(asked)
            assert database.families["log"][encode_key(size)] == bytes(size)
    finally:
        database.rocks = rocks
        database.close()


def test_retained_messages_are_replaced_with_their_parts(log: Log) -> None:
    parts = len(log.parts())

    def retained() -> dict[str, bytes]:
        return {message.topic: message.payload for message in log.store.recover().retained}

    log.publish(large("a"), topic="a", retain=True)
    log.publish(large("ab"), topic="ab", retain=True)
    assert retained() == {"a": large("a"), "ab": large("ab")}
    log.publish(large("again"), topic="a", retain=True)
    log.reopen()
    assert retained() == {"a": large("again"), "ab": large("ab")}
    assert len([key for key in log.parts() if key[:1] == b"r"]) == 10
    log.close()
    assert examine(log.data_dir).problems == []
    log.reopen()
    retained()  # a broker recovers first
    log.publish(SMALL, topic="a", retain=True)
    log.publish(b"", topic="ab", retain=True)
    log.reopen()
    assert retained() == {"a": SMALL}
    assert len(log.parts()) == parts + 3 * 5
    assert not [key for key in log.parts() if key[:1] == b"r"]


def test_parts_of_a_retained_message_that_a_crash_left_are_removed_at_the_next_start(
    log: Log,
) -> None:
    database = log.store._database
    before = log.parts()
    batch = WriteBatch(raw_mode=True)
    for payload in (large("crashed"), large("kept")):
        left = LargeRetained().put(batch, database, b"t", Message("t", payload))
        assert left is not None
        database.write_parts(left)
    database.write(batch)
    log.reopen()
    assert len(log.parts()) == len(before) + 10
    [found] = log.store.recover().retained
    assert found.payload == large("kept")
    assert len(log.parts()) == len(before) + 5


def test_parts_of_a_retained_message_go_although_the_write_failed_at_first(log: Log) -> None:
    def write(payload: bytes) -> None:
        message = Message("a", payload, 1, True, "c", START_US, offset=len(log.published))
        commit = Commit(message.offset)
        commit.messages.append(message)
        commit.retained.append(("a", message if payload else None))
        with files_of_at_most(1), pytest.raises(CommitUnknown):
            log.store.commit(commit)
        log.store.reopen()
        log.store.commit(commit)
        log.published.append(payload)

    log.publish(large("first"), topic="a", retain=True)
    write(large("again"))
    assert len([key for key in log.parts() if key[:1] == b"r"]) == 5
    write(b"")
    assert not [key for key in log.parts() if key[:1] == b"r"]
    log.reopen()
    log.check()
    assert log.store.recover().retained == []


def test_the_first_large_value_may_come_while_a_backup_is_taken(tmp_path: Path) -> None:
    log = Log(tmp_path / "data")
    log.publish(SMALL)
    families: dict[str, Any] = log.store._database.families
    family = families["log"]

    class Meanwhile:
        """A column family; a large message is published while it is flushed."""

        def flush(self) -> None:
            """See above."""
            families["log"] = family
            log.publish(large("first"))
            family.flush()

    families["log"] = Meanwhile()
    log.store.backup(tmp_path / "backup")
    log.check()
    log.close()
    restore(tmp_path / "backup", tmp_path / "restored")
    restored = Log(tmp_path / "restored")
    restored.published = log.published
    restored.check()
    restored.close()


def test_a_record_never_in_parts_may_be_large_and_a_repair_copies_it(log: Log) -> None:
    database = log.store._database
    batch = WriteBatch(raw_mode=True)
    will = WillRecord(Message("t", SMALL, properties=large("properties")), 0, 0)
    batch.put(b"c", encode_will(will), database.handles["wills"])
    batch.delete(log.parts()[0], database.handles[PARTS_FAMILY])
    database.write(batch)
    log.close()
    repair(log.data_dir)
    log.open()
    [found] = log.store.recover().wills.values()
    assert found.message.properties == will.message.properties


def test_a_store_has_no_parts_until_its_first_large_value(tmp_path: Path) -> None:
    log = Log(tmp_path / "data")
    log.publish(b"x" * (LARGE_BYTES - 1000))
    meta = log.store._database.families["meta"]
    assert meta.get(PARTS_KEY) is None
    assert not log.store._database.has_parts
    log.publish(large("first"))
    assert meta.get(PARTS_KEY) is not None
    assert meta.get(FORMAT_KEY) == FORMAT
    log.reopen()
    log.check()
    log.close()


def test_a_large_value_that_an_older_penstock_wrote_whole_is_read(tmp_path: Path) -> None:
    log = Log(tmp_path / "data")
    log.publish(SMALL)
    log.close()
    payload = large("old")
    database = open_database(log.data_dir)
    batch = WriteBatch(raw_mode=True)
    commit = Commit(1)
    commit.messages.append(Message("t", payload, 1, received_at_us=START_US))
    chunk = b"".join(chunk_from_columns(columns_of(commit.messages)))
    batch.put(encode_key(1), chunk, database.handles["log"])
    database.write(batch)
    assert find_end(database) == 2
    database.close()
    log.published.append(payload)
    log.open()
    log.publish(SMALL)
    log.check()
    assert log.store.trim_log(FOREVER, 0, 3) == 2
    log.close()
