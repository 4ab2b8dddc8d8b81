"""Checks keys of maps in CBOR and MessagePack before anything is built of them.

There a key may be any value. A dict hashes its keys, and all hashes but those of text and bytes can
be predicted: a payload whose keys all have the same hash makes the dict compare each with all
others, for minutes. So keys are text, bytes or whole numbers of 64 bits; any other breaks the
payload, and numbers become text, which is how JSON has them and what paths look for.

A notation reads the head at a position (its `Head`); this module walks through the heads. Malformed
data ends the walk silently: the decoder that reads the payload next reports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.decoding.broken import Broken

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

Head = Callable[[bytes, int], tuple[int, int, int]]
"""Reads the head at a position: its kind, the position of the next, and the number or the number of
items or pairs; ENDLESS if an END closes them. Raises IndexError behind the end."""

NO_KEY: Final = (
    "The payload has a map with a key that is neither text nor bytes nor a whole number of 64 bits."
)
ENDLESS: Final = -1
DEPTH_MAX: Final = 1000
_ENDLESS_LEFT: Final = 2**62
_MORE_THAN_ANY: Final = 2**61


def count_values(payload: bytes, head: Head) -> int:
    """Return the number of values of a payload: keys, items of lists, and their containers.

    It is 0 for one that is nested too deeply to be read.
    """
    try:
        return _walked(payload, head, None)
    except RecursionError:
        return 0


def with_text_keys(payload: bytes, head: Head, as_text: Callable[[bytes], bytes]) -> bytes:
    """Return the payload with keys that are whole numbers written as text, by ``as_text``.

    Raises:
        Broken: a key is neither text, bytes nor a whole number.
        RecursionError: values are nested deeper than DEPTH_MAX.
    """
    numbers: list[tuple[int, int, int]] = []
    _walked(payload, head, numbers)
    if not numbers:
        return payload
    parts: list[bytes] = []
    copied = 0
    for begin, end, number in numbers:
        parts += payload[copied:begin], as_text(b"%d" % number)
        copied = end
    return b"".join([*parts, payload[copied:]])


def _walked(payload: bytes, head: Head, numbers: list[tuple[int, int, int]] | None) -> int:
    """Return the number of values, and append keys that are numbers to `numbers`, if given.

    Appended are where each begins and ends, and its value.
    """
    around: list[tuple[int, bool]] = []
    left, of_map = 1, False  # items left at this level; in a map, two for each pair
    at = values = 0
    try:
        while True:
            while not left:
                if not around:
                    return values
                left, of_map = around.pop()
            begin = at
            kind, at, number = head(payload, begin)
            is_key = of_map and not left & 1
            if kind == END:
                if left < _MORE_THAN_ANY or (of_map and not is_key):
                    return values
                left = 0
                continue
            values += 1
            if is_key and numbers is not None:
                if kind > BYTES:
                    raise Broken(NO_KEY)
                if kind == NUMBER:
                    numbers.append((begin, at, number))
            left -= 1
            if kind in (LIST, MAP):
                if len(around) == DEPTH_MAX:
                    raise RecursionError
                around.append((left, of_map))
                of_map = kind == MAP
                left = _ENDLESS_LEFT if number == ENDLESS else number * (1 + of_map)
            elif kind == TAG:
                left += 1
            elif kind == MALFORMED:
                return values
    except IndexError:
        return values
