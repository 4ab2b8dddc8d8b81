"""`json`: RFC 8259, UTF-8."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from penstock.config.decoder import DecoderDefinition, decimal_digits
from penstock.decoding.decoded import Decoded, Decoder
from penstock.decoding.documents import Broken, DocumentDecoder
from penstock.decoding.framed import FramedDecoder
from penstock.decoding.json_registered import KnownJsonSchema, with_columns
from penstock.decoding.registry import Registry
from penstock.decoding.rows import Rows, decoded_in_portions


def json_decoder(definition: DecoderDefinition) -> Decoder:
    """With columns, or with one of JSON text."""
    if definition.registry is not None:
        registry = Registry(definition.registry)
        inner = with_columns(definition, registry)
        plain = inner.model_copy(update={"registry": None, "framing": "none"})
        return FramedDecoder(json_decoder(plain), KnownJsonSchema(registry))
    if not definition.columns:
        return ValidJson()
    return DocumentDecoder(definition, JsonNotation(definition))


class JsonNotation:
    """Reads JSON. Numbers keep all their digits where a column is a decimal."""

    def __init__(self, definition: DecoderDefinition) -> None:
        columns = definition.columns.values()
        has_decimals = any(decimal_digits(column.type) for column in columns)
        self._float: Any = Decimal if has_decimals else None
        self._decode = msgspec.json.Decoder(float_hook=self._float).decode

    def read(self, payload: bytes) -> object:
        """The document."""
        try:
            _check_utf8(payload)
            return self._decode(payload)
        except msgspec.MsgspecError as error:
            raise not_json(error) from None

    def quick_reader(self, shape: Any) -> Callable[[bytes], Any]:
        """The parts of a document that columns need."""
        return msgspec.json.Decoder(shape, float_hook=self._float).decode

    def unread(self, payloads: list[bytes]) -> dict[int, str]:
        """Those that are no UTF-8: msgspec does not look into text that it skips."""
        if are_utf8(payloads):
            return {}
        found = {}
        for position, payload in enumerate(payloads):
            try:
                _check_utf8(payload)
            except Broken as broken:
                found[position] = str(broken)
        return found


class ValidJson:
    """The text itself, one column `value`; what is no JSON is broken."""

    def __init__(self) -> None:
        self.schema = pa.schema([("value", pa.string())])
        self._check = msgspec.json.Decoder(msgspec.Raw).decode

    def decode(self, payloads: pa.BinaryArray, topics: pa.StringArray) -> Decoded:  # noqa: ARG002
        """Each payload is a row."""
        return decoded_in_portions(self.schema, payloads, self._portion)

    def _portion(self, payloads: list[bytes], rows: Rows) -> None:
        texts = []
        is_suspect = not are_utf8(payloads)
        for source, payload in enumerate(payloads):
            try:
                if is_suspect:
                    _check_utf8(payload)
                self._check(payload)
            except Broken as broken:
                rows.break_(source, str(broken))
            except RecursionError:
                rows.break_(source, "The payload is nested too deeply.")
            except msgspec.MsgspecError as error:
                rows.break_(source, str(not_json(error)))
            else:
                texts.append(payload)
                rows.sources.append(source)
        rows.add(pa.array(texts, pa.string()), {})


def not_json(error: Exception) -> Broken:
    """What msgspec has to say, as a sentence."""
    said = str(error).removeprefix("JSON is malformed: ")
    if said == "Input data was truncated":
        return Broken("The payload is not JSON: it ends too early.")
    return Broken(f"The payload is not JSON: {said[:1].lower()}{said[1:]}.")


def are_utf8(payloads: list[bytes]) -> bool:
    """Whether all of them are."""
    try:
        pa.array(payloads, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _check_utf8(payload: bytes) -> None:
    try:
        payload.decode()
    except UnicodeDecodeError as error:
        raise Broken(f"The payload is not UTF-8 at byte {error.start}.") from None
