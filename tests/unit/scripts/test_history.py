"""The history of measurements: lines are read as they were written, and drawn alike."""

from pathlib import Path

import pytest

from benchmarks.history import CPU, HISTORY, RATE, Line, append_line, at_first_yardstick, draw, page
from benchmarks.history import read_lines as read

ROOT = Path(__file__).resolve().parents[3]


def line(commit: str, build: str = "compiled", yardstick_ms: float = 10.0) -> Line:
    figures = {f"publish {CPU}": 3.5, f"publish {RATE}": 100_000.0}
    return Line(
        at="2026-11-25T22:30:00+00:00",
        commit=commit,
        changed=False,
        build=build,
        machine="2 cores",
        load=0.5,
        yardstick_ms=yardstick_ms,
        fdatasync_ms=0.25,
        note="",
        figures=figures,
    )


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert read(path) == []
    written = [line("a"), line("b", "interpreted")]
    for each in written:
        append_line(path, each)
    assert read(path) == written


def test_a_slower_machine_is_no_slower_commit() -> None:
    lines = [line("a"), line("b", yardstick_ms=20.0), line("c", "interpreted", 40.0)]
    assert at_first_yardstick(lines, lines[1], 7.0, is_rate=False) == 3.5
    assert at_first_yardstick(lines, lines[1], 50_000.0, is_rate=True) == 100_000.0
    assert at_first_yardstick(lines, lines[2], 7.0, is_rate=False) == 7.0, "the build's first"


def test_the_same_lines_are_drawn_the_same(tmp_path: Path) -> None:
    lines = [line("a"), line("b", "interpreted"), line("c")]
    drawn = []
    for name in ("one.svg", "two.svg"):
        draw(lines, tmp_path / name)
        drawn.append((tmp_path / name).read_bytes())
    assert drawn[0] == drawn[1]
    assert drawn[0].startswith(b"<?xml")
    assert page(lines).count("\n| 2026-11-25 22:30 |") == len(lines)


@pytest.mark.skipif(not (ROOT / HISTORY).exists(), reason="nothing was measured")
def test_the_history_of_this_tree_can_be_read() -> None:
    assert all(each.figures for each in read(ROOT / HISTORY))
