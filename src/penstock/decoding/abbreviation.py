"""Abbreviates values of payloads for error sentences: short and printable, whatever they hold."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Final

_CHARACTERS_MAX: Final = 60
_EXAMINED_MAX: Final = 200


def abbreviate(value: object) -> str:
    """Return a value as text of at most 60 characters; a long one is cut before it is formatted."""
    if isinstance(value, (str, bytes, bytearray)):
        text = repr(value[:_EXAMINED_MAX])
        is_whole = len(value) <= _EXAMINED_MAX
    elif isinstance(value, int) and value.bit_length() > _EXAMINED_MAX:
        return f"a number of {value.bit_length()} bits"
    elif value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, dict):
        return f"an object of {len(value)} keys"
    elif isinstance(value, (list, tuple)):
        return f"a list of {len(value)} items"
    elif isinstance(value, (int, float, Decimal, datetime, date)):
        text, is_whole = str(value), True
    else:  # its repr may be long, or endless
        return f"a {type(value).__name__}"
    if is_whole and len(text) <= _CHARACTERS_MAX:
        return text
    return text[: _CHARACTERS_MAX - 1] + "…"
