"""The vectors of properties: ``properties.toml``, for tests that put them into packets."""

from dataclasses import dataclass
from typing import Final

from penstock.protocol import kinds
from penstock.protocol.properties import Properties
from penstock.protocol.property_rules import WILL
from tests.vectors import octets, properties_of, tables


@dataclass(frozen=True)
class PropertyVector:
    """The bytes of one property (identifier and value), and its carriers."""

    data: bytes
    properties: Properties
    carriers: frozenset[int]


@dataclass(frozen=True)
class PropertyMistake:
    """Property bytes that are wrong in the given carrier, with the reason code."""

    name: str
    data: bytes
    carrier: int
    reason: int


_CARRIERS: Final = {
    "WILL": WILL,
    **{kinds.packet_name(kind): kind for kind in range(kinds.CONNECT, kinds.AUTH + 1)},
}
EVERY_CARRIER: Final = frozenset(
    kind for name, kind in _CARRIERS.items() if name not in {"PINGREQ", "PINGRESP"}
)


def _carriers(given: str | list[str]) -> frozenset[int]:
    return EVERY_CARRIER if given == "all" else frozenset(_CARRIERS[name] for name in given)


_TABLES: Final = tables("properties")
PROPERTIES: Final = [
    PropertyVector(octets(one["bytes"]), properties_of(one["value"]), _carriers(one["carriers"]))
    for one in _TABLES["property"]
]
MISTAKES: Final = [
    PropertyMistake(one["name"], octets(one["bytes"]), _CARRIERS[one["carrier"]], one["reason"])
    for one in _TABLES["mistake"]
]
