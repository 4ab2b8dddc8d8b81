"""The definitions in a Sparkplug birth certificate: name and data type of metrics and their parts.

Data messages may leave out both: the type always (tck-id-payloads-metric-datatype-not-req), the
name where the birth gave the metric an alias. The parts of a metric are the members and parameters
of a template, the columns of a DataSet and the properties.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

PartKind = Literal["metric", "parameter", "column", "property"]


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a metric, or of a part of one, in a birth.

    Attributes:
        name: the name; None if the birth has none.
        datatype: the number of the data type; 0 if the birth has none.
        parts: the definitions of its parts, by kind and name.
    """

    name: str | None
    datatype: int
    parts: dict[tuple[PartKind, str], Definition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Definitions:
    """The metrics that a birth defines.

    Attributes:
        by_name: metrics with a name.
        by_alias: metrics with an alias.
        count: the number of metrics and their parts.
    """

    by_name: dict[str, Definition] = field(default_factory=dict)
    by_alias: dict[int, Definition] = field(default_factory=dict)
    count: int = 0

    def find(self, name: str | None, alias: int | None) -> Definition | None:
        """Return the definition of a metric by its name, or else by its alias."""
        found = None if name is None else self.by_name.get(name)
        return self.by_alias.get(alias) if found is None and alias is not None else found


NO_DEFINITIONS: Final = Definitions()


def definitions_in(birth: Any) -> Definitions:
    """Return the definitions in the payload of a birth, a parsed Protobuf message."""
    by_name: dict[str, Definition] = {}
    by_alias: dict[int, Definition] = {}
    count = 0
    for metric in birth.metrics:
        definition = _metric_definition(metric)
        count += 1 + _count_parts(definition)
        if definition.name is not None:
            by_name[definition.name] = definition
        if metric.HasField("alias"):
            by_alias[metric.alias] = definition
    return Definitions(by_name, by_alias, count)


def _metric_definition(metric: Any) -> Definition:
    parts = dict(_property_definitions(metric.properties))
    choice = metric.WhichOneof("value")
    if choice == "dataset_value":
        data = metric.dataset_value
        for name, kind in zip(data.columns, data.types, strict=False):
            parts["column", name] = Definition(name, kind)
    elif choice == "template_value":
        template = metric.template_value
        for member in template.metrics:
            parts["metric", member.name] = _metric_definition(member)
        for one in template.parameters:
            parts["parameter", one.name] = Definition(one.name, one.type)
    return Definition(metric.name if metric.HasField("name") else None, metric.datatype, parts)


def _property_definitions(
    properties: Any,
) -> Iterator[tuple[tuple[PartKind, str], Definition]]:
    for key, one in zip(properties.keys, properties.values, strict=False):
        choice = one.WhichOneof("value")
        parts: dict[tuple[PartKind, str], Definition] = {}
        if choice == "propertyset_value":
            parts = dict(_property_definitions(one.propertyset_value))
        elif choice == "propertysets_value":
            for inner in one.propertysets_value.propertyset:
                parts.update(_property_definitions(inner))
        yield ("property", key), Definition(key, one.type, parts)


def _count_parts(definition: Definition) -> int:
    return sum(1 + _count_parts(part) for part in definition.parts.values())
