"""`cbor`: RFC 8949.

Dates and decimal fractions become values. Tags that let a small payload stand for a large one
(shared values, string references) are refused; those with a syntax of their own (regular
expressions, MIME) stay text, for nothing here has to understand them. Big numbers become text,
which converts to any number: as keys of a map they could be chosen so that all have one hash.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Final

from penstock.decoding.documents import Broken
from penstock.errors import ConfigError

_DEPTH_MAX: Final = 200
_SHARING: Final = (25, 28, 29, 256)
_BIG_NUMBER_BYTES_MAX: Final = 128
_AS_THEY_ARE: Final = (30, 35, 36, 260, 261, 43000)


class CborNotation:
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
            2: _positive,
            3: _negative,
        }

    def read(self, payload: bytes) -> object:
        """The one item of a payload."""
        stream = io.BytesIO(payload)
        try:
            value = self._decoder(
                stream, semantic_decoders=self._tags, max_depth=_DEPTH_MAX
            ).decode()
        except Broken:
            raise
        except self._ends_early:
            raise Broken("The payload is not CBOR: it ends too early.") from None
        except Exception as error:  # whatever the conversion of a tagged value raises
            if isinstance(error.__cause__, Broken):
                raise error.__cause__ from None
            raise Broken(f"The payload is not CBOR: {_said(error)}.") from None
        if stream.tell() != len(payload):
            raise Broken(
                f"The payload is not CBOR: {len(payload) - stream.tell()} bytes follow its value."
            )
        return value

    def quick_reader(self, shape: Any) -> Callable[[bytes], Any] | None:  # noqa: ARG002
        """There is none."""
        return None

    def unread(self, payloads: list[bytes]) -> dict[int, str]:  # noqa: ARG002
        """`read` sees all."""
        return {}


def _said(error: Exception) -> str:
    return str(error).partition("\n")[0][:100].rstrip(".") or type(error).__name__


def _refused(value: object, is_immutable: bool) -> object:  # noqa: ARG001
    raise Broken("The payload has shared CBOR values (tags 25, 28, 29, 256), which are not read.")


def _inner(value: object, is_immutable: bool) -> object:  # noqa: ARG001
    return value


def _positive(value: object, is_immutable: bool) -> object:  # noqa: ARG001
    return str(_big_number(value))


def _negative(value: object, is_immutable: bool) -> object:  # noqa: ARG001
    return str(-1 - _big_number(value))


def _big_number(value: object) -> int:
    if not isinstance(value, bytes) or len(value) > _BIG_NUMBER_BYTES_MAX:
        raise Broken(f"The payload has a CBOR number of more than {_BIG_NUMBER_BYTES_MAX} bytes.")
    return int.from_bytes(value, "big")
