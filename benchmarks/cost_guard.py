"""Decides whether a commit may cost what it costs: each figure against the best ever recorded.

::

      history.jsonl ─▶ the least figure of each path ─▶ bar        with one toolchain, one build
            git log ─▶ trailers ``Costs: PATH: why`` ──▶ forget what was recorded before
                                                         │
                                   figure > 102 % of bar ▼ ─▶ the guard fails

A commit that has to cost more says so in its message, in a line of its last paragraph::

    Costs: publish QoS 1, 1 -> 1: each message has the time of its arrival

From then on only figures that were recorded after that commit are the bar of the path.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from benchmarks.history import Line

GROWTH_MAX: Final = 1.02
"""The ratio to the best figure above which the guard fails."""

TRAILER: Final = "Costs"
_RECORD: Final = "\x1e"
_LOG: Final = ("git", "log", f"--format=%aI%n%(trailers:key={TRAILER},valueonly,unfold){_RECORD}")


@dataclass(frozen=True)
class Cost:
    """What a commit says about the growth of one path.

    Attributes:
        path: the name of the path, as in the history.
        why: the reason.
        at: when the commit was written.
    """

    path: str
    why: str
    at: datetime


def parse_trailer(value: str, paths: Iterable[str], at: datetime) -> Cost:
    """Return the cost that the value of a trailer names; ``->`` may stand for the arrow.

    Raises:
        ValueError: the trailer names no path, or no reason; a sentence.
    """
    named, _, why = value.partition(":")
    for path in paths:
        if _plain(path) == _plain(named):
            if not why.strip():
                raise ValueError(f"`{TRAILER}: {value}` gives no reason: `{TRAILER}: PATH: why`")
            return Cost(path, why.strip(), at)
    raise ValueError(f"`{TRAILER}: {value}` names no path; they are: {'; '.join(paths)}")


def _plain(path: str) -> str:
    return path.replace("->", "→").replace(" ", "").casefold()


def read_costs(log: str, paths: Sequence[str]) -> tuple[list[Cost], list[str]]:
    """Return the costs in the output of ``git log``, and a sentence for each trailer in error.

    Args:
        log: for each commit its date and the values of its trailers, as ``costs_of_commits``.
        paths: the names of all paths.
    """
    costs: list[Cost] = []
    mistakes: list[str] = []
    for entry in log.split(_RECORD):
        date, _, values = entry.strip().partition("\n")
        for value in filter(None, map(str.strip, values.splitlines())):
            try:
                costs.append(parse_trailer(value, paths, datetime.fromisoformat(date)))
            except ValueError as mistake:
                mistakes.append(str(mistake))
    return costs, mistakes


def costs_of_commits(paths: Sequence[str]) -> tuple[list[Cost], list[str]]:
    """Return ``read_costs`` of all commits up to the one that is checked out."""
    log = subprocess.run(_LOG, capture_output=True, text=True, check=True).stdout
    return read_costs(log, paths)


def bars(
    lines: Iterable[Line], build: str, counted_with: str, costs: Sequence[Cost]
) -> dict[str, tuple[float, str]]:
    """Return the least figure of each path, and the commit that had it.

    Only lines of the same build and toolchain count, and none from before the last commit that
    says why the path costs more.
    """
    least: dict[str, tuple[float, str]] = {}
    for line in lines:
        if (line.build, line.counted_with) != (build, counted_with):
            continue
        recorded_at = datetime.fromisoformat(line.at)
        for path, figure in line.figures.items():
            is_forgotten = any(cost.path == path and recorded_at < cost.at for cost in costs)
            if not is_forgotten and (path not in least or figure < least[path][0]):
                least[path] = (figure, line.commit)
    return least


def judge(figures: Mapping[str, float], bars: Mapping[str, tuple[float, str]]) -> list[str]:
    """Return a sentence for each figure that grew beyond ``GROWTH_MAX``."""
    sentences: list[str] = []
    for path, figure in figures.items():
        best, commit = bars.get(path, (figure, ""))
        if figure > best * GROWTH_MAX:
            growth = f"{figure / best - 1:+.1%} of the best, {best:,.0f} at {commit}"
            sentences.append(f"{path}: {figure:,.0f}, {growth}")
    return sentences
