"""Pins the registry's schemas in a decoder's definition, for the time of a job."""

from __future__ import annotations

from pydantic import ValidationError

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.avro_registered import registered_columns as avro_columns
from penstock.decoding.json_registered import registered_columns as json_columns
from penstock.decoding.protobuf_registered import registered_columns as protobuf_columns
from penstock.decoding.registry import Registry
from penstock.errors import ConfigError


def pinned(definition: DecoderDefinition) -> DecoderDefinition:
    """Return the definition with the newest version of its subject, and its columns.

    So every process makes the same decoder of it, whatever is registered later.

    Raises:
        ConfigError: the registry has no such subject.
        RegistryUnavailable: it does not answer.
    """
    wanted = definition.registry
    if wanted is None or not wanted.subject:
        return definition
    registry = Registry(wanted)
    if not wanted.version:
        newest = registry.newest(wanted.subject, serialized=definition.kind == "protobuf")
        wanted = wanted.model_copy(update={"version": newest.version})
        registry = Registry(wanted)
    definition = definition.model_copy(update={"registry": wanted})
    columns = definition.columns or _columns(definition, registry)
    return with_columns(definition, columns)


def with_columns(definition: DecoderDefinition, columns: dict[str, Column]) -> DecoderDefinition:
    """Return the definition with columns whose names come from a schema.

    Raises:
        ConfigError: a table cannot have such columns.
    """
    given = {name: getattr(definition, name) for name in definition.model_fields_set}
    try:
        return DecoderDefinition.model_validate({**given, "columns": columns})
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(
            f"The columns of a schema cannot be those of a table: {reason}."
        ) from None


def _columns(definition: DecoderDefinition, registry: Registry) -> dict[str, Column]:
    if definition.schema_file or definition.descriptor:  # they define the columns
        return {}
    match definition.kind:
        case "avro":
            return avro_columns(definition, registry)
        case "protobuf":
            return protobuf_columns(definition, registry)
        case _:
            return json_columns(definition, registry)
