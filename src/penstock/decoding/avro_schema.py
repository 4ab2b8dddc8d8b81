"""Avro schemas: parses and measures them, and makes columns of the fields of a record.

A schema can let a few bytes stand for more than memory holds: one that contains itself, a list of
items that take no bytes, records of empty records. Such schemas are refused. Data of a schema that
came with a payload may have at most 16 values for each byte, and 64 more for each datum, whichever
branches of unions the payload uses.

::

      surplus of a schema = the most values that a datum has beyond 16 for each of its bytes
      null            1                      record      1 + the sum of its fields'
      fixed of n      1 - 16 n               union       the largest of its branches' - 16
      long, string …  1 - 16                 list, map   1 - 16; an item's must not be above 0
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any, Final

from penstock.config.decoder import Column
from penstock.decoding.abbreviation import abbreviate
from penstock.decoding.avro_decimals import DECIMAL, with_bounded_decimals
from penstock.decoding.broken_payload import BrokenPayload
from penstock.errors import ConfigError

VALUES_A_BYTE_MAX: Final = 16
"""Values that a datum may have for each of its bytes, if its schema came with the payload."""

VALUES_FREE_MAX: Final = 64
"""Values that a datum may have beyond `VALUES_A_BYTE_MAX` for each of its bytes, if its schema came
with the payload; a schema that allows more is refused."""

_VALUES_A_BYTE_TRUSTED: Final = 10**9
_NAME_CHARACTERS_MAX: Final = 100
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


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """An Avro schema.

    Attributes:
        fastavro_schema: the schema as fastavro parsed it, with bounded decimals.
        named_types: the named types that it defines or uses, by full name.
        source: the decoded JSON of the schema, unchanged.
    """

    fastavro_schema: Any
    named_types: dict[str, Any]
    source: Any

    def fingerprint(self) -> bytes:
        """Return the CRC-64-AVRO of the schema's canonical form, in 8 bytes."""
        import fastavro.schema

        canonical = fastavro.schema.to_parsing_canonical_form(self.source)
        return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))

    def columns(self) -> dict[str, Column]:
        """Return a column for each field of a record; {} for any other schema."""
        if not isinstance(self.fastavro_schema, dict) or self.fastavro_schema["type"] != "record":
            return {}
        return {
            field["name"]: Column(type=_column_type(field["type"], self.named_types))
            for field in self.fastavro_schema["fields"]
        }


def parse_avro_schema(
    text: bytes | str,
    where: str,
    known_types: dict[str, Any] | None = None,
    *,
    is_trusted: bool = True,
) -> AvroSchema:
    """Parse a schema.

    Args:
        text: the JSON of the schema.
        where: the name of the schema in errors: "schema reading.avsc".
        known_types: types by full name that the schema may use without defining them.
        is_trusted: the schema is from a file or registry, and not from a payload.

    Raises:
        ConfigError: the text is not an Avro schema, or the schema lets a few bytes stand for too
            many values.
    """
    import fastavro

    try:
        source = json.loads(text)
        named_types = dict(known_types or {})
        fastavro.parse_schema(source, dict(named_types))  # finds mistakes in decimals
        schema = fastavro.parse_schema(with_bounded_decimals(source), named_types)
        surplus = _SurplusMeasure(where, named_types, is_trusted=is_trusted).surplus(schema, ())
    except RecursionError:
        raise ConfigError(f"The Avro {where} is nested too deeply.") from None
    except ConfigError:
        raise
    except Exception as error:  # fastavro raises several kinds, ValueError among them
        reason = str(error).rstrip(".")
        raise ConfigError(f"The {where} is no Avro schema: {reason}.") from None
    if not is_trusted and surplus > VALUES_FREE_MAX:
        raise ConfigError(f"The Avro {where} has records of nothing, and is not read.")
    return AvroSchema(schema, named_types, source)


