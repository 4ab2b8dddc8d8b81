"""``python -m benchmarks.history``: measures the current commit, and plots all measured commits.

::

      this commit ─▶ short runs of other benchmarks ─▶ a line of benchmarks/history.jsonl
                                                                  │ all lines
                                                                  ▼
                                     docs/benchmarks/history.svg, a part of docs/benchmarks.md

A line records the conditions of its figures: the machine, its load, the build, and a *yardstick*,
which is the processor time of a fixed piece of Python that does not use Penstock. The machine's
speed drifts by more than most commits change, so the plot scales every figure to the yardstick of
the first line with the same build. The plot shows trends; to judge a change, alternate runs of both
versions (``benchmarks.side_by_side`` and others).

Lines are only appended, by measuring: none is edited, and none is added for an older commit.
``--draw`` only plots.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import matplotlib as mpl
from rich.console import Console
from rich.table import Table

from benchmarks import peers, window
from benchmarks.broker import penstock
from benchmarks.durability import time_fdatasyncs_s
from benchmarks.machine import machine
from benchmarks.pages import PLOTS, write_part
from benchmarks.publish import publish
from benchmarks.scenarios import Scenario
from benchmarks.side_by_side import measure
from penstock.services.garbage import collect_in_portions
from penstock.version import build_kind

mpl.use("svg")

import matplotlib.pyplot as plt

HISTORY: Final = Path("benchmarks") / "history.jsonl"
PLOT: Final = PLOTS / "history.svg"
MEASURED_FILES: Final = ("src", "setup.py", "pyproject.toml", "requirements", "benchmarks/*.py")
"""Files that the figures depend on, as Git patterns."""

PUBLISHERS: Final = (1, 10)
WINDOWS: Final = (32, 1000)
WINDOW_MESSAGES: Final = 400
DELIVERED: Final = Scenario("10 → 10", ("-P", "10", "-S", "10"))

CPU: Final = "cpu µs"
"""Suffix of the names of figures that are processor time of the broker, per message or copy."""

RATE: Final = "a second"
"""Suffix of the names of figures that are rates."""

_YARDSTICK_ROUNDS: Final = 200_000

_ABOUT: Final = """\
Written by `python -m benchmarks.history`: one line of `benchmarks/history.jsonl` for each commit
that was measured, by short runs. Values are those of a machine as fast as at the first line of
their build, by a yardstick that has nothing to do with Penstock. They show trends: a change is
judged by runs that take turns.
"""


@dataclass(frozen=True)
class Line:
    """The figures of one commit, and the conditions under which they were measured.

    Attributes:
        at: the time of the measurement, UTC, ISO 8601.
        commit: the short hash of the commit.
        changed: whether `MEASURED_FILES` differed from the commit.
        build: "compiled" or "interpreted".
        machine: cores, processor, memory and operating system.
        load: the system's load average of the minute before.
        yardstick_ms: the processor time of a fixed piece of Python.
        fdatasync_ms: the median time to append and sync 4 KiB.
        note: free text, may be empty.
        figures: medians by name, in the unit at the end of the name; counts of
            ``benchmarks.instructions`` by the name of their path.
        counted_with: the toolchain of counted instructions; empty if times were measured.
    """

    at: str
    commit: str
    changed: bool
    build: str
    machine: str
    load: float
    yardstick_ms: float
    fdatasync_ms: float
    note: str
    figures: Mapping[str, float]
    counted_with: str = ""


def read_lines(path: Path) -> list[Line]:
    """Return the lines of a history, oldest first; an empty list if there is no file."""
    if not path.exists():
        return []
    texts = path.read_text(encoding="utf-8").splitlines()
    return [Line(**json.loads(text)) for text in texts if text]


def append_line(path: Path, line: Line) -> None:
    """Append a line to the history in the file ``path``."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(line), ensure_ascii=False) + "\n")


def yardstick_ms() -> float:
    """Return the processor time of a fixed piece of Python, milliseconds; the median of five."""
    times_ms: list[float] = []
    for _ in range(5):
        started_s = time.process_time()
        counts: dict[int, int] = {}
        for number in range(_YARDSTICK_ROUNDS):
            counts[number & 1023] = counts.get(number & 1023, 0) + number
        times_ms.append((time.process_time() - started_s) * 1000)
    return statistics.median(times_ms)


def figures(seconds: float, repeats: int) -> dict[str, float]:
    """Return the medians of short runs by name; runs of different kinds alternate."""
    values_by_name: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        values_by_name.setdefault(name, []).append(value)

    for _ in range(repeats):
        for persistence in ("file", "memory"):
            for publishers in PUBLISHERS:
                with penstock(persistence) as broker:
                    published = publish(broker, publishers, seconds)
                name = f"publish QoS 1, {persistence}, {publishers} →"
                note(f"{name} {RATE}", published.messages_per_s)
                note(f"{name} {CPU}", published.cpu_us_per_message)
        for qos in DELIVERED.levels:
            with peers.penstock("memory") as broker:
                run = measure(broker, "5", DELIVERED, qos, seconds)
            name = f"deliver QoS {qos}, {DELIVERED.name}"
            note(f"{name} {RATE}", run.rate)
            note(f"{name} {CPU}", run.cpu_s)
        for places in WINDOWS:
            cpu_us = window.cpu_us(places, 1, 1, WINDOW_MESSAGES)
            note(f"stored session, window {places:,} {CPU}", cpu_us)
    return {name: round(statistics.median(values), 2) for name, values in values_by_name.items()}


