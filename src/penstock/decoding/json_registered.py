"""JSON whose payloads name their schema by its id in a registry (Confluent's wire format).

The id must belong to a JSON Schema that the registry knows. The properties of the subject's schema
are the columns if the declaration names none. Documents are not validated against the schema: a
column's type decides which values it takes.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.registry import FRAME_BYTES, RegisteredSchema, Registry, read_schema_id
from penstock.errors import ConfigError

_TYPES: Final = {"string": "string", "integer": "int64", "number": "float64", "boolean": "bool"}
_FORMATS: Final = {"date-time": "timestamp", "date": "date"}


def registered_columns(definition: DecoderDefinition, registry: Registry) -> dict[str, Column]:
    """Return a column for each property of the subject's schema; {} if the schema has none.

    Raises:
        ConfigError: the schema is no JSON.
    """
    assert definition.registry is not None  # checked by the caller
    schema = registry.subject_schema()
    where = f"schema of {definition.registry.subject}"
    _check_kind(schema, where)
    try:
        document = msgspec.json.decode(schema.schema)
    except msgspec.MsgspecError:
        raise ConfigError(f"The {where} is no JSON.") from None
    properties = document.get("properties") if isinstance(document, dict) else None
    if not isinstance(properties, dict):
        return {}
    return {
        name: Column(type=_column_type(property_schema))
        for name, property_schema in properties.items()
    }


class JsonFrameCheck:
    """Checks the frame of a payload: its id must belong to a JSON Schema of the registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._checked_ids: set[int] = set()

    def __call__(self, payload: bytes) -> bytes | None:
        """Return the contents behind a payload's frame; None for an empty payload.

        Raises:
            BrokenPayload: the payload has no frame, or the id of no JSON Schema.
            RegistryUnavailable: the registry does not answer.
        """
        if not payload:
            return None
        schema_id = read_schema_id(payload)
        if schema_id not in self._checked_ids:
            try:
                _check_kind(
                    self._registry.schema_by_id(schema_id), f"schema with the id {schema_id}"
                )
            except ConfigError as mistake:
                raise BrokenPayload(str(mistake)) from None
            self._checked_ids.add(schema_id)
        return payload[FRAME_BYTES:]


def _check_kind(schema: RegisteredSchema, where: str) -> None:
    if schema.schema_type != "JSON":
        raise ConfigError(f"The {where} is of the kind {schema.schema_type}, and not of JSON.")


def _column_type(property_schema: Any) -> str:
    """Return the column type of a property; json if its schema allows several types."""
    if not isinstance(property_schema, dict):
        return "json"
    choices = property_schema.get("oneOf") or property_schema.get("anyOf")
    if isinstance(choices, list):
        non_null = [choice for choice in choices if choice != {"type": "null"}]
        return _column_type(non_null[0]) if len(non_null) == 1 else "json"
    kinds = property_schema.get("type")
    if isinstance(kinds, list):
        kinds = [kind for kind in kinds if kind != "null"]
        kinds = kinds[0] if len(kinds) == 1 else None
    if kinds == "string":
        return _FORMATS.get(str(property_schema.get("format")), "string")
    return _TYPES.get(str(kinds), "json")
