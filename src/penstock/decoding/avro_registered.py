"""Avro whose payloads name their schema by its id in a registry (Confluent's wire format).

Each payload is read with the schema with which it was written (Avro's *writer's schema*), and
resolved to the table's (the *reader's schema*): `schema_file`, or the newest of `registry.subject`.
So producers may change to another schema while messages of the old one are still in the log.
"""

from __future__ import annotations

import io
from typing import Any

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.avro_schema import AvroSchema, parse_avro_schema, read_datum
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.decoder import Decoder
from penstock.decoding.documents import DocumentDecoder, NoQuickReader, document_decoder
from penstock.decoding.registry import FRAME_BYTES, RegisteredSchema, Registry, read_schema_id
from penstock.errors import ConfigError


def registered_avro_decoder(
    definition: DecoderDefinition, reader_schema: AvroSchema | None
) -> Decoder:
    """Return a decoder of payloads with registered schemas.

    The decoder has the definition's columns; without any, a column for each field of the reader's
    schema; without such a schema, one column of JSON text.
    """
    assert definition.registry is not None  # checked by the definition
    registry = Registry(definition.registry)
    if reader_schema is None and definition.registry.subject:
        reader_schema = _subject_schema(definition, registry)
    columns = definition.columns or (reader_schema.columns() if reader_schema is not None else {})
    notation = RegisteredAvro(
        registry, None if reader_schema is None else reader_schema.fastavro_schema
    )
    if not columns:
        return document_decoder(definition, notation)
    return DocumentDecoder(definition.model_copy(update={"columns": columns}), notation)


def registered_columns(definition: DecoderDefinition, registry: Registry) -> dict[str, Column]:
    """Return a column for each field of the subject's schema; {} if the schema is no record."""
    return _subject_schema(definition, registry).columns()


def _subject_schema(definition: DecoderDefinition, registry: Registry) -> AvroSchema:
    assert definition.registry is not None  # checked by the caller
    where = f"schema of {definition.registry.subject}"
    return parse_registered_schema(registry, registry.subject_schema(), where)


class RegisteredAvro(NoQuickReader):
    """Reads payloads of any schema of a registry.

    Args:
        registry: the registry.
        reader_schema: the schema to which data are resolved, parsed by fastavro; None to read
            them with the writer's schema alone.
    """

    def __init__(self, registry: Registry, reader_schema: Any) -> None:
        self._registry = registry
        self._reader_schema = reader_schema
        self._writer_schemas: dict[int, AvroSchema] = {}

    def read(self, payload: bytes) -> object:
        """Return the datum of a payload.

        Raises:
            BrokenPayload: the payload names no schema of the registry, or does not fit it.
        """
        schema_id = read_schema_id(payload)
        writer_schema = self._writer_schemas.get(schema_id)
        if writer_schema is None:
            try:
                writer_schema = parse_registered_schema(
                    self._registry,
                    self._registry.schema_by_id(schema_id),
                    f"schema with the id {schema_id}",
                )
            except ConfigError as mistake:
                raise BrokenPayload(str(mistake)) from None
            self._writer_schemas[schema_id] = writer_schema
        stream = io.BytesIO(payload)
        stream.seek(FRAME_BYTES)
        return read_datum(stream, writer_schema.fastavro_schema, self._reader_schema)


def parse_registered_schema(registry: Registry, schema: RegisteredSchema, where: str) -> AvroSchema:
    """Parse a registered schema, with the schemas that it references.

    Args:
        registry: the registry that has the referenced schemas.
        schema: the schema.
        where: the name of the schema in errors, such as "schema with the id 7".

    Raises:
        ConfigError: the schema is not an Avro schema, or the registry lacks a referenced one.
        RegistryUnavailable: the registry does not answer.
    """
    if schema.schema_type != "AVRO":
        raise ConfigError(f"The {where} is of the kind {schema.schema_type}, and not of AVRO.")
    known_types: dict[str, Any] = {}
    for reference in schema.references:
        inner = registry.referenced_schema(reference)
        known_types |= parse_registered_schema(
            registry, inner, f"schema {reference.name}"
        ).named_types
    return parse_avro_schema(schema.schema, where, known_types)
