"""Wire vectors: named cases of bytes and what they mean, read from the TOML files beside this.

A file has the vectors about one type of packet, in tables ``[[valid]]`` and ``[[mistake]]``:

    name = "QoS 1"              # unlike others in the file; it cites statements that it proves
    section = "v3.1 §3.3"       # of the specification, where that of the file is not enough
    versions = ["3.1", "3.1.1"] # of the connection
    sender = "server"           # else the client
    first_packet = true         # the connection has seen no CONNECT before
    bytes = '''                 # in hexadecimal, with comments; "80 * 00 61" are these two 80 times
    32 07           # PUBLISH, QoS 1, 7 bytes
    ...'''

Then a valid one has the packet, by its class and the parameters that are not left out (bytes are in
hexadecimal here, too), and ``canonical = false`` if we would write it in other bytes. A mistake has
the ``reason`` code of MQTT 5 for it, and as ``at`` how many of its bytes are enough to see it, if
these are not all.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.protocol import packets
from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import Packet, Subscription, Will
from penstock.protocol.properties import Properties

CLIENT = "client"
SERVER = "server"

_VERSIONS: Final = {"3.1": V31, "3.1.1": V311, "5": V5}
_TYPES: Final = (
    *("connect", "connack", "publish", "puback", "pubrec", "pubrel", "pubcomp"),
    *("subscribe", "suback", "unsubscribe", "unsuback", "pingreq", "pingresp"),
    *("disconnect", "auth", "reserved"),
)
_OF_BYTES: Final = {"payload", "password", "correlation_data", "authentication_data"}


@dataclass(frozen=True)
class Valid:
    """Bytes that are a packet."""

    name: str
    versions: tuple[int, ...]
    sender: str
    data: bytes
    packet: Packet
    canonical: bool = True
    first_packet: bool = False


@dataclass(frozen=True)
class Mistake:
    """Bytes that break the protocol, with the MQTT 5 reason code for it."""

    name: str
    versions: tuple[int, ...]
    sender: str
    data: bytes
    reason: int
    at: int | None = None
    first_packet: bool = False


def octets(commented: str) -> bytes:
    """Return the bytes of lines like `10 0c  # CONNECT` and `80 * 00  # a long payload`."""
    data = b""
    for line in commented.splitlines():
        times, star, digits = line.split("#")[0].rpartition("*")
        data += bytes.fromhex(digits) * (int(times) if star else 1)
    return data


def tables(file: str) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of a file of vectors."""
    return tomllib.loads((Path(__file__).parent / f"{file}.toml").read_text(encoding="utf-8"))


def properties_of(given: Mapping[str, Any]) -> Properties:
    """Return properties by their names."""
    arguments = _arguments(given)
    if "user_properties" in arguments:
        arguments["user_properties"] = [(key, value) for key, value in given["user_properties"]]
    return Properties(**arguments)


def _arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a packet, or of a part of it."""
    made: dict[str, Any] = {}
    for name, value in given.items():
        if name in _OF_BYTES:
            made[name] = octets(value)
        elif name == "properties":
            made[name] = properties_of(value)
        elif name == "will":
            made[name] = Will(**_arguments(value))
        elif name == "version":
            made[name] = _VERSIONS[value]
        elif name == "subscriptions":
            made[name] = [Subscription(**one) for one in value]
        else:
            made[name] = value
    return made


def _packet(given: Mapping[str, Any]) -> Packet:
    ((kind, fields),) = given.items()
    packet: Packet = getattr(packets, kind)(**_arguments(fields))
    return packet


def _vectors(file: str) -> Iterator[Valid | Mistake]:
    for kind, made in (("valid", Valid), ("mistake", Mistake)):
        for given in tables(file).get(kind, []):
            section = given.pop("section", "")
            given["name"] += f" ({section})" if section else ""
            given["versions"] = tuple(_VERSIONS[version] for version in given["versions"])
            given["data"] = octets(given.pop("bytes"))
            if made is Valid:
                given["packet"] = _packet(given["packet"])
            yield made(**{"sender": CLIENT, **given})


VECTORS: Final = [vector for file in _TYPES for vector in _vectors(file)]
VALID: Final = [vector for vector in VECTORS if isinstance(vector, Valid)]
MISTAKES: Final = [vector for vector in VECTORS if isinstance(vector, Mistake)]
