"""Recognises csv: the delimiter, the header, and the fields by column.

Text is csv if the lines of all payloads have the same number of fields, two or more, and either a
header names them or at least one column has numbers or times: prose has commas, too. A header is
the first line of every payload, or of one that has other types below it.
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

DELIMITERS: Final = (";", "\t", "|", ",")
_LINES_LOOKED_AT_MAX: Final = 200
_FIELDS_MAX: Final = 2000
_SERIES_MIN: Final = 3  # two numbers are always in equal steps
_SERIES_DIGITS_MAX: Final = 9


@dataclass(frozen=True, slots=True)
class CsvShape:
    """The delimiter, the number of fields, and the names in the header; () if there is none."""

    delimiter: str
    width: int
    header: tuple[str, ...] = ()


def csv_shape(texts: Sequence[str]) -> CsvShape | None:
    """Return the shape that most of these texts have as csv; None if they are not csv."""
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
    """Return the fields of each line; none if the text is not csv."""
    try:
        return [fields for _, fields in fields_of_lines(text, delimiter)]
    except csv.Error:
        return []


def _header(payloads: Sequence[Sequence[Sequence[str]]]) -> tuple[str, ...]:
    """Return the first line of each payload if it names the fields of the lines below it."""
    if not payloads or not payloads[0]:
        return ()
    first = tuple(name.strip() for name in payloads[0][0])
    rest = [line for lines in payloads for line in lines[1:]]
    is_same = all(tuple(name.strip() for name in lines[0]) == first for lines in payloads)
    if not (rest and is_same and all(first) and len(set(first)) == len(first)):
        return ()
    if max(map(len, first)) > KEY_CHARACTERS_MAX:
        return ()
    if len(payloads) == 1:
        return first if not _is_typed([first]) and _is_typed(rest) else ()
    return first if not _is_typed([_but_for_a_series(first)]) else ()


def _but_for_a_series(names: Sequence[str]) -> Sequence[str]:
    """Return the names without a series of numbers in equal steps, such as a field for each
    year; all of them where there is no such series, or nothing beside it."""
    numbers = [name for name in names if name.isdecimal() and len(name) <= _SERIES_DIGITS_MAX]
    steps = {int(after) - int(before) for before, after in pairwise(numbers)}
    is_series = len(numbers) >= _SERIES_MIN and len(steps) == 1 and min(steps) > 0
    others = [name for name in names if name not in numbers]
    return others if is_series and others else names


def _is_typed(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether a column is something other than text."""
    for column in zip(*rows[:_LINES_LOOKED_AT_MAX], strict=True):
        values = [value for value in column if value]
        if values and not guess("", values, len(column), all_is_text=True).is_text:
            return True
    return False
