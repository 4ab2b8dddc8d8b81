"""`line_protocol`: InfluxDB's lines, each a row with measurement, tags, fields and time.

    weather,place=lab celsius=21.5,count=3i,state="on" 1465839830100400200
    ──────┬ ────┬──── ──────────────┬───────────────── ─────────┬─────────
    measurement tags              fields                time, a whole number

A backslash takes away the meaning of a comma, a space or an equals sign in names, and of a quote in
a text. Lines that begin with # are comments. The unit of the time is that of the column
(`unit_from`), in most cases ns.
"""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.decoding.broken_payload import BrokenPayload

_NAME: Final = r"(?:[^\s,=\\]|\\.)+"
_HEAD: Final = re.compile(rf"((?:[^\s,\\]|\\.)+)((?:,{_NAME}={_NAME})*) +")
_TAG: Final = re.compile(rf",({_NAME})=({_NAME})")
_FIELD: Final = re.compile(rf'({_NAME})=("(?:[^"\\]|\\.)*"|[^\s,"]+)(,|(?=\s|\Z))', re.DOTALL)
_TIME: Final = re.compile(r" +(-?[0-9]{1,19})[ \r]*(?:\n|\Z)|[ \r]*(?:\n|\Z)")
_SKIPPED: Final = re.compile(r"(?:\s*(?:#[^\n]*(?:\n|\Z))?)*+")
_ESCAPED: Final = re.compile(r"\\([,= ])")
_ESCAPED_IN_TEXT: Final = re.compile(r'\\(["\\])')
_WHOLE: Final = re.compile(r"(-?[0-9]{1,19})i|([0-9]{1,20})u")
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_TRUTH: Final = {
    word: word[0] in "tT"
    for word in ("t", "T", "true", "True", "TRUE", "f", "F", "false", "False", "FALSE")
}


def read_line_protocol(text: str) -> list[dict[str, Any]]:
    """Return a row for each line.

    Raises:
        BrokenPayload: a line is not of this form.
    """
    rows: list[dict[str, Any]] = []
    position = end_of_match(_SKIPPED, text, 0)
    while position < len(text):
        number = len(rows) + 1
        head = _HEAD.match(text, position)
        if head is None:
            raise BrokenPayload(f"Point {number} is not line protocol: it has no fields.")
        fields: dict[str, Any] = {}
        position, separator = head.end(), ","
        while separator:
            field = _FIELD.match(text, position)
            if field is None:
                raise BrokenPayload(f"Field {len(fields) + 1} of point {number} is not NAME=VALUE.")
            fields[_name(field[1])] = _value(field[2])
            position, separator = field.end(), field[3]
        time = _TIME.match(text, position)
        if time is None:
            raise BrokenPayload(f"The time of point {number} is no whole number.")
        rows.append(
            {
                "measurement": _name(head[1]),
                "tags": {_name(key): _name(value) for key, value in _TAG.findall(head[2])},
                "fields": fields,
                "time": int(time[1]) if time[1] else None,
            }
        )
        position = end_of_match(_SKIPPED, text, time.end())
    return rows


def end_of_match(pattern: re.Pattern[str], text: str, position: int) -> int:
    """Return the end of what ``pattern`` matches at ``position``; that itself if it does not."""
    match = pattern.match(text, position)
    return position if match is None else match.end()


def _name(text: str) -> str:
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text


def _value(text: str) -> Any:
    if text.startswith('"'):
        return _ESCAPED_IN_TEXT.sub(r"\1", text[1:-1])
    if text in _TRUTH:
        return _TRUTH[text]
    whole = _WHOLE.fullmatch(text)
    if whole is not None:
        return int(whole[1] or whole[2])
    if _FLOAT.fullmatch(text):
        return float(text)
    raise BrokenPayload("A field is neither number, text in quotes, nor truth.")
