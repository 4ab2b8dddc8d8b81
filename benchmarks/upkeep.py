"""``python -m benchmarks.upkeep``: the time of a commit to a table after ten thousand commits.

It makes commits to tables of each format as a landing job does, with two small files each, and runs
upkeep between the commits. For comparison it makes a few hundred commits to tables without upkeep.
There is neither Spark nor a log: this process writes the files with the code of Spark's tasks, and
the figures leave out Spark's planning and checkpoints. Commits follow each other without a pause;
only the clock of upkeep's budget advances by half a second for each. No removed file becomes old
enough to be deleted, so the files on disk increase, but not those that a commit reads.

The machine's speed drifts, and other programs run on it. So at the end commits to the old table
alternate with commits to a new table of a hundred commits: compare their ratio.

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
from penstock.spark.storage.local import LocalLocation
from penstock.spark.tables.declared import open_table
from penstock.spark.tables.landed_table import ROWS, LandedTable, PlannedBatch, Selection
from penstock.spark.tables.upkeep import Upkeep
from tests.support.places import places_in

mpl.use("svg")

import matplotlib.pyplot as plt

FORMATS: Final[tuple[Literal["delta", "iceberg"], ...]] = ("delta", "iceberg")
FILES_PER_COMMIT: Final = 2
ROWS_PER_FILE: Final = 20
TRIGGER_S: Final = 0.5
WINDOW: Final = 100
"""Number of commits whose median is one point of the plot."""

ALTERNATING_COMMITS: Final = 300
"""Number of commits to each of the old and the new table at the end, which alternate."""

NO_UPKEEP_COMMITS_MAX: Final = 500

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
class TableFigures:
    """The figures of the commits to one table.

    Attributes:
        label: the title of the table.
        commit_ms: the time of each commit, with the reads of the table before it.
        cpu_ms: the processor time of each commit; other programs change it less.
        upkeep_ms: the time of upkeep after each commit.
        files: the number of files in the table after each `WINDOW` commits.
        growth: the time of a commit at the end divided by that of a new table; 0 if not measured.
    """

    label: str
    commit_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    upkeep_ms: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    growth: float = 0.0

    @property
    def medians_ms(self) -> list[float]:
        """Return the median processor time of a commit in each window, milliseconds."""
        return [statistics.median(part) for part in _windows(self.cpu_ms)]

    @property
    def means_ms(self) -> list[float]:
        """Return the mean time of a commit with upkeep in each window, milliseconds."""
        both = [sum(pair) for pair in zip(self.commit_ms, self.upkeep_ms, strict=True)]
        return [statistics.mean(part) for part in _windows(both)]

    @property
    def early_and_late_ms(self) -> tuple[float, float, float, float]:
        """Return the median times of a commit in the second window and in the last one.

        Returns:
            Elapsed time of both, then processor time of both, milliseconds.
        """
        medians = []
        for values in (self.commit_ms, self.cpu_ms):
            medians += [statistics.median(values[WINDOW : 2 * WINDOW] or values)]
            medians += [statistics.median(values[-WINDOW:])]
        early_ms, late_ms, early_cpu_ms, late_cpu_ms = medians
        return early_ms, late_ms, early_cpu_ms, late_cpu_ms


class TableWriter:
    """Makes commits to a new table, and runs upkeep after each.

    Args:
        form: the format, delta or iceberg.
        path: the directory of the table.
        definition: the settings of upkeep.
    """

    def __init__(
        self, form: Literal["delta", "iceberg"], path: Path, definition: UpkeepDefinition
    ) -> None:
        self.table = open_table(
            form, LocalLocation(path), _SCHEMA, ("date",), places_in(path.parent)
        )
        self.figures = TableFigures("")
        self._commits = 0
        self._upkeep = Upkeep([self.table], definition, clock_s=self._clock_s)

    def commit(self) -> None:
        """Make a commit, run upkeep, and record the times."""
        files = _write_files(self.table, self._commits)
        started_s, cpu_s = time.perf_counter(), time.process_time()
        _commit_files(self.table, files)
        landed_s = time.perf_counter()
        self.figures.cpu_ms.append((time.process_time() - cpu_s) * 1000)
        self.figures.commit_ms.append((landed_s - started_s) * 1000)
        self._commits += 1
        self._upkeep.after_commit()
        self.figures.upkeep_ms.append((time.perf_counter() - landed_s) * 1000)
        if self._commits % WINDOW == 0:
            self.figures.files.append(len(self.table.live_files() or []))

    def _clock_s(self) -> float:
        return time.monotonic() + TRIGGER_S * self._commits


def run(
    label: str, form: Literal["delta", "iceberg"], commits: int, definition: UpkeepDefinition
) -> TableFigures:
    """Make ``commits`` to a table, then alternating commits to it and to a new table."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        old = TableWriter(form, Path(directory, "readings"), definition)
        for _ in range(commits):
            old.commit()
        contents = old.table.contents()
        assert contents is not None
        assert contents.rows == commits * FILES_PER_COMMIT * ROWS_PER_FILE, (
            "every row is there once"
        )
        new = TableWriter(form, Path(directory, "young"), definition)
        for _ in range(WINDOW):
            new.commit()
        for _ in range(ALTERNATING_COMMITS):
            old.commit()
            new.commit()
    late, early = (
        statistics.median(writer.figures.commit_ms[-ALTERNATING_COMMITS:]) for writer in (old, new)
    )
    old_figures = old.figures
    return replace(
        old_figures,
        label=label,
        commit_ms=old_figures.commit_ms[:commits],
        cpu_ms=old_figures.cpu_ms[:commits],
        upkeep_ms=old_figures.upkeep_ms[:commits],
        files=old_figures.files[: commits // WINDOW],
        growth=late / early,
    )


def _commit_files(table: LandedTable, files: list[NewFile]) -> None:
    """Commit files to the table with the read that a landing makes before."""
    landed = table.landed(_SELECTION)
    seen = 0 if landed is None else landed.end
    table.commit(PlannedBatch(_SELECTION, seen, seen + FILES_PER_COMMIT * ROWS_PER_FILE), files)


def _write_files(table: LandedTable, number: int) -> list[NewFile]:
    """Write the files of one commit."""
    at = _DAY + timedelta(seconds=number * TRIGGER_S)
    first = number * FILES_PER_COMMIT * ROWS_PER_FILE
    files: list[NewFile] = []
    for start in range(first, first + FILES_PER_COMMIT * ROWS_PER_FILE, ROWS_PER_FILE):
        offsets = range(start, start + ROWS_PER_FILE)
        columns = [
            [_SELECTION.epoch] * ROWS_PER_FILE,
            offsets,
            [at] * ROWS_PER_FILE,
            [f"plant/{offset % 50}/temp" for offset in offsets],
            [20.0 + offset % 100 / 10 for offset in offsets],
            [at.date()] * ROWS_PER_FILE,
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


def _table_lines(runs: list[TableFigures]) -> Iterator[tuple[str, ...]]:
    """Yield the lines of the table of results, headings first."""
    yield (
        "table", "commits", "ms a commit, from the 100th", "at the end",
        "processor ms, from the 100th", "at the end",
        "by a table of 100 commits, in turns", "ms with upkeep, mean", "files alive, most",
    )  # fmt: skip
    for run_figures in runs:
        early_ms, late_ms, early_cpu_ms, late_cpu_ms = run_figures.early_and_late_ms
        yield (
            run_figures.label,
            f"{len(run_figures.commit_ms):,}",
            f"{early_ms:.1f}",
            f"{late_ms:.1f}",
            f"{early_cpu_ms:.1f}",
            f"{late_cpu_ms:.1f}",
            f"{run_figures.growth:.2f}" if run_figures.growth else "",
            f"{statistics.mean(run_figures.means_ms):.1f}",
            f"{max(run_figures.files):,}",
        )


def _write_page(runs: list[TableFigures]) -> None:
    lines = [*_table_lines(runs)]
    table = [f"| {' | '.join(line)} |" for line in lines]
    table.insert(1, "|---|" + "---:|" * (len(lines[0]) - 1))
    about = (__doc__ or "").partition("\n\n")[2].partition("With ``--write``")[0]
    introduction = f"{' '.join(about.split())} Seen on: {machine()}."
    parts = [
        "# Tables that look after themselves\n",
        f"Written by `python -m benchmarks.upkeep --write`. {introduction}\n",
        "![Time of a commit and files alive](benchmarks/upkeep.svg)\n",
        *table,
    ]
    _plot(runs)
    write_part("upkeep", "\n".join(parts))


def _plot(runs: list[TableFigures]) -> None:
    plt.rcParams["svg.hashsalt"] = "penstock"  # equal figures give an equal file
    figure, (times, files) = plt.subplots(1, 2, figsize=(11, 3.5))
    for run_figures in runs:
        commits = [WINDOW * (number + 1) for number in range(len(run_figures.medians_ms))]
        (line,) = times.plot(commits, run_figures.medians_ms, label=run_figures.label)
        times.plot(commits, run_figures.means_ms, linestyle=":", color=line.get_color())
        files.plot(commits, run_figures.files, label=run_figures.label, color=line.get_color())
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
    """Measure and print a table; with ``--write`` write the part of the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--write", action="store_true", help="write a part of docs/benchmarks.md")
    arguments = parser.parse_args()
    console = Console()
    runs: list[TableFigures] = []
    for form in FORMATS:
        runs.append(run(form, form, arguments.commits, UpkeepDefinition()))
        commits_max = min(arguments.commits, NO_UPKEEP_COMMITS_MAX)
        runs.append(run(f"{form}, no upkeep", form, commits_max, UpkeepDefinition(share=0)))
    headings, *lines = _table_lines(runs)
    result = Table(*headings)
    for line in lines:
        result.add_row(*line)
    console.print(result)
    if arguments.write:
        _write_page(runs)


if __name__ == "__main__":
    main()
