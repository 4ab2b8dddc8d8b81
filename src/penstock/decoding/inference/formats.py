"""Recognises formats of text whose payloads are rows: ndjson, line protocol, pairs, NMEA, SenML."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.line_protocol import read_line_protocol
from penstock.decoding.lines_of_fields import read_key_values, read_nmea
from penstock.decoding.senml import resolve_senml
from penstock.decoding.text_formats import format_notation

TextFormat = Literal["ndjson", "line_protocol", "key_value", "nmea"]

_RECORD_KEYS: Final = re.compile(r"bver|b[ntuvs]|n|u|v[sbd]?|s|t|ut|-[1-6]|[0-8]")
_VALUE_KEYS: Final = frozenset({"v", "vs", "vb", "vd", "s", "2", "3", "4", "5", "8"})
_PAIR_NAME: Final = re.compile(r"[^\W\d][\w.\-/]{0,39}")
_LINE_START: Final = re.compile(r"[^\s,=]+(?:,[^\s,=]+=[^\s=]+)* [^\s,=]+=")
_NAME_BYTES: Final = 2**20


def find_format(text: str) -> tuple[TextFormat, object] | None:
    """Return the format of a text that is no JSON, and its contents; None if it has none."""
    start = text.lstrip("\ufeff \t\r\n\x1e")
    try:
        if start[:1] in ("$", "!"):
            return "nmea", read_nmea(text)
        if start[:1] == "{":
            rows = format_notation(DecoderDefinition(kind="ndjson")).read(text.encode())
            return "ndjson", rows
        if _LINE_START.match(start):
            return "line_protocol", read_line_protocol(text)
        pairs = read_key_values(text, delimiter_of(text))
    except (BrokenPayload, RecursionError):
        return None
    are_named = all(map(_PAIR_NAME.fullmatch, pairs))
    has_text = any(pairs.values()) and not any(
        value is not None and value.startswith("=") for value in pairs.values()
    )
    return ("key_value", pairs) if are_named and has_text else None


def delimiter_of(text: str) -> str:
    """Return the delimiter of pairs that a declaration names; "" if it need not name one."""
    if ";" in text:
        return ";"
    try:
        read_key_values(text)
    except BrokenPayload:
        return " "
    return ""


def senml_rows(value: object) -> list[dict[str, Any]] | None:
    """Return the rows of a list of SenML records; None if it is none."""
    if not (isinstance(value, list) and value and all(isinstance(one, dict) for one in value)):
        return None
    keys = {str(key) for record in value for key in record}
    are_known = all(map(_RECORD_KEYS.fullmatch, keys))
    if not (are_known and keys & _VALUE_KEYS and keys & {"n", "bn", "0", "-2"}):
        return None
    try:
        return resolve_senml(value, _NAME_BYTES) or None
    except BrokenPayload:
        return None
