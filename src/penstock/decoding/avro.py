"""`avro`: Apache Avro 1.12 binary encoding, bare, as single objects, or as container files.

The schema is the one the payloads were written with; a container file has it in its header.
"""

from __future__ import annotations

import io
from typing import Any, Final

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.avro_container import container_decoder
from penstock.decoding.avro_registered import registered_avro_decoder
from penstock.decoding.avro_schema import parse_avro_schema, read_datum
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.decoder import Decoder
from penstock.decoding.documents import DocumentDecoder, NoQuickReader, document_decoder
from penstock.decoding.files import read_file
from penstock.errors import ConfigError

_MARKER: Final = b"\xc3\x01"
_HEADER_BYTES: Final = 10


def avro_decoder(definition: DecoderDefinition) -> Decoder:
    """Return a decoder with the definition's columns, or one for each field of the schema.

    Raises:
        ConfigError: fastavro is not installed.
    """
    try:
        import fastavro  # noqa: F401 - only whether it is there
    except ImportError:
        raise ConfigError(
            "The decoder avro needs fastavro, which is not installed:"
            " pip install 'penstock[spark]'."
        ) from None
    file = definition.schema_file
    schema = parse_avro_schema(read_file(file, "Avro schema"), f"schema {file}") if file else None
    if definition.framing == "container":
        return container_decoder(definition, schema)
    if definition.framing == "confluent":
        return registered_avro_decoder(definition, schema)
    assert schema is not None  # checked by the definition
    header = _MARKER + schema.fingerprint() if definition.framing == "single_object" else b""
    columns = definition.columns or schema.columns()
    notation = AvroNotation(schema.fastavro_schema, header)
    if not columns:
        return document_decoder(definition, notation)
    return DocumentDecoder(definition.model_copy(update={"columns": columns}), notation)


class AvroNotation(NoQuickReader):
    """Reads payloads of one schema; each payload begins with ``header``."""

    def __init__(self, schema: Any, header: bytes) -> None:
        self._schema = schema
        self._header = header

    def read(self, payload: bytes) -> object:
        """Return the datum of a payload."""
        stream = io.BytesIO(payload)
        if self._header:
            self._skip_header(stream)
        return read_datum(stream, self._schema)

    def _skip_header(self, stream: io.BytesIO) -> None:
        header = stream.read(_HEADER_BYTES)
        if header[:2] != _MARKER:
            raise BrokenPayload("The payload is no single object of Avro, which begins with C3 01.")
        if header != self._header:
            raise BrokenPayload(
                f"The payload has another schema's fingerprint, {header[2:].hex()}."
            )
