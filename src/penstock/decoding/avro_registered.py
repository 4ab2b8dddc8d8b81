"""Avro whose payloads name their schema by its id in a registry (Confluent's wire format).

Each payload is read with the schema with which it was written, and resolved to the one the table
wants: `schema_file`, or the newest of `registry.subject`. So producers may change to another schema
while messages of the old one are still in the log.
"""

from __future__ import annotations

import io
from typing import Any

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.avro_schema import AvroSchema, parse_avro_schema, read_datum
from penstock.decoding.broken import Broken
from penstock.decoding.decoded import Decoder
from penstock.decoding.documents import DocumentDecoder, NoQuickReader, document_decoder
from penstock.decoding.registry import FRAME_BYTES, RegisteredSchema, Registry, schema_id
from penstock.errors import ConfigError


def registered_avro_decoder(definition: DecoderDefinition, reader: AvroSchema | None) -> Decoder:
    """Return a decoder of payloads with registered schemas.

    It has the definition's columns, or one for each field of the reader's schema, or one of JSON
    text.
    """
    assert definition.registry is not None  # checked by the definition
    registry = Registry(definition.registry)
    if reader is None and definition.registry.subject:
        reader = _of_subject(definition, registry)
    columns = definition.columns or (reader.columns() if reader is not None else {})
    notation = RegisteredAvro(registry, None if reader is None else reader.parsed)
    if not columns:
        return document_decoder(definition, notation)
    return DocumentDecoder(definition.model_copy(update={"columns": columns}), notation)


def registered_columns(definition: DecoderDefinition, registry: Registry) -> dict[str, Column]:
    """Return a column for each field of the subject's schema; none if it is not a record."""
    return _of_subject(definition, registry).columns()


def _of_subject(definition: DecoderDefinition, registry: Registry) -> AvroSchema:
    assert definition.registry is not None  # checked by the caller
    where = f"schema of {definition.registry.subject}"
    return parsed(registry, registry.of_subject(), where)


class RegisteredAvro(NoQuickReader):
    """Reads payloads of any schema of a registry, and resolves them to ``reader``."""

    def __init__(self, registry: Registry, reader: Any) -> None:
        self._registry = registry
        self._reader = reader
        self._written: dict[int, AvroSchema] = {}

    def read(self, payload: bytes) -> object:
        """Return the datum of a payload."""
        number = schema_id(payload)
        written = self._written.get(number)
        if written is None:
            try:
                written = parsed(
                    self._registry, self._registry.by_id(number), f"schema with the id {number}"
                )
            except ConfigError as mistake:
                raise Broken(str(mistake)) from None
            self._written[number] = written
        stream = io.BytesIO(payload)
        stream.seek(FRAME_BYTES)
        return read_datum(stream, written.parsed, self._reader)


def parsed(registry: Registry, schema: RegisteredSchema, where: str) -> AvroSchema:
    """Parse a registered schema, with the schemas that it refers to.

    Raises:
        ConfigError: it is not an Avro schema.
        RegistryUnavailable: a schema to which it refers is not known.
    """
    if schema.schema_type != "AVRO":
        raise ConfigError(f"The {where} is of the kind {schema.schema_type}, and not of AVRO.")
    named: dict[str, Any] = {}
    for reference in schema.references:
        inner = registry.version(reference)
        named |= parsed(registry, inner, f"schema {reference.name}").named
    return parse_avro_schema(schema.schema, where, named)
