"""Tells which numbers keep the text that they were written as.

Text that looks like a number may be a name: version 1.10 is not version 1.1, and the part 12E05 is
not 1200000. So text becomes a number only if the number gives back the text:

    7, -12                   a whole number
    21.5, 22, 1e-07          a float: the shortest text of its number
    21.50, 22.00             a decimal: each text has as many decimals
    1.10 beside 1.2, 12E05, +5, 007, 22 beside 22.0, 0.12345678901234567890        text
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Final

DECIMAL_DIGITS_MAX: Final = 38

_NUMBER: Final = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"nan|[+-]?inf(inity)?", re.IGNORECASE)
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,37})")
_PLAIN: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?")
_SHORT_EXPONENT: Final = re.compile(r"-?[1-9](?:\.[0-9]*[1-9])?e[+-][1-9][0-9]{0,2}")
_FIXED: Final = re.compile(r"-?(?:0|[1-9][0-9]*)\.([0-9]+)")
_WITH_COMMA: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,37})(?:,[0-9]{1,37})?")
_CHARACTERS_MAX: Final = 400


def look_like_numbers(texts: Collection[str]) -> bool:
    """Return whether all texts are numbers, at least one finite, and none with a leading zero."""
    finite = [text for text in texts if _NUMBER.fullmatch(text)]
    return bool(finite) and all(
        _NUMBER.fullmatch(text) or _NOT_FINITE.fullmatch(text) for text in texts
    )


def finite_texts(texts: Collection[str]) -> list[str]:
    """Return texts without those of NaN and infinities."""
    return [text for text in texts if not _NOT_FINITE.fullmatch(text)]


def are_with_comma(texts: Collection[str]) -> bool:
    """Return whether texts are numbers with a decimal comma, and not with commas of thousands."""
    fractions = [text.partition(",")[2] for text in texts]
    is_decimal = any(
        fraction and (len(fraction) != 3 or text.lstrip("+-").startswith("0,"))
        for fraction, text in zip(fractions, texts, strict=True)
    )
    return is_decimal and all(map(_WITH_COMMA.fullmatch, texts))


def are_whole_numbers(texts: Collection[str]) -> bool:
    """Return whether each text is that of a whole number of at most 38 digits."""
    return all(_WHOLE.fullmatch(text) and text != "-0" for text in texts)


def are_floats(texts: Collection[str]) -> bool:
    """Return whether each text is the shortest one of its float, and no float has two texts."""
    distinct = set(texts)
    return all(map(_is_float, distinct)) and len(set(map(float, distinct))) == len(distinct)


def fixed_decimal_type(texts: Collection[str]) -> str:
    """Return the type of decimals whose texts all have the same number of decimals; else ""."""
    found = [_FIXED.fullmatch(text) for text in texts if len(text) <= _CHARACTERS_MAX]
    scales = {len(match[1]) for match in found if match is not None}
    if len(scales) != 1 or None in found or len(found) < len(texts):
        return ""
    return decimal_type([Decimal(text) for text in texts])


def decimal_type(numbers: Sequence[float | Decimal]) -> str:
    """Return the decimal type that keeps all digits of these numbers; "" if none does.

    It has as many digits as there can be, because other messages may have longer numbers.
    """
    exact = [Decimal(repr(one)) if isinstance(one, float) else Decimal(one) for one in numbers]
    if not all(one.is_finite() for one in exact):
        return ""
    scale = max(max(0, -int(one.as_tuple().exponent)) for one in exact)
    whole_digits = max(max(0, one.adjusted() + 1) if one else 0 for one in exact)
    return (
        f"decimal({DECIMAL_DIGITS_MAX},{scale})"
        if scale + whole_digits <= DECIMAL_DIGITS_MAX
        else ""
    )


def _is_float(text: str) -> bool:
    if len(text) > _CHARACTERS_MAX:
        return False
    number = float(text)
    if text == repr(number):
        return True
    is_short = _PLAIN.fullmatch(text) or _SHORT_EXPONENT.fullmatch(text)
    return bool(is_short) and text != "-0" and Decimal(repr(number)) == Decimal(text)
