"""Decodes CONNECT, the packet that sets the protocol level of all others (v5 §3.1).

MQTT 3.1 is decoded by its own specification: reserved bits and the flags of an absent will are
ignored, and a user name or password announced by its flag may be missing at the end of the packet.
"""

from penstock.errors import RemoteProtocolError, UnsupportedProtocolVersion
from penstock.protocol.decode_body import read_properties
from penstock.protocol.kinds import BRIDGE_BIT, CONNECT, V5, V31, V311
from penstock.protocol.packets import Connect, Will
from penstock.protocol.property_rules import WILL
from penstock.protocol.reasons import (
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from penstock.protocol.wire import Reader


def read_level(reader: Reader) -> int:
    """Read protocol name and level; return the level: 3, 4 or 5, or 3 or 4 with ``BRIDGE_BIT``.

    Raises:
        UnsupportedProtocolVersion: the name is MQTT's, and the level is another.
        RemoteProtocolError: the name is another (also 0x84): the peer does not speak MQTT.
    """
    name = reader.binary()
    if name != b"MQTT" and name != b"MQIsdp":  # [MQTT-3.1.2-1], v3.1 §3.1
        raise RemoteProtocolError(UNSUPPORTED_PROTOCOL_VERSION, "the protocol name is not MQTT")
    level = reader.byte()
    supported = (V31, V31 | BRIDGE_BIT) if name == b"MQIsdp" else (V311, V5, V311 | BRIDGE_BIT)
    if level not in supported:  # [MQTT-3.1.2-2]
        raise UnsupportedProtocolVersion(
            UNSUPPORTED_PROTOCOL_VERSION, f"protocol level {level} is not supported", level
        )
    return level


def read_connect(reader: Reader, level: int, is_bridge: bool, header_flags: int) -> Connect:
    """Decode the part of a CONNECT after its protocol level; return the packet.

    Args:
        reader: a reader after the protocol level.
        level: the protocol level, 3 to 5.
        is_bridge: True if ``BRIDGE_BIT`` was set in the level.
        header_flags: the lower four bits of the first byte.

    Raises:
        RemoteProtocolError: the packet is malformed, or breaks the protocol.
    """
    if header_flags != 0 and level != V31:  # [MQTT-2.1.3-1], v3.1.1 [MQTT-2.2.2-2]
        raise RemoteProtocolError(MALFORMED_PACKET, "CONNECT has flags in its fixed header")
    flags = reader.byte()
    _check_flags(flags, level)
    keep_alive_s = reader.two_bytes()
    properties = read_properties(reader, CONNECT) if level == V5 else None
    if (
        properties is not None
        and properties.authentication_data is not None
        and properties.authentication_method is None
    ):  # v5 §3.1.2.11.10
        raise RemoteProtocolError(PROTOCOL_ERROR, "authentication data without a method")
    client_id = reader.string()
    will = _read_will(reader, level, flags) if flags & 0x04 else None
    username: str | None = None
    password: bytes | None = None
    # v3.1: the remaining length takes precedence over the flags of user name and password.
    if flags & 0x80 and not (level == V31 and reader.at_end()):
        username = reader.string()
    if flags & 0x40 and not (level == V31 and reader.at_end()):
        password = reader.binary()
    return Connect(
        client_id,
        level,
        flags & 0x02 != 0,
        keep_alive_s,
        will,
        username,
        password,
        properties,
        is_bridge,
    )


def _check_flags(flags: int, level: int) -> None:
    """Check the connect flags (v5 §3.1.2.3, v3.1 §2.2)."""
    has_will = flags & 0x04 != 0
    if level != V31:
        if flags & 0x01:  # [MQTT-3.1.2-3]
            raise RemoteProtocolError(MALFORMED_PACKET, "the reserved connect flag is set")
        if not has_will and flags & 0x38:
            # [MQTT-3.1.2-11], [MQTT-3.1.2-13]; v3.1.1 [MQTT-3.1.2-13], [MQTT-3.1.2-15]
            raise RemoteProtocolError(MALFORMED_PACKET, "will QoS or will retain without a will")
    if has_will and flags & 0x18 == 0x18:  # v5 §3.1.2.6, v3.1.1 [MQTT-3.1.2-14]
        raise RemoteProtocolError(MALFORMED_PACKET, "the will has QoS 3")
    if level != V5 and flags & 0xC0 == 0x40:  # v3.1.1 [MQTT-3.1.2-22]
        raise RemoteProtocolError(MALFORMED_PACKET, "a password without a user name")


def _read_will(reader: Reader, level: int, flags: int) -> Will:
    properties = read_properties(reader, WILL) if level == V5 else None
    topic = reader.string()
    if topic == "":  # [MQTT-4.7.3-1]
        raise RemoteProtocolError(PROTOCOL_ERROR, "the topic of the will is empty")
    payload = reader.binary()
    return Will(topic, payload, flags >> 3 & 0x03, flags & 0x20 != 0, properties)
