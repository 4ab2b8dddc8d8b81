"""`msgpack`: MessagePack, with its timestamps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.config.decoder import Column
from penstock.decoding import map_keys
from penstock.decoding.broken import Broken
from penstock.decoding.map_keys import count_values, with_text_keys

_BYTES_NEVER_HOSTILE: Final = 512
_LARGE_MAPS: Final = (b"\xde", b"\xdf")
_LEAVES: Final[dict[str, Any]] = {
    "string": str | int | float | None,
    "bool": bool | int | str | None,
    "date": str | None,
    "binary": bytes | None,
}
"""The values that the quick reader takes for a type. A payload with other values there
is read the slow way."""
_NUMBER: Final[Any] = int | float | str | bool | None


class MsgpackNotation:
    """Reads MessagePack."""

    def __init__(self) -> None:
        self._decode = msgspec.msgpack.Decoder().decode

    def read(self, payload: bytes) -> object:
        """Return the one value of a payload."""
        payload = with_text_keys(payload, head, _as_text)
        try:
            return self._decode(payload)
        except UnicodeDecodeError:
            raise Broken("The payload has text that is not UTF-8.") from None
        except msgspec.MsgspecError as error:
            reason = str(error).removeprefix("MessagePack data is malformed: ").rstrip(".")
            if reason == "Input data was truncated":
                reason = "it ends too early"
            raise Broken(
                f"The payload is not MessagePack: {reason[:1].lower()}{reason[1:]}."
            ) from None

    def values_in(self, payload: bytes) -> int:
        """Return the number of values in a payload."""
        return count_values(payload, head)

    def rows_in(self, payload: bytes) -> int:
        """Return the declared length of the list, at most one row a byte."""
        kind, _, number = head(payload, 0)
        return min(number, len(payload)) if kind == map_keys.LIST else 1

    def leaf(self, column: Column) -> Any:
        """Return the usual values of this type; a map, whose keys might collide, is not built."""
        if column.type.startswith(("int", "float", "decimal")) or column.unit_from:
            return _NUMBER
        return _LEAVES.get(column.type, Any)

    def quick_reader(self, shape: Any, takes_anything: bool) -> Callable[[bytes], Any]:
        """Return a reader that builds only the parts of a document that columns need."""
        decode = msgspec.msgpack.Decoder(shape).decode
        if not takes_anything:
            return decode

        def read(payload: bytes) -> Any:
            if len(payload) > _BYTES_NEVER_HOSTILE and any(map(payload.__contains__, _LARGE_MAPS)):
                raise ValueError("its keys are checked first")
            return decode(payload)

        return read

    def unseen_errors(self, payloads: list[bytes]) -> dict[int, str]:  # noqa: ARG002
        """Return nothing: skipped text need not be UTF-8, because it is not read."""
        return {}


def _heads() -> list[tuple[int, int, int]]:
    """Return by first byte: the kind, the bytes of a length that follow, the bytes or items after
    it."""
    found = [(map_keys.MALFORMED, 0, 0)] * 256
    found[0x00:0x80] = [(map_keys.NUMBER, 0, 0)] * 0x80
    found[0x80:0x90] = [(map_keys.MAP, 0, count) for count in range(16)]
    found[0x90:0xA0] = [(map_keys.LIST, 0, count) for count in range(16)]
    found[0xA0:0xC0] = [(map_keys.TEXT, 0, count) for count in range(32)]
    found[0xC0] = found[0xC2] = found[0xC3] = (map_keys.OTHER, 0, 0)
    found[0xC4:0xC7] = [(map_keys.BYTES, width, 0) for width in (1, 2, 4)]
    found[0xC7:0xCA] = [(map_keys.OTHER, width, 1) for width in (1, 2, 4)]
    found[0xCA:0xCC] = [(map_keys.OTHER, 0, count) for count in (4, 8)]
    found[0xCC:0xD4] = [(map_keys.NUMBER, 0, count) for count in (1, 2, 4, 8)] * 2
    found[0xD4:0xD9] = [(map_keys.OTHER, 0, 1 + count) for count in (1, 2, 4, 8, 16)]
    found[0xD9:0xDC] = [(map_keys.TEXT, width, 0) for width in (1, 2, 4)]
    found[0xDC:0xDE] = [(map_keys.LIST, width, 0) for width in (2, 4)]
    found[0xDE:0xE0] = [(map_keys.MAP, width, 0) for width in (2, 4)]
    found[0xE0:0x100] = [(map_keys.NUMBER, 0, 0)] * 0x20
    return found


_HEADS: Final = _heads()
_SIGNED: Final = 0xD0
_NEGATIVE: Final = 0xE0


def head(payload: bytes, at: int) -> tuple[int, int, int]:
    """Read the head at a position, as `map_keys.Head` says."""
    first = payload[at]
    kind, width, count = _HEADS[first]
    at += 1
    if width:
        count += int.from_bytes(payload[at : at + width], "big")
        at += width
    if kind == map_keys.LIST or kind == map_keys.MAP:
        return kind, at, count
    end = at + count
    if kind == map_keys.NUMBER:
        if not count:
            return kind, end, first - 256 if first >= _NEGATIVE else first
        return kind, end, int.from_bytes(payload[at:end], "big", signed=first >= _SIGNED)
    return kind, end, 0


def _as_text(digits: bytes) -> bytes:
    return bytes([0xA0 + len(digits)]) + digits
