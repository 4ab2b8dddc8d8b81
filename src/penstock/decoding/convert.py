"""Converts one value of a payload to a column's type, or raises Unfit.

Each `to_…` converts a value, or returns a function that converts one; the value is never None.
Besides Unfit these functions may raise ValueError, TypeError, ArithmeticError and RecursionError;
`scalars.py` reports those as values that do not fit, too.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

from penstock.decoding.units import LinearConversion
from penstock.errors import ConfigError

MICROSECONDS_MIN: Final = -62_135_596_800_000_000  # 0001-01-01
MICROSECONDS_MAX: Final = 253_402_300_799_999_999  # the last of 9999
MICROSECONDS: Final = {"s": 1_000_000, "ms": 1000, "us": 1}
"""Microseconds in a unit of time; without "ns", which is a fraction of a microsecond."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FLOAT32_MAX: Final = 3.4028235677973366e38  # from here on numbers round to infinity
_DIGITS_MAX: Final = 60
_BITS_MAX: Final = 1100  # of a whole number; no float is greater
NUMBER_CHARACTERS_MAX: Final = 400  # of a number in text; more digits add no precision
BOOL_WORDS: Final = {
    written: word in ("true", "on", "yes", "1")
    for word in ("true", "on", "yes", "1", "false", "off", "no", "0")
    for written in (word, word.capitalize(), word.upper())
}
"""Common spellings of true and false in text."""

_EXACT: Final = Context(prec=2 * _DIGITS_MAX, rounding=ROUND_HALF_EVEN)
_TIME_CHARACTERS_MAX: Final = 100
_WITH_COMMA: Final = re.compile(
    r"[+-]?(?:[0-9]{1,3}(?:[. ][0-9]{3})+|[0-9]+)?(?:,[0-9]+)?(?:[eE][+-]?[0-9]+)?"
)
_MIDNIGHT: Final = re.compile(r"(.{8,10}[T ])24((?::?00){0,2}(?:[.,]0+)?(?:Z|[+-].*)?)")
_LEAP_SECOND: Final = re.compile(
    r"(.{8,10}[T ][0-9]{2}:?[0-9]{2}:?)60((?:[.,][0-9]+)?(?:Z|[+-].*)?)"
)


class UnfitValue(Exception):
    """Raised for a value that does not fit; the text completes "…, which is"."""


