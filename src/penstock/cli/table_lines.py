"""Rows as lines of text: a line for each row, or a line for each value. No I/O.

Rich fits a table into a given width, and breaks every column to a few letters where that is too
small. Here a line has its full length, unless values are to be cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

VALUE_CELLS_MAX: Final = 60
"""Most terminal cells of a value in a line with others, where values are cut."""

PADDED_CELLS_MAX: Final = 200
"""A longer value shifts the rest of its line, and no other line."""

_COLUMN_CELLS_MIN: Final = 8
"""Values that had to be shorter would show too little."""

_BETWEEN: Final = "  "
_CUT: Final = "…"

Row = Sequence[str]


def cut(text: str, cells: int) -> str:
    """Return the text, cut to this many cells of a terminal."""
    if len(text) <= cells and cell_len(text) <= cells:
        return text
    return set_cell_size(text[:cells], cells - 1).rstrip() + _CUT


def row_lines(
    headings: Sequence[Row], rows: Sequence[Row], cells_max: int | None = None
) -> list[str]:
    """Return a line for each row, with aligned columns.

    Args:
        headings: the lines above, each with a text for each column.
        rows: a text for each column.
        cells_max: cut longer texts; None: cut nothing.
    """
    every = [*headings, *rows]
    if cells_max is not None:
        every = [[cut(text, cells_max) for text in row] for row in every]
    rooms = [
        min(PADDED_CELLS_MAX, max(map(cell_len, column))) for column in zip(*every, strict=True)
    ]
    return [
        _BETWEEN.join(
            text + " " * (room - cell_len(text)) for text, room in zip(row, rooms, strict=True)
        ).rstrip()
        for row in every
    ]


def value_lines(names: Row, rows: Sequence[Row], width: int | None = None) -> list[str]:
    """Return a line for each value, after its column's name; an empty line between two rows.

    Args:
        names: names of the columns.
        rows: a text for each column.
        width: cut lines to this many cells; None: cut nothing.
    """
    room = max(map(cell_len, names), default=0) + len(_BETWEEN)
    lines: list[str] = []
    for row in rows:
        if lines:
            lines.append("")
        for name, text in zip(names, row, strict=True):
            shown = text if width is None else cut(text, max(1, width - room))
            lines.append(f"{name}{' ' * (room - cell_len(name))}{shown}".rstrip())
    return lines


def fitting_lines(headings: Sequence[Row], rows: Sequence[Row], width: int) -> list[str]:
    """Return lines of at most ``width`` cells: one for each row if they fit, else one for each
    value."""
    for cells_max in range(VALUE_CELLS_MAX, _COLUMN_CELLS_MIN - 1, -4):
        lines = row_lines(headings, rows, cells_max)
        if max(map(cell_len, lines), default=0) <= width:
            return lines
    if not rows:  # the columns alone
        return value_lines(headings[0], headings[1:], width)
    return value_lines(headings[0], rows, width)
