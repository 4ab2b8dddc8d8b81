"""Recognises times: text in a known form, and numbers that count from 1970.

A number in a field with the name of a time may be one if it lies between the years 2000 and 2100 in
one of the units, whose ranges do not overlap; in other fields only if it counts milliseconds or
finer and lies between 2010 and 2050. It is one if, in most messages, it lies near the time at which
the broker received the message: counters have as many digits as times, and names such as `time`
(the ticks of a LoRaWAN gateway, in µs since it started, read as seconds are the year 2048).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

_PER_SECOND: Final = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_AGE_S_MAX: Final = 31 * 86_400
"""A device may send what it has collected for a month."""

_AHEAD_S_MAX: Final = 86_400
"""A device may have the clock of another time zone."""

_NAMED_RANGE_S: Final = (946_684_800, 4_102_444_800)  # 2000 to 2100
_UNNAMED_RANGE_S: Final = (1_262_304_000, 2_524_608_000)  # 2010 to 2050
_NAME: Final = re.compile(
    r"(?:.*[^a-z])?(?:t|ts|at|on|time|timestamp|times|date|datetime|epoch|unix|utc|when|created"
    r"|updated|received|sent|start|end|since|until|seen|changed)(?:_?(?:s|ms|us|ns|utc|millis))?"
)
_ISO: Final = re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}([Tt ][0-9]{2}:?[0-9]{2}.*)?")
_OFFSET: Final = re.compile(r".*[Tt ].*(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})")
FORMATS: Final = (
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d %H:%M",
    "%Y/%m/%d",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y",
    "%m/%d/%Y %H:%M:%S",
    "%d/%m/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M",
    "%d/%m/%Y %H:%M",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%b %d %Y",
    "%d %b %Y",
    "%d-%b-%Y",
    "%b %d, %Y",
    "%a %b %d %H:%M:%S %Y",
    "%a, %d %b %Y %H:%M:%S %z",
)
"""The strptime formats that are tried for text that is not ISO 8601."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The unit in which numbers count from 1970, if they are times.

    Attributes:
        unit: s, ms, us or ns; empty if the numbers are no times.
        note: a remark on what else they may be; usually empty.
    """

    unit: str = ""
    note: str = ""


NO_EPOCH: Final = Epoch()


def infer_epoch(name: str, values: Sequence[tuple[float, int]]) -> Epoch:
    """Return how the numbers of a field count from 1970.

    Args:
        name: the name of the field.
        values: each number, and the time in µs since 1970 at which its message was received.
    """
    numbers = [number for number, _ in values]
    is_named = names_time(name)
    unit = _plausible_unit(numbers, is_named=is_named)
    perhaps = unit or _plausible_unit(numbers, is_named=True)
    if not perhaps:
        return NO_EPOCH
    if not _are_near(values, _PER_SECOND[perhaps]):
        return Epoch(note=f"far from the time of receipt as {perhaps} since 1970" if unit else "")
    return Epoch(unit) if unit else Epoch(note=f"perhaps {perhaps} since 1970")


def _are_near(values: Sequence[tuple[float, int]], per_second: int) -> bool:
    """Return whether most numbers lie near the times of receipt of their messages."""
    ages = (time_us // 1_000_000 - number / per_second for number, time_us in values)
    near = sum(-_AHEAD_S_MAX <= age <= _AGE_S_MAX for age in ages)
    return near > len(values) / 2


def _plausible_unit(values: Sequence[float], *, is_named: bool) -> str:
    """Return the unit in which numbers may count from 1970; "" if there is none."""
    low, high = min(values), max(values)
    for unit, factor in _PER_SECOND.items():
        first, last = _NAMED_RANGE_S if is_named else _UNNAMED_RANGE_S
        if first * factor <= low and high < last * factor and (is_named or unit != "s"):
            return unit
    return ""


def names_time(name: str) -> bool:
    """Return whether a field has the name of a time: ts, createdAt, time_ms."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return _NAME.fullmatch(split) is not None


def is_iso(texts: Sequence[str]) -> tuple[bool, bool]:
    """Return whether texts look like ISO 8601, and whether any has a time of day."""
    has_time = False
    for text in texts:
        match = _ISO.fullmatch(text)
        if match is None or (match[1] is None and "-" not in text):
            return False, False
        has_time = has_time or match[1] is not None
    return True, has_time


def count_without_offset(texts: Sequence[str]) -> int:
    """Return how many of these texts have no UTC offset."""
    return sum(_OFFSET.fullmatch(text) is None for text in texts)


def format_of(texts: Sequence[str]) -> str:
    """Return the format of `FORMATS` that fits all texts; "" if none or more than one does.

    Several fit if it is unclear which number is the day and which is the month.
    """
    fitting = [text_format for text_format in FORMATS if _all_match(texts, text_format)]
    return fitting[0] if len(fitting) == 1 else ""


def has_time_of_day(text_format: str) -> bool:
    """Return whether a format is that of a timestamp, and not only of a date."""
    return "%H" in text_format


def _all_match(texts: Sequence[str], text_format: str) -> bool:
    try:
        for text in texts:
            datetime.strptime(text, text_format)  # noqa: DTZ007 - only whether it can be read
    except ValueError:
        return False
    return True