def to_string(value: Any) -> str:
    """Return text unchanged, numbers and truth values as JSON writes them, UTF-8 bytes decoded.

    Raises:
        UnfitValue: the value is an object, an array, or no UTF-8.
    """
    if isinstance(value, str):
        value.encode()  # a lone surrogate is not text
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return nonfinite_name(value)
    if isinstance(value, (bool, int, float, Decimal)):
        return to_json(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    raise UnfitValue("no string (the type json takes any value)")


def nonfinite_name(number: float) -> str:
    """Return the name of NaN or an infinity, as Protobuf's JSON mapping writes it."""
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def to_json(value: Any) -> str:
    """Return any value as compact JSON text."""
    return JSON_ENCODER.encode(value).decode()


def to_bool(value: Any) -> bool:
    """Convert true and false, 1 and 0, and the texts true, false, on, off, yes, no, 1, 0.

    Case does not matter.

    Raises:
        UnfitValue: the value is none of these.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        word = value.strip().lower() if len(value) < 20 else value
        if word in BOOL_WORDS:
            return BOOL_WORDS[word]
    raise UnfitValue("no bool")


def to_int(bits: int, scaling: LinearConversion) -> Callable[[Any], int]:
    """Return a converter of numbers, in text too, to whole numbers of this many bits.

    A number that the scaling changes is rounded to the nearest whole number.
    """
    high = 2 ** (bits - 1)

    def convert(value: Any) -> int:
        number = _number(value)
        if scaling.is_identity:
            whole = _whole_number(number)
        else:
            whole = round(_fraction(number) * scaling.factor + scaling.offset)
        if not -high <= whole < high:
            raise UnfitValue(f"out of range for int{bits}")
        return whole

    return convert


def to_float(bits: int, scaling: LinearConversion) -> Callable[[Any], float]:
    """Return a converter of numbers, in text too, to floats of 32 or 64 bits."""
    factor, offset = float(scaling.factor), float(scaling.offset)

    def convert(value: Any) -> float:
        number = _float_of_text(value) if isinstance(value, str) else _to_float64(_number(value))
        scaled = number if scaling.is_identity else number * factor
        scaled = scaled + offset if offset else scaled  # -0.0 + 0 is 0.0
        is_over = math.isinf(scaled) or (bits == 32 and abs(scaled) >= _FLOAT32_MAX)
        if is_over and not math.isinf(number):
            raise UnfitValue(f"out of range for float{bits}")
        return scaled

    return convert


def to_decimal(precision: int, scale: int, scaling: LinearConversion) -> Callable[[Any], Decimal]:
    """Return a converter of numbers, in text too, to decimals; digits beyond the scale are rounded
    half to even."""
    unit = Decimal(1).scaleb(-scale)
    factor, offset = _decimal(scaling.factor), _decimal(scaling.offset)

    def convert(value: Any) -> Decimal:
        number = _number(value)
        exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
        if not exact.is_finite() or (exact and exact.adjusted() > _DIGITS_MAX):
            raise UnfitValue(f"out of range for decimal({precision},{scale})")
        if not scaling.is_identity:
            exact = _EXACT.add(_EXACT.multiply(exact, factor), offset)
        rounded = exact.quantize(unit, context=_EXACT)
        if rounded and rounded.adjusted() >= precision - scale:
            raise UnfitValue(f"out of range for decimal({precision},{scale})")
        return rounded

    return convert


def with_point(text: str) -> str:
    """Return a number that is written with a decimal comma as one with a point.

    Points or spaces between groups of three digits are left out. Any other point makes the text no
    number, because it would be one a thousand times as small.
    """
    if len(text) <= NUMBER_CHARACTERS_MAX and _WITH_COMMA.fullmatch(text.strip()):
        return text.replace(".", "").replace(" ", "").replace(",", ".")
    return f"{text} with a point" if "." in text else text


def to_timestamp(unit: str, text_format: str, time_zone: str) -> Callable[[Any], datetime]:
    """Return a converter to UTC times.

    Args:
        unit: the unit of numbers that count from 1970: s, ms, us or ns; empty for text.
        text_format: the strptime format of text; empty for ISO 8601.
        time_zone: the zone of times without an offset.

    Raises:
        ConfigError: there is no such time zone.
    """
    try:
        zone = ZoneInfo(time_zone)
    except (KeyError, ValueError, OSError):
        raise ConfigError(f"There is no time zone {time_zone!r}.") from None

    def convert(value: Any) -> datetime:
        if isinstance(value, datetime):
            moment = value
        elif unit:
            return _time_of_microseconds(_microseconds(_number(value), unit))
        elif isinstance(value, (str, bytes)):
            text = _time_text(value)
            if not text_format:
                return _parse_iso(text.upper(), zone)
            moment = datetime.strptime(text, text_format)  # noqa: DTZ007 - the zone follows
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            raise UnfitValue("a number, for which unit_from says what it counts")
        else:
            raise UnfitValue("no timestamp")
        return _in_utc(moment, zone)

    return convert


def to_date(text_format: str) -> Callable[[Any], date]:
    """Return a converter to dates: of text in a strptime format, by default ISO 8601, and of times.

    The date of a time is that of its own zone.
    """

    def convert(value: Any) -> date:
        if isinstance(value, datetime):
            return value.date()
        if isinstance(value, date):
            return value
        if not isinstance(value, str):
            raise UnfitValue("no date")
        text = _time_text(value)
        if text_format:
            return datetime.strptime(text, text_format).date()  # noqa: DTZ007 - only its date
        return date.fromisoformat(text)

    return convert


def to_binary(notation: str) -> Callable[[Any], bytes]:
    """Return a converter to bytes, from text in base64, base64url or hex; bytes stay unchanged.

    Base64 may lack its padding.
    """
    alphabet = b"-_" if notation == "base64url" else None

    def convert(value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        if not isinstance(value, str):
            raise UnfitValue("no binary")
        try:
            if notation == "hex":
                return bytes.fromhex(value)
            padded = value.rstrip("=")
            padded += "=" * (-len(padded) % 4)
            return base64.b64decode(padded, alphabet, validate=True)
        except (binascii.Error, ValueError):
            raise UnfitValue(f"no {notation}") from None

    return convert


def _number(value: Any) -> int | float | Decimal:
    """Return a number, a truth value as 1 or 0, or the number in a text."""
    if isinstance(value, Decimal):
        return _EXACT.create_decimal(value)  # a column has fewer digits
    if isinstance(value, (int, float)):
        if isinstance(value, int) and value.bit_length() > _BITS_MAX:
            raise UnfitValue("out of range")
        return int(value) if isinstance(value, bool) else value
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, str):
        if "_" in value or len(value) > NUMBER_CHARACTERS_MAX:
            raise UnfitValue("no number")
        try:
            return int(value)
        except ValueError:
            return Decimal(value.strip())
    raise UnfitValue("no number")


def _to_float64(number: float | Decimal) -> float:
    converted = float(number)
    if math.isinf(converted) and isinstance(number, Decimal) and number.is_finite():
        raise UnfitValue("out of range")
    return converted


def _float_of_text(text: str) -> float:
    if "_" in text or len(text) > NUMBER_CHARACTERS_MAX:
        raise UnfitValue("no number")
    number = float(text)
    if math.isinf(number) and "n" not in text.lower():  # not "inf" but 1e999
        raise UnfitValue("out of range")
    return number


def _whole_number(number: float | Decimal) -> int:
    if isinstance(number, Decimal) and number.is_finite() and number.adjusted() > _DIGITS_MAX:
        raise UnfitValue("out of range")
    whole = int(number)
    if whole != number:
        raise UnfitValue("no whole number")
    return whole


def _fraction(number: float | Decimal) -> Fraction:
    if isinstance(number, Decimal) and abs(number.adjusted()) > _DIGITS_MAX:
        raise UnfitValue("out of range")
    return Fraction(number)


def _decimal(number: Fraction) -> Decimal:
    return _EXACT.divide(Decimal(number.numerator), Decimal(number.denominator))


def _microseconds(number: float | Decimal, unit: str) -> int:
    """Return the microseconds of a time in a unit.

    Nanoseconds are cut; fractions of microseconds of a float are rounded.
    """
    if isinstance(number, float):
        return round(number / 1000 if unit == "ns" else number * MICROSECONDS[unit])
    exact = _fraction(number)
    return int(exact // 1000 if unit == "ns" else exact * MICROSECONDS[unit])


def _time_text(value: str | bytes) -> str:
    if len(value) > _TIME_CHARACTERS_MAX:
        raise UnfitValue("too long for a time")
    return value if isinstance(value, str) else value.decode()


def _parse_iso(text: str, zone: ZoneInfo) -> datetime:
    """Parse ISO 8601 to a UTC time, including times for which Python's datetime has no value.

    24:00 is 0:00 of the next day (ISO 8601-1 §5.3.2), and a leap second, 23:59:60 UTC at the end of
    a month, is the second that follows it, as the clocks of computers count (POSIX.1 §4.19).
    """
    midnight = _MIDNIGHT.fullmatch(text)
    if midnight is not None:
        begin = datetime.fromisoformat(f"{midnight[1]}00{midnight[2]}")
        return _in_utc(begin + timedelta(days=1), zone)
    leap = _LEAP_SECOND.fullmatch(text)
    if leap is not None:
        second = datetime.fromisoformat(f"{leap[1]}59{leap[2]}")
        following = _in_utc(second, zone) + timedelta(seconds=1)
        if (following.day, following.hour, following.minute, following.second) != (1, 0, 0, 0):
            raise UnfitValue("no timestamp: its second 60 is no leap second")
        return following
    return _in_utc(datetime.fromisoformat(text), zone)


def _in_utc(moment: datetime, zone: ZoneInfo) -> datetime:
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)


def _time_of_microseconds(microseconds: int) -> datetime:
    if not MICROSECONDS_MIN <= microseconds <= MICROSECONDS_MAX:
        raise UnfitValue("out of range for a timestamp")
    return _EPOCH + timedelta(microseconds=microseconds)


def _jsonable(value: object) -> object:
    """Return a JSON form of a value that msgspec cannot encode: a CBOR tag, MessagePack extension
    …"""
    if isinstance(value, msgspec.msgpack.Ext):
        return {"ext": value.code, "data": value.data}
    if isinstance(value, Fraction):
        return float(value)
    if hasattr(value, "tag") and hasattr(value, "value"):  # cbor2.CBORTag
        return {"tag": value.tag, "value": value.value}
    if isinstance(value, dict) or hasattr(value, "items"):
        return dict(value.items())
    return str(value)


JSON_ENCODER: Final = msgspec.json.Encoder(decimal_format="number", enc_hook=_jsonable)
