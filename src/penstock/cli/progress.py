"""The progress bar of `penstock pub` and `penstock replay`, on a terminal, for work longer than a
moment."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

_DELAY_S: Final = 1.0  # shorter work shows no bar
_PERIOD_S: Final = 0.2


class Progress(NamedTuple):
    """The progress of a command.

    Attributes:
        done: the part of ``total`` that is done, in the same unit.
        total: the whole; None if unknown.
        text: the text beside the bar.
    """

    done: int
    total: int | None
    text: str


@asynccontextmanager
async def show_progress(
    read_progress: Callable[[], Progress], *, enabled: bool
) -> AsyncIterator[None]:
    """Show the progress on standard error while the block runs.

    Args:
        read_progress: returns the progress; called repeatedly.
        enabled: whether to show the progress; it is never shown if standard error is no terminal.
    """
    if not enabled or not sys.stderr.isatty():
        yield
        return
    showing = asyncio.create_task(_show(read_progress))
    try:
        yield
    finally:
        showing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await showing


async def _show(read_progress: Callable[[], Progress]) -> None:
    await asyncio.sleep(_DELAY_S)
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Display

    from penstock.cli.screen import Screen

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Display(*columns, console=Screen(stderr=True), transient=True) as display:
        task = display.add_task("", total=None)
        while True:
            now = read_progress()
            display.update(task, completed=now.done, total=now.total, description=now.text)
            await asyncio.sleep(_PERIOD_S)
