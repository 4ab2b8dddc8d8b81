"""`cbor`: RFC 8949.

Dates and decimal fractions become values. Tags by which a small payload stands for a large one
(shared values, string references) are refused; tags with a syntax of their own (regular
expressions, MIME) stay text, because no column type needs them parsed. Big numbers (tags 2 and 3)
become text, which converts to any number.
"""

from __future__ import annotations

import io
from datetime import datetime
from typing import Any, Final

from penstock.decoding import map_keys
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.documents import NoQuickReader
from penstock.decoding.map_keys import count_values, with_text_keys
from penstock.errors import ConfigError

_DEPTH_MAX: Final = 200
_SHARING_TAGS: Final = (25, 28, 29, 256)
_BIG_NUMBER_BYTES_MAX: Final = 128
_IGNORED_TAGS: Final = (30, 35, 36, 258, 260, 261, 43000)
_KINDS: Final = (
    *(map_keys.NUMBER, map_keys.NUMBER, map_keys.BYTES, map_keys.TEXT),
    *(map_keys.LIST, map_keys.MAP, map_keys.TAG, map_keys.OTHER),
)
"""The kinds of heads by major type, RFC 8949 §3.1."""


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
        self._end_error = cbor2.CBORDecodeEOF
        self._tag_decoders: dict[int, Any] = {
            **dict.fromkeys(_SHARING_TAGS, _refuse_shared),
            **dict.fromkeys(_IGNORED_TAGS, _ignore_tag),
            0: _decode_time,
            2: _decode_positive,
            3: _decode_negative,
        }

    def read(self, payload: bytes) -> object:
        """Return the one item of a payload.

        Maps usually have text as keys, and are read at once. If a map has another key, the payload
        is read again with the keys that are whole numbers written as text.
        """
        try:
            return self._decode(payload)
        except BrokenPayload:
            with_text = with_text_keys(payload, read_head, _encode_text_key)
            if with_text is payload:
                raise
            return self._decode(with_text)

    def values_in(self, payload: bytes) -> int:
        """Return the number of values in a payload."""
        return count_values(payload, read_head)

    def _decode(self, payload: bytes) -> object:
        stream = io.BytesIO(payload)
        try:
            value = self._decoder(
                stream,
                semantic_decoders=self._tag_decoders,
                max_depth=_DEPTH_MAX,
                strict_hashable_types=True,
            ).decode()
        except BrokenPayload:
            raise
        except self._end_error:
            raise BrokenPayload("The payload is not CBOR: it ends too early.") from None
        except Exception as error:  # cbor2 raises any error of converting a tagged value
            if isinstance(error.__cause__, BrokenPayload):
                raise error.__cause__ from None
            raise BrokenPayload(f"The payload is not CBOR: {_error_text(error)}.") from None
        if stream.tell() != len(payload):
            raise BrokenPayload(
                f"The payload is not CBOR: {len(payload) - stream.tell()} bytes follow its value."
            )
        return value


def read_head(payload: bytes, position: int) -> tuple[int, int, int]:
    """Return kind, next position and number of the head at a position: see `map_keys.ReadHead`."""
    first = payload[position]
    major, additional = first >> 5, first & 31
    position += 1
    if additional < 24:
        number = additional
    elif additional < 28:
        end = position + (1 << (additional - 24))
        number = int.from_bytes(payload[position:end], "big")
        position = end
    elif additional == 31:
        return _read_indefinite(payload, position, major)
    else:
        return map_keys.MALFORMED, position, 0
    if major == 1:
        number = -1 - number
    elif major in (2, 3):
        position += number
    return _KINDS[major], position, number


def _read_indefinite(payload: bytes, position: int, major: int) -> tuple[int, int, int]:
    """Return kind, next position and number of the head of an item of indefinite length.

    The next position is behind the chunks of text or bytes, which have definite lengths (RFC 8949
    §3.2.3).
    """
    if major in (2, 3):
        while payload[position] != 0xFF:
            if payload[position] >> 5 != major or payload[position] & 31 == 31:
                return map_keys.MALFORMED, position, 0
            kind, position, _ = read_head(payload, position)
            if kind == map_keys.MALFORMED:
                return kind, position, 0
        return _KINDS[major], position + 1, 0
    if major in (4, 5):
        return _KINDS[major], position, map_keys.INDEFINITE
    return map_keys.END if major == 7 else map_keys.MALFORMED, position, 0


def _encode_text_key(digits: bytes) -> bytes:
    """Encode at most 20 ASCII digits and a sign as a CBOR text string."""
    return bytes([0x60 + len(digits)]) + digits


def _error_text(error: Exception) -> str:
    return str(error).partition("\n")[0][:100].rstrip(".") or type(error).__name__


def _refuse_shared(value: object, is_immutable: bool) -> object:  # noqa: ARG001
    raise BrokenPayload(
        "The payload has shared CBOR values (tags 25, 28, 29, 256), which are not read."
    )


def _ignore_tag(value: object, is_immutable: bool) -> object:  # noqa: ARG001
    return value


def _decode_time(value: object, is_immutable: bool) -> object:  # noqa: ARG001
    """Convert a time in text; a time outside of Python's range stays text for the column."""
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _decode_positive(value: object, is_immutable: bool) -> object:
    return _text_or_number(_big_number(value), is_immutable)


def _decode_negative(value: object, is_immutable: bool) -> object:
    return _text_or_number(-1 - _big_number(value), is_immutable)


def _text_or_number(number: int, is_immutable: bool) -> object:
    """Return a number as text; or unchanged if the decoder asks for an immutable value.

    It asks for one within the value of another tag, such as a decimal fraction, which needs the
    number, and in the key of a map, which refuses the number.
    """
    return number if is_immutable else str(number)


def _big_number(value: object) -> int:
    if not isinstance(value, bytes) or len(value) > _BIG_NUMBER_BYTES_MAX:
        raise BrokenPayload(
            f"The payload has a CBOR number of more than {_BIG_NUMBER_BYTES_MAX} bytes."
        )
    return int.from_bytes(value, "big")
