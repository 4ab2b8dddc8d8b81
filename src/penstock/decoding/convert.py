"""Converts one value of a payload to a column's type, or raises Unfit.

Each `to_…` is, or returns, a function of the value, which is never None. Beside Unfit they let
Python's own errors for bad values pass; `casts.py` then says that the value does not fit.
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
"""Microseconds in a unit of time; a nanosecond is a fraction of one."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FLOAT32_MAX: Final = 3.4028235677973366e38  # from here on numbers round to infinity
_DIGITS_MAX: Final = 60
_BITS_MAX: Final = 1100  # of a whole number; no float is greater
NUMBER_CHARACTERS_MAX: Final = 400  # of a number in text; more digits add no precision
WORDS: Final = {
    written: word in ("true", "on", "yes", "1")
    for word in ("true", "on", "yes", "1", "false", "off", "no", "0")
    for written in (word, word.capitalize(), word.upper())
}
"""Common spellings of true and false in text."""

_EXACT: Final = Context(prec=2 * _DIGITS_MAX, rounding=ROUND_HALF_EVEN)
_TIME_CHARACTERS_MAX: Final = 100
_MIDNIGHT: Final = re.compile(r"(.{8,10}[T ])24((?::?00){0,2}(?:[.,]0+)?(?:Z|[+-].*)?)")
_LEAP_SECOND: Final = re.compile(
    r"(.{8,10}[T ][0-9]{2}:?[0-9]{2}:?)60((?:[.,][0-9]+)?(?:Z|[+-].*)?)"
)


class Unfit(Exception):
    """Raised for a value that does not fit; its text follows "which is"."""


