"""``python -m benchmarks.upkeep``: what a commit costs after ten thousand of them.

Makes commits to tables of each format as a landing job does, two small files each, and looks after
the tables in between; beside it, for as long as that is bearable, tables that nobody looks after.
There is no Spark and no log: files are written by the code that tasks run, here, and what Spark
takes to plan a batch and to keep its checkpoint is left out. Commits come one after the other: that
there is half a second between two is told to upkeep's budget only, and no leftover becomes old
enough to go. So files on disk become more all the time, and those that a commit looks at do not.

The machine's speed drifts, and other programs run on it: so at the end a young table of a hundred
commits and the old one take turns, and their ratio is what to look at.

With ``--write`` the figures become a part of docs/benchmarks.md, with a plot.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

import matplotlib as mpl
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine
from benchmarks.pages import PLOTS, write_part
from penstock.config.upkeep import UpkeepDefinition
from penstock.spark.parquet_files import NewFile, write_files
from penstock.spark.tables.api import ROWS, Batch, LandedTable, Selection
from penstock.spark.tables.declared import open_table
from penstock.spark.tables.upkeep import Upkeep

mpl.use("svg")

import matplotlib.pyplot as plt

FORMATS: Final[tuple[Literal["delta", "iceberg"], ...]] = ("delta", "iceberg")
FILES_A_COMMIT: Final = 2
ROWS_A_FILE: Final = 20
TRIGGER_S: Final = 0.5
WINDOW: Final = 100
"""Commits whose median is one point of the plot."""

TURNS: Final = 300
"""Commits that the table at its end and a young one take in turns: the machine's speed drifts."""

NEGLECTED_COMMITS_MAX: Final = 500

