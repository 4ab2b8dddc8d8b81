"""`protobuf`: Protocol Buffers, by the descriptors that protoc writes.

Protobuf has no magic number: a payload of another message may well be read as this one, with
fields missing. `required = true` on a column that is always set finds most of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from datetime import UTC
from typing import Any, Final

import pyarrow as pa

from penstock.config.column_type import Scalar, innermost, parse_type
from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.casts import Cast
from penstock.decoding.convert import nonfinite_name, to_json
from penstock.decoding.decoder import DecodedBatch, Decoder, Messages
from penstock.decoding.files import read_file
from penstock.decoding.paths import Path
from penstock.decoding.rows import Rows, decode_in_portions
from penstock.decoding.scalars import NullMarkers
from penstock.errors import ConfigError

_TYPES: Final = {
    "double": "float64",
    "float": "float32",
    "int32": "int32",
    "sint32": "int32",
    "sfixed32": "int32",
    "uint32": "int64",
    "fixed32": "int64",
    "int64": "int64",
    "sint64": "int64",
    "sfixed64": "int64",
    "uint64": "decimal(20,0)",
    "fixed64": "decimal(20,0)",
    "bool": "bool",
    "string": "string",
    "bytes": "binary",
    "enum": "string",
}
_FLOATS: Final = ("float", "double")
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

Read = Callable[[Any], Any]


def protobuf_decoder(definition: DecoderDefinition) -> Decoder:
    """Return a decoder with the definition's columns, or one for each field of the message."""
    require_protobuf()
    return ProtobufDecoder(definition, load_message_class(definition))


def require_protobuf() -> None:
    """Raise ConfigError if the package protobuf is not installed."""
    try:
        import google.protobuf  # noqa: F401 - only whether it is there
    except ImportError:
        raise ConfigError(
            "The decoder protobuf needs the package protobuf, which is not installed:"
            " pip install 'penstock[spark]'."
        ) from None


def load_message_class(definition: DecoderDefinition) -> Any:
    """Return the class of the definition's message, made from its descriptor file.

    Raises:
        ConfigError: the file cannot be read, is no descriptor set, or has no such message.
    """
    from google.protobuf import descriptor_pb2

    file = definition.descriptor
    content = read_file(file, "descriptor set")
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(content).file
    except Exception as error:  # protobuf raises several kinds
        raise ConfigError(_descriptor_error(file, error)) from None
    return message_class(files, definition.message, file)


def message_class(files: Iterable[Any], name: str, where: str) -> Any:
    """Return the class of a message.

    Args:
        files: FileDescriptorProtos, each after the files that it imports.
        name: the full name of the message.
        where: the origin of the files, for errors.

    Raises:
        ConfigError: the files do not fit together, or have no such message.
    """
    from google.protobuf import descriptor_pool, message_factory

    pool: Any = descriptor_pool.DescriptorPool()
    try:
        for proto in files:
            pool.Add(proto)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        raise ConfigError(f"There is no message {name} in {where}.") from None
    except Exception as error:  # protobuf raises several kinds
        raise ConfigError(_descriptor_error(where, error)) from None


def _descriptor_error(where: str, error: Exception) -> str:
    reason = str(error).partition("\n")[0].rstrip(".")
    return f"{where} is no descriptor set as protoc writes it: {reason}."


class ProtobufDecoder:
    """Decodes payloads that are messages of one class.

    Args:
        definition: the definition of the decoder.
        message: the class of the messages.

    Raises:
        ConfigError: a column's path or rows_path leads to no field.
    """

    def __init__(self, definition: DecoderDefinition, message: Any) -> None:
        from google.protobuf.message import DecodeError

        self._definition = definition
        self._error = DecodeError
        self._message = message
        root = message.DESCRIPTOR
        self._read_rows: Read | None = None
        row = root
        if definition.rows_path:
            self._read_rows, row = _rows_reader(root, Path.parse(definition.rows_path).keys)
        columns = definition.columns or {
            field.name: Column(type=column_type(field)) for field in root.fields
        }
        null_markers = NullMarkers(frozenset(definition.null_values))
        self._casts = [Cast(name, column, null_markers) for name, column in columns.items()]
        self._width = sum(cast.width for cast in self._casts)
        self._readers: list[tuple[bool, Read]] = []
        for name, column in columns.items():
            path = Path.parse(column.path or f"/{name}")
            reads_root = path.from_root or self._read_rows is None
            as_json = innermost(parse_type(column.type)) == Scalar("json")
            self._readers.append(
                (reads_root, field_reader(root if reads_root else row, path.keys, as_json))
            )
        self.schema = pa.schema([cast.field for cast in self._casts])

    def decode(self, messages: Messages) -> DecodedBatch:
        """Decode a batch; each message is a row, or has its rows at rows_path."""
        return decode_in_portions(
            self.schema, messages.payloads, self._decode_portion, self._definition.values_max
        )

    def _decode_portion(self, payloads: list[bytes], rows: Rows) -> None:
        messages: list[Any] = []  # the messages that have rows
        items: list[Any] = []
        for source, payload in enumerate(payloads):
            try:
                message = self._message.FromString(payload)
            except self._error:
                name = self._message.DESCRIPTOR.full_name
                rows.mark_broken(source, f"The payload is not a Protobuf message {name}.")
                continue
            if not message.IsInitialized():
                missing = ", ".join(message.FindInitializationErrors()[:3])
                rows.mark_broken(source, f"The Protobuf message lacks {missing}.")
                continue
            found = [message] if self._read_rows is None else self._read_rows(message)
            if len(found) > self._definition.rows_max:
                rows.mark_broken(source, f"The payload has more rows than rows_max ({len(found)}).")
                continue
            if len(found) > 1:
                try:
                    rows.check_message(len(found) * self._width)
                except BrokenPayload as broken:
                    rows.mark_broken(source, str(broken))
                    continue
                rows.check_rows((len(items) + len(found)) * self._width)
            items += found
            if found:
                messages.append(message)
            rows.sources += [source] * len(found)
        for cast, (reads_root, read) in zip(self._casts, self._readers, strict=True):
            if reads_root and self._read_rows is not None:
                array, reasons = cast(list(map(read, messages)), rows.check_lists)
                rows.add_repeated(cast.name, array, reasons, payloads)
            else:
                rows.add(*cast(list(map(read, items)), rows.check_lists))


