"""Encodes the body of CONNECT (v5 §3.1)."""

from typing import Final

from librt.strings import BytesWriter

from penstock.errors import LocalProtocolError
from penstock.protocol.kinds import CONNECT, V5, V31, V311
from penstock.protocol.packets import Connect
from penstock.protocol.properties import append_properties
from penstock.protocol.property_rules import WILL
from penstock.protocol.reasons import (
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from penstock.protocol.wire import append_binary, append_string, append_two_bytes

_V31_NAME_AND_LEVEL: Final = b"\x00\x06MQIsdp\x03"
_V311_NAME_AND_LEVEL: Final = b"\x00\x04MQTT\x04"
_V5_NAME_AND_LEVEL: Final = b"\x00\x04MQTT\x05"
_V31_BRIDGE_NAME_AND_LEVEL: Final = b"\x00\x06MQIsdp\x83"
_V311_BRIDGE_NAME_AND_LEVEL: Final = b"\x00\x04MQTT\x84"


def append_connect(out: BytesWriter, packet: Connect) -> None:
    """Append the body of CONNECT in the form of packet.version.

    Raises:
        LocalProtocolError: the packet breaks the protocol, or its version is unknown.
    """
    out.write(_name_and_level(packet.version, packet.is_bridge))
    out.append(_connect_flags(packet))
    append_two_bytes(out, packet.keep_alive_s)
    properties = packet.properties
    if packet.version == V5:
        if (
            properties is not None
            and properties.authentication_data is not None
            and properties.authentication_method is None
        ):  # v5 §3.1.2.11.10
            raise LocalProtocolError(PROTOCOL_ERROR, "authentication data without a method")
        append_properties(out, properties, CONNECT)
    append_string(out, packet.client_id)
    will = packet.will
    if will is not None:
        if will.topic == "":  # [MQTT-4.7.3-1]
            raise LocalProtocolError(PROTOCOL_ERROR, "the topic of the will is empty")
        if packet.version == V5:
            append_properties(out, will.properties, WILL)
        append_string(out, will.topic)
        append_binary(out, will.payload)
    if packet.username is not None:
        append_string(out, packet.username)
    if packet.password is not None:
        append_binary(out, packet.password)


def _name_and_level(version: int, is_bridge: bool) -> bytes:
    if version == V5:  # has subscription options instead of the dialect of bridges
        return _V5_NAME_AND_LEVEL
    if version == V311:
        return _V311_BRIDGE_NAME_AND_LEVEL if is_bridge else _V311_NAME_AND_LEVEL
    if version == V31:
        return _V31_BRIDGE_NAME_AND_LEVEL if is_bridge else _V31_NAME_AND_LEVEL
    raise LocalProtocolError(
        UNSUPPORTED_PROTOCOL_VERSION, f"protocol level {version} is not supported"
    )


def _connect_flags(packet: Connect) -> int:
    """Return the connect flags (v5 §3.1.2.3)."""
    flags = 0x02 if packet.clean_start else 0
    will = packet.will
    if will is not None:
        if will.qos < 0 or will.qos > 2:
            raise LocalProtocolError(MALFORMED_PACKET, f"the will has QoS {will.qos}")
        flags |= 0x04 | will.qos << 3
        if will.retain:
            flags |= 0x20
    if packet.username is not None:
        flags |= 0x80
    if packet.password is not None:
        if packet.username is None and packet.version != V5:  # v3.1.1 [MQTT-3.1.2-22]
            raise LocalProtocolError(MALFORMED_PACKET, "a password without a user name")
        flags |= 0x40
    return flags
