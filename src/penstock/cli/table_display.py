"""The display of a landing job: live in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from penstock.telemetry.logs import printable

if TYPE_CHECKING:
    from penstock.spark.jobs.progress import Progress

LINE_PERIOD_S: Final = 5.0
"""Shortest time between two plain lines in the same state."""

_STATES: Final = {
    "waiting": "waiting for the stream service",
    "starting": "starting Spark",
    "landing": "landing messages",
    "ended": "ended",
    "failing": "failing",
    "gave up": "gave up",
}


@contextmanager
def progress_display(console: Console, title: str) -> Iterator[Callable[[Progress], None]]:
    """Yield a function that shows the progress of a landing, until the block ends."""
    if not console.is_terminal:
        yield _LinePrinter(console)
        return
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        spinner = Spinner("dots")
        yield lambda progress: live.update(_panel(title, progress, spinner))


@contextmanager
def tables_display(
    console: Console, names: Sequence[str]
) -> Iterator[Callable[[str, Progress], None]]:
    """Yield a function that shows the progress of several landings, by the names of their
    tables."""
    if not console.is_terminal:
        lines = {name: _LinePrinter(console, f"{name}: ") for name in names}
        yield lambda name, progress: lines[name](progress)
        return
    latest: dict[str, Progress] = {}
    with Live(console=console, refresh_per_second=4, transient=False) as live:

        def show(name: str, progress: Progress) -> None:
            latest[name] = progress
            live.update(_grid([(name, latest[name]) for name in names if name in latest]))

        yield show


class _LinePrinter:
    """Prints a line when the state changes or a batch has ended, but not more often than
    ``LINE_PERIOD_S`` for batches."""

    def __init__(self, console: Console, prefix: str = "") -> None:
        self._console = console
        self._prefix = prefix
        self._state = ""
        self._batch_id: int | None = None
        self._shown_at = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        new_state = progress.state != self._state
        new_batch = progress.batch_id != self._batch_id and now - self._shown_at > LINE_PERIOD_S
        if new_state or new_batch:
            self._state, self._batch_id, self._shown_at = progress.state, progress.batch_id, now
            self._console.print(self._prefix + _line(progress), highlight=False, soft_wrap=True)


def _line(progress: Progress) -> str:
    text = _STATES[progress.state]
    if progress.state in ("waiting", "starting"):
        return text
    if progress.failure:
        return f"{text}: {printable(progress.failure)}"
    parts = [f"{text}: {progress.rows_landed:,} rows landed"]
    if progress.dead_letters:
        parts.append(f"{progress.dead_letters:,} dead letters")
    if progress.state == "landing":
        parts.append(f"{progress.rows_per_second:,.0f} rows/s")
    if progress.batch_id is not None:
        parts.append(f"batch {progress.batch_id}")
    parts.append(f"offset {_number(progress.offset)} of {_number(progress.latest)}")
    if progress.replayed:
        parts.append(f"{progress.replayed} batches were in the table already")
    return ", ".join(parts)


def _panel(title: str, progress: Progress, spinner: Spinner) -> Group:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column()
    spinner.update(text=_STATES[progress.state])
    grid.add_row("state", _STATES["ended"] if progress.state == "ended" else spinner)
    grid.add_row("rows landed", f"{progress.rows_landed:,} in this run")
    grid.add_row("rate", f"{progress.rows_per_second:,.0f} rows/s")
    latest = "stream service unreachable" if progress.latest is None else f"{progress.latest:,}"
    grid.add_row("offset", f"{_number(progress.offset)} of {latest}")
    grid.add_row("lag", _number(progress.lag))
    grid.add_row("batch", _number(progress.batch_id))
    if progress.replayed:
        grid.add_row("replayed", f"{progress.replayed} batches were in the table already")
    return Group(Text(title, style="bold", overflow="fold"), grid)


def _grid(landings: Sequence[tuple[str, Progress]]) -> Group:
    """Return a display with a line for each table, and the errors of failing tables below."""
    grid = Table(box=None, pad_edge=False)
    grid.add_column("table")
    grid.add_column("state")
    for name in ("rows landed", "rows/s", "dead letters", "offset", "lag", "batch"):
        grid.add_column(name, justify="right")
    for name, progress in landings:
        grid.add_row(
            name,
            _STATES[progress.state],
            f"{progress.rows_landed:,}",
            f"{progress.rows_per_second:,.0f}",
            f"{progress.dead_letters:,}",
            _number(progress.offset),
            _number(progress.lag),
            _number(progress.batch_id),
        )
    failures = [
        Text(f"{name}: {printable(progress.failure)}", style="yellow")
        for name, progress in landings
        if progress.failure
    ]
    return Group(grid, *failures)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
