"""Rows on a terminal and in a pipe: lines that somebody can read, whatever the values are."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest
from rich.cells import cell_len

from penstock.cli.screen import print_table
from penstock.cli.table_lines import fitting_lines, row_lines, truncate, value_lines
from penstock.cli.table_rows import print_rows, text_of
from tests.support.pseudo_terminal import on_a_terminal

LARGE = b"x" * 10_000_000
TERMINAL_WIDTH = 200  # of `on_a_terminal`


def rows(count: int = 3, columns: int = 2, payload: Any = LARGE) -> pa.Table:
    named = {f"column_{n}": [f"value {n}"] * count for n in range(columns)}
    return pa.table({"offset": range(count), **named, "payload": [payload] * count})


def on_terminal(columns: int, count: int, *, full: bool = False) -> list[str]:
    """What `print_rows` shows of rows with a value of 100,000 characters."""
    program = (
        "from penstock.cli.table_rows import print_rows;"
        " from tests.unit.cli.test_table_rows import rows;"
        f" print_rows(rows({count}, {columns}, 'y' * 100_000), full={full})"
    )
    return on_a_terminal([sys.executable, "-c", program]).splitlines()


def test_a_large_value_is_cut_to_a_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 24, fault 9: one of 900 kB had 31,433 lines, those of 10 MB never ended."""
    print_rows(rows())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["offset", "int64", "0", "1", "2"]
    assert lines[2].endswith("x…")
    assert max(map(len, lines)) < 120


def test_a_pipe_gets_a_line_for_each_row_however_many_columns_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Issue 24, fault 9: a box of six-character columns."""
    print_rows(rows(count=3, columns=200, payload="p" * 50))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert [line.count("value 199") for line in lines] == [0, 0, 1, 1, 1]
    assert "column_199" in lines[0]
    print_table(("a", "b"), [("x" * 6000, "y" * 6000)])
    assert capsys.readouterr().out.splitlines()[1] == "x" * 6000 + "  " + "y" * 6000


def test_full_values_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(rows(count=2, payload="y" * 100_000), full=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[2].endswith("y" * 100_000)
    assert max(map(len, lines[:2])) < 300, "headings are not padded to it"


def test_a_terminal_shows_rows_that_fit_it() -> None:
    lines = on_terminal(columns=3, count=4)
    assert len(lines) == 6
    assert max(map(len, lines)) <= TERMINAL_WIDTH
    assert lines[2].endswith("yyy…")


def test_a_terminal_shows_many_columns_a_value_a_line() -> None:
    lines = on_terminal(columns=40, count=2)
    assert lines[0].split() == ["offset", "0"]
    assert lines[40].split() == ["column_39", "value", "39"]
    assert len(lines) == 42 + 1 + 42
    assert max(map(len, lines)) <= TERMINAL_WIDTH


def test_a_terminal_shows_all_of_a_value_that_is_asked_for_in_full() -> None:
    lines = on_terminal(columns=1, count=1, full=True)
    assert lines[-1].split() == ["payload", "y" * 100_000]


def test_columns_without_rows_are_shown_where_they_do_not_fit_beside_each_other() -> None:
    names = [f"column_{n}" for n in range(30)]
    assert fitting_lines((names, ["int64"] * 30), [], 80)[29] == "column_29  int64"


def test_letters_of_two_places_are_cut_to_places() -> None:
    assert truncate("温度" * 10, 9) == "温度温度…"
    assert cell_len(truncate("温" * 10, 8)) <= 8
    assert row_lines([["温度", "b"]], [["x", "y"]]) == ["温度  b", "x     y"]
    assert value_lines(["温度", "b"], [["x", "y" * 20]], 10) == ["温度  x", "b     yyy…"]


def test_a_value_is_cut_before_it_is_written_out() -> None:
    assert text_of(LARGE, 10) == "b'" + "x" * 9
    assert text_of({"a": [1, 2]}, 5) == "{'a': "
    assert text_of(None, 5) == ""