_DAY: Final = datetime(2026, 11, 21, tzinfo=UTC)
_SELECTION: Final = Selection("20261121T000000-00000001", "messages", ("plant/#",))
_SCHEMA: Final = pa.schema(
    [
        pa.field("epoch", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("received_at", pa.timestamp("us", tz="UTC")),
        pa.field("topic", pa.string()),
        pa.field("celsius", pa.float64()),
        pa.field("date", pa.date32()),
    ]
)


@dataclass
class Run:
    """What commits to one table cost; a value for each commit, or for each window.

    Attributes:
        label: which table.
        commit_ms: a commit and the looks at the table before it.
        cpu_ms: processor time of that, which other programs on the machine change less.
        upkeep_ms: what came after it.
        files: those that are part of the table.
        growth: time of a commit at the end, by that of a table of a hundred commits; in turns.
    """

    label: str
    commit_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    upkeep_ms: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    growth: float = 0.0

    @property
    def medians_ms(self) -> list[float]:
        """The median of each window, of processor time."""
        return [statistics.median(part) for part in _windows(self.cpu_ms)]

    @property
    def means_ms(self) -> list[float]:
        """The mean of each window, with upkeep."""
        both = [sum(pair) for pair in zip(self.commit_ms, self.upkeep_ms, strict=True)]
        return [statistics.mean(part) for part in _windows(both)]

    @property
    def early_and_late_ms(self) -> tuple[float, float, float, float]:
        """Medians of commits from the hundredth on, and at the end: of the clock, and processor."""
        found = []
        for values in (self.commit_ms, self.cpu_ms):
            found += [statistics.median(values[WINDOW : 2 * WINDOW] or values)]
            found += [statistics.median(values[-WINDOW:])]
        early_ms, late_ms, early_cpu_ms, late_cpu_ms = found
        return early_ms, late_ms, early_cpu_ms, late_cpu_ms


class Writer:
    """Makes commits to a new table, and looks after it.

    Args:
        form: delta or iceberg.
        path: the table's.
        definition: how it is looked after.
    """

    def __init__(
        self, form: Literal["delta", "iceberg"], path: Path, definition: UpkeepDefinition
    ) -> None:
        self.table = open_table(form, path, _SCHEMA, ("date",), path.parent)
        self.measured = Run("")
        self._commits = 0
        self._upkeep = Upkeep([self.table], definition, clock_s=self._clock_s)

    def commit(self) -> None:
        """One more."""
        files = _written(self.table, self._commits)
        started_s, cpu_s = time.perf_counter(), time.process_time()
        _land(self.table, self._commits, files)
        landed_s = time.perf_counter()
        self.measured.cpu_ms.append((time.process_time() - cpu_s) * 1000)
        self.measured.commit_ms.append((landed_s - started_s) * 1000)
        self._commits += 1
        self._upkeep.after_commit()
        self.measured.upkeep_ms.append((time.perf_counter() - landed_s) * 1000)
        if self._commits % WINDOW == 0:
            self.measured.files.append(len(self.table.live_files() or []))

    def _clock_s(self) -> float:
        return time.monotonic() + TRIGGER_S * self._commits


def run(
    label: str, form: Literal["delta", "iceberg"], commits: int, definition: UpkeepDefinition
) -> Run:
    """Make commits to a new table; then to it and to another new one, in turns."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        old = Writer(form, Path(directory, "readings"), definition)
        for _ in range(commits):
            old.commit()
        contents = old.table.contents()
        assert contents is not None
        assert contents.rows == commits * FILES_A_COMMIT * ROWS_A_FILE, "every row is there once"
        new = Writer(form, Path(directory, "young"), definition)
        for _ in range(WINDOW):
            new.commit()
        for _ in range(TURNS):
            old.commit()
            new.commit()
    late, early = (statistics.median(it.measured.commit_ms[-TURNS:]) for it in (old, new))
    its = old.measured
    return replace(
        its,
        label=label,
        commit_ms=its.commit_ms[:commits],
        cpu_ms=its.cpu_ms[:commits],
        upkeep_ms=its.upkeep_ms[:commits],
        files=its.files[: commits // WINDOW],
        growth=late / early,
    )


def _land(table: LandedTable, number: int, files: list[NewFile]) -> None:
    """What a landing asks the table, and tells it."""
    batch = Batch("benchmark", number, _SELECTION)
    assert not table.has_landed(batch)
    seen = table.landed_end(_SELECTION)
    table.commit(batch, files, seen, seen + FILES_A_COMMIT * ROWS_A_FILE)


def _written(table: LandedTable, number: int) -> list[NewFile]:
    """The files of one commit."""
    at = _DAY + timedelta(seconds=number * TRIGGER_S)
    first = number * FILES_A_COMMIT * ROWS_A_FILE
    files: list[NewFile] = []
    for start in range(first, first + FILES_A_COMMIT * ROWS_A_FILE, ROWS_A_FILE):
        offsets = range(start, start + ROWS_A_FILE)
        columns = [
            [_SELECTION.epoch] * ROWS_A_FILE,
            offsets,
            [at] * ROWS_A_FILE,
            [f"plant/{offset % 50}/temp" for offset in offsets],
            [20.0 + offset % 100 / 10 for offset in offsets],
            [at.date()] * ROWS_A_FILE,
        ]
        arrays = [
            pa.array(column, kind.type) for column, kind in zip(columns, _SCHEMA, strict=True)
        ]
        rows = pa.Table.from_arrays(arrays, schema=_SCHEMA)
        files += write_files({ROWS: table.layout}, "part", [{ROWS: rows}])
    return files


def _windows(values: list[float]) -> Iterator[list[float]]:
    for start in range(0, len(values) - WINDOW + 1, WINDOW):
        yield values[start : start + WINDOW]


def _shown(runs: list[Run]) -> Iterator[tuple[str, ...]]:
    """Lines of a table, the headings first."""
    yield (
        "table", "commits", "ms a commit, from the 100th", "at the end",
        "processor ms, from the 100th", "at the end",
        "by a table of 100 commits, in turns", "ms with upkeep, mean", "files alive, most",
    )  # fmt: skip
    for it in runs:
        early_ms, late_ms, early_cpu_ms, late_cpu_ms = it.early_and_late_ms
        yield (
            it.label,
            f"{len(it.commit_ms):,}",
            f"{early_ms:.1f}",
            f"{late_ms:.1f}",
            f"{early_cpu_ms:.1f}",
            f"{late_cpu_ms:.1f}",
            f"{it.growth:.2f}" if it.growth else "",
            f"{statistics.mean(it.means_ms):.1f}",
            f"{max(it.files):,}",
        )


def _write_page(runs: list[Run]) -> None:
    lines = [*_shown(runs)]
    table = [f"| {' | '.join(line)} |" for line in lines]
    table.insert(1, "|---|" + "---:|" * (len(lines[0]) - 1))
    about = (__doc__ or "").partition("\n\n")[2].partition("With ``--write``")[0]
    seen = f"{' '.join(about.split())} Seen on: {machine()}."
    parts = [
        "# Tables that look after themselves\n",
        f"Written by `python -m benchmarks.upkeep --write`. {seen}\n",
        "![Time of a commit and files alive](benchmarks/upkeep.svg)\n",
        *table,
    ]
    _plot(runs)
    write_part("upkeep", "\n".join(parts))


def _plot(runs: list[Run]) -> None:
    plt.rcParams["svg.hashsalt"] = "penstock"  # the same figures make the same file
    figure, (times, files) = plt.subplots(1, 2, figsize=(11, 3.5))
    for it in runs:
        places = [WINDOW * (at + 1) for at in range(len(it.medians_ms))]
        (line,) = times.plot(places, it.medians_ms, label=it.label)
        times.plot(places, it.means_ms, linestyle=":", color=line.get_color())
        files.plot(places, it.files, label=it.label, color=line.get_color())
    times.set_title("ms of the processor a commit; dotted: ms with upkeep", fontsize="medium")
    files.set_title("files alive, of a day", fontsize="medium")
    files.set_yscale("log")
    files.axhline(100, color="grey", linewidth=0.5)
    for panel in (times, files):
        panel.set_xlabel("commits")
        panel.set_ylim(bottom=0 if panel is times else 1)
    files.legend(fontsize="small")
    figure.tight_layout()
    PLOTS.mkdir(exist_ok=True)
    figure.savefig(PLOTS / "upkeep.svg", metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Measure, print, and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--write", action="store_true", help="a part of docs/benchmarks.md")
    chosen = parser.parse_args()
    console = Console()
    runs: list[Run] = []
    for form in FORMATS:
        runs.append(run(form, form, chosen.commits, UpkeepDefinition()))
        few = min(chosen.commits, NEGLECTED_COMMITS_MAX)
        runs.append(run(f"{form}, no upkeep", form, few, UpkeepDefinition(share=0)))
    headings, *lines = _shown(runs)
    shown = Table(*headings)
    for line in lines:
        shown.add_row(*line)
    console.print(shown)
    if chosen.write:
        _write_page(runs)


if __name__ == "__main__":
    main()