def column_type(field: Any) -> str:
    """Return the type of the column that a field becomes by default."""
    if field.is_repeated:
        return "json"
    if field.message_type is None:
        return _TYPES[_name_of_type(field)]
    if field.message_type.full_name == _TIMESTAMP:
        return "timestamp"
    if field.message_type.full_name in _WRAPPERS:
        return column_type(field.message_type.fields_by_name["value"])
    return "json"


def field_reader(message: Any, keys: tuple[str, ...], as_json: bool = True) -> Read:
    """Return a function from a message to the value of a field in it, or None if that is unset.

    Args:
        message: the descriptor of the message.
        keys: the names of the fields that lead to the value.
        as_json: return values as Protobuf's own JSON mapping has them.

    Raises:
        ConfigError: there is no such field.
    """
    fields = _resolve_path(message, keys)
    last = fields[-1]
    value_of = _value_reader(last, as_json)
    steps = [(field.name, field.has_presence and not field.is_repeated) for field in fields]
    if len(steps) == 1:
        name, may_be_unset = steps[0]
        if not may_be_unset:
            return lambda found: value_of(getattr(found, name))
        return lambda found: value_of(getattr(found, name)) if found.HasField(name) else None

    def read(found: Any) -> Any:
        for name, may_be_unset in steps:
            if may_be_unset and not found.HasField(name):
                return None
            found = getattr(found, name)
        return value_of(found)

    return read


def message_to_json(message: Any) -> Any:
    """Return a message as dicts, lists and single values, by Protobuf's own JSON mapping."""
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(message, preserving_proto_field_name=True)


def _message_to_dict(message: Any) -> dict[str, Any]:
    """Return a message as a dict of its set fields, each with the value of a column of the
    field."""
    found = {}
    for name, may_be_unset, read in _field_readers(message.DESCRIPTOR):
        if not may_be_unset or message.HasField(name):
            found[name] = read(getattr(message, name))
    return found


@functools.lru_cache(maxsize=1000)
def _field_readers(message: Any) -> list[tuple[str, bool, Read]]:
    """Return, for each field of a message: its name, whether it may be unset, and its reader."""
    return [
        (
            field.name,
            field.has_presence and not field.is_repeated,
            _value_reader(field, as_json=False),
        )
        for field in message.fields
    ]


def _resolve_path(message: Any, keys: tuple[str, ...]) -> list[Any]:
    """Return the descriptors of the fields along a path; raise ConfigError if one is missing."""
    fields = []
    for key in keys:
        field = message.fields_by_name.get(key) if message is not None else None
        if field is None:
            where = message.full_name if message is not None else "a value"
            raise ConfigError(f"There is no field {key!r} in {where}.")
        fields.append(field)
        message = None if field.is_repeated else field.message_type
    if not fields:
        raise ConfigError("A path into a Protobuf message names a field.")
    return fields


def _rows_reader(message: Any, keys: tuple[str, ...]) -> tuple[Read, Any]:
    """Return a function from a message to its rows at ``keys``, and the descriptor of a row."""
    fields = _resolve_path(message, keys)
    if not fields[-1].is_repeated or fields[-1].message_type is None:
        raise ConfigError(f"rows_path leads to {fields[-1].name!r}, which is no list of messages.")
    names = [field.name for field in fields]

    def read(found: Any) -> Any:
        for name in names:
            found = getattr(found, name)
        return found

    return read, fields[-1].message_type


def _value_reader(field: Any, as_json: bool) -> Read:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return _map_reader(kind, as_json)
    if field.is_repeated:
        one = _single_reader(field, as_json)
        return lambda values: [one(value) for value in values]
    return _single_reader(field, as_json)


def _single_reader(field: Any, as_json: bool) -> Read:
    kind = field.message_type
    if kind is None:
        if field.enum_type is None:
            return _float_to_json if as_json and _name_of_type(field) in _FLOATS else _identity
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        return lambda value: names.get(value, str(value))
    if kind.full_name == _TIMESTAMP:
        return _timestamp_value
    if kind.full_name in _WRAPPERS:
        of_value = _single_reader(kind.fields_by_name["value"], as_json)
        return lambda value: of_value(value.value)
    return message_to_json if as_json else _message_to_dict


def _identity(value: Any) -> Any:
    return value


def _float_to_json(number: float) -> float | str:
    """Return a float as Protobuf's JSON mapping has it: NaN and infinities as text."""
    return number if math.isfinite(number) else nonfinite_name(number)


def _timestamp_value(value: Any) -> object:
    try:
        return value.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        return f"{value.seconds} s"  # no timestamp: the column reports that it does not fit


def _map_reader(entry: Any, as_json: bool) -> Read:
    """Return a reader of a map to a dict; keys become text, whose hashes cannot be predicted."""
    one = _single_reader(entry.fields_by_name["value"], as_json)
    return lambda values: {_key_text(key): one(value) for key, value in values.items()}


def _key_text(key: Any) -> str:
    return key if isinstance(key, str) else to_json(key)


def _name_of_type(field: Any) -> str:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
