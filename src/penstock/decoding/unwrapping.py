"""Removes what is around the contents of a payload, before any decoder reads them.

    payload ─▶ expand ─▶ cut zero bytes ─▶ to UTF-8 ─▶ decoder
               compression  strip_nul       encoding

Each step is a pure function from bytes to bytes, that raises `BrokenPayload`; a definition says
which ones are taken. The length of an expanded payload is bounded by `expanded_bytes_max`, so that
a small payload cannot become a large one.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final

import pyarrow as pa

from penstock.config.decoder import Compression, DecoderDefinition
from penstock.decoding.broken_payload import BrokenPayload
from penstock.errors import ConfigError

Step = Callable[[bytes], bytes]

_PART_BYTES: Final = 2**16
_BOM: Final = "\ufeff"


def steps_of(definition: DecoderDefinition) -> list[Step]:
    """Return the steps that a definition asks for, in order; [] if payloads are bare.

    Raises:
        ConfigError: there is no encoding of that name.
    """
    steps: list[Step] = []
    if definition.compression != "none":
        steps.append(
            partial(expand, kind=definition.compression, bytes_max=definition.expanded_bytes_max)
        )
    if definition.strip_nul:
        steps.append(strip_nul)
    if definition.kind not in ("csv", "text"):  # which decode their text themselves
        codec = find_codec(definition.encoding)
        steps += [partial(to_utf8, codec=codec)] if codec != "utf-8" else []
    return steps


def unwrap(payload: bytes, steps: list[Step]) -> bytes:
    """Return the contents of a payload; an empty payload is returned unchanged."""
    for step in steps:
        payload = step(payload) if payload else payload
    return payload


def expand(payload: bytes, kind: Compression, bytes_max: int) -> bytes:
    """Return the expanded payload.

    Raises:
        BrokenPayload: it is not of this kind, is cut, or expands to more than ``bytes_max``.
    """
    expanded = _EXPANDERS[kind](payload, bytes_max)
    if len(expanded) > bytes_max:
        raise BrokenPayload(
            f"The payload expands to more than expanded_bytes_max allows ({bytes_max} bytes)."
        )
    return expanded


def strip_nul(payload: bytes) -> bytes:
    """Return a payload without zero bytes at its end, which C programs send with a text."""
    return payload.rstrip(b"\0")


def to_utf8(payload: bytes, codec: str) -> bytes:
    """Return text of an encoding as UTF-8, without a byte order mark.

    Raises:
        BrokenPayload: the payload is not of the encoding.
    """
    try:
        return payload.decode(codec).removeprefix(_BOM).encode()
    except UnicodeError as error:
        where = f" at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
        raise BrokenPayload(f"The payload is not {codec}{where}.") from None


def find_codec(encoding: str) -> str:
    """Return Python's name of a text encoding.

    Raises:
        ConfigError: there is no encoding of this name.
    """
    try:
        name = codecs.lookup(encoding).name
        "".encode(encoding)
    except (LookupError, ValueError):
        raise ConfigError(f"There is no encoding {encoding!r} of text.") from None
    return name


def _expand_gzip(payload: bytes, bytes_max: int) -> bytes:
    """Return the contents of all members (RFC 1952 §2.2), as one."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(payload)) as members:
            return members.read(bytes_max + 1)
    except EOFError:
        raise BrokenPayload("The payload ends before its gzip does.") from None
    except (OSError, zlib.error):
        raise BrokenPayload("The payload is not gzip.") from None


def _expand_zlib(payload: bytes, bytes_max: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        expanded = decompressor.decompress(payload, bytes_max + 1)
    except zlib.error:
        raise BrokenPayload("The payload is not zlib.") from None
    if len(expanded) <= bytes_max and not decompressor.eof:
        raise BrokenPayload("The payload ends before its zlib does.")
    if decompressor.unused_data:
        raise BrokenPayload("The payload has bytes behind its zlib.")
    return expanded


def _expand_zstd(payload: bytes, bytes_max: int) -> bytes:
    if not payload.startswith(dict(STARTS)["zstd"]):
        raise BrokenPayload("The payload is not zstd.")
    expanded = bytearray()
    try:
        with pa.CompressedInputStream(pa.BufferReader(payload), "zstd") as stream:
            while len(expanded) <= bytes_max and (part := stream.read(_PART_BYTES)):
                expanded += part
    except (OSError, pa.ArrowException):
        raise BrokenPayload("The payload is not whole zstd.") from None
    return bytes(expanded)


def _expand_any(payload: bytes, bytes_max: int) -> bytes:
    """Return the contents of a payload that begins as a compression does; else the payload."""
    for kind, starts in STARTS:
        if payload.startswith(starts):
            return _EXPANDERS[kind](payload, bytes_max)
    if payload.startswith(ZLIB_STARTS):
        with contextlib.suppress(BrokenPayload):  # a text may begin like that: x^2
            return _expand_zlib(payload, bytes_max)
    return payload


STARTS: Final[tuple[tuple[Compression, bytes], ...]] = (
    ("gzip", b"\x1f\x8b\x08"),
    ("zstd", b"\x28\xb5\x2f\xfd"),
)
ZLIB_STARTS: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")

_EXPANDERS: Final[dict[Compression, Callable[[bytes, int], bytes]]] = {
    "gzip": _expand_gzip,
    "zlib": _expand_zlib,
    "zstd": _expand_zstd,
    "auto": _expand_any,
}
"""For each compression the function that expands it, and stops soon behind the bound."""
