"""A store that begins a new history, and what an operator is told before."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cluster.beats import Beat, RoleName
from penstock.cluster.histories import Word, begin_history, read_former, read_word
from penstock.cluster.log import Bounds
from penstock.cluster.record import Former, Position
from penstock.cluster.recovering import FoundLog, FoundStore, consequences, obstacle
from penstock.cluster.view import View, read_position
from penstock.store.identity import read_epoch, read_lineage
from tests.model.memory_rocks import StoppedDatabase, ViewDisk, nothing
from tests.unit.cluster.records import EPOCH_OF_TESTS, Records

OTHER = "20270202T000000-11111111"
STORE = FoundStore(EPOCH_OF_TESTS, Position(20, 3, 4, 5), 0, 50)
ENDED = Former(EPOCH_OF_TESTS, 20, 3)
EMPTY = FoundStore("", Position(), 0, 0)


@pytest.fixture
def view(tmp_path: Path) -> StoppedDatabase:
    """A view at entry 3."""
    records = Records()
    records.claim()
    records.begin_epoch()
    records.commit(records.rows(5))
    return StoppedDatabase(ViewDisk(records.contents[-1]), tmp_path)


def test_a_view_begins_a_new_history_that_contains_its_own(view: StoppedDatabase) -> None:
    epoch = begin_history(view, Word(3))
    assert read_epoch(view) == epoch != EPOCH_OF_TESTS
    assert read_lineage(view) == [(EPOCH_OF_TESTS, 5)]
    assert read_position(view) == Position()
    assert read_former(view) == (Former(EPOCH_OF_TESTS, 3, 1),)
    assert read_word(view) == Word(3)
    view_of_it = View(view)
    view_of_it.pass_claim(Position(9, 8, 0, 7))
    assert read_word(view) is None
    assert begin_history(view, Word(9)) != epoch
    assert read_former(view) == (Former(EPOCH_OF_TESTS, 3, 1), Former(epoch, 9, 8))


def test_a_store_that_begins_twice_contains_what_it_contained_once(view: StoppedDatabase) -> None:
    """A crash in the middle makes an operator run the command again."""
    begin_history(view, Word(3))
    begin_history(view, Word(None))
    assert read_word(view) == Word(None)
    assert read_former(view) == (Former(EPOCH_OF_TESTS, 3, 1),)


def test_an_empty_store_begins_with_nothing(tmp_path: Path) -> None:
    records = Records()
    records.claim()
    for content in (nothing(), records.contents[-1]):  # also one with nothing but a claim
        database = StoppedDatabase(ViewDisk(content), tmp_path)
        assert begin_history(database, Word(0)) == ""
        assert read_word(database) == Word(0)
        assert read_position(database) == Position()


@pytest.mark.parametrize(
    ("store", "log", "sentence"),
    [
        (STORE, FoundLog(None, False), "not known: what the log has"),
        (STORE, FoundLog(Bounds(1, 0), False), "the log is empty"),
        (STORE, FoundLog(Bounds(11, 10), False), "the log ends at 10, and has no entries"),
        (STORE, FoundLog(Bounds(5, 10), False), "given up: entries 5 to 10 of the log"),
        (STORE, FoundLog(Bounds(5, 20), True), "it is whole, and needs no recovery"),
        (STORE, FoundLog(Bounds(5, 25), True), "given up: entries 21 to 25 of the log, which this"),
        (STORE, FoundLog(None, False), "entry 20 of the log, term 3, messages with the offsets 0"),
        (STORE, FoundLog(None, False), "given up: what was acknowledged behind entry 20"),
        (STORE._replace(position=Position()), FoundLog(None, False), "it followed no log"),
        (EMPTY, FoundLog(None, False), "begins: nothing, the store is empty"),
    ],
)
def test_an_operator_is_told_the_fate_of_the_log(
    store: FoundStore, log: FoundLog, sentence: str
) -> None:
    assert sentence in "\n".join(consequences(store, log, {}, []))


@pytest.mark.parametrize(
    ("role", "epoch", "applied", "sentence"),
    [
        ("standby", EPOCH_OF_TESTS, 20, "b has nothing that this store lacks (entry 20)"),
        ("waiting", EPOCH_OF_TESTS, 21, "given up: entries 21 to 21 of the view of b, which is"),
        ("primary", OTHER, 3, f"given up: the store of b, of another history: epoch {OTHER}"),
        ("waiting", "", 0, "b has no store, and takes a copy"),
        ("seeding", "", 0, "not known: what b has, which opens its store"),
    ],
)
def test_an_operator_is_told_the_fate_of_each_member(
    role: RoleName, epoch: str, applied: int, sentence: str
) -> None:
    is_empty = role == "waiting" and not epoch
    beat = Beat(
        node="b", role=role, term=3, applied=applied, synced=0, epoch=epoch, is_empty=is_empty
    )
    told = list(consequences(STORE, FoundLog(None, False), {"b": beat}, ["b", "c"]))
    assert any(one.startswith(sentence) for one in told)
    assert any("not known: what c has, which is not heard" in one for one in told)


@pytest.mark.parametrize(
    ("role", "epoch", "former", "bounds", "sentence"),
    [
        ("primary", OTHER, (), Bounds(1, 7), "b is the primary, at entry 7 of the log: what it"),
        ("primary", EPOCH_OF_TESTS, (), Bounds(8, 20), "b is the primary, at entry 7"),
        ("primary", EPOCH_OF_TESTS, (), Bounds(1, 6), None),
        ("primary", OTHER, (), Bounds(1, 0), None),
        ("primary", OTHER, (), None, None),
        ("waiting", OTHER, (ENDED,), Bounds(1, 0), "b has begun a newer history, which contains"),
        ("waiting", OTHER, (ENDED._replace(sequence=19),), None, None),
        ("waiting", OTHER, (ENDED._replace(epoch=OTHER),), None, None),
        ("standby", OTHER, (), Bounds(1, 20), None),
    ],
)
def test_a_store_begins_no_history_beside_one_that_has_begun(
    role: RoleName,
    epoch: str,
    former: tuple[Former, ...],
    bounds: Bounds | None,
    sentence: str | None,
) -> None:
    """A storm's operator gave the word on a second machine, while the first began: what was
    acknowledged in between was given up."""
    beat = Beat(node="b", role=role, term=4, applied=7, synced=7, epoch=epoch, former=former)
    log = FoundLog(bounds, False)
    found = obstacle(STORE, log, {"b": beat})
    assert (found or "").startswith(sentence or "")
    assert (found is None) == (sentence is None)
    assert obstacle(STORE, log, {}) is None
