"""Rows as lines of text: a line for each row, or a line for each value. No I/O.

Rich fits a table into a given width, and breaks every column to a few letters if the width is too
small. The functions here give each line its full length, unless values are to be truncated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

VALUE_CELLS_MAX: Final = 60
"""Most terminal cells of a truncated value in a line with others."""

PADDED_CELLS_MAX: Final = 200
"""Most cells to which values of a column are padded; a longer value shifts only its own line."""

_COLUMN_CELLS_MIN: Final = 8
"""Fewest cells of a truncated value; shorter ones would show too little."""

_COLUMN_GAP: Final = "  "
_ELLIPSIS: Final = "…"

Row = Sequence[str]


def truncate(text: str, cells: int) -> str:
    """Return the text, truncated to this many cells of a terminal."""
    if len(text) <= cells and cell_len(text) <= cells:
        return text
    return set_cell_size(text[:cells], cells - 1).rstrip() + _ELLIPSIS


def row_lines(
    headings: Sequence[Row], rows: Sequence[Row], cells_max: int | None = None
) -> list[str]:
    """Return a line for each row, with aligned columns.

    Args:
        headings: the lines above the rows, each with a text for each column.
        rows: a text for each column.
        cells_max: most cells of a text, longer ones are truncated; None: no limit.
    """
    lines = [*headings, *rows]
    if cells_max is not None:
        lines = [[truncate(text, cells_max) for text in row] for row in lines]
    widths = [
        min(PADDED_CELLS_MAX, max(map(cell_len, column))) for column in zip(*lines, strict=True)
    ]
    return [
        _COLUMN_GAP.join(
            text + " " * (width - cell_len(text)) for text, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in lines
    ]


def value_lines(names: Row, rows: Sequence[Row], width: int | None = None) -> list[str]:
    """Return a line for each value, after its column's name; an empty line between two rows.

    Args:
        names: names of the columns.
        rows: a text for each column.
        width: most cells of a line, longer ones are truncated; None: no limit.
    """
    name_width = max(map(cell_len, names), default=0) + len(_COLUMN_GAP)
    lines: list[str] = []
    for row in rows:
        if lines:
            lines.append("")
        for name, text in zip(names, row, strict=True):
            shown = text if width is None else truncate(text, max(1, width - name_width))
            lines.append(f"{name}{' ' * (name_width - cell_len(name))}{shown}".rstrip())
    return lines


def fitting_lines(headings: Sequence[Row], rows: Sequence[Row], width: int) -> list[str]:
    """Return lines of at most ``width`` cells: one line for each row if they fit, else one for each
    value."""
    for cells_max in range(VALUE_CELLS_MAX, _COLUMN_CELLS_MIN - 1, -4):
        lines = row_lines(headings, rows, cells_max)
        if max(map(cell_len, lines), default=0) <= width:
            return lines
    if not rows:  # the columns alone
        return value_lines(headings[0], headings[1:], width)
    return value_lines(headings[0], rows, width)
