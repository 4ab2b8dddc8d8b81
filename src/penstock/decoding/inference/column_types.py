"""Guesses a column for the values of one field, with the evidence for it.

The kinds of the values tell which types to try, from the narrowest on; the first type to which all
values can be cast is taken. So the declaration fits the whole sample.

::

      true, false        bool               text: ISO 8601, other dates   timestamp, date
      whole numbers      time, int, decimal       numbers                 see below
      numbers            time, float              any other               string
      bytes              binary             several kinds                 string, json

Text becomes a number only if the number gives back the text (`written_numbers`). Whole numbers that
a document has in text stay text, because they are as often names (a serial number) as numbers; in
csv and text payloads, where all values are text, they are numbers. Decimals stay decimals.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.decoder import Column
from penstock.decoding.casts import Cast
from penstock.decoding.inference.fields import is_map
from penstock.decoding.inference.timestamps import (
    NO_EPOCH,
    Epoch,
    count_without_offset,
    format_of,
    has_time_of_day,
    infer_epoch,
    is_iso,
)
from penstock.decoding.inference.unit_names import unit_of
from penstock.decoding.inference.written_numbers import (
    DECIMAL_DIGITS_MAX,
    are_floats,
    are_whole_numbers,
    are_with_comma,
    decimal_type,
    finite_texts,
    fixed_decimal_type,
    look_like_numbers,
)
from penstock.decoding.scalars import NullMarkers

Settings = dict[str, Any]

NULL_WORDS: Final = frozenset(
    {"NA", "N/A", "n/a", "na", "null", "NULL", "None", "none", "unavailable", "unknown", "-", "--"}
)
"""Texts that mean "no value" among numbers or times."""

RARE_SHARE: Final = 0.05
"""A field in a smaller share of the rows than this is marked as rare."""

_INT64: Final = 2**63
_EXACT_AS_FLOAT_MAX: Final = 2**53
_UINT64_DIGITS: Final = 20
_INNER: Final = ("bool", "int", "float", "string")
_EXAMPLES_MAX: Final = 5
_TIME_CHARACTERS_MAX: Final = 40
_NAME_CHARACTERS_MAX: Final = 200
_EXAMPLE: Final = re.compile(r"[\w .:/+%-]{1,20}")


@dataclass(frozen=True, slots=True)
class Guess:
    """A column's settings, as a declaration has them (type, unit …), and the evidence for them."""

    settings: Settings
    evidence: str

    @property
    def is_text(self) -> bool:
        """True if the column keeps text unchanged."""
        return bool(self.settings["type"] == "string")


@dataclass(frozen=True, slots=True)
class _Trial:
    """Settings of a column to try, and a note that is part of the evidence if they fit."""

    settings: Settings
    note: str = ""


def guess(
    name: str,
    values: Sequence[Any],
    rows: int,
    *,
    all_is_text: bool,
    lenient: bool = False,
    times_us: Sequence[int] = (),
) -> Guess:
    """Return the narrowest column that takes all values.

    Args:
        name: the name of the field, which may end in a unit.
        values: the values of the field, without null.
        rows: the number of rows in the sample, with and without the field.
        all_is_text: the payloads are csv or text.
        lenient: the payloads are JSON read with ``lenient``.
        times_us: the time of receipt of each value, µs since 1970; without, no number is a time.
    """
    name = name[:_NAME_CHARACTERS_MAX]
    if not values:
        return Guess({"type": "string" if all_is_text else "json"}, f"null in all {rows:,}")
    epoch = _epoch(name, values, times_us)
    for trial in _trials(name, values, epoch, all_is_text=all_is_text):
        column = Column.model_validate(trial.settings)
        array, reasons = Cast(name, column, NullMarkers(nonfinite_floats=lenient))(list(values))
        if not reasons:
            break
    return Guess(trial.settings, _evidence(trial, values, array.drop_null(), rows))


def _epoch(name: str, values: Sequence[Any], times_us: Sequence[int]) -> Epoch:
    """Return the unit in which the numbers among values count from 1970, if they are times."""
    numbers = zip(map(_as_number, values), times_us, strict=False)
    found = [(number, time_us) for number, time_us in numbers if number is not None]
    return infer_epoch(name, found) if found else NO_EPOCH


