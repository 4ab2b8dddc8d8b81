"""Protobuf whose payloads name their schema by its id in a registry (Confluent's wire format).

::

      00 | id, 4 bytes | how many indexes | index in the file, index in that … | the message

Protobuf reads by field numbers, so every version of a message can be read as the one that the
table knows: that of `descriptor`, or of the newest schema of `registry.subject`. The id only
identifies the message of the file that a payload has: another message is broken.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Final

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.broken import Broken
from penstock.decoding.decoded import Decoder
from penstock.decoding.framed import FramedDecoder
from penstock.decoding.protobuf import (
    ProtobufDecoder,
    column_type,
    described_message,
    message_class,
    need_protobuf,
)
from penstock.decoding.registry import (
    FRAME_BYTES,
    RegisteredSchema,
    Registry,
    schema_id,
    serialized_bytes,
)
from penstock.errors import ConfigError

_INDEXES_MAX: Final = 100
_INDEX_BYTES_MAX: Final = 5
_WELL_KNOWN: Final = "google/protobuf/"


def registered_protobuf_decoder(definition: DecoderDefinition) -> Decoder:
    """Return a decoder with the definition's columns, or one for each field of the message."""
    assert definition.registry is not None  # checked by the definition
    need_protobuf()
    registry = Registry(definition.registry)
    message = _message(definition, registry)
    return FramedDecoder(
        ProtobufDecoder(definition, message), MessageOfId(registry, message.DESCRIPTOR.full_name)
    )


def registered_columns(definition: DecoderDefinition, registry: Registry) -> dict[str, Column]:
    """Return a column for each field of the message."""
    fields = _message(definition, registry).DESCRIPTOR.fields
    return {field.name: Column(type=column_type(field)) for field in fields}


def _message(definition: DecoderDefinition, registry: Registry) -> Any:
    """Return the class of the message that the table knows."""
    assert definition.registry is not None  # checked by the caller
    if definition.descriptor:
        return described_message(definition)
    where = f"the schema of {definition.registry.subject}"
    wanted = registry.of_subject(serialized=True)
    files = list(_with_imports(registry, wanted, where, where))
    return message_class(files, definition.message or _name(files[-1], (0,)), where)


class MessageOfId:
    """Checks the frames of payloads: id and indexes must be of the wanted message."""

    def __init__(self, registry: Registry, wanted: str) -> None:
        self._registry = registry
        self._wanted = wanted
        self._names: dict[tuple[int, tuple[int, ...]], str] = {}

    def __call__(self, payload: bytes) -> int:
        """Return the bytes of a payload's frame; raise Broken if it has another message."""
        number = schema_id(payload)
        indexes, length = message_indexes(payload)
        key = number, indexes
        if key not in self._names:
            self._names[key] = self._name(number, indexes)
        if self._names[key] != self._wanted:
            raise Broken(
                f"The payload is a Protobuf message {self._names[key]}, and not {self._wanted}."
            )
        return length

    def _name(self, number: int, indexes: tuple[int, ...]) -> str:
        schema = self._registry.by_id(number, serialized=True)
        where = f"schema with the id {number}"
        try:
            return _name(_file_of(schema, where), indexes)
        except ConfigError as mistake:
            raise Broken(str(mistake)) from None


def message_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes of a payload's message in its file, and where the message begins.

    Raises:
        Broken: the payload has none.
    """
    count, place = _varint(payload, FRAME_BYTES)
    if not 0 <= count <= _INDEXES_MAX:
        raise Broken(f"The payload has {count} indexes of a Protobuf message.")
    if not count:
        return (0,), place  # the short form for the first message
    indexes = []
    for _ in range(count):
        index, place = _varint(payload, place)
        indexes.append(index)
    return tuple(indexes), place


def _varint(payload: bytes, place: int) -> tuple[int, int]:
    """Read a whole number, zigzag, seven bits a byte."""
    value = 0
    for shift in range(_INDEX_BYTES_MAX):
        if place >= len(payload):
            raise Broken("The payload ends before its Protobuf message begins.")
        byte = payload[place]
        place += 1
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), place
    raise Broken("The payload has an index of a Protobuf message of more than 32 bits.")


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
    """Yield the file of a schema, after the files that it imports."""
    file = _file_of(schema, where)
    file.name = name
    references = {reference.name: reference for reference in schema.references}
    for imported in file.dependency:
        reference = references.get(imported)
        if reference is not None:
            inner = registry.version(reference, serialized=True)
            yield from _with_imports(registry, inner, imported, f"schema {imported}")
        else:
            yield from _well_known(imported, where)
    yield file


def _well_known(name: str, where: str) -> Iterator[Any]:
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


def _name(file: Any, indexes: tuple[int, ...]) -> str:
    """Return the full name of the message to which indexes lead."""
    names = [file.package] if file.package else []
    messages = file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ConfigError(f"The Protobuf file of the schema has no message {list(indexes)}.")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)
