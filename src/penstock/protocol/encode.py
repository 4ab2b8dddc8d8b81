"""Encodes every packet in every version.

`encode` takes a packet object and checks it. `append_publish_head` and `encode_ack` take fields
that are encoded already.

Fields that an older version does not have are left out (properties; reason codes of
acknowledgements, because below MQTT 5 a server can refuse a message only by closing the connection,
v3.1.1 §3.3.5) or translated (CONNACK, SUBACK). A packet that no version allows raises
LocalProtocolError.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from penstock.errors import LocalProtocolError
from penstock.protocol.encode_body import append_body
from penstock.protocol.kinds import (
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    V5,
    V31,
    V311,
    packet_name,
)
from penstock.protocol.packets import Connect, Packet, Publish, Pubrel
from penstock.protocol.properties import encode_for
from penstock.protocol.reasons import (
    MALFORMED_PACKET,
    PACKET_TOO_LARGE,
    PROTOCOL_ERROR,
    TOPIC_NAME_INVALID,
    UNSUPPORTED_PROTOCOL_VERSION,
    is_allowed,
)
from penstock.protocol.wire import (
    TWO_BYTE_MAX,
    V31_TOPIC_CHARACTERS_MAX,
    VARINT_MAX,
    append_varint,
    bytes_of,
)

# From this size on a payload is joined to its header instead of passing through the writer's
# buffer, which would copy it twice.
_JOINED_PAYLOAD_BYTES_MIN: Final = 4096


def encode(packet: Packet, version: int) -> bytes:
    """Return the bytes of a packet on a connection of this protocol level (3, 4 or 5).

    Raises:
        LocalProtocolError: the packet breaks the protocol or does not exist in this version.
    """
    if version not in (V31, V311, V5):
        raise LocalProtocolError(
            UNSUPPORTED_PROTOCOL_VERSION, f"protocol level {version} is not supported"
        )
    if isinstance(packet, Publish):
        return _encode_publish_packet(packet, version)
    packet_type = packet.type
    first = packet_type << 4
    if packet_type in (PUBREL, SUBSCRIBE, UNSUBSCRIBE):
        first |= 0x02
    if isinstance(packet, Pubrel) and packet.dup:
        if version != V31:  # [MQTT-3.6.1-1]
            raise LocalProtocolError(MALFORMED_PACKET, "PUBREL has a DUP flag in MQTT 3.1 only")
        first |= 0x08
    if isinstance(packet, Connect) and packet.version != version:
        raise LocalProtocolError(
            PROTOCOL_ERROR, f"CONNECT of version {packet.version} on a connection of {version}"
        )
    body = BytesWriter()
    append_body(body, packet, version)
    out = BytesWriter()
    out.append(first)
    append_varint(out, len(body))
    out.write(body.getvalue())
    return out.getvalue()


def _encode_publish_packet(packet: Publish, version: int) -> bytes:
    encoded = b""
    has_alias = False
    if version == V5:
        properties = packet.properties
        encoded = encode_for(properties, PUBLISH)
        has_alias = properties is not None and properties.topic_alias is not None
    if packet.topic == "" and not has_alias:  # v5 §3.3.2.1, [MQTT-4.7.3-1]
        raise LocalProtocolError(PROTOCOL_ERROR, "PUBLISH has neither topic nor topic alias")
    if version == V31 and len(packet.topic) > V31_TOPIC_CHARACTERS_MAX:
        raise LocalProtocolError(TOPIC_NAME_INVALID, "the topic is too long for MQTT 3.1")
    return encode_publish(
        bytes_of(packet.topic),
        packet.payload,
        packet.qos,
        packet.retain,
        packet.dup,
        packet.packet_id,
        version,
        encoded,
    )


def encode_publish(
    topic: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    version: int,
    properties: bytes,
) -> bytes:
    """Return the bytes of a PUBLISH.

    Args:
        topic: the topic in UTF-8, checked to be without U+0000.
        payload: the payload.
        qos: 0 to 2.
        retain: the RETAIN flag.
        dup: the DUP flag.
        packet_id: 0 at QoS 0, 1 to 65,535 otherwise.
        version: the protocol level, 3 to 5.
        properties: the result of `encode_properties`; ignored below MQTT 5.

    Raises:
        LocalProtocolError: the fields break the protocol, or the packet is too large for MQTT.
    """
    out = BytesWriter()
    append_publish_head(
        out, topic, len(payload), qos, retain, dup, packet_id, version, properties, 0
    )
    if len(payload) >= _JOINED_PAYLOAD_BYTES_MIN:
        return out.getvalue() + payload
    out.write(payload)
    return out.getvalue()


def append_publish_head(
    out: BytesWriter,
    topic: bytes,
    payload_size: i64,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    version: int,
    properties: bytes,
    size_bytes_max: int,
) -> i64:
    """Append a PUBLISH without its payload, which the caller appends.

    The arguments are as for `encode_publish`; `size_bytes_max` is the largest size of the whole
    packet in bytes, 0 for no limit.

    Returns:
        The size of the whole packet in bytes; 0 if it is above `size_bytes_max`, and nothing was
        appended.

    Raises:
        LocalProtocolError: as `encode_publish`; nothing was appended.
    """
    topic_size: i64 = len(topic)
    properties_size: i64 = len(properties)
    remaining = 2 + topic_size + payload_size
    identifier: i64 = 0
    first: i64 = 0x30
    if retain:
        first = 0x31
    if qos == 0:
        if packet_id != 0 or dup:  # [MQTT-2.2.1-2], [MQTT-3.3.1-2]
            raise LocalProtocolError(PROTOCOL_ERROR, "QoS 0 with a packet identifier or DUP")
    else:
        if qos < 0 or qos > 2:  # [MQTT-3.3.1-4]
            raise LocalProtocolError(MALFORMED_PACKET, f"PUBLISH with QoS {qos}")
        _check_packet_id(packet_id)
        identifier = packet_id
        first |= 0x02 if qos == 1 else 0x04
        if dup:
            first |= 0x08
        remaining += 2
    if version == V5:
        remaining += properties_size + _varint_size(properties_size)
    if topic_size > TWO_BYTE_MAX or remaining > VARINT_MAX:
        raise LocalProtocolError(PACKET_TOO_LARGE, "PUBLISH has a topic or payload too large")
    size = 1 + _varint_size(remaining) + remaining
    if 0 < size_bytes_max < size:
        return 0
    out.append(u8(first))
    _append_varint(out, remaining)
    out.append(u8(topic_size >> 8))
    out.append(u8(topic_size & 0xFF))
    out.write(topic)
    if qos != 0:
        out.append(u8(identifier >> 8))
        out.append(u8(identifier & 0xFF))
    if version == V5:
        _append_varint(out, properties_size)
        if properties_size > 0:
            out.write(properties)
    return size


def encode_ack(packet_type: int, packet_id: int, reason_code: int, version: int) -> bytes:
    """Return the bytes of a PUBACK, PUBREC, PUBREL or PUBCOMP without properties.

    Reason code 0 is left out, and below MQTT 5 every reason code.

    Raises:
        LocalProtocolError: packet type, packet identifier or reason code is not allowed.
    """
    if packet_type < PUBACK or packet_type > PUBCOMP:
        raise LocalProtocolError(PROTOCOL_ERROR, f"packet type {packet_type} acknowledges nothing")
    _check_packet_id(packet_id)
    first = packet_type << 4 | 0x02 if packet_type == PUBREL else packet_type << 4
    if reason_code == 0 or version != V5:
        return (first << 24 | 2 << 16 | packet_id).to_bytes(4, "big")
    if not is_allowed(reason_code, packet_type):
        name = packet_name(packet_type)
        raise LocalProtocolError(PROTOCOL_ERROR, f"{name} with reason code 0x{reason_code:02x}")
    return (first << 32 | 3 << 24 | packet_id << 8 | reason_code).to_bytes(5, "big")


def _check_packet_id(packet_id: int) -> None:
    if packet_id < 1 or packet_id > TWO_BYTE_MAX:  # [MQTT-2.2.1-3], v3.1.1 [MQTT-2.3.1-1]
        raise LocalProtocolError(PROTOCOL_ERROR, f"packet identifier {packet_id}")


def _varint_size(value: i64) -> i64:
    if value < 128:
        return 1
    if value < 16_384:
        return 2
    return 3 if value < 2_097_152 else 4


def _append_varint(out: BytesWriter, value: i64) -> None:
    """Append a value that is known to fit, as `append_varint` does, without conversion to `int`.

    In compiled code ``BytesWriter.append`` takes a `u8` directly, and an `i64` by a slow method
    call.
    """
    while value > 0x7F:
        out.append(u8(value & 0x7F | 0x80))
        value >>= 7
    out.append(u8(value))