def _trials(
    name: str, values: Sequence[Any], epoch: Epoch, *, all_is_text: bool
) -> Iterator[_Trial]:
    """Yield the settings to try, the narrowest type first; the last, json, fits any value."""
    kinds = Counter(map(_kind, values))
    texts = [value for value in values if isinstance(value, str)]
    null_words = NULL_WORDS.intersection(texts)
    remaining = [value for value in values if not (isinstance(value, str) and value in null_words)]
    if "nested" in kinds:
        yield from _nested_trials(name, values)
    elif remaining:
        null_settings = {"null_values": sorted(null_words)} if null_words else {}
        for trial in _narrow_trials(name, remaining, epoch, all_is_text=all_is_text):
            if trial.settings["type"] == "string":
                break
            yield _Trial({**trial.settings, **null_settings}, trial.note)
    mixed = ""
    if len(kinds) > 1:
        mixed = "mixed: " + ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    if "nested" not in kinds:
        note = _reason_for_text(name, remaining, all_is_text)
        yield _Trial({"type": "string"}, mixed or note)
    yield _Trial({"type": "json"}, mixed.replace("nested", "lists or objects"))


def _reason_for_text(name: str, values: Sequence[Any], all_is_text: bool) -> str:
    """Return why values that look like numbers stay text; empty if they do not look so."""
    if not values:
        return ""
    narrow = _narrow_trials(name, values, NO_EPOCH, all_is_text=all_is_text)
    return next((trial.note for trial in narrow if trial.settings["type"] == "string"), "")


def _nested_trials(name: str, values: Sequence[Any]) -> Iterator[_Trial]:
    """Yield trials for lists of values of one type, and for objects whose keys are data."""
    if all(isinstance(value, (list, tuple)) for value in values):
        form, items = "array<{}>", [item for value in values for item in value]
    elif all(isinstance(value, dict) for value in values) and is_map(values):
        form, items = "map<string, {}>", [item for value in values for item in value.values()]
    else:
        return
    items = [item for item in items if item is not None]
    if not items or any(_kind(item) == "nested" for item in items):
        return
    string_trials = [_Trial({"type": "string"})] if set(map(_kind, items)) == {"text"} else []
    narrow = _narrow_trials(name, items, NO_EPOCH, all_is_text=False)
    for trial in (*narrow, *string_trials):
        kind = trial.settings["type"]
        if kind in _INNER or kind.startswith("decimal"):
            yield _Trial({"type": form.format(trial.settings["type"])})


def _narrow_trials(
    name: str, values: Sequence[Any], epoch: Epoch, *, all_is_text: bool
) -> Iterator[_Trial]:
    """Yield the types narrower than text that these values may have; a string among them ends the
    search, and its note tells why."""
    kinds = set(map(_kind, values))
    if kinds == {"truth"}:
        yield _Trial({"type": "bool"})
    elif kinds == {"truth", "whole numbers"} and all(value in (0, 1) for value in values):
        yield _Trial({"type": "bool"}, "also as 0 and 1")
    elif kinds <= {"whole numbers", "numbers"}:
        yield from _number_trials(name, values, epoch)
    elif kinds == {"bytes"}:
        yield _Trial({"type": "binary"})
    elif kinds == {"times"}:
        yield _Trial({"type": "timestamp"})
    elif kinds == {"dates"}:
        yield _Trial({"type": "date"})
    elif kinds == {"text"}:
        yield from _text_trials(name, values, epoch, all_is_text=all_is_text)
    elif "text" in kinds and kinds <= {"text", "whole numbers", "numbers"}:
        texts = [value for value in values if isinstance(value, str)]
        if look_like_numbers(texts) and are_floats(finite_texts(texts)):
            numbers = [float(v) if isinstance(v, str) else v for v in values]
            note = f"{len(texts):,} of them written as text"
            trials = _number_trials(name, numbers, epoch)
            yield from (_Trial(trial.settings, note) for trial in trials)


def _number_trials(
    name: str, values: Sequence[Any], epoch: Epoch, note: str = ""
) -> Iterator[_Trial]:
    if epoch.unit:
        yield _Trial({"type": "timestamp", "unit_from": epoch.unit}, f"{epoch.unit} since 1970")
    unit = unit_of(name)
    measured = {"unit": unit} if unit else {}
    if any(isinstance(value, Decimal) for value in values):
        yield from _decimal_trials(values, measured, note or epoch.note)
        return
    if all(isinstance(value, int) for value in values):
        largest = max(map(abs, values))
        if max(values) < _INT64 and min(values) >= -_INT64:
            yield _Trial({"type": "int", **measured}, note or epoch.note)
        digits = _UINT64_DIGITS if largest < 2 * _INT64 else DECIMAL_DIGITS_MAX
        if largest < 10**digits:
            yield _Trial({"type": f"decimal({digits},0)", **measured}, "beyond 64 bits")
        yield _Trial({"type": "string"}, "numbers too long for any type")
        return
    if any(isinstance(v, int) and abs(v) > _EXACT_AS_FLOAT_MAX for v in values):
        yield _Trial({"type": "string"}, "whole numbers too long for float among others")
    whole = sum(isinstance(value, int) for value in values)
    widened = f"{whole:,} of them whole numbers" if whole and not note else note or epoch.note
    yield _Trial({"type": "float", **measured}, widened)


