"""Parses a payload with the notation that fits it: JSON, CBOR, MessagePack, Avro, else text or
bytes.

UTF-8 text is never CBOR or MessagePack with an object in it, because no text begins with such
bytes. CBOR read as MessagePack, or the reverse, leaves bytes behind the value, and is refused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Literal

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.avro_container import MAGIC, ContainerNotation
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.cbor import CborNotation
from penstock.decoding.documents import Notation
from penstock.decoding.inference.formats import delimiter_of, find_format, senml_rows
from penstock.decoding.inference.wrappings import NO_WRAPPING, Wrapping, find_wrapping
from penstock.decoding.json_text import JsonNotation
from penstock.decoding.msgpack import MsgpackNotation

DocumentKind = Literal[
    "json", "cbor", "msgpack", "avro", "ndjson", "line_protocol", "senml", "key_value", "nmea"
]

_CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_OBJECT_START: Final = re.compile(r"\ufeff?\s*\{")
_BOM: Final = "\ufeff"


class Form(Enum):
    """The form of a payload's contents."""

    EMPTY = "empty"
    OBJECT = "an object"
    ROWS = "a list of objects"
    VALUE = "a list or value"
    """A document that is neither an object nor a list of objects."""
    SCALAR = "a number or truth in text"
    """A number, a truth value or null, which is a JSON document, too."""
    TEXT = "text"
    BINARY = "bytes"


@dataclass(frozen=True, slots=True)
class ParsedPayload:
    """The contents of a payload.

    Attributes:
        form: the form of the contents.
        notation: the notation of a document; empty for other payloads.
        value: the document; the text for SCALAR and TEXT; the payload itself for BINARY.
        is_lenient: true if a document is JSON only with `lenient = true`.
        wrapping: the settings of a decoder that take off what is around the contents.
        payload: the payload itself if it has a wrapping.
        received_at_us: the time of receipt, µs since 1970.
    """

    form: Form
    notation: DocumentKind | Literal[""] = ""
    value: Any = None
    is_lenient: bool = False
    received_at_us: int = 0
    wrapping: Wrapping = ()
    payload: bytes = b""

    @property
    def objects(self) -> list[dict[Any, Any]]:
        """The rows of a document that is an object or a list of objects; else []."""
        if self.form is Form.OBJECT:
            return [self.value]
        return self.value if self.form is Form.ROWS else []


def parse_payload(payload: bytes, received_at_us: int) -> ParsedPayload:
    """Return the contents of a payload, in the first notation that reads it."""
    parsed = _parse(payload)
    contents, wrapping = payload, NO_WRAPPING
    if parsed.form is Form.BINARY:
        contents, wrapping = find_wrapping(payload)
        parsed = _parse(contents) if wrapping else parsed
    if parsed.notation == "key_value" and (delimiter := delimiter_of(contents.decode())):
        wrapping = (*wrapping, ("delimiter", delimiter))
    return replace(
        parsed,
        received_at_us=received_at_us,
        wrapping=wrapping,
        payload=payload if wrapping else b"",
    )


def _parse(payload: bytes) -> ParsedPayload:
    if not payload:
        return ParsedPayload(Form.EMPTY)
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return _parse_binary(payload)
    value = _parse_document("json", payload)
    if value is _NO_DOCUMENT and _OBJECT_START.match(text):
        leniently = _parse_leniently(payload)
        if isinstance(leniently, dict):
            return ParsedPayload(Form.OBJECT, "json", leniently, is_lenient=True)
    if value is _NO_DOCUMENT:
        found = find_format(text)
        if found is not None:
            return _classify_document(*found)
        if _CONTROL_CHARACTER.search(text):
            return _parse_binary(payload)
        return ParsedPayload(Form.TEXT, value=text.removeprefix(_BOM))
    if value is None or isinstance(value, (bool, int, float, Decimal)):
        return ParsedPayload(Form.SCALAR, "json", text)
    return _senml_or("json", value)


def _senml_or(kind: DocumentKind, value: object) -> ParsedPayload:
    rows = senml_rows(value)
    return (
        _classify_document(kind, value) if rows is None else ParsedPayload(Form.ROWS, "senml", rows)
    )


def distinct_keys(readings: Iterable[ParsedPayload]) -> frozenset[str]:
    """Return the keys of all rows of all payloads."""
    return frozenset(str(key) for reading in readings for item in reading.objects for key in item)


def _parse_binary(payload: bytes) -> ParsedPayload:
    found: list[ParsedPayload] = []
    kinds: tuple[DocumentKind, ...] = ("cbor", "msgpack")
    if payload.startswith(MAGIC):
        kinds = ("avro",)
    for kind in kinds:
        value = _parse_document(kind, payload)
        if value is not _NO_DOCUMENT and (reading := _senml_or(kind, value)).objects:
            found.append(reading)
    # Rarely a payload is both: take the notation in which all keys are text.
    found.sort(key=lambda one: not all(isinstance(key, str) for key in one.objects[0]))
    return found[0] if found else ParsedPayload(Form.BINARY, value=payload)


def _classify_document(kind: DocumentKind, value: object) -> ParsedPayload:
    if isinstance(value, dict):
        return ParsedPayload(Form.OBJECT, kind, value)
    if isinstance(value, (list, tuple)) and all(isinstance(item, dict) for item in value):
        return ParsedPayload(Form.ROWS, kind, list(value))
    return ParsedPayload(Form.VALUE, kind, value)


def _parse_leniently(payload: bytes) -> object:
    try:
        return JsonNotation(DecoderDefinition(kind="json", lenient=True)).read(payload)
    except (BrokenPayload, RecursionError):
        return _NO_DOCUMENT


_NO_DOCUMENT: Final = object()
"""Marks a payload that is not a document."""


def _parse_document(kind: DocumentKind, payload: bytes) -> object:
    try:
        return _notation(kind).read(payload)
    except (BrokenPayload, RecursionError):
        return _NO_DOCUMENT


@functools.cache
def _notation(kind: DocumentKind) -> Notation:
    match kind:
        case "json" | "ndjson" | "line_protocol" | "senml" | "key_value" | "nmea":
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
