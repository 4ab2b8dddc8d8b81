"""Avro schemas: parses and measures them, and makes columns of the fields of a record.

A schema can let a few bytes stand for more than memory holds: one that contains itself, a list of
items that take no bytes, records of empty records. Such schemas are refused. A schema that came
with a payload may give at most 16 values for each byte, beside 64 for each datum, however the
payload chooses among the branches of unions.

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
from penstock.decoding.avro_decimals import DECIMAL, with_bounded_decimals
from penstock.decoding.broken import Broken
from penstock.decoding.shown import shown
from penstock.errors import ConfigError

VALUES_A_BYTE_MAX: Final = 16
"""Most values for each byte, for a schema that came with a payload."""

_VALUES_A_BYTE_TRUSTED: Final = 10**9
VALUES_FREE_MAX: Final = 64
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
    """A schema as fastavro has it, with the types that it names; ``written`` is its JSON."""

    parsed: Any
    named: dict[str, Any]
    written: Any

    def fingerprint(self) -> bytes:
        """Return the CRC-64-AVRO of its canonical form, in 8 bytes."""
        import fastavro.schema

        canonical = fastavro.schema.to_parsing_canonical_form(self.written)
        return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))

    def columns(self) -> dict[str, Column]:
        """Return a column for each field of a record; none for any other schema."""
        if not isinstance(self.parsed, dict) or self.parsed["type"] != "record":
            return {}
        return {
            field["name"]: Column(type=_column_type(field["type"], self.named))
            for field in self.parsed["fields"]
        }


def parse_avro_schema(
    text: bytes | str, where: str, known: dict[str, Any] | None = None, *, is_trusted: bool = True
) -> AvroSchema:
    """Parse a schema.

    Args:
        text: its JSON.
        where: its name in errors: "schema reading.avsc".
        known: types by name that it may use.
        is_trusted: it is from a file or registry, and not from a payload.

    Raises:
        ConfigError: it is not a schema, or lets a few bytes expand too much.
    """
    import fastavro

    try:
        written = json.loads(text)
        named = dict(known or {})
        fastavro.parse_schema(written, dict(named))  # finds mistakes in decimals
        schema = fastavro.parse_schema(with_bounded_decimals(written), named)
        surplus = _Measure(where, named, is_trusted=is_trusted).surplus(schema, ())
    except RecursionError:
        raise ConfigError(f"The Avro {where} is nested too deeply.") from None
    except ConfigError:
        raise
    except Exception as error:  # fastavro raises several kinds, ValueError among them
        reason = str(error).rstrip(".")
        raise ConfigError(f"The {where} is no Avro schema: {reason}.") from None
    if not is_trusted and surplus > VALUES_FREE_MAX:
        raise ConfigError(f"The Avro {where} has records of nothing, and is not read.")
    return AvroSchema(schema, named, written)


def read_datum(stream: io.BytesIO, written: Any, reader: Any = None) -> object:
    """Read the one datum that is left in a stream.

    Args:
        stream: the rest of the payload.
        written: the schema with which it was written, as fastavro has it.
        reader: the schema to which it is resolved; None for the same.

    Raises:
        Broken: it does not match these schemas.
    """
    import fastavro

    try:
        value: object = fastavro.schemaless_reader(stream, written, reader)
    except EOFError:
        raise Broken("The payload is not Avro of this schema: it ends too early.") from None
    except (Broken, RecursionError):
        raise
    except Exception as error:  # fastavro raises many kinds
        reason = str(error).partition("\n")[0][:100].rstrip(".") or type(error).__name__
        raise Broken(f"The payload is not Avro of this schema: {reason}.") from None
    left = len(stream.read())
    if left:
        raise Broken(f"The payload is not Avro of this schema: {left} bytes follow its value.")
    return value


class _Measure:
    """Measures how many values a datum of a schema may have. Each named type is measured once."""

    def __init__(self, where: str, named: dict[str, Any], *, is_trusted: bool) -> None:
        self._where = where
        self._named = named
        self._is_trusted = is_trusted
        self._a_byte = _VALUES_A_BYTE_TRUSTED if is_trusted else VALUES_A_BYTE_MAX
        self._known: dict[str, int] = {}

    def surplus(self, schema: Any, around: tuple[str, ...]) -> int:
        """Return the most values of a datum beyond those allowed for its bytes.

        Args:
            schema: the schema.
            around: names of the records that contain it.

        Raises:
            ConfigError: there is no bound.
        """
        if isinstance(schema, list):
            return max(self.surplus(one, around) for one in schema) - self._a_byte
        schema = self._named.get(schema, schema) if isinstance(schema, str) else schema
        if isinstance(schema, str):
            return 1 if schema == "null" else 1 - self._a_byte
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._of_record(schema, around)
        if kind == "array":
            self._check_items(schema["items"], self.surplus(schema["items"], around))
        elif kind == "map":  # whose items have keys
            values = self.surplus(schema["values"], around)
            self._check_items(schema["values"], values + 1 - self._a_byte)
        elif kind == "fixed":
            return 1 - self._a_byte * int(schema["size"])
        elif kind == "enum":
            self._check_names(schema["symbols"])
        else:
            return self.surplus(kind, around)
        return 1 - self._a_byte

    def _of_record(self, schema: Any, around: tuple[str, ...]) -> int:
        name = schema["name"]
        if name in around:
            raise ConfigError(
                f"The Avro {self._where} contains itself ({shown(name)}), and is not read."
            )
        if name not in self._known:
            fields = schema["fields"]
            self._check_names([field["name"] for field in fields])
            inner = (*around, name)
            self._known[name] = 1 + sum(self.surplus(field["type"], inner) for field in fields)
        return self._known[name]

    def _check_items(self, items: Any, surplus: int) -> None:
        if surplus > 0:
            raise ConfigError(
                f"The Avro {self._where} has a list of {shown(items)}, which take no bytes, and is"
                " not read."
            )

    def _check_names(self, names: list[str]) -> None:
        if not self._is_trusted and any(len(name) > _NAME_CHARACTERS_MAX for name in names):
            raise ConfigError(
                f"The Avro {self._where} has a name of more than {_NAME_CHARACTERS_MAX}"
                " characters, and is not read."
            )


def _column_type(schema: Any, named: dict[str, Any]) -> str:
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        return _column_type(branches[0], named) if len(branches) == 1 else "json"
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, str):
        return _TYPES.get(schema, "json")
    logical = schema.get("logicalType")
    if logical == DECIMAL and schema["precision"] <= 38:
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    return _LOGICAL.get(logical) or _column_type_of(schema["type"], named)


def _column_type_of(kind: Any, named: dict[str, Any]) -> str:
    return _TYPES.get(kind, "json") if isinstance(kind, str) else _column_type(kind, named)
