"""A table knows in which order it received epochs, and what the log has no longer. No Spark."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.cli.table_rows import lost_line
from penstock.spark.contents import newest_rows
from penstock.spark.tables.landed_table import (
    ROWS,
    Former,
    LandedTable,
    Outcome,
    PlannedBatch,
    Selection,
    Span,
)
from penstock.spark.tables.lost_rows import LostRows, find_lost_rows, rows_of
from penstock.spark.tables.stored_marks import epoch_numbers, stored_epochs
from tests.support.landed_tables import EPOCH, SELECTION, Open, land, rows, written
from tests.support.places import path_of

AHEAD, BEHIND = "20301121T000000-00000001", "20201121T000000-00000001"
"""Epochs of a log that was put back twice; the clock was behind when it began the second one."""


def selection_of(epoch: str) -> Selection:
    return replace(SELECTION, epoch=epoch)


def go_on(table: LandedTable, epoch: str, start: int, end: int, *formers: Former) -> None:
    """Land a range in another epoch of the log, as a job does when the two part."""
    selection = selection_of(epoch)
    landed = table.landed(selection)
    begin = (
        PlannedBatch(selection, 0, start, start, formers=formers)
        if landed is None
        else PlannedBatch(selection, landed.end, start, formers=formers)
    )
    assert table.commit(begin, []) is Outcome.LANDED
    received = rows(start, end).set_column(0, "epoch", pa.array([epoch] * (end - start)))
    if end > start:
        batch = PlannedBatch(selection, start, end)
        assert table.commit(batch, written(table, received)) is Outcome.LANDED


def put_back_twice(table: LandedTable) -> None:
    """The log was put back to offset 6, and then to offset 4."""
    land(table, 0, 10)
    go_on(table, AHEAD, 6, 12, Former(SELECTION, 10, 6))
    formers = Former(SELECTION, 10, 4), Former(selection_of(AHEAD), 12, 4)
    go_on(table, BEHIND, 4, 7, *formers)


def test_the_epoch_that_a_table_received_last_is_its_newest_whatever_the_clock_said(
    kind: str, open_table: Open
) -> None:
    put_back_twice(open_table())
    table = open_table()
    assert table.epochs() == (EPOCH, AHEAD, BEHIND)
    contents = table.contents()
    assert contents is not None
    assert contents.epoch == BEHIND
    if kind == "delta":
        newest = newest_rows(path_of(table), 5).to_pylist()
        found = [(row["epoch"], row["offset"]) for row in newest]
        assert found == [(BEHIND, 6), (BEHIND, 5), (BEHIND, 4), (AHEAD, 11), (AHEAD, 10)]


def test_rows_that_the_log_has_no_longer_are_counted_and_listed(open_table: Open) -> None:
    table = open_table()
    put_back_twice(table)
    found = find_lost_rows({ROWS: table}, selection_of)
    of_first, of_second = Span(EPOCH, 4, 10), Span(AHEAD, 4, 12)
    assert found == (LostRows(of_first, 6, 0), LostRows(of_second, 6, 0))
    listed = [row for part in rows_of(table, [of_first, of_second]) for row in part.to_pylist()]
    listed.sort(key=lambda row: row["offset"])
    positions = sorted((row["epoch"], row["offset"]) for row in listed)
    expected = [(EPOCH, at) for at in range(4, 10)] + [(AHEAD, at) for at in range(6, 12)]
    assert positions == expected
    whole = [row for row in listed if row["epoch"] == EPOCH]
    assert whole == rows(4, 10).to_pylist()  # with partition columns
    assert lost_line(found[0]) == (
        f"6 rows of epoch {EPOCH}, offsets 4 to 9, are of a history that the log does not have"
    )


def test_a_log_that_comes_back_to_an_epoch_has_its_rows_again(open_table: Open) -> None:
    table = open_table()
    put_back_twice(table)
    go_on(table, AHEAD, 12, 13, Former(SELECTION, 10, 6), Former(selection_of(BEHIND), 7, 4))
    assert table.epochs() == (EPOCH, AHEAD, BEHIND, AHEAD)
    found = find_lost_rows({ROWS: table}, selection_of)
    assert found == (
        LostRows(Span(EPOCH, 6, 10), 4, 0),
        LostRows(Span(BEHIND, 4, 7), 3, 0),
    )


def test_any_name_of_an_epoch_is_a_few_numbers_and_back() -> None:
    names = [EPOCH, "", "x", "\x00", "epoch-ü"]
    numbers = {"penstock-epochs": len(names)}
    for index, name in enumerate(names):
        numbers |= epoch_numbers(index, name)
    assert stored_epochs(numbers.get) == tuple(names)
    assert max(numbers.values()) < 2**62