def _decimal_trials(values: Sequence[Any], measured: Settings, note: str) -> Iterator[_Trial]:
    kind = decimal_type(values)
    if kind:
        yield _Trial({"type": kind, **measured}, note)
    yield _Trial({"type": "string"}, "numbers too long for any type")


def _text_trials(
    name: str, values: Sequence[str], epoch: Epoch, *, all_is_text: bool
) -> Iterator[_Trial]:
    if look_like_numbers(values):
        yield from _written_number_trials(name, values, epoch, all_is_text=all_is_text)
    if are_with_comma(values):
        points = [value.replace(",", ".") for value in values]
        for trial in _written_number_trials(name, points, NO_EPOCH, all_is_text=all_is_text):
            if trial.settings["type"] != "string":
                yield _Trial({**trial.settings, "decimal": ","}, "with a decimal comma")
    if all_is_text and {value.lower() for value in values} <= {"true", "false"}:
        yield _Trial({"type": "bool"})
    iso, has_time = is_iso(values)
    if iso and has_time:
        local = count_without_offset(values)
        yield _Trial(
            {"type": "timestamp"},
            f"ISO 8601, {local:,} without an offset, read as UTC: see time_zone" if local else "",
        )
    elif iso:
        yield _Trial({"type": "date"})
    text_format = format_of(values)
    if text_format:
        kind = "timestamp" if has_time_of_day(text_format) else "date"
        yield _Trial({"type": kind, "format": text_format})


def _written_number_trials(
    name: str, values: Sequence[str], epoch: Epoch, *, all_is_text: bool
) -> Iterator[_Trial]:
    """Yield the types of numbers that give back these texts; a string if there is none."""
    finite = finite_texts(values)
    note = "" if all_is_text else "written as text"
    if are_whole_numbers(values):
        if all_is_text:
            yield from _number_trials(name, [int(value) for value in values], epoch)
        else:
            yield _Trial({"type": "string"}, "whole numbers written as text")
    elif are_floats(finite):
        yield from _number_trials(name, [float(value) for value in values], epoch, note)
    elif len(finite) == len(values) and fixed_decimal_type(values):
        yield from _number_trials(name, [Decimal(value) for value in values], epoch, note)
    else:
        yield _Trial({"type": "string"}, "text that numbers would not give back")


def _as_number(value: Any) -> float | None:
    """Return a finite number of the length of a time, also in text or a decimal; else None."""
    if isinstance(value, str) and len(value) <= _TIME_CHARACTERS_MAX and look_like_numbers([value]):
        value = Decimal(value)
    if isinstance(value, Decimal):
        if not value.is_finite() or abs(value.adjusted()) > _TIME_CHARACTERS_MAX:
            return None
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int):
        return "whole numbers"
    if isinstance(value, (float, Decimal)):
        return "numbers"
    if isinstance(value, str):
        return "text"
    if isinstance(value, (bytes, bytearray)):
        return "bytes"
    if isinstance(value, datetime):
        return "times"
    if isinstance(value, date):
        return "dates"
    return "nested" if isinstance(value, (list, tuple, dict)) else "others"


def _evidence(trial: _Trial, values: Sequence[Any], array: pa.Array, rows: int) -> str:
    present = len(array)
    count = f"all {rows:,}" if present == rows else f"{present:,} of {rows:,}"
    rare = "rare" if present < RARE_SHARE * rows else ""
    return ", ".join(filter(None, (count, rare, _range(values, array), trial.note)))


def _range(values: Sequence[Any], array: pa.Array) -> str:
    kind = array.type
    if not len(array) or pa.types.is_boolean(kind) or pa.types.is_binary(kind):
        return ""
    lengths = [len(value) for value in values if isinstance(value, (list, tuple))]
    if lengths:
        least, most = min(lengths), max(lengths)
        return f"lists of {least if least == most else f'{least} to {most}'} items"
    if any(isinstance(value, dict) for value in values):
        return "objects"
    if pa.types.is_string(kind):
        distinct = array.unique().to_pylist()
        if len(distinct) <= _EXAMPLES_MAX and all(map(_EXAMPLE.fullmatch, distinct)):
            return " | ".join(sorted(distinct))
        return f"{len(distinct):,} different"
    bounds = pc.min_max(array)
    low, high = (_format_bound(bounds[side].as_py()) for side in ("min", "max"))
    return low if low == high else f"{low} to {high}"


def _format_bound(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