def line_of_commit(
    note: str, measure: Callable[[], Mapping[str, float]], counted_with: str = ""
) -> Line:
    """Return the figures that ``measure`` finds for the commit that is checked out."""
    collect_in_portions()  # the garbage collector as in a broker
    load = os.getloadavg()[0]
    commit = _git("rev-parse", "--short=9", "HEAD")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        synced_s = statistics.median(time_fdatasyncs_s(Path(directory), 1.0))
    return Line(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit,
        changed=bool(_git("status", "--porcelain", "--", *MEASURED_FILES)),
        build=build_kind(),
        machine=machine(),
        load=round(load, 1),
        yardstick_ms=round(yardstick_ms(), 2),
        fdatasync_ms=round(synced_s * 1000, 3),
        note=note,
        figures=measure(),
        counted_with=counted_with,
    )


def _git(*arguments: str) -> str:
    process = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    return process.stdout.rstrip("\n")


def at_first_yardstick(lines: list[Line], of: Line, value: float, is_rate: bool) -> float:
    """Scale ``value`` of the line ``of`` to the yardstick of the first line with the same build."""
    first = next(line for line in lines if line.build == of.build)
    slowdown = of.yardstick_ms / first.yardstick_ms
    return value * slowdown if is_rate else value / slowdown


def draw(lines: list[Line], path: Path) -> None:
    """Plot all lines of a history in an SVG; equal lines give an equal file."""
    plt.rcParams["svg.hashsalt"] = "penstock"
    figure, panels = plt.subplots(2, 1, figsize=(11, 8), sharex=True)
    for panel, ending in zip(panels, (CPU, RATE), strict=True):
        names = sorted({name for line in lines for name in line.figures if name.endswith(ending)})
        for number, name in enumerate(names):
            for build, marker in (("compiled", "o"), ("interpreted", "x")):
                points = [
                    (place, at_first_yardstick(lines, line, line.figures[name], ending == RATE))
                    for place, line in enumerate(lines)
                    if line.build == build and name in line.figures
                ]
                if points:
                    label = f"{name.removesuffix(ending).strip()}, {build}"
                    places, values = zip(*points, strict=True)
                    panel.plot(places, values, marker=marker, label=label, color=f"C{number}")
        panel.set_yscale("log")
        panel.set_ylabel(f"{'messages ' if ending == RATE else 'broker, '}{ending}")
        panel.grid(visible=True, axis="y", linewidth=0.3)
        panel.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    labels = [f"{line.commit}{'+' if line.changed else ''}\n{line.at[:10]}" for line in lines]
    panels[1].set_xticks(range(len(lines)), labels, fontsize="x-small", rotation=45)
    panels[1].set_xlim(-0.5, len(lines) - 0.5)
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def page(lines: list[Line]) -> str:
    """Return the part of docs/benchmarks.md: the plot, and the conditions of each line."""
    rows = [
        f"| {line.at[:16].replace('T', ' ')} | `{line.commit}`{' and changes' * line.changed}"
        f" | {line.build} | {line.load:g} | {line.yardstick_ms:.1f} | {line.fdatasync_ms:.2f}"
        f" | {line.note} |"
        for line in lines
    ]
    return "\n".join(
        [
            "# Commit by commit\n",
            _ABOUT,
            "![Processor time and rates by commit](benchmarks/history.svg)\n",
            "| UTC | commit | build | load before | yardstick ms | fdatasync ms | note |",
            "|---|---|---|---:|---:|---:|---|",
            *rows,
        ]
    )


def main() -> None:
    """Measure and append a line, and plot the history; with ``--draw`` only plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each figure")
    parser.add_argument("--note", default="", help="free text for this line")
    parser.add_argument("--draw", action="store_true", help="only plot")
    arguments = parser.parse_args()
    if not arguments.draw:
        line = line_of_commit(
            arguments.note, partial(figures, arguments.seconds, arguments.repeats)
        )
        append_line(HISTORY, line)
        _show(line, Console().print)
    lines = [line for line in read_lines(HISTORY) if not line.counted_with]
    if lines:
        draw(lines, PLOT)
        write_part("history", page(lines))


def _show(line: Line, show: Callable[[object], None]) -> None:
    show(f"{line.commit}, {line.build}, load {line.load:g}, {line.machine}")
    table = Table("figure", "median")
    table.columns[1].justify = "right"
    for name, value in line.figures.items():
        table.add_row(name, f"{value:,.2f}")
    show(table)


if __name__ == "__main__":
    main()
