"""How tables that fail look while they are landed."""

from __future__ import annotations

import pytest

from penstock.cli.screen import Screen
from penstock.cli.table_display import _grid, tables_display
from penstock.spark.jobs.progress import Progress

FAILING = Progress("failing", batch_id=3, rows_landed=30, failure="the disk is full\x1b[2J")
GAVE_UP = Progress("gave up", failure="it holds other messages")


def test_below_the_tables_stands_what_is_wrong_with_those_that_fail(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Issue 24, fault 2."""
    tables = [("a", Progress("landing", batch_id=7)), ("b", FAILING), ("c", GAVE_UP)]
    Screen(pipe_width=120).print(_grid(tables))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:2] for line in lines] == [
        ["table", "state"], ["a", "landing"], ["b", "failing"], ["c", "gave"],
        ["b:", "the"], ["c:", "it"],
    ]  # fmt: skip
    assert lines[4] == ["b:", "the", "disk", "is", "full\\u001b[2J"]


def test_a_pipe_gets_a_line_when_a_table_begins_to_fail_and_when_it_gives_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with tables_display(Screen(), ["b"]) as show:
        for progress in (FAILING, FAILING, GAVE_UP):
            show("b", progress)
    assert capsys.readouterr().out.splitlines() == [
        "b: failing: the disk is full\\u001b[2J",
        "b: gave up: it holds other messages",
    ]
