"""`json`: RFC 8259 in UTF-8; with `lenient` also NaN, infinities and a byte order mark."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.convert import NUMBER_CHARACTERS_MAX, to_json
from penstock.decoding.decoder import DecodedBatch, Decoder, Messages
from penstock.decoding.documents import DocumentDecoder, NoQuickReader, Notation
from penstock.decoding.framed import FramedDecoder
from penstock.decoding.json_registered import JsonFrameCheck, registered_columns
from penstock.decoding.registry import Registry
from penstock.decoding.reshaping import DocumentsInTexts
from penstock.decoding.rows import Rows, decode_in_portions

_BOM: Final = b"\xef\xbb\xbf"
_BYTE: Final = re.compile(r" \(byte ([0-9]+)\)$")
_INVALID_LITERAL: Final = re.compile(
    rb'(?<![\w"-])-?(?:nan|inf(?:inity)?|none|true|false|undefined)\b', re.IGNORECASE
)
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_VALUES_EXAMINED_MAX: Final = 1_000_000  # most values that are examined to name an error


def json_decoder(definition: DecoderDefinition) -> Decoder:
    """Return a decoder with the definition's columns.

    If the definition names none, they are those of the registry's subject; without a subject, one
    column of JSON text.
    """
    if definition.registry is not None:
        registry = Registry(definition.registry)
        columns = definition.columns
        if not columns and definition.registry.subject:
            columns = registered_columns(definition, registry)
        plain = definition.model_copy(
            update={"registry": None, "framing": "none", "columns": columns}
        )
        return FramedDecoder(json_decoder(plain), JsonFrameCheck(registry))
    if not definition.columns:
        return JsonTextDecoder(definition)
    return DocumentDecoder(definition, with_texts(definition, JsonNotation(definition)))


def with_texts(definition: DecoderDefinition, notation: Notation) -> Notation:
    """Return a notation that reads the documents in texts, too, that a definition names."""
    return TextsNotation(definition, notation) if definition.json_texts else notation


class TextsNotation(NoQuickReader):
    """Reads documents, and the JSON documents in some of their texts."""

    def __init__(self, definition: DecoderDefinition, notation: Notation) -> None:
        self._notation = notation
        self._texts = DocumentsInTexts(definition)
        self._read_text = JsonNotation(definition).read
        self._values_max = definition.values_max

    def read(self, payload: bytes) -> object:
        """Return the document of a payload with the documents in its texts."""
        values = 0

        def read(text: bytes) -> object:
            nonlocal values
            values += values_in(text)
            if values > self._values_max:
                raise BrokenPayload(
                    f"it becomes more values than values_max allows ({self._values_max})."
                )
            return self._read_text(text)

        return self._texts.replace(self._notation.read(payload), read)

    def values_in(self, payload: bytes) -> int:
        """Return an upper bound of the values around the texts."""
        return self._notation.values_in(payload)

    def rows_in(self, payload: bytes) -> int:
        """Return an upper bound of the objects in a payload that is a list."""
        return self._notation.rows_in(payload)


class JsonNotation:
    """Reads JSON. Fractions keep all their digits if a column is a decimal."""

    def __init__(self, definition: DecoderDefinition) -> None:
        self._read_float: Any = _decimal if _has_decimals(definition.columns) else None
        self._is_lenient = definition.lenient
        self._decode = msgspec.json.Decoder(float_hook=self._read_float).decode
        self._decode_exactly = msgspec.json.Decoder(float_hook=_float_or_decimal).decode

    def read(self, payload: bytes) -> object:
        """Return the document of a payload."""
        try:
            check_utf8(payload)
            return self._decode(payload)
        except msgspec.ValidationError:  # a number is out of range for a float
            return self._decode_exactly(payload)
        except msgspec.MsgspecError as error:
            if self._is_lenient:
                return read_leniently(payload, self._read_float)
            raise broken_json(error, payload) from None

    def values_in(self, payload: bytes) -> int:
        """Return an upper bound of the values in a payload."""
        return values_in(payload)

    def rows_in(self, payload: bytes) -> int:
        """Return the number of opening braces, an upper bound."""
        return payload.count(b"{")

    def leaf_type(self, column: Column) -> Any:  # noqa: ARG002
        """Return Any: a map needs no check, because its keys are text."""
        return Any

    def quick_reader(self, shape: Any, takes_anything: bool) -> Callable[[bytes], Any]:  # noqa: ARG002
        """Return a reader that builds only the parts of a document that columns need."""
        return msgspec.json.Decoder(shape, float_hook=self._read_float).decode

    def unseen_errors(self, payloads: list[bytes]) -> dict[int, str]:
        """Return a reason for each payload that is not UTF-8: msgspec skips text unchecked."""
        if are_utf8(payloads):
            return {}
        reasons = {}
        for position, payload in enumerate(payloads):
            try:
                check_utf8(payload)
            except BrokenPayload as broken:
                reasons[position] = str(broken)
        return reasons


class JsonTextDecoder:
    """Decodes each payload to a row of one column, `value`, with its text if that is JSON."""

    def __init__(self, definition: DecoderDefinition) -> None:
        self.schema = pa.schema([("value", pa.string())])
        self._is_lenient = definition.lenient
        self._values_max = definition.values_max
        self._check = msgspec.json.Decoder(msgspec.Raw).decode

    def decode(self, messages: Messages) -> DecodedBatch:
        """Decode a batch; each payload is a row."""
        return decode_in_portions(self.schema, messages.payloads, self._decode_portion)

    def _decode_portion(self, payloads: list[bytes], rows: Rows) -> None:
        texts: list[bytes | str] = []
        checks_utf8 = not are_utf8(payloads)
        for source, payload in enumerate(payloads):
            text: bytes | str = payload
            if not payload:
                continue
            try:
                if checks_utf8:
                    check_utf8(payload)
                try:
                    self._check(payload)
                except msgspec.MsgspecError as error:
                    text = self._lenient_text(payload, error)
            except BrokenPayload as broken:
                rows.mark_broken(source, str(broken))
            except RecursionError:
                rows.mark_broken(source, "The payload is nested too deeply.")
            else:
                texts.append(text)
                rows.sources.append(source)
        rows.add(pa.array(texts, pa.string()), {})

    def _lenient_text(self, payload: bytes, error: msgspec.MsgspecError) -> str:
        if self._is_lenient and values_in(payload) <= self._values_max:
            return to_json(read_leniently(payload, None))
        raise broken_json(error, payload) from None


def read_leniently(payload: bytes, read_float: Callable[[str], Any] | None) -> object:
    """Read a document that may begin with a byte order mark and hold NaN, Infinity, -Infinity.

    Args:
        payload: the payload, in UTF-8.
        read_float: converts the text of a number with a fraction or exponent; None for float, or
            Decimal if the number is out of range.

    Raises:
        BrokenPayload: the payload is not JSON for another reason.
    """
    text = payload.removeprefix(_BOM).decode()
    try:
        value = json.loads(text, parse_float=read_float or _float_or_decimal)
        msgspec.json.encode(value)  # a lone surrogate is not text
    except UnicodeEncodeError:
        raise BrokenPayload(_LONE_SURROGATE) from None
    except ValueError as error:
        reason = str(error).partition(": ")[0]
        raise BrokenPayload(f"The payload is not JSON: {reason[:1].lower()}{reason[1:]}.") from None
    return value


_LONE_SURROGATE: Final = (
    "The payload is not JSON: it has half of a surrogate pair, which stands for no character."
)


def broken_json(error: Exception, payload: bytes) -> BrokenPayload:
    """Return the exception, with one sentence, for a payload that msgspec could not read."""
    reason = str(error).removeprefix("JSON is malformed: ")
    if payload.startswith(_BOM):
        return BrokenPayload(
            "The payload is not JSON: it begins with a byte order mark (lenient = true takes it)."
        )
    is_cut = reason == "Input data was truncated"
    if (is_cut or "surrogate" in reason) and _has_lone_surrogate(payload):
        return BrokenPayload(_LONE_SURROGATE)
    if is_cut:
        return BrokenPayload("The payload is not JSON: it ends too early.")
    byte = _BYTE.search(reason)
    if byte is not None:
        at = int(byte[1])
        for begin in range(max(0, at - 4), at + 1):  # msgspec looks ahead by the length of "true"
            word = _INVALID_LITERAL.match(payload, begin)
            if word is not None:
                name = word[0].decode()
                return BrokenPayload(f"The payload is not JSON: {name} is not JSON (byte {begin}).")
    return BrokenPayload(f"The payload is not JSON: {reason[:1].lower()}{reason[1:]}.")


def _has_lone_surrogate(payload: bytes) -> bool:
    """Return whether the error is a lone surrogate: Python reads such text, but cannot encode
    it."""
    if values_in(payload) > _VALUES_EXAMINED_MAX:
        return False
    try:
        msgspec.json.encode(json.loads(payload))
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def values_in(payload: bytes) -> int:
    """Return an upper bound of the values in a document.

    Each value but the first follows a comma, a colon or an opening bracket or brace.
    """
    return 1 + sum(map(_STRING.sub(b"", payload).count, (b",", b":", b"[", b"{")))


def are_utf8(payloads: list[bytes]) -> bool:
    """Return whether all payloads are UTF-8."""
    try:
        pa.array(payloads, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def check_utf8(payload: bytes) -> None:
    """Raise BrokenPayload for a payload that is not UTF-8."""
    try:
        payload.decode()
    except UnicodeDecodeError as error:
        raise BrokenPayload(f"The payload is not UTF-8 at byte {error.start}.") from None


def _has_decimals(columns: dict[str, Column]) -> bool:
    return any("decimal(" in one.type or _has_decimals(one.fields) for one in columns.values())


def _float_or_decimal(text: str) -> float | Decimal:
    """Return a number as a float, or as a decimal if it is too large: it is no infinity."""
    number = float(text)
    return _decimal(text) if math.isinf(number) else number


def _decimal(text: str) -> Decimal:
    if len(text) > NUMBER_CHARACTERS_MAX:
        raise BrokenPayload(
            f"The payload has a number of more than {NUMBER_CHARACTERS_MAX} characters."
        )
    return Decimal(text)
