"""Tries to read a payload with the notations that may decode it later.

UTF-8 text is never CBOR or MessagePack with an object in it, because no text begins with such
bytes; and those two differ in the bytes left over when one is read as the other.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.avro_container import MAGIC, ContainerNotation
from penstock.decoding.broken import Broken
from penstock.decoding.cbor import CborNotation
from penstock.decoding.documents import Notation
from penstock.decoding.json_text import JsonNotation
from penstock.decoding.msgpack import MsgpackNotation

DocumentKind = Literal["json", "cbor", "msgpack", "avro"]

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_OPENED: Final = re.compile(r"\ufeff?\s*\{")
_BOM: Final = "\ufeff"


class Form(Enum):
    """The form of a payload's contents."""

    EMPTY = "empty"
    OBJECT = "an object"
    ROWS = "a list of objects"
    VALUE = "a list or value"
    """Any other document of a notation."""
    SCALAR = "a number or truth in text"
    """A number or a truth value, which is JSON, too."""
    TEXT = "text"
    BINARY = "bytes"


@dataclass(frozen=True, slots=True)
class ParsedPayload:
    """A payload, read.

    ``notation`` is the kind of document, empty if it is none; ``value`` is the document or text, or
    the payload itself.
    """

    form: Form
    notation: DocumentKind | Literal[""] = ""
    value: Any = None
    is_lenient: bool = False
    """True if it is JSON only with `lenient = true`."""

    @property
    def objects(self) -> list[dict[Any, Any]]:
        """The rows of a document: objects."""
        if self.form is Form.OBJECT:
            return [self.value]
        return self.value if self.form is Form.ROWS else []


def read(payload: bytes) -> ParsedPayload:
    """Return the payload, parsed in the form that fits it."""
    if not payload:
        return ParsedPayload(Form.EMPTY)
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return _binary(payload)
    value = _document("json", payload)
    if value is _NONE and _OPENED.match(text):
        leniently = _leniently(payload)
        if isinstance(leniently, dict):
            return ParsedPayload(Form.OBJECT, "json", leniently, is_lenient=True)
    if value is _NONE:
        if _CONTROL.search(text):
            return _binary(payload)
        return ParsedPayload(Form.TEXT, value=text.removeprefix(_BOM))
    if value is None or isinstance(value, (bool, int, float)):
        return ParsedPayload(Form.SCALAR, "json", text)
    return _of_document("json", value)


def distinct_keys(readings: Iterable[ParsedPayload]) -> frozenset[str]:
    """Return the keys of all objects in documents."""
    return frozenset(str(key) for reading in readings for item in reading.objects for key in item)


def _binary(payload: bytes) -> ParsedPayload:
    found: list[ParsedPayload] = []
    kinds: tuple[DocumentKind, ...] = ("cbor", "msgpack")
    if payload.startswith(MAGIC):
        kinds = ("avro",)
    for kind in kinds:
        value = _document(kind, payload)
        if value is not _NONE and (reading := _of_document(kind, value)).objects:
            found.append(reading)
    # Rarely it is both: take the one whose keys are text.
    found.sort(key=lambda one: not all(isinstance(key, str) for key in one.objects[0]))
    return found[0] if found else ParsedPayload(Form.BINARY, value=payload)


def _of_document(kind: DocumentKind, value: object) -> ParsedPayload:
    if isinstance(value, dict):
        return ParsedPayload(Form.OBJECT, kind, value)
    if isinstance(value, (list, tuple)) and all(isinstance(item, dict) for item in value):
        return ParsedPayload(Form.ROWS, kind, list(value))
    return ParsedPayload(Form.VALUE, kind, value)


def _leniently(payload: bytes) -> object:
    try:
        return JsonNotation(DecoderDefinition(kind="json", lenient=True)).read(payload)
    except (Broken, RecursionError):
        return _NONE


_NONE: Final = object()
"""Marks a payload that is not a document."""


def _document(kind: DocumentKind, payload: bytes) -> object:
    try:
        return _notation(kind).read(payload)
    except (Broken, RecursionError):
        return _NONE


@functools.cache
def _notation(kind: DocumentKind) -> Notation:
    match kind:
        case "json":
            return JsonNotation(DecoderDefinition(kind="json"))
        case "cbor":
            return CborNotation()
        case "msgpack":
            return MsgpackNotation()
        case "avro":
            definition = DecoderDefinition(kind="avro", framing="container")
            return ContainerNotation(
                None, definition.rows_max, definition.expanded_bytes_max, definition.values_max
            )
