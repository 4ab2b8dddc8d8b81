"""The view of the log, on a real RocksDB: always the function of a prefix."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocksdict import WriteBatch

from penstock.cluster.log import Entry
from penstock.cluster.operations import DELETE_RANGE, PUT
from penstock.cluster.record import COMMIT, MIDDLE_PART, RecordDamaged
from penstock.cluster.tally import Tally
from penstock.cluster.view import ForeignView, LogDamaged, View, read_position
from penstock.errors import CommitUnknown
from penstock.store.chunk import encode_key
from penstock.store.database import STORE_DIRECTORY, Database, open_database
from penstock.store.parts import PARTS_FAMILY
from penstock.store.watermark import Watermark, WatermarkFile, read_watermark
from tests.model.memory_rocks import Content, MemoryDatabase, ViewDisk
from tests.support.crash_image import copy_running
from tests.unit.cluster.records import EPOCH_OF_TESTS, LOG, META, SESSIONS, Records

SEEDS: Final = 6
PARTS: Final = 9


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def records() -> Records:
    made = Records()
    made.claim()
    made.begin_epoch()
    return made


def content_of(database: Database) -> Content:
    """All that is in ``database``; a column family that it has not is empty."""
    content: Content = {PARTS_FAMILY: {}}
    for family in database.families:
        content[family] = dict(database.items(family))
    return content


def portions(entries: list[Entry], random: Random) -> Iterator[list[Entry]]:
    """Cut ``entries`` into portions, as reads of a log give them."""
    at = 0
    while at < len(entries):
        count = random.randint(1, 7)
        yield entries[at : at + count]
        at += count


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_view_has_the_content_that_the_records_say(
    database: Database, records: Records, seed: int
) -> None:
    random = Random(seed)
    records.grow(random, 60)
    view = View(database)
    for portion in portions(records.entries, random):
        view.apply(portion)
        assert content_of(database) == records.contents[view.end.sequence]
        assert view.position == read_position(database)
        assert view.end.sequence == portion[-1].sequence
    assert view.end == records.position


@pytest.mark.parametrize("seed", range(SEEDS))
def test_killed_at_any_record_it_goes_on_from_there(
    tmp_path: Path, records: Records, seed: int
) -> None:
    """A copy of the files, as a kill leaves them, is a prefix; reading on from there makes it
    whole."""
    random = Random(seed)
    records.grow(random, 40)
    database = open_database(tmp_path / "first")
    view = View(database)
    kills = 0
    for portion in portions(records.entries, random):
        view.apply(portion)
        if random.random() > 0.3:
            continue
        kills += 1
        killed = tmp_path / f"killed-{kills}"
        copy_running(tmp_path / "first" / STORE_DIRECTORY, killed / STORE_DIRECTORY)
        again = open_database(killed)
        try:
            later = View(again)
            assert later.position == view.position
            assert content_of(again) == records.contents[later.position.sequence]
            later.apply(records.entries[later.position.sequence :])
            assert content_of(again) == records.contents[-1]
        finally:
            again.close()
    database.close()
    assert kills > 0


@pytest.mark.parametrize("seed", range(30))
def test_cut_off_its_power_at_any_write_it_is_a_prefix(
    tmp_path: Path, records: Records, seed: int
) -> None:
    random = Random(seed)
    records.grow(random, 60)
    disk = ViewDisk()
    view = View(MemoryDatabase(disk, tmp_path))
    while view.end.sequence < len(records.entries):
        first = view.next_sequence - 1
        view.apply(records.entries[first : first + random.randint(1, 9)])
        assert disk.content == records.contents[view.end.sequence]
        if random.random() < 0.2:
            disk.sync()
        if random.random() < 0.1:
            disk.cut_power(random)
            view = View(MemoryDatabase(disk, tmp_path))
            assert disk.content == records.contents[view.position.sequence]
    assert disk.content == records.contents[-1]


def test_a_hole_is_refused_and_what_is_before_it_applied(
    database: Database, records: Records
) -> None:
    records.grow(Random(1), 10)
    view = View(database)
    with pytest.raises(LogDamaged) as found:
        view.apply([*records.entries[:4], *records.entries[5:]])
    assert found.value.sequence == 5
    assert view.end.sequence == 4
    assert content_of(database) == records.contents[4]
    view.apply(records.entries[4:])
    assert content_of(database) == records.contents[-1]


def test_a_flipped_bit_is_refused(database: Database, records: Records) -> None:
    records.grow(Random(2), 6)
    tally = Tally()
    view = View(database, tally=tally)
    for at, entry in enumerate(records.entries):
        wrong = bytearray(entry.data)
        wrong[at % len(wrong)] ^= 1
        with pytest.raises(LogDamaged):
            view.apply([Entry(entry.sequence, bytes(wrong))])
        view.apply([entry])
    assert tally.damaged == len(records.entries)
    assert content_of(database) == records.contents[-1]


def test_a_record_of_another_log_is_refused(database: Database, records: Records) -> None:
    other = Records()
    other.claim(node="other")
    other.commit([(PUT, META, b"k", b"v")])
    view = View(database)
    view.apply(records.entries[:1])
    with pytest.raises(LogDamaged, match="does not follow"):
        view.apply(other.entries[1:])


def test_an_entry_twice_is_refused(database: Database, records: Records) -> None:
    view = View(database)
    view.apply(records.entries)
    with pytest.raises(LogDamaged):
        view.apply(records.entries[-1:])


def test_a_record_of_an_older_term_is_skipped(database: Database, records: Records) -> None:
    records.claim()
    records.add_old([(PUT, META, b"k", b"old")])
    records.commit([(PUT, META, b"k", b"new")])
    tally = Tally()
    view = View(database, tally=tally)
    view.apply(records.entries[:-1])
    assert view.skipped == tally.skipped == 1
    assert view.position.sequence == view.end.sequence - 1
    assert database.families["meta"].get(b"k") is None
    view.apply(records.entries[-1:])
    assert database.families["meta"].get(b"k") == b"new"
    assert view.position == view.end == records.position


def test_a_term_that_nobody_claimed_is_refused(database: Database, records: Records) -> None:
    records.position = records.position._replace(term=2)
    records.commit([(PUT, META, b"k", b"v")])
    with pytest.raises(RecordDamaged, match="nobody claimed"):
        View(database).apply(records.entries)


@pytest.mark.parametrize("kind", ["claim", "commit", "parts"])
def test_pieces_whose_writer_was_lost_count_for_nothing(
    database: Database, records: Records, kind: str
) -> None:
    records.parts([(PUT, META, b"lost", b"x" * 50)], 4, with_last=False)
    view = View(database)
    view.apply(records.entries)
    assert view.end == records.position, "a claim comes behind the pieces"
    assert view.position.sequence == 2, "another start reads them again"
    if kind == "claim":
        records.claim()
        records.commit([(PUT, META, b"k", b"v")])
    elif kind == "commit":
        records.commit([(PUT, META, b"k", b"v")])
    else:
        records.parts([(PUT, META, b"k", b"v")], 3)
    view.apply(records.entries[view.end.sequence :])
    assert database.families["meta"].get(b"lost") is None
    assert database.families["meta"].get(b"k") == b"v"
    assert view.position == view.end


def test_pieces_come_in_portions_and_over_starts(database: Database, records: Records) -> None:
    records.parts([(PUT, META, b"k", b"x" * 100)], PARTS)
    view = View(database)
    for entry in records.entries[:-4]:
        view.apply([entry])
    view = View(database)
    for entry in records.entries[view.end.sequence :]:
        view.apply([entry])
    assert database.families["meta"].get(b"k") == b"x" * 100
    assert view.position == records.position


def test_a_piece_without_a_first_one_is_refused(database: Database, records: Records) -> None:
    records.add(MIDDLE_PART, b"")
    with pytest.raises(RecordDamaged, match="without a first one"):
        View(database).apply(records.entries)


def test_a_commit_of_nonsense_is_refused(database: Database, records: Records) -> None:
    records.add(COMMIT, b"\xc1")
    with pytest.raises(RecordDamaged):
        View(database).apply(records.entries)


def test_a_claim_of_another_history_is_refused(database: Database, records: Records) -> None:
    records.commit([(PUT, META, b"k", b"v")])
    records.claim(epoch="20270101T000000-11111111", node="b")
    records.commit([(PUT, META, b"k", b"w")])
    view = View(database)
    with pytest.raises(ForeignView, match="20270101T000000-11111111") as refused:
        view.apply(records.entries)
    assert not refused.value.is_empty
    assert database.families["meta"].get(b"k") == b"v"
    assert view.position.sequence == 3


def test_an_empty_view_does_not_follow_a_store_that_existed_before(database: Database) -> None:
    records = Records()
    records.claim(epoch=EPOCH_OF_TESTS)
    with pytest.raises(ForeignView, match="no epoch") as refused:
        View(database).apply(records.entries)
    assert refused.value.is_empty


def test_a_primary_passes_its_claim(database: Database, records: Records) -> None:
    records.parts([(PUT, META, b"lost", b"x" * 50)], 3, with_last=False)
    view = View(database)
    view.apply(records.entries)
    records.claim()
    view.pass_claim(records.position)
    assert View(database).position == records.position == view.end
    records.commit([(PUT, META, b"k", b"v")])
    view.apply(records.entries[view.end.sequence :])
    assert content_of(database) == records.contents[-1]


def test_the_position_is_told_when_it_is_written(tmp_path: Path, records: Records) -> None:
    """The thread that syncs reads it at any moment, and reports it as synced."""
    records.grow(Random(3), 20)
    told: list[int] = []

    class Observed(MemoryDatabase):
        def write_here(self, batch: WriteBatch, sync: bool) -> None:
            told.append(view.position.sequence - read_position(self).sequence)
            super().write_here(batch, sync)

    view = View(Observed(ViewDisk(), tmp_path))
    for entry in records.entries:
        view.apply([entry])
    assert set(told) == {0}


def test_a_write_that_fails_moves_nothing(tmp_path: Path, records: Records) -> None:
    class Full(MemoryDatabase):
        def write_here(self, batch: WriteBatch, sync: bool) -> None:
            raise CommitUnknown(f"no room for {batch}, synced: {sync}")

    disk = ViewDisk()
    view = View(Full(disk, tmp_path))
    with pytest.raises(CommitUnknown):
        view.apply(records.entries)
    assert view.position.sequence == 0
    assert disk.content == Records().contents[0]


# -- readers beside it --------------------------------------------------------------------


def test_the_watermark_is_never_ahead(tmp_path: Path, records: Records) -> None:
    """At each write, a reader who believes the watermark finds all of it."""
    random = Random(4)
    records.grow(random, 40)
    shown: list[tuple[int, int]] = []

    class Observed(MemoryDatabase):
        def write_here(self, batch: WriteBatch, sync: bool) -> None:
            before = read_watermark(tmp_path)
            has_before = view.current_watermark()
            super().write_here(batch, sync)
            during = read_watermark(tmp_path)
            assert before is not None
            assert during is not None
            assert before.end == during.end <= has_before.end
            assert before.commits == during.commits <= has_before.commits
            shown.append((during.end, during.commits))

    view = View(Observed(ViewDisk(), tmp_path))
    committed = Watermark(0, 0, 0, EPOCH_OF_TESTS)
    view.attach_watermark(WatermarkFile(tmp_path, committed), committed)
    for portion in portions(records.entries, random):
        view.apply(portion)
        now = read_watermark(tmp_path)
        assert now is not None
        assert (now.end, now.commits) == (
            view.current_watermark().end,
            view.current_watermark().commits,
        )
    view.close_watermark()
    assert not view.has_watermark
    assert shown[-1][0] > 20
    assert all(one <= other for one, other in pairwise(shown))


def test_messages_that_retention_removes_are_hidden_first(tmp_path: Path, records: Records) -> None:
    records.commit(records.rows(3))
    records.commit(records.rows(2))
    records.commit([(DELETE_RANGE, LOG, encode_key(0), encode_key(3))])
    begins: list[int] = []

    class Observed(MemoryDatabase):
        def write_here(self, batch: WriteBatch, sync: bool) -> None:
            now = read_watermark(tmp_path)
            assert now is not None
            begins.append(now.begin)
            super().write_here(batch, sync)

    view = View(Observed(ViewDisk(), tmp_path))
    committed = Watermark(0, 0, 0, EPOCH_OF_TESTS)
    view.attach_watermark(WatermarkFile(tmp_path, committed), committed)
    for entry in records.entries:
        view.apply([entry])
    view.close_watermark()
    assert begins[-1] == 3
    assert begins[-2] == 0


def test_changes_are_told_after_they_are_written(database: Database, records: Records) -> None:
    records.commit([(PUT, SESSIONS, b"k", b"v")])
    told: list[bytes | None] = []
    view = View(database, lambda _: told.append(database.families["sessions"].get(b"k")))
    for entry in records.entries:
        view.apply([entry])
    assert told == [None, b"v"]


@given(st.integers(0, 2**32), st.lists(st.integers(1, 5), max_size=30))
def test_portions_do_not_matter(seed: int, counts: list[int]) -> None:
    records = Records()
    records.claim()
    records.begin_epoch()
    records.grow(Random(seed), 30)
    disk = ViewDisk()
    view = View(MemoryDatabase(disk, Path()))
    for count in counts:
        view.apply(records.entries[view.end.sequence : view.end.sequence + count])
        assert disk.content == records.contents[view.end.sequence]
