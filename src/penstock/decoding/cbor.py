"""`cbor`: RFC 8949.

Dates and decimal fractions become values. Tags by which a small payload stands for a large one
(shared values, string references) are refused; tags with a syntax of their own (regular
expressions, MIME) stay text, because nothing here needs to understand them. Big numbers become
text, which converts to any number.
"""

from __future__ import annotations

import io
from datetime import datetime
from typing import Any, Final

from penstock.decoding import map_keys
from penstock.decoding.broken import Broken
from penstock.decoding.documents import NoQuickReader
from penstock.decoding.map_keys import count_values, with_text_keys
from penstock.errors import ConfigError

_DEPTH_MAX: Final = 200
_SHARING: Final = (25, 28, 29, 256)
_BIG_NUMBER_BYTES_MAX: Final = 128
_AS_THEY_ARE: Final = (30, 35, 36, 258, 260, 261, 43000)
_KINDS: Final = (
    *(map_keys.NUMBER, map_keys.NUMBER, map_keys.BYTES, map_keys.TEXT),
    *(map_keys.LIST, map_keys.MAP, map_keys.TAG, map_keys.OTHER),
)
"""The kinds of values by major type, RFC 8949 §3.1."""


class CborNotation(NoQuickReader):
    """Reads CBOR."""

    def __init__(self) -> None:
        try:
            import cbor2
        except ImportError:
            raise ConfigError(
                "The decoder cbor needs cbor2, which is not installed:"
                " pip install 'penstock[spark]'."
            ) from None
        self._decoder = cbor2.CBORDecoder
        self._ends_early = cbor2.CBORDecodeEOF
        self._tags: dict[int, Any] = {
            **dict.fromkeys(_SHARING, _refused),
            **dict.fromkeys(_AS_THEY_ARE, _inner),
            0: _time,
            2: _positive,
            3: _negative,
        }

    def read(self, payload: bytes) -> object:
        """Return the one item of a payload.

        Most have text as keys; only if there are others are numbers converted to text.
        """
        try:
            return self._read(payload)
        except Broken:
            with_text = with_text_keys(payload, head, _as_text)
            if with_text is payload:
                raise
            return self._read(with_text)

    def values_in(self, payload: bytes) -> int:
        """Return the number of values in a payload."""
        return count_values(payload, head)

    def _read(self, payload: bytes) -> object:
        stream = io.BytesIO(payload)
        try:
            value = self._decoder(
                stream,
                semantic_decoders=self._tags,
                max_depth=_DEPTH_MAX,
                strict_hashable_types=True,
            ).decode()
        except Broken:
            raise
        except self._ends_early:
            raise Broken("The payload is not CBOR: it ends too early.") from None
        except Exception as error:  # any error of converting a tagged value
            if isinstance(error.__cause__, Broken):
                raise error.__cause__ from None
            raise Broken(f"The payload is not CBOR: {_error_text(error)}.") from None
        if stream.tell() != len(payload):
            raise Broken(
                f"The payload is not CBOR: {len(payload) - stream.tell()} bytes follow its value."
            )
        return value


def head(payload: bytes, at: int) -> tuple[int, int, int]:
    """Read the head at a position, as `map_keys.Head` says."""
    first = payload[at]
    major, low = first >> 5, first & 31
    at += 1
    if low < 24:
        number = low
    elif low < 28:
        end = at + (1 << (low - 24))
        number = int.from_bytes(payload[at:end], "big")
        at = end
    elif low == 31:
        return _endless(payload, at, major)
    else:
        return map_keys.MALFORMED, at, 0
    if major == 1:
        number = -1 - number
    elif major in (2, 3):
        at += number
    return _KINDS[major], at, number


def _endless(payload: bytes, at: int, major: int) -> tuple[int, int, int]:
    """Read an item of indefinite length: its chunks have lengths, RFC 8949 §3.2.3."""
    if major in (2, 3):
        while payload[at] != 0xFF:
            if payload[at] >> 5 != major or payload[at] & 31 == 31:
                return map_keys.MALFORMED, at, 0
            kind, at, _ = head(payload, at)
            if kind == map_keys.MALFORMED:
                return kind, at, 0
        return _KINDS[major], at + 1, 0
    if major in (4, 5):
        return _KINDS[major], at, map_keys.ENDLESS
    return map_keys.END if major == 7 else map_keys.MALFORMED, at, 0


def _as_text(digits: bytes) -> bytes:
    return bytes([0x60 + len(digits)]) + digits


def _error_text(error: Exception) -> str:
    return str(error).partition("\n")[0][:100].rstrip(".") or type(error).__name__


def _refused(value: object, is_immutable: bool) -> object:  # noqa: ARG001
    raise Broken("The payload has shared CBOR values (tags 25, 28, 29, 256), which are not read.")


def _inner(value: object, is_immutable: bool) -> object:  # noqa: ARG001
    return value


def _time(value: object, is_immutable: bool) -> object:  # noqa: ARG001
    """Convert a time in text; one outside of Python's range stays text, which its column reads."""
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _positive(value: object, is_immutable: bool) -> object:
    return _text_or_number(_big_number(value), is_immutable)


def _negative(value: object, is_immutable: bool) -> object:
    return _text_or_number(-1 - _big_number(value), is_immutable)


def _text_or_number(number: int, is_immutable: bool) -> object:
    """Return a number as text, or as it is within another tag's value, such as a decimal fraction.

    (As a key of a map it is refused then.)
    """
    return number if is_immutable else str(number)


def _big_number(value: object) -> int:
    if not isinstance(value, bytes) or len(value) > _BIG_NUMBER_BYTES_MAX:
        raise Broken(f"The payload has a CBOR number of more than {_BIG_NUMBER_BYTES_MAX} bytes.")
    return int.from_bytes(value, "big")
