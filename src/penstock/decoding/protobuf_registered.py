"""Protobuf whose payloads name their schema by its id in a registry (Confluent's wire format).

::

      00 | id, 4 bytes | count of indexes | index in the file, index in that message … | the message

Protobuf reads by field numbers, so every version of a message can be read with the table's schema:
that of `descriptor`, or the newest of `registry.subject`. Id and indexes only tell the name of a
payload's message: a payload with a message of another name is broken.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Final

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.decoder import Decoder
from penstock.decoding.framed import FramedDecoder
from penstock.decoding.protobuf import (
    ProtobufDecoder,
    column_type,
    load_message_class,
    message_class,
    require_protobuf,
)
from penstock.decoding.registry import (
    FRAME_BYTES,
    RegisteredSchema,
    Registry,
    read_schema_id,
    serialized_bytes,
)
from penstock.errors import ConfigError

_INDEXES_MAX: Final = 100
_INDEX_BYTES_MAX: Final = 5
_WELL_KNOWN: Final = "google/protobuf/"


def registered_protobuf_decoder(definition: DecoderDefinition) -> Decoder:
    """Return a decoder with the definition's columns, or one for each field of the message."""
    assert definition.registry is not None  # checked by the definition
    require_protobuf()
    registry = Registry(definition.registry)
    message = _table_message_class(definition, registry)
    return FramedDecoder(
        ProtobufDecoder(definition, message),
        ProtobufFrameCheck(registry, message.DESCRIPTOR.full_name),
    )


def registered_columns(definition: DecoderDefinition, registry: Registry) -> dict[str, Column]:
    """Return a column for each field of the message."""
    fields = _table_message_class(definition, registry).DESCRIPTOR.fields
    return {field.name: Column(type=column_type(field)) for field in fields}


def _table_message_class(definition: DecoderDefinition, registry: Registry) -> Any:
    """Return the class of the message by which the table reads payloads."""
    assert definition.registry is not None  # checked by the caller
    if definition.descriptor:
        return load_message_class(definition)
    where = f"the schema of {definition.registry.subject}"
    schema = registry.subject_schema(serialized=True)
    files = list(_with_imports(registry, schema, where, where))
    return message_class(files, definition.message or _full_name(files[-1], (0,)), where)


class ProtobufFrameCheck:
    """Checks the frame of a payload: id and indexes must lead to ``message_name``."""

    def __init__(self, registry: Registry, message_name: str) -> None:
        self._registry = registry
        self._message_name = message_name
        self._names_by_indexes: dict[tuple[int, tuple[int, ...]], str] = {}

    def __call__(self, payload: bytes) -> bytes | None:
        """Return the contents behind a payload's frame; None for an empty payload.

        Raises:
            BrokenPayload: the payload has no frame, or another message.
            RegistryUnavailable: the registry does not answer.
        """
        if not payload:
            return None
        schema_id = read_schema_id(payload)
        indexes, length = message_indexes(payload)
        key = schema_id, indexes
        if key not in self._names_by_indexes:
            self._names_by_indexes[key] = self._resolve(schema_id, indexes)
        if self._names_by_indexes[key] != self._message_name:
            raise BrokenPayload(
                f"The payload is a Protobuf message {self._names_by_indexes[key]}, and not"
                f" {self._message_name}."
            )
        return payload[length:]

    def _resolve(self, schema_id: int, indexes: tuple[int, ...]) -> str:
        schema = self._registry.schema_by_id(schema_id, serialized=True)
        where = f"schema with the id {schema_id}"
        try:
            return _full_name(_file_of(schema, where), indexes)
        except ConfigError as mistake:
            raise BrokenPayload(str(mistake)) from None


def message_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes in a payload's frame, and the position of the message behind them.

    Raises:
        BrokenPayload: the payload has no indexes, or wrong ones.
    """
    count, position = _varint(payload, FRAME_BYTES)
    if not 0 <= count <= _INDEXES_MAX:
        raise BrokenPayload(f"The payload has {count} indexes of a Protobuf message.")
    if not count:
        return (0,), position  # the short form for the first message
    indexes = []
    for _ in range(count):
        index, position = _varint(payload, position)
        indexes.append(index)
    return tuple(indexes), position


def _varint(payload: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint, seven bits in each byte; return it and the position behind it."""
    value = 0
    for shift in range(_INDEX_BYTES_MAX):
        if position >= len(payload):
            raise BrokenPayload("The payload ends before its Protobuf message begins.")
        byte = payload[position]
        position += 1
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise BrokenPayload("The payload has an index of a Protobuf message of more than 32 bits.")


def _file_of(schema: RegisteredSchema, where: str) -> Any:
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    if schema.schema_type != "PROTOBUF":
        raise ConfigError(f"The {where} is of the kind {schema.schema_type}, and not of PROTOBUF.")
    content = serialized_bytes(schema)
    try:
        if content is not None:
            return descriptor_pb2.FileDescriptorProto.FromString(content)
    except DecodeError:
        pass
    raise ConfigError(
        f"The registry gives the {where} as source, and not as a descriptor (format=serialized)."
    )


def _with_imports(
    registry: Registry, schema: RegisteredSchema, name: str, where: str
) -> Iterator[Any]:
    """Yield the descriptor of a schema's file, after those of the files that it imports."""
    file = _file_of(schema, where)
    file.name = name
    references = {reference.name: reference for reference in schema.references}
    for imported in file.dependency:
        reference = references.get(imported)
        if reference is not None:
            inner = registry.referenced_schema(reference, serialized=True)
            yield from _with_imports(registry, inner, imported, f"schema {imported}")
        else:
            yield from _well_known(imported, where)
    yield file


def _well_known(name: str, where: str) -> Iterator[Any]:
    """Yield the descriptor of a file of Google's, such as timestamp.proto, after its imports."""
    from google.protobuf import descriptor_pb2

    if name.startswith(_WELL_KNOWN):
        try:
            module = importlib.import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
        except ImportError:
            pass
        else:
            file = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(file)
            for inner in file.dependency:
                yield from _well_known(inner, where)
            yield file
            return
    raise ConfigError(f"The {where} imports {name}, which the registry does not have.")


def _full_name(file: Any, indexes: tuple[int, ...]) -> str:
    """Return the full name of the message to which indexes lead in a file."""
    names = [file.package] if file.package else []
    messages = file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ConfigError(f"The Protobuf file of the schema has no message {list(indexes)}.")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)