def to_string(value: Any) -> str:
    """Return text unchanged, numbers and truth values as JSON writes them, UTF-8 bytes decoded."""
    if isinstance(value, str):
        value.encode()  # a lone surrogate is not text
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return not_finite(value)
    if isinstance(value, (bool, int, float, Decimal)):
        return to_json(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    raise Unfit("no string (the type json takes any value)")


def not_finite(number: float) -> str:
    """Return the name of NaN or an infinity, as Protobuf's JSON mapping writes it."""
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def to_json(value: Any) -> str:
    """Return any value as compact JSON text."""
    return JSON_ENCODER.encode(value).decode()


def to_bool(value: Any) -> bool:
    """Convert true and false, 1 and 0, and the texts true, false, on, off, yes, no, 1, 0.

    Case does not matter.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        word = value.strip().lower() if len(value) < 20 else value
        if word in WORDS:
            return WORDS[word]
    raise Unfit("no bool")


def to_int(bits: int, linear: LinearConversion) -> Callable[[Any], int]:
    """Return a converter to whole numbers, from text too; a scaled number is rounded."""
    high = 2 ** (bits - 1)

    def convert(value: Any) -> int:
        number = _number(value)
        if linear.is_identity:
            whole = _whole(number)
        else:
            whole = round(_fraction(number) * linear.factor + linear.offset)
        if not -high <= whole < high:
            raise Unfit(f"out of range for int{bits}")
        return whole

    return convert


def to_float(bits: int, linear: LinearConversion) -> Callable[[Any], float]:
    """Return a converter to floats, from text too."""
    factor, offset = float(linear.factor), float(linear.offset)

    def convert(value: Any) -> float:
        number = _float_of_text(value) if isinstance(value, str) else _float(_number(value))
        scaled = number if linear.is_identity else number * factor
        scaled = scaled + offset if offset else scaled  # -0.0 + 0 is 0.0
        is_over = math.isinf(scaled) or (bits == 32 and abs(scaled) >= _FLOAT32_MAX)
        if is_over and not math.isinf(number):
            raise Unfit(f"out of range for float{bits}")
        return scaled

    return convert


def to_decimal(precision: int, scale: int, linear: LinearConversion) -> Callable[[Any], Decimal]:
    """Return a converter to decimals, from text too; surplus digits are rounded half to even."""
    unit = Decimal(1).scaleb(-scale)
    factor, offset = _decimal(linear.factor), _decimal(linear.offset)

    def convert(value: Any) -> Decimal:
        number = _number(value)
        exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
        if not exact.is_finite() or (exact and exact.adjusted() > _DIGITS_MAX):
            raise Unfit(f"out of range for decimal({precision},{scale})")
        if not linear.is_identity:
            exact = _EXACT.add(_EXACT.multiply(exact, factor), offset)
        rounded = exact.quantize(unit, context=_EXACT)
        if rounded and rounded.adjusted() >= precision - scale:
            raise Unfit(f"out of range for decimal({precision},{scale})")
        return rounded

    return convert


def to_timestamp(unit: str, text_format: str, time_zone: str) -> Callable[[Any], datetime]:
    """Return a converter to UTC times: from a number (unit), or text (ISO 8601, or a format).

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
            return _moment(_microseconds(_number(value), unit))
        elif isinstance(value, (str, bytes)):
            text = _time_text(value)
            if not text_format:
                return _iso_moment(text.upper(), zone)
            moment = datetime.strptime(text, text_format)  # noqa: DTZ007 - the zone follows
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            raise Unfit("a number, for which unit_from says what it counts")
        else:
            raise Unfit("no timestamp")
        return _in_utc(moment, zone)

    return convert


def to_date(text_format: str) -> Callable[[Any], date]:
    """Return a converter to dates: from text (ISO 8601, or a format), or a time in its own zone."""

    def convert(value: Any) -> date:
        if isinstance(value, datetime):
            return value.date()
        if isinstance(value, date):
            return value
        if not isinstance(value, str):
            raise Unfit("no date")
        text = _time_text(value)
        if text_format:
            return datetime.strptime(text, text_format).date()  # noqa: DTZ007 - only its date
        return date.fromisoformat(text)

    return convert


def to_binary(notation: str) -> Callable[[Any], bytes]:
    """Return a converter to bytes: unchanged, or from text in base64 or hexadecimal.

    Base64 may lack its padding.
    """
    alphabet = b"-_" if notation == "base64url" else None

    def convert(value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        if not isinstance(value, str):
            raise Unfit("no binary")
        try:
            if notation == "hex":
                return bytes.fromhex(value)
            padded = value.rstrip("=")
            padded += "=" * (-len(padded) % 4)
            return base64.b64decode(padded, alphabet, validate=True)
        except (binascii.Error, ValueError):
            raise Unfit(f"no {notation}") from None

    return convert


def _number(value: Any) -> int | float | Decimal:
    """Return a number, a truth value as 1 or 0, or the number in a text."""
    if isinstance(value, Decimal):
        return _EXACT.create_decimal(value)  # more digits than any column has would only cost time
    if isinstance(value, (int, float)):
        if isinstance(value, int) and value.bit_length() > _BITS_MAX:
            raise Unfit("out of range")
        return int(value) if isinstance(value, bool) else value
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, str):
        if "_" in value or len(value) > NUMBER_CHARACTERS_MAX:
            raise Unfit("no number")
        try:
            return int(value)
        except ValueError:
            return Decimal(value.strip())
    raise Unfit("no number")


def _float(number: float | Decimal) -> float:
    converted = float(number)
    if math.isinf(converted) and isinstance(number, Decimal) and number.is_finite():
        raise Unfit("out of range")
    return converted


def _float_of_text(text: str) -> float:
    if "_" in text or len(text) > NUMBER_CHARACTERS_MAX:
        raise Unfit("no number")
    number = float(text)
    if math.isinf(number) and "n" not in text.lower():  # not "inf" but 1e999
        raise Unfit("out of range")
    return number


def _whole(number: float | Decimal) -> int:
    if isinstance(number, Decimal) and number.is_finite() and number.adjusted() > _DIGITS_MAX:
        raise Unfit("out of range")
    whole = int(number)
    if whole != number:
        raise Unfit("no whole number")
    return whole


def _fraction(number: float | Decimal) -> Fraction:
    if isinstance(number, Decimal) and abs(number.adjusted()) > _DIGITS_MAX:
        raise Unfit("out of range")
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
        raise Unfit("too long for a time")
    return value if isinstance(value, str) else value.decode()


def _iso_moment(text: str, zone: ZoneInfo) -> datetime:
    """Parse ISO 8601, including times for which Python's datetime has no value.

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
            raise Unfit("no timestamp: its second 60 is no leap second")
        return following
    return _in_utc(datetime.fromisoformat(text), zone)


def _in_utc(moment: datetime, zone: ZoneInfo) -> datetime:
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)


def _moment(microseconds: int) -> datetime:
    if not MICROSECONDS_MIN <= microseconds <= MICROSECONDS_MAX:
        raise Unfit("out of range for a timestamp")
    return _EPOCH + timedelta(microseconds=microseconds)


def _jsonable(value: object) -> object:
    """Convert values that msgspec cannot encode: CBOR tags, MessagePack extensions."""
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
