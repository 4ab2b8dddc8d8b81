"""Formats of text and of documents in which payloads are rows: ndjson, line_protocol, senml …

Each is a pure function from a payload to an object or a list of them, and stands in one table. To
documents.py they are notations like json.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.config.decoder import DecoderDefinition, Kind
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.cbor import CborNotation
from penstock.decoding.decoder import Decoder
from penstock.decoding.documents import NoQuickReader, document_decoder
from penstock.decoding.json_text import JsonNotation
from penstock.decoding.line_protocol import read_line_protocol
from penstock.decoding.lines_of_fields import read_key_values, read_nmea
from penstock.decoding.senml import COLUMNS, resolve_senml

Read = Callable[[bytes], object]


class FormatNotation(NoQuickReader):
    """The notation of a format.

    Args:
        read: reads a payload.
    """

    def __init__(self, read: Read) -> None:
        self._read = read

    def read(self, payload: bytes) -> object:
        """Return the object or objects of a payload.

        Raises:
            BrokenPayload: the payload is empty.
        """
        if not payload.strip():
            raise BrokenPayload("The payload is empty.")
        return self._read(payload)

    def values_in(self, payload: bytes) -> int:
        """Return the number of bytes, an upper bound."""
        return len(payload)


def is_format(kind: Kind) -> bool:
    """Return whether a kind of decoder is one of these formats."""
    return kind in _FORMATS


def format_decoder(definition: DecoderDefinition) -> Decoder:
    """Return the decoder of a definition's format: a row for each line or record."""
    columns = definition.columns or (COLUMNS if definition.kind == "senml" else {})
    rows = {"columns": columns, "many": definition.kind != "key_value"}
    return document_decoder(definition.model_copy(update=rows), format_notation(definition))


def format_notation(definition: DecoderDefinition) -> FormatNotation:
    """Return the notation of a definition's format."""
    return FormatNotation(_FORMATS[definition.kind](definition))


def _of_text(read: Callable[[str], object]) -> Read:
    def read_bytes(payload: bytes) -> object:
        try:
            return read(payload.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise BrokenPayload(f"The payload is not UTF-8 at byte {error.start}.") from None

    return read_bytes


def _ndjson(definition: DecoderDefinition) -> Read:
    notation = JsonNotation(definition)

    def read(payload: bytes) -> list[object]:
        rows = []
        for number, line in enumerate(payload.split(b"\n"), 1):
            if stripped := line.strip(b" \t\r\x1e"):  # with the separators of RFC 7464, too
                try:
                    rows.append(notation.read(stripped))
                except BrokenPayload as broken:
                    raise BrokenPayload(f"Line {number}: {broken}") from None
        return rows

    return read


def _senml(_definition: DecoderDefinition) -> Read:
    cbor, json = CborNotation(), JsonNotation(DecoderDefinition(kind="json"))

    def read(payload: bytes) -> list[dict[str, Any]]:
        notation = json if payload.lstrip()[:1] in (b"[", b"{") else cbor
        return resolve_senml(notation.read(payload), len(payload))

    return read


def _key_values(definition: DecoderDefinition) -> Read:
    is_set = "delimiter" in definition.model_fields_set
    return _of_text(partial(read_key_values, separator=definition.delimiter if is_set else ""))


_FORMATS: Final[dict[Kind, Callable[[DecoderDefinition], Read]]] = {
    "ndjson": _ndjson,
    "line_protocol": lambda _: _of_text(read_line_protocol),
    "senml": _senml,
    "key_value": _key_values,
    "nmea": lambda _: _of_text(read_nmea),
}
"""How payloads of each format are read. All but key_value give a row for each line or record."""
