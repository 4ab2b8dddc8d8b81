"""`avro`: Apache Avro 1.12 binary encoding, bare or as single objects.

The schema is the one the payloads were written with. Two kinds of schema let a few bytes stand for
more than memory holds, and are refused: those that contain themselves, and lists of items that take
no bytes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any, Final

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.decoded import Decoder
from penstock.decoding.documents import Broken, DocumentDecoder, document_decoder
from penstock.decoding.files import content_of
from penstock.decoding.shown import shown
from penstock.errors import ConfigError

_MARKER: Final = b"\xc3\x01"
_HEADER_BYTES: Final = 10
_TYPES: Final = {
    "boolean": "bool",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "enum": "string",
}
_LOGICAL: Final = {
    "date": "date",
    "time-millis": "string",
    "time-micros": "string",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp",
    "local-timestamp-micros": "timestamp",
    "uuid": "string",
}


def avro_decoder(definition: DecoderDefinition) -> Decoder:
    """With the definition's columns, or with one for each field of the schema."""
    try:
        import fastavro.schema
    except ImportError:
        raise ConfigError(
            "The decoder avro needs fastavro, which is not installed:"
            " pip install 'penstock[spark]'."
        ) from None
    file = definition.schema_file
    content = content_of(file, "Avro schema")
    try:
        written = json.loads(content)
        named: dict[str, Any] = {}
        schema = fastavro.parse_schema(written, named)
        text = fastavro.schema.to_parsing_canonical_form(written)
        fingerprint = bytes.fromhex(fastavro.schema.fingerprint(text, "CRC-64-AVRO"))
    except RecursionError:
        raise ConfigError(f"The Avro schema {file} is nested too deeply.") from None
    except (
        Exception
    ) as error:  # fastavro's are of several kinds, ValueError and KeyError among them
        reason = str(error).rstrip(".")
        raise ConfigError(f"{file} is no Avro schema: {reason}.") from None
    _refuse_bombs(schema, named, file, ())
    is_framed = definition.framing == "single_object"
    header = _MARKER + fingerprint if is_framed else b""
    columns = definition.columns or _columns(schema, named)
    if not columns:
        return document_decoder(definition, AvroNotation(schema, header))
    return DocumentDecoder(
        definition.model_copy(update={"columns": columns}), AvroNotation(schema, header)
    )


class AvroNotation:
    """Reads payloads of one schema. header is what each begins with."""

    def __init__(self, schema: Any, header: bytes) -> None:
        import fastavro

        self._schema = schema
        self._header = header
        self._read = fastavro.schemaless_reader

    def read(self, payload: bytes) -> object:
        """The datum."""
        stream = io.BytesIO(payload)
        if self._header:
            self._skip_header(stream)
        try:
            value = self._read(stream, self._schema, None)
        except EOFError:
            raise Broken("The payload is not Avro of this schema: it ends too early.") from None
        except RecursionError:
            raise
        except Exception as error:  # fastavro's are of many kinds
            said = str(error).partition("\n")[0][:100].rstrip(".") or type(error).__name__
            raise Broken(f"The payload is not Avro of this schema: {said}.") from None
        left = len(payload) - stream.tell()
        if left:
            raise Broken(f"The payload is not Avro of this schema: {left} bytes follow its value.")
        return value

    def _skip_header(self, stream: io.BytesIO) -> None:
        header = stream.read(_HEADER_BYTES)
        if header[:2] != _MARKER:
            raise Broken("The payload is no single object of Avro, which begins with C3 01.")
        if header != self._header:
            raise Broken(f"The payload has another schema's fingerprint, {header[2:].hex()}.")

    def quick_reader(self, shape: Any) -> Callable[[bytes], Any] | None:  # noqa: ARG002
        """There is none."""
        return None

    def unread(self, payloads: list[bytes]) -> dict[int, str]:  # noqa: ARG002
        """`read` sees all."""
        return {}


def _refuse_bombs(schema: Any, named: dict[str, Any], file: str, around: tuple[str, ...]) -> None:
    if isinstance(schema, list):
        for branch in schema:
            _refuse_bombs(branch, named, file, around)
        return
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, str):
        return
    kind = schema["type"]
    if kind == "record":
        if schema["name"] in around:
            raise ConfigError(
                f"The Avro schema {file} contains itself ({schema['name']}), and is not read."
            )
        for field in schema["fields"]:
            _refuse_bombs(field["type"], named, file, (*around, schema["name"]))
    elif kind == "array":
        if not _takes_bytes(schema["items"], named):
            raise ConfigError(
                f"The Avro schema {file} has a list of {shown(schema['items'])}, which take no"
                " bytes, and is not read."
            )
        _refuse_bombs(schema["items"], named, file, around)
    elif kind == "map":
        _refuse_bombs(schema["values"], named, file, around)
    elif isinstance(kind, (dict, list)):
        _refuse_bombs(kind, named, file, around)


def _takes_bytes(schema: Any, named: dict[str, Any], depth: int = 0) -> bool:
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record" and depth < 100:
        return any(_takes_bytes(field["type"], named, depth + 1) for field in schema["fields"])
    if kind == "fixed":
        return bool(schema["size"] > 0)
    if isinstance(kind, dict):
        return _takes_bytes(kind, named, depth + 1)
    return bool(kind != "null")


def _columns(schema: Any, named: dict[str, Any]) -> dict[str, Column]:
    """A column for each field of a record; none for any other schema."""
    if not isinstance(schema, dict) or schema["type"] != "record":
        return {}
    return {
        field["name"]: Column(type=_column_type(field["type"], named)) for field in schema["fields"]
    }


def _column_type(schema: Any, named: dict[str, Any]) -> str:
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        return _column_type(branches[0], named) if len(branches) == 1 else "json"
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, str):
        return _TYPES.get(schema, "json")
    logical = schema.get("logicalType")
    if logical == "decimal" and schema["precision"] <= 38:
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    return _LOGICAL.get(logical) or _column_type_of(schema["type"], named)


def _column_type_of(kind: Any, named: dict[str, Any]) -> str:
    return _TYPES.get(kind, "json") if isinstance(kind, str) else _column_type(kind, named)
