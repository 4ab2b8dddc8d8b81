"""Recognises csv: the delimiter, the header, and the fields by column.

Text is csv if the lines of all payloads have the same number of fields, two or more, and either a
header names the fields or at least one column has numbers or times: prose has commas, too. A header
is a first line that all payloads share, or that of a single payload with other types below it.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from penstock.decoding.csv_lines import fields_of_lines
from penstock.decoding.inference.column_types import guess
from penstock.decoding.inference.fields import KEY_CHARACTERS_MAX
from penstock.decoding.inference.written_numbers import look_like_numbers

DELIMITERS: Final = (";", "\t", "|", ",")
_LINES_EXAMINED_MAX: Final = 200
_FIELDS_MAX: Final = 2000
_SERIES_MIN: Final = 3  # two numbers are always in equal steps
_SERIES_DIGITS_MAX: Final = 9


@dataclass(frozen=True, slots=True)
class CsvShape:
    """The delimiter, the number of fields, and the names in the header; () without a header."""

    delimiter: str
    width: int
    header: tuple[str, ...] = ()


def csv_shape(texts: Sequence[str]) -> CsvShape | None:
    """Return the shape that at least 19 of 20 lines of these texts have; None if that is not
    csv."""
    for delimiter in DELIMITERS:
        if not any(delimiter in text for text in texts):
            continue
        payloads = [lines for text in texts if (lines := lines_of(text, delimiter))]
        widths = Counter(len(line) for lines in payloads for line in lines)
        if not widths:
            continue
        width, count = widths.most_common(1)[0]
        if not 2 <= width <= _FIELDS_MAX or count * 20 < sum(widths.values()) * 19:
            continue
        fitting = [lines for lines in payloads if all(len(line) == width for line in lines)]
        header = _header(fitting)
        rows = [line for lines in fitting for line in lines[bool(header) :]]
        if header or _is_typed(rows):
            return CsvShape(delimiter, width, header)
    return None


def lines_of(text: str, delimiter: str) -> list[list[str]]:
    """Return the fields of each line; [] if the text is not csv."""
    try:
        return [fields for _, fields in fields_of_lines(text, delimiter)]
    except csv.Error:
        return []


def _header(payloads: Sequence[Sequence[Sequence[str]]]) -> tuple[str, ...]:
    """Return the names in the first line of all payloads if it is a header; else ()."""
    if not payloads or not payloads[0]:
        return ()
    names = tuple(name.strip() for name in payloads[0][0])
    rows_below = [line for lines in payloads for line in lines[1:]]
    is_same = all(tuple(name.strip() for name in lines[0]) == names for lines in payloads)
    if not (rows_below and is_same and all(names) and len(set(names)) == len(names)):
        return ()
    if max(map(len, names)) > KEY_CHARACTERS_MAX:
        return ()
    if len(payloads) == 1:
        return names if not _is_typed([names]) and _is_typed(rows_below) else ()
    return names if not _is_typed([_without_number_series(names)]) else ()


def _without_number_series(names: Sequence[str]) -> Sequence[str]:
    """Return the names without a series of numbers in equal steps, such as a field for each year.

    All names are returned if there is no such series, or no name besides it.
    """
    numbers = [name for name in names if name.isdecimal() and len(name) <= _SERIES_DIGITS_MAX]
    steps = {int(after) - int(before) for before, after in pairwise(numbers)}
    is_series = len(numbers) >= _SERIES_MIN and len(steps) == 1 and min(steps) > 0
    other_names = [name for name in names if name not in numbers]
    return other_names if is_series and other_names else names


def _is_typed(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether a column has another type than text."""
    for column in zip(*rows[:_LINES_EXAMINED_MAX], strict=True):
        values = [value for value in column if value]
        if not values:
            continue
        if look_like_numbers(values):
            return True
        if not guess("", values, len(column), all_is_text=True).is_text:
            return True
    return False
