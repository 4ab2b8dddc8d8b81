"""`msgpack`: MessagePack, with its timestamps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.config.decoder import Column
from penstock.decoding import map_keys
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.map_keys import count_values, with_text_keys

_UNCHECKED_BYTES_MAX: Final = 512
_LARGE_MAP_HEADS: Final = (b"\xde", b"\xdf")
_LEAVES: Final[dict[str, Any]] = {
    "string": str | int | float | None,
    "bool": bool | int | str | None,
    "date": str | None,
    "binary": bytes | None,
}
"""The msgspec types with which the quick reader reads a column of a type. A payload with other
values there is read by `MsgpackNotation.read`."""
_NUMBER: Final[Any] = int | float | str | bool | None


class MsgpackNotation:
    """Reads MessagePack."""

    def __init__(self) -> None:
        self._decode = msgspec.msgpack.Decoder().decode

    def read(self, payload: bytes) -> object:
        """Return the one value of a payload.

        Raises:
            BrokenPayload: the payload is not MessagePack.
        """
        payload = with_text_keys(payload, read_head, _encode_text_key)
        try:
            return self._decode(payload)
        except UnicodeDecodeError:
            raise BrokenPayload("The payload has text that is not UTF-8.") from None
        except msgspec.MsgspecError as error:
            reason = str(error).removeprefix("MessagePack data is malformed: ").rstrip(".")
            if reason == "Input data was truncated":
                reason = "it ends too early"
            raise BrokenPayload(
                f"The payload is not MessagePack: {reason[:1].lower()}{reason[1:]}."
            ) from None

    def values_in(self, payload: bytes) -> int:
        """Return the number of values in a payload."""
        return count_values(payload, read_head)

    def rows_in(self, payload: bytes) -> int:
        """Return the declared length of the list, at most one row a byte."""
        kind, _, number = read_head(payload, 0)
        return min(number, len(payload)) if kind == map_keys.LIST else 1

    def leaf_type(self, column: Column) -> Any:
        """Return a type of the usual values of a column; Any where maps are wanted.

        Where it is not Any, the quick reader builds no map, whose keys might collide.
        """
        if column.type.startswith(("int", "float", "decimal")) or column.unit_from:
            return _NUMBER
        return _LEAVES.get(column.type, Any)

    def quick_reader(self, shape: Any, takes_anything: bool) -> Callable[[bytes], Any]:
        """Return a reader that builds only the parts of a document that columns need.

        If a part may be a map, payloads with large maps are left to `read`, which checks the keys.
        """
        decode = msgspec.msgpack.Decoder(shape).decode
        if not takes_anything:
            return decode

        def read(payload: bytes) -> Any:
            if len(payload) > _UNCHECKED_BYTES_MAX and any(
                map(payload.__contains__, _LARGE_MAP_HEADS)
            ):
                raise ValueError("its keys are checked first")
            return decode(payload)

        return read

    def unseen_errors(self, payloads: list[bytes]) -> dict[int, str]:  # noqa: ARG002
        """Return {}: text that the quick reader skips need not be UTF-8."""
        return {}


def _head_table() -> list[tuple[int, int, int]]:
    """Return, by the first byte of a head: its kind; how many bytes hold a length; and the bytes of
    content, or the items, that follow besides that length."""
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


_HEADS: Final = _head_table()
_SIGNED: Final = 0xD0
_NEGATIVE: Final = 0xE0


def read_head(payload: bytes, position: int) -> tuple[int, int, int]:
    """Return kind, next position and number of the head at a position: see `map_keys.ReadHead`."""
    first = payload[position]
    kind, width, count = _HEADS[first]
    position += 1
    if width:
        count += int.from_bytes(payload[position : position + width], "big")
        position += width
    if kind == map_keys.LIST or kind == map_keys.MAP:
        return kind, position, count
    end = position + count
    if kind == map_keys.NUMBER:
        if not count:
            return kind, end, first - 256 if first >= _NEGATIVE else first
        return kind, end, int.from_bytes(payload[position:end], "big", signed=first >= _SIGNED)
    return kind, end, 0


def _encode_text_key(digits: bytes) -> bytes:
    return bytes([0xA0 + len(digits)]) + digits
