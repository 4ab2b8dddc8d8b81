"""``python -m benchmarks.instructions``: what the hot paths cost, in instructions and in bytes.

Times are noise on a busy machine; the instructions that a broker executes between the same bytes
are not. The paths of ``hot_paths`` run under Valgrind's callgrind, on a compiled broker without
sockets whose loop is turned by hand, and the bytes of an idle connection and of an idle session
are counted by the C library. Figures repeat within 0.1 %, so that a path that grew by 2 % beyond
the best figure of benchmarks/history.jsonl fails: see ``cost_guard`` for what a commit's message
says that has to cost more.

``--record`` appends the figures to the history. ``--only TEXT`` counts the paths with the text in
their names. ``benchmarks.broker_instructions`` counts a whole broker, with its sockets.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import callgrind, cost_guard
from benchmarks.history import HISTORY, append_line, line_of_commit, read_lines
from benchmarks.hot_paths import PATHS
from benchmarks.idle_bytes import IDLE, count_bytes
from penstock.version import build_kind

_FUNCTIONS: Final = 10  # shown for each path
_TOO_MUCH: Final = (
    "These paths cost more than 2 % above their best figure. Win it back, or say in the last"
    " paragraph of the commit's message why it has to be, `Costs: PATH: why`:"
)


@dataclass(frozen=True)
class Counted:
    """What one path executed.

    Attributes:
        units: how often the unit of the path came.
        functions: the instructions that each function executed itself.
    """

    units: int
    functions: Counter[str]

    @property
    def figure(self) -> float:
        """The instructions of one unit."""
        return self.functions.total() / self.units


def count(names: Sequence[str]) -> dict[str, Counted]:
    """Count the paths with these names."""
    counted: dict[str, Counted] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        command = (sys.executable, "-m", "benchmarks.hot_paths", *names)
        printed = callgrind.run(command, Path(directory))
        for line in printed.splitlines():
            process, units, name = line.split(" ", 2)
            functions = callgrind.counts_of(int(process), Path(directory))
            counted[name] = Counted(int(units), functions)
    return counted


def show(counted: dict[str, Counted], functions: int, console: Console) -> None:
    """Print the figures, and the functions that cost most."""
    for name, one in counted.items():
        unit, _ = PATHS[name]
        table = Table(title=f"{name}: {one.figure:,.0f} instructions a {unit}")
        table.add_column("function")
        table.add_column("instructions", justify="right")
        table.add_column("share", justify="right")
        total = one.functions.total()
        for function, instructions in one.functions.most_common(functions):
            share = f"{instructions / total:.1%}"
            table.add_row(function, f"{instructions / one.units:,.0f}", share)
        console.print(table)


def compare(figures: Mapping[str, float], console: Console) -> list[str]:
    """Print the figures beside the best of the history; return a sentence for each too large."""
    costs, mistakes = cost_guard.costs_of_commits([*PATHS, *IDLE])
    lines = read_lines(HISTORY)
    bars = cost_guard.bars(lines, build_kind(), callgrind.toolchain(), costs)
    table = Table(title="beside the best figure of the history")
    for heading in ("path", "now", "best", "difference", "at"):
        table.add_column(heading, justify="left" if heading in ("path", "at") else "right")
    for name, figure in figures.items():
        best, commit = bars.get(name, (0.0, ""))
        difference = f"{figure / best - 1:+.1%}" if best else ""
        table.add_row(name, f"{figure:,.0f}", f"{best:,.0f}" if best else "", difference, commit)
    console.print(table)
    for cost in costs:
        console.print(f"{cost.path}, from {cost.at:%Y-%m-%d} on: {cost.why}")
    if not bars:
        console.print("The history has no figures of this toolchain: --record makes them the bar.")
    return [*mistakes, *cost_guard.judge(figures, bars)]


def main() -> None:
    """Count, print, compare with the history; exit with code 1 if a path costs too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="count the paths with this text in their names")
    parser.add_argument("--functions", type=int, default=_FUNCTIONS, help="shown for each path")
    parser.add_argument("--record", action="store_true", help="append the figures to the history")
    parser.add_argument("--note", default="", help="free text for the line of the history")
    options = parser.parse_args()
    console = Console(width=100)
    if not callgrind.is_installed():
        console.print(callgrind.MISSING)
        return
    if build_kind() != "compiled":
        sys.exit("Only the compiled broker's instructions are counted: run it without PYTHONPATH.")
    paths = [name for name in PATHS if options.only in name]
    counted = count(paths)
    show(counted, options.functions, console)
    figures = {name: round(one.figure, 1) for name, one in counted.items()}
    figures |= {name: count_bytes(name) for name in IDLE if options.only in name}
    too_much = compare(figures, console)
    if options.record:
        line = line_of_commit(options.note, lambda: figures, callgrind.toolchain())
        append_line(HISTORY, line)
    if too_much:
        sys.exit("\n".join([_TOO_MUCH, *too_much]))


if __name__ == "__main__":
    main()
