"""Pins the version of a registry's schema in a decoder's definition, for the time of a job."""

from __future__ import annotations

from pydantic import ValidationError

from penstock.config.decoder import Column, DecoderDefinition
from penstock.decoding.avro_registered import registered_columns as avro_columns
from penstock.decoding.json_registered import registered_columns as json_columns
from penstock.decoding.protobuf_registered import registered_columns as protobuf_columns
from penstock.decoding.registry import Registry
from penstock.errors import ConfigError


def pin_schema(definition: DecoderDefinition) -> DecoderDefinition:
    """Return the definition with a version of its registry's subject, and with its columns.

    The version is the newest if the definition names none. A definition without a subject is
    returned unchanged. Every process makes the same decoder of a pinned definition, whatever is
    registered later.

    Raises:
        ConfigError: the registry has no such subject, or a table cannot have its columns.
        RegistryUnavailable: the registry does not answer, and no schema is cached.
    """
    registry_settings = definition.registry
    if registry_settings is None or not registry_settings.subject:
        return definition
    registry = Registry(registry_settings)
    if not registry_settings.version:
        newest = registry.newest_schema(
            registry_settings.subject, serialized=definition.kind == "protobuf"
        )
        registry_settings = registry_settings.model_copy(update={"version": newest.version})
        registry = Registry(registry_settings)
    definition = definition.model_copy(update={"registry": registry_settings})
    columns = definition.columns or _columns(definition, registry)
    return with_columns(definition, columns)


def with_columns(definition: DecoderDefinition, columns: dict[str, Column]) -> DecoderDefinition:
    """Return the definition with these columns, whose names come from a schema.

    Raises:
        ConfigError: a table cannot have such columns.
    """
    settings = {name: getattr(definition, name) for name in definition.model_fields_set}
    try:
        return DecoderDefinition.model_validate({**settings, "columns": columns})
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