def read_datum(stream: io.BytesIO, writer_schema: Any, reader_schema: Any = None) -> object:
    """Read the one datum from the position of a stream to its end.

    Args:
        stream: the payload.
        writer_schema: the schema with which the datum was written, parsed by fastavro.
        reader_schema: the schema to which the datum is resolved; None for the same.

    Raises:
        BrokenPayload: the bytes do not match these schemas.
    """
    import fastavro

    try:
        value: object = fastavro.schemaless_reader(stream, writer_schema, reader_schema)
    except EOFError:
        raise BrokenPayload("The payload is not Avro of this schema: it ends too early.") from None
    except (BrokenPayload, RecursionError):
        raise
    except Exception as error:  # fastavro raises many kinds
        reason = str(error).partition("\n")[0][:100].rstrip(".") or type(error).__name__
        raise BrokenPayload(f"The payload is not Avro of this schema: {reason}.") from None
    trailing_bytes = len(stream.read())
    if trailing_bytes:
        raise BrokenPayload(
            f"The payload is not Avro of this schema: {trailing_bytes} bytes follow its value."
        )
    return value


class _SurplusMeasure:
    """Computes how many values a datum of a schema may have, once for each named type."""

    def __init__(self, where: str, named_types: dict[str, Any], *, is_trusted: bool) -> None:
        self._where = where
        self._named_types = named_types
        self._is_trusted = is_trusted
        self._values_a_byte_max = _VALUES_A_BYTE_TRUSTED if is_trusted else VALUES_A_BYTE_MAX
        self._record_surpluses: dict[str, int] = {}

    def surplus(self, schema: Any, enclosing_records: tuple[str, ...]) -> int:
        """Return the most values that a datum has beyond those allowed for its bytes.

        Args:
            schema: the schema of the datum, or a part of one.
            enclosing_records: names of the records that contain this part.

        Raises:
            ConfigError: there is no bound.
        """
        if isinstance(schema, list):
            return (
                max(self.surplus(branch, enclosing_records) for branch in schema)
                - self._values_a_byte_max
            )
        schema = self._named_types.get(schema, schema) if isinstance(schema, str) else schema
        if isinstance(schema, str):
            return 1 if schema == "null" else 1 - self._values_a_byte_max
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record_surplus(schema, enclosing_records)
        if kind == "array":
            self._check_items(schema["items"], self.surplus(schema["items"], enclosing_records))
        elif kind == "map":  # each item has a key, which takes a byte
            values = self.surplus(schema["values"], enclosing_records)
            self._check_items(schema["values"], values + 1 - self._values_a_byte_max)
        elif kind == "fixed":
            return 1 - self._values_a_byte_max * int(schema["size"])
        elif kind == "enum":
            self._check_names(schema["symbols"])
        else:
            return self.surplus(kind, enclosing_records)
        return 1 - self._values_a_byte_max

    def _record_surplus(self, schema: Any, enclosing_records: tuple[str, ...]) -> int:
        name = schema["name"]
        if name in enclosing_records:
            raise ConfigError(
                f"The Avro {self._where} contains itself ({abbreviate(name)}), and is not read."
            )
        if name not in self._record_surpluses:
            fields = schema["fields"]
            self._check_names([field["name"] for field in fields])
            inner = (*enclosing_records, name)
            self._record_surpluses[name] = 1 + sum(
                self.surplus(field["type"], inner) for field in fields
            )
        return self._record_surpluses[name]

    def _check_items(self, items: Any, surplus: int) -> None:
        if surplus > 0:
            raise ConfigError(
                f"The Avro {self._where} has a list of {abbreviate(items)}, which take no bytes,"
                " and is not read."
            )

    def _check_names(self, names: list[str]) -> None:
        if not self._is_trusted and any(len(name) > _NAME_CHARACTERS_MAX for name in names):
            raise ConfigError(
                f"The Avro {self._where} has a name of more than {_NAME_CHARACTERS_MAX}"
                " characters, and is not read."
            )


def _column_type(schema: Any, named_types: dict[str, Any]) -> str:
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        return _column_type(branches[0], named_types) if len(branches) == 1 else "json"
    schema = named_types.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, str):
        return _TYPES.get(schema, "json")
    logical = schema.get("logicalType")
    if logical == DECIMAL and schema["precision"] <= 38:
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    return _LOGICAL.get(logical) or _base_column_type(schema["type"], named_types)


def _base_column_type(kind: Any, named_types: dict[str, Any]) -> str:
    return _TYPES.get(kind, "json") if isinstance(kind, str) else _column_type(kind, named_types)
