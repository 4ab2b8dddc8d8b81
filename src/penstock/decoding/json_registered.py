"""JSON whose payloads name their schema by its id in a registry (Confluent's wire format).

The id must be known and of a JSON Schema, whose properties are the columns where the declaration
names none. Documents are not validated: a column's type decides which values it takes.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.broken import Broken
from penstock.decoding.registry import FRAME_BYTES, RegisteredSchema, Registry, schema_id
from penstock.errors import ConfigError

_TYPES: Final = {"string": "string", "integer": "int64", "number": "float64", "boolean": "bool"}
_FORMATS: Final = {"date-time": "timestamp", "date": "date"}


def registered_columns(definition: DecoderDefinition, registry: Registry) -> dict[str, Column]:
    """Return a column for each property of the subject's schema; none if it has none."""
    assert definition.registry is not None  # checked by the caller
    schema = registry.of_subject()
    where = f"schema of {definition.registry.subject}"
    _check_kind(schema, where)
    try:
        written = msgspec.json.decode(schema.schema)
    except msgspec.MsgspecError:
        raise ConfigError(f"The {where} is no JSON.") from None
    properties = written.get("properties") if isinstance(written, dict) else None
    if not isinstance(properties, dict):
        return {}
    return {name: Column(type=_type(wanted)) for name, wanted in properties.items()}


class KnownJsonSchema:
    """Checks the frames of payloads: their ids must be known."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: set[int] = set()

    def __call__(self, payload: bytes) -> int:
        """Return the bytes of a payload's frame; raise Broken if its id is not a JSON Schema's."""
        number = schema_id(payload)
        if number not in self._known:
            try:
                _check_kind(self._registry.by_id(number), f"schema with the id {number}")
            except ConfigError as mistake:
                raise Broken(str(mistake)) from None
            self._known.add(number)
        return FRAME_BYTES


def _check_kind(schema: RegisteredSchema, where: str) -> None:
    if schema.schema_type != "JSON":
        raise ConfigError(f"The {where} is of the kind {schema.schema_type}, and not of JSON.")


def _type(wanted: Any) -> str:
    """Return the column type of a property; json if it may have several types."""
    if not isinstance(wanted, dict):
        return "json"
    choices = wanted.get("oneOf") or wanted.get("anyOf")
    if isinstance(choices, list):
        others = [one for one in choices if one != {"type": "null"}]
        return _type(others[0]) if len(others) == 1 else "json"
    kinds = wanted.get("type")
    if isinstance(kinds, list):
        kinds = [kind for kind in kinds if kind != "null"]
        kinds = kinds[0] if len(kinds) == 1 else None
    if kinds == "string":
        return _FORMATS.get(str(wanted.get("format")), "string")
    return _TYPES.get(str(kinds), "json")
