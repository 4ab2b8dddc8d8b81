"""Checks keys of maps in CBOR and MessagePack before anything is built of them.

In both notations a key may be any value. A dict hashes its keys, and all hashes but those of text
and bytes can be predicted: a payload whose keys all have the same hash makes the dict compare each
with all others, for minutes. So keys are text, bytes or whole numbers of 64 bits; a payload with
any other key is broken. Numbers become text, as in JSON, because paths look up text.

Each notation has a function that reads the head of an item at a position (`ReadHead`); this module
walks through the heads. It stops silently at malformed data: the decoder that reads the payload
next reports them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.decoding.broken_payload import BrokenPayload

# Kinds of heads. Not an enum: every head of a payload is examined, and plain integers are quicker.
NUMBER: Final = 0  # whole, of 64 bits
TEXT: Final = 1
BYTES: Final = 2
OTHER: Final = 3  # any other single value
LIST: Final = 4
MAP: Final = 5
TAG: Final = 6  # describes the value that follows
END: Final = 7  # ends a list or map of indefinite length
MALFORMED: Final = 8

ReadHead = Callable[[bytes, int], tuple[int, int, int]]
"""Reads the head of an item in a payload at a position.

Returns the kind; the position of the next head; and for NUMBER the number itself, for LIST and MAP
the number of items or pairs (INDEFINITE if an END closes them), for other kinds any number. Raises
IndexError behind the end of the payload."""

NO_KEY: Final = (
    "The payload has a map with a key that is neither text nor bytes nor a whole number of 64 bits."
)
INDEFINITE: Final = -1
DEPTH_MAX: Final = 1000
"""Most containers around a value."""

_INDEFINITE_REMAINING: Final = 2**62
_DEFINITE_MAX: Final = 2**61


def count_values(payload: bytes, read_head: ReadHead) -> int:
    """Return the number of values of a payload: keys, items, lists and maps; tags count, too.

    The number is 0 for a payload that is nested too deeply to be read.
    """
    try:
        return _walk(payload, read_head, None)
    except RecursionError:
        return 0


def with_text_keys(
    payload: bytes, read_head: ReadHead, encode_text: Callable[[bytes], bytes]
) -> bytes:
    """Return the payload with the keys that are whole numbers encoded as text.

    Args:
        payload: the payload.
        read_head: reads a head of the notation.
        encode_text: returns ASCII digits as a text item of the notation.

    Raises:
        BrokenPayload: a key is neither text, bytes nor a whole number.
        RecursionError: values are nested deeper than DEPTH_MAX.
    """
    numbers: list[tuple[int, int, int]] = []
    _walk(payload, read_head, numbers)
    if not numbers:
        return payload
    parts: list[bytes] = []
    copied = 0
    for begin, end, number in numbers:
        parts += payload[copied:begin], encode_text(b"%d" % number)
        copied = end
    return b"".join([*parts, payload[copied:]])


def _walk(payload: bytes, read_head: ReadHead, numbers: list[tuple[int, int, int]] | None) -> int:
    """Return the number of values; append each key that is a number to `numbers`, if given.

    An entry of `numbers` is the start of the key, the position behind its end, and its value.
    """
    enclosing: list[tuple[int, bool]] = []
    remaining, is_map = 1, False  # items left at this level; in a map, two for each pair
    position = values = 0
    try:
        while True:
            while not remaining:
                if not enclosing:
                    return values
                remaining, is_map = enclosing.pop()
            begin = position
            kind, position, number = read_head(payload, begin)
            is_key = is_map and not remaining & 1
            if kind == END:
                if remaining < _DEFINITE_MAX or (is_map and not is_key):
                    return values
                remaining = 0
                continue
            values += 1
            if is_key and numbers is not None:
                if kind > BYTES:
                    raise BrokenPayload(NO_KEY)
                if kind == NUMBER:
                    numbers.append((begin, position, number))
            remaining -= 1
            if kind in (LIST, MAP):
                if len(enclosing) == DEPTH_MAX:
                    raise RecursionError
                enclosing.append((remaining, is_map))
                is_map = kind == MAP
                remaining = _INDEFINITE_REMAINING if number == INDEFINITE else number * (1 + is_map)
            elif kind == TAG:
                remaining += 1
            elif kind == MALFORMED:
                return values
    except IndexError:
        return values
