"""`msgpack`: MessagePack, with its timestamps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.decoding.documents import Broken


class MsgpackNotation:
    """Reads MessagePack."""

    def __init__(self) -> None:
        self._decode = msgspec.msgpack.Decoder().decode

    def read(self, payload: bytes) -> object:
        """The one value of a payload."""
        try:
            return self._decode(payload)
        except UnicodeDecodeError:
            raise Broken("The payload has text that is not UTF-8.") from None
        except msgspec.MsgspecError as error:
            said = str(error).removeprefix("MessagePack data is malformed: ").rstrip(".")
            if said == "Input data was truncated":
                said = "it ends too early"
            raise Broken(f"The payload is not MessagePack: {said[:1].lower()}{said[1:]}.") from None

    def quick_reader(self, shape: Any) -> Callable[[bytes], Any]:
        """The parts of a document that columns need."""
        return msgspec.msgpack.Decoder(shape).decode

    def unread(self, payloads: list[bytes]) -> dict[int, str]:  # noqa: ARG002
        """Text that is skipped may be no UTF-8: nobody reads it."""
        return {}
