"""`key_value` and `nmea`: text whose fields have names, or places."""

from __future__ import annotations

import functools
import operator
import re
from typing import Any, Final

from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.line_protocol import end_of_match

SEPARATORS: Final = " ;,&|"
"""Separators of pairs that are tried; white space always separates."""

_SENTENCE: Final = re.compile(r"[$!]([A-Z0-9]{3,12}),([^*\r\n]*)(?:\*([0-9A-Fa-f]{2}))?")
_PLACE: Final = {"N": 1, "E": 1, "S": -1, "W": -1}
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "GGA": (
        *("time", "latitude", "", "longitude", "", "quality", "satellites", "hdop"),
        *("altitude", "", "geoid_separation"),
    ),
    "RMC": (
        *("time", "status", "latitude", "", "longitude", "", "speed_knots", "course", "date"),
        "magnetic_variation",
    ),
    "GLL": ("latitude", "", "longitude", "", "time", "status"),
    "VTG": ("course", "", "course_magnetic", "", "speed_knots", "", "speed_kmh"),
    "HDT": ("heading",),
    "DBT": ("depth_feet", "", "depth_m"),
    "DPT": ("depth_m", "depth_offset_m"),
    "MWV": ("wind_angle", "wind_reference", "wind_speed", "wind_unit", "status"),
    "ZDA": ("time", "day", "month", "year"),
}
"""Names of the fields of common sentences (NMEA 0183), in order; empty for those without."""


def read_key_values(text: str, separator: str = "") -> dict[str, Any]:
    """Return the pairs NAME=VALUE of a text; empty values are null.

    Args:
        text: the pairs, with values in quotes where they hold a separator.
        separator: the character between pairs, besides line ends; empty for white space and ; , &
            and |.

    Raises:
        BrokenPayload: a part is no pair, or two have the same name.
    """
    pairs: dict[str, str | None] = {}
    position = 0
    pattern, gap = _patterns(separator)
    while (position := end_of_match(gap, text, position)) < len(text):
        pair = pattern.match(text, position)
        if pair is None:
            raise BrokenPayload(f"Part {len(pairs) + 1} of the payload is not NAME=VALUE.")
        name, quoted, bare = pair.groups()
        if name in pairs:
            raise BrokenPayload("The payload has a name twice.")
        value = bare if quoted is None else quoted
        pairs[name] = value if quoted is not None else value.strip() or None
        position = pair.end()
    return pairs


@functools.cache
def _patterns(separator: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    ends = re.escape(separator) + r"\r\n" if separator else r"\s" + re.escape(SEPARATORS)
    pair = re.compile(rf'([^={ends}"]+)=(?:"([^"]*)"(?=[{ends}]|\Z)|([^{ends}"]*+)(?=[{ends}]|\Z))')
    return pair, re.compile(rf"[{ends}\s]*+")


def read_nmea(text: str) -> list[dict[str, Any]]:
    """Return a row for each NMEA 0183 sentence, with talker, sentence, fields and their names.

    Latitudes and longitudes are in degrees, negative to the south and west.

    Raises:
        BrokenPayload: a line is no sentence, or its checksum is wrong.
    """
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        found = _SENTENCE.fullmatch(line.strip())
        if found is None:
            raise BrokenPayload(f"Line {number} is no NMEA sentence.")
        address, content, checksum = found.groups()
        if checksum and int(checksum, 16) != _checksum(f"{address},{content}"):
            raise BrokenPayload(f"Line {number} has a wrong NMEA checksum.")
        is_proprietary = address.startswith("P")
        fields = [field or None for field in content.split(",")]
        kind = address[1:] if is_proprietary else address[2:]
        rows.append(
            {
                "talker": "P" if is_proprietary else address[:2],
                "sentence": kind,
                **_named(kind, fields, number),
                "fields": fields,
            }
        )
    return rows


def _checksum(text: str) -> int:
    return functools.reduce(operator.xor, text.encode())


def _named(kind: str, fields: list[str | None], number: int) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for place, name in enumerate(_NAMES.get(kind, ())[: len(fields)]):
        value = fields[place]
        if name in ("latitude", "longitude"):
            side = fields[place + 1] if place + 1 < len(fields) else None
            named[name] = _degrees(value, side, number)
        elif name:
            named[name] = value
    return named


def _degrees(value: str | None, side: str | None, number: int) -> float | None:
    """Return degrees for DDMM.MMMM or DDDMM.MMMM."""
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]{1,3})([0-9]{2}(?:\.[0-9]{1,10})?)", value)
    if match is None or side not in _PLACE:
        raise BrokenPayload(f"Line {number} has a place that is none.")
    return _PLACE[side] * round(int(match[1]) + float(match[2]) / 60, 9)
