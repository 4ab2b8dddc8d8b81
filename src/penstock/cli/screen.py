"""The output of commands: tables, pairs and JSON objects; with colours on a terminal.

Every command prints with this module or with `print`. Text of clients cannot control the terminal:
`print` on a terminal escapes it (``telemetry/terminal.py``), and a `Screen` escapes each text
before it adds colours. Brackets are never markup, and no word is highlighted automatically.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final, final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from penstock.cli.table_lines import row_lines
from penstock.telemetry.logs import printable
from penstock.telemetry.terminal import for_terminal, raw_stream

FOLDED_MIN: Final = 16
"""Characters to which a long cell may be folded so that a table fits the terminal."""


@final
class Screen(Console):
    """A console of Rich that escapes every text, on standard output.

    Args:
        stderr: print to standard error instead.
        pipe_width: width in characters if the output is no terminal; None for 80, or the value of
            COLUMNS.
    """

    def __init__(self, *, stderr: bool = False, pipe_width: int | None = None) -> None:
        stream = sys.stderr if stderr else sys.stdout
        super().__init__(
            file=raw_stream(stream),
            width=None if stream.isatty() else pipe_width,
            markup=False,
            highlight=False,
            emoji=False,
        )

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as Rich's console does, with each text escaped, see `for_terminal`."""
        if isinstance(renderable, Text):
            renderable = _escape(renderable)
        return super().render(renderable, options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return `text` as a text of Rich, escaped before it is measured."""
        return super().render_str(for_terminal(text), **options)


def _escape(text: Text) -> Text:
    """Return `text`, or an escaped copy in one style if it has something to escape."""
    escaped = for_terminal(text.plain)
    return text if escaped == text.plain else text.blank_copy(escaped)


def print_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table; in a pipe one line for each row, with aligned columns, of any length."""
    names = [*headings]
    cells = [[printable(cell) for cell in row] for row in rows]  # a line end must not forge a row
    screen = Screen()
    if not screen.is_terminal:
        for line in row_lines([names], cells):
            print(line)
        return
    shown = columns_that_fit(names, cells, screen.width)
    listing = Table(box=None, pad_edge=False)
    for name in names[:shown]:
        listing.add_column(name, overflow="fold")
    for row in cells:
        listing.add_row(*row[:shown])
    screen.print(listing)
    if shown < len(names):
        print(f"Not shown, for want of width: {', '.join(names[shown:])}; a pipe has all columns.")


def columns_that_fit(names: list[str], cells: list[list[str]], width: int) -> int:
    """Return how many of the columns fit in ``width`` characters, at least two; a cell that is
    longer than ``FOLDED_MIN`` characters may be folded to that."""
    left = width
    for number, name in enumerate(names):
        longest = max((cell_len(row[number]) for row in cells), default=0)
        left -= max(len(name), min(longest, FOLDED_MIN)) + (2 if number else 0)
        if left < 0:
            return max(number, 2)
    return len(names)


def print_heading(text: str) -> None:
    """Print a heading for the lines below it."""
    Screen().print(Text(printable(text), style="bold"), soft_wrap=True)


def print_pairs(pairs: Iterable[tuple[str, str]], indent: int = 0) -> None:
    """Print names and values, a line each; in a pipe lines of any length."""
    screen = Screen()
    if not screen.is_terminal:
        for line in row_lines([], [(name, printable(value)) for name, value in pairs]):
            print(" " * indent + line)
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(name, printable(value))
    screen.print(Padding(grid, (0, 0, 0, indent), expand=False))


def print_objects(objects: Iterable[Mapping[str, Any]]) -> None:
    """Print one JSON object a line; characters are escaped if standard output cannot encode
    them."""
    for item in objects:
        text = json.dumps(item, ensure_ascii=False)
        try:
            text.encode(sys.stdout.encoding or "utf-8")
        except UnicodeEncodeError:
            text = json.dumps(item)
        print(text)
