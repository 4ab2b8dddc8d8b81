"""Recognises what is around the contents of a payload: a compression, an encoding, zero bytes."""

from __future__ import annotations

import re
from typing import Final

from penstock.config.decoder import Compression
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.unwrapping import expand, strip_nul

Wrapping = tuple[tuple[str, str | bool], ...]
"""The settings of a decoder that take off what is around payloads; () for bare payloads."""

NO_WRAPPING: Final[Wrapping] = ()
EXPANDED_BYTES_MAX: Final = 2**24
_ZLIB_STARTS: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_STARTS: Final[tuple[tuple[Compression, tuple[bytes, ...]], ...]] = (
    ("gzip", (b"\x1f\x8b\x08",)),
    ("zstd", (b"\x28\xb5\x2f\xfd",)),
    ("zlib", _ZLIB_STARTS),
)
_NO_TEXT: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_MARKS_OF_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_ASCII_SHARE: Final = 0.75


def find_wrapping(payload: bytes) -> tuple[bytes, Wrapping]:
    """Return the contents of a payload in UTF-8 or bytes, and the settings that lead to them."""
    for kind, starts in _STARTS:
        if payload.startswith(starts):
            try:
                contents = expand(payload, kind, EXPANDED_BYTES_MAX)
            except BrokenPayload:
                continue
            inner, wrapping = _find_text(contents)
            return inner, (("compression", kind), *wrapping)
    return _find_text(payload)


def _find_text(payload: bytes) -> tuple[bytes, Wrapping]:
    if _is_text(payload, "utf-8"):
        return payload, ()
    shorter = strip_nul(payload)
    if len(shorter) < len(payload) and shorter and _is_text(shorter, "utf-8"):
        return shorter, (("strip_nul", True),)
    if payload.startswith(_MARKS_OF_UTF16) and _is_text(payload, "utf-16"):
        return payload.decode("utf-16").encode(), (("encoding", "utf-16"),)
    for encoding, zeros in (("utf-16-le", payload[1::2]), ("utf-16-be", payload[::2])):
        if zeros.count(0) > _ASCII_SHARE * len(zeros) and _is_text(payload, encoding):
            return payload.decode(encoding).encode(), (("encoding", encoding),)
    ascii_count = sum(0x20 <= byte < 0x7F for byte in payload)
    if ascii_count > _ASCII_SHARE * len(payload) and _is_text(payload, "latin-1"):
        return payload.decode("latin-1").encode(), (("encoding", "latin-1"),)
    return payload, ()


def _is_text(payload: bytes, encoding: str) -> bool:
    try:
        return _NO_TEXT.search(payload.decode(encoding)) is None
    except UnicodeError:
        return False
