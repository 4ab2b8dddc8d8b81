"""Recognises what is around the contents of a payload: a compression, an encoding, zero bytes."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from penstock.config.decoder import Compression
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.unwrapping import STARTS, ZLIB_STARTS, expand, strip_nul

Wrapping = tuple[tuple[str, str | bool], ...]
"""The settings of a decoder that take off what is around payloads; () for bare payloads."""

NO_WRAPPING: Final[Wrapping] = ()
EXPANDED_BYTES_MAX: Final = 2**24
_COMPRESSIONS: Final[tuple[tuple[Compression, tuple[bytes, ...]], ...]] = (
    *((kind, (start,)) for kind, start in STARTS),
    ("zlib", ZLIB_STARTS),
)
_HARMLESS: Final = ("compression", "strip_nul")
"""Settings that, in a form for all, change nothing of payloads without such a wrapping."""
_NO_TEXT: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_MARKS_OF_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_ASCII_SHARE: Final = 0.75


def find_wrapping(payload: bytes) -> tuple[bytes, Wrapping]:
    """Return the contents of a payload in UTF-8 or bytes, and the settings that lead to them."""
    for kind, starts in _COMPRESSIONS:
        if payload.startswith(starts):
            try:
                contents = expand(payload, kind, EXPANDED_BYTES_MAX)
            except BrokenPayload:
                continue
            inner, wrapping = _find_text(contents)
            return inner, (("compression", kind), *wrapping)
    return _find_text(payload)


def common_wrapping(wrappings: Collection[Wrapping]) -> Wrapping | None:
    """Return settings that take off each of these wrappings; None if there are none."""
    kinds = {dict(one).get("compression", "none") for one in wrappings}
    others = {tuple(setting for setting in one if setting[0] not in _HARMLESS) for one in wrappings}
    if len(others) != 1:
        return None
    compression = kinds.pop() if len(kinds) == 1 else "auto"
    found: list[tuple[str, str | bool]] = []
    if compression != "none":
        found.append(("compression", compression))
    if any("strip_nul" in dict(one) for one in wrappings):
        found.append(("strip_nul", True))
    return (*found, *others.pop())


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
