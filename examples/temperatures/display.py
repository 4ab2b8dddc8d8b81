"""What a person sees: bars in a terminal, plain lines elsewhere, and the tables at the end."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from examples.temperatures.ledger import Ledger
from examples.temperatures.query import ONCE_EACH, Answers, Listing
from examples.temperatures.replay import SPARK, Kill, Plan, State
from examples.temperatures.verdict import Verdict

PLAIN_INTERVAL_S: Final = 5.0


class Display:
    """Progress while the replay runs; use as a context manager."""

    def __init__(self, console: Console, plan: Plan) -> None:
        self._console = console
        self._start_s = time.monotonic()
        self._plain_at_s = self._start_s
        self._progress = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("readings"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        total = plan.devices * plan.readings_each
        self._qos_tasks: dict[int, TaskID] = {
            qos: self._progress.add_task(
                f"acknowledged at QoS {qos}",
                total=plan.readings_each * ((plan.devices + (qos == 1)) // 2),
            )
            for qos in (1, 2)
        }
        self._rows_task = self._progress.add_task("rows in the table", total=total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def tell(self, event: str) -> None:
        """Print an event with the time it happened."""
        elapsed_s = time.monotonic() - self._start_s
        self._progress.console.print(
            f"{elapsed_s:6.1f} s  {event}", highlight=False, markup=False, soft_wrap=True
        )

    def show(self, state: State) -> None:
        """Bring the bars, or now and then a line, up to date."""
        total = 0
        for qos, task in self._qos_tasks.items():
            total += state.sent[qos]
            self._move(task, state.acknowledged[qos], state.sent[qos])
        self._move(self._rows_task, state.rows, total)
        now = time.monotonic()
        if self._progress.disable and now - self._plain_at_s > PLAIN_INTERVAL_S:
            self._plain_at_s = now
            acknowledged = ", ".join(f"{state.acknowledged[qos]:,} at QoS {qos}" for qos in (1, 2))
            self.tell(f"acknowledged {acknowledged}; {state.rows:,} rows in the table")

    def _move(self, task: TaskID, completed: int, at_least: int) -> None:
        """The devices go on until the last kill, so a total may grow."""
        current = self._progress.tasks[task].total or 0
        self._progress.update(task, completed=completed, total=max(current, at_least))


def print_report(
    console: Console,
    verdict: Verdict,
    kills: list[Kill],
    ledgers: Collection[Ledger],
    answers: Answers,
    path: Path,
) -> None:
    """Everything there is to say at the end."""
    console.print()
    console.print(_kills_table(kills, ledgers))
    console.print(_figures_table(verdict))
    console.print(
        _listing_table(
            "The last reading of each device, read by Spark from the table's files", answers.newest
        )
    )
    console.print(_listing_table("The year by city, by Spark SQL", answers.cities))
    _print_repeats(console, verdict, answers)
    console.print(
        Text(f"\nThe table lies in {path}, the devices' ledgers in {path.parent / 'ledgers'}.")
    )


def _kills_table(kills: list[Kill], ledgers: Collection[Ledger]) -> Table:
    grid = _table("What happened in the middle of traffic")
    for name in ("at", "what", "what it cut off", "back after"):
        grid.add_column(name, justify="right" if name in ("at", "back after") else "left")
    for kill in kills:
        if kill.target != SPARK:
            counts = ", ".join(
                f"{count} at QoS {qos}" for qos, count in sorted(kill.in_flight.items())
            )
            cut = f"{kill.in_flight.total()} readings in flight ({counts})"
        else:
            batch = "a batch" if kill.in_batch else "between batches"
            behind = sum(ledger.acknowledged_by(kill.wall_s) for ledger in ledgers) - kill.rows
            cut = f"{batch}, {max(0, behind)} acknowledged readings not yet in the table"
        grid.add_row(f"{kill.at_s:.1f} s", kill.target, cut, f"{kill.down_s:.1f} s")
    return grid


def _figures_table(verdict: Verdict) -> Table:
    grid = _table("What devices were promised, and what the table has")
    grid.add_column("")
    for name in ("devices", "sent", "acknowledged", "rows", "distinct", "lost", "duplicated"):
        grid.add_column(name, justify="right")
    for tally in verdict.tallies.values():
        lost_style = "bold red" if tally.lost else "bold green"
        twice_style = "bold green" if not tally.duplicated else "red" if tally.qos == 2 else ""
        grid.add_row(
            f"QoS {tally.qos}",
            *(
                f"{figure:,}"
                for figure in (
                    tally.devices,
                    tally.sent,
                    tally.acknowledged,
                    tally.rows,
                    tally.distinct,
                )
            ),
            Text(f"{tally.lost:,}", lost_style),
            Text(f"{tally.duplicated:,}", twice_style),
        )
    return grid


def _print_repeats(console: Console, verdict: Verdict, answers: Answers) -> None:
    tally = verdict.tallies.get(1)
    if tally is None:
        return
    repeated = f"{tally.duplicated:,} rows" if tally.duplicated else "This time no rows"
    console.print(
        f"\n{repeated} at QoS 1 repeat a reading. A device sends it again when the broker dies"
        " after the log has it and\nbefore the acknowledgement left; QoS 1 allows that. This query"
        " leaves one row of each reading:\n",
        highlight=False,
    )
    console.print(Text(ONCE_EACH, "cyan"))
    left = answers.once_each.get(1, 0)
    console.print(
        f"\nSpark ran it: {answers.rows.get(1, 0):,} rows became {left:,}; the devices sent "
        f"{tally.sent:,} readings at QoS 1.",
        highlight=False,
    )


def _listing_table(title: str, listing: Listing) -> Table:
    grid = _table(title)
    for name in listing.names:
        grid.add_column(name)
    for row in listing.rows:
        grid.add_row(*(_cell(value) for value in row))
    return grid


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return str(value)


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", min_width=60)
