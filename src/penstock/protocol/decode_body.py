"""Decodes the body of all packets except CONNECT and PUBLISH: the bytes after the fixed header.

Each function gets a `Reader` over one packet and the protocol level; `read_body` dispatches by
packet type, and checks that no bytes are left.
"""

from penstock.errors import RemoteProtocolError
from penstock.protocol.kinds import (
    AUTH,
    CONNACK,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V31,
    packet_name,
)
from penstock.protocol.packets import (
    Auth,
    Connack,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from penstock.protocol.properties import Properties, decode_properties
from penstock.protocol.reasons import (
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    UNSPECIFIED_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    is_allowed,
    reason_of_connack_code,
)
from penstock.protocol.wire import Reader


def read_body(reader: Reader, first: int, version: int, server: bool) -> Packet:
    """Decode a packet from its body, and return it.

    Args:
        reader: a reader over the body.
        first: the first byte of the packet, which was checked before.
        version: the protocol level, 3 to 5.
        server: True if we are the server.

    Raises:
        RemoteProtocolError: the body is malformed, or breaks the protocol.
    """
    packet_type = first >> 4
    if packet_type in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        packet: Packet = _read_ack(reader, packet_type, first, version)
    elif packet_type == SUBSCRIBE:
        packet = _read_subscribe(reader, version)
    elif packet_type == UNSUBSCRIBE:
        packet = _read_unsubscribe(reader, version)
    elif packet_type == PINGREQ:
        packet = Pingreq()
    elif packet_type == PINGRESP:
        packet = Pingresp()
    elif packet_type == SUBACK:
        packet = _read_suback(reader, version)
    elif packet_type == UNSUBACK:
        packet = _read_unsuback(reader, version)
    elif packet_type == DISCONNECT:
        packet = _read_disconnect(reader, version, server)
    elif packet_type == CONNACK:
        packet = _read_connack(reader, version)
    elif packet_type == AUTH:
        packet = _read_auth(reader)
    else:
        raise RemoteProtocolError(MALFORMED_PACKET, f"packet type {packet_type} is reserved")
    check_at_end(reader, packet_type)
    return packet


def check_at_end(reader: Reader, packet_type: int) -> None:
    """Raise RemoteProtocolError if there are bytes after the last field of a packet."""
    if not reader.at_end():
        name = packet_name(packet_type)
        raise RemoteProtocolError(MALFORMED_PACKET, f"{name} has bytes behind its last field")


def read_properties(reader: Reader, carrier: int) -> Properties | None:
    """Read property length and properties of a packet of type ``carrier``; return None if there are
    none.

    Raises:
        RemoteProtocolError: 0x81, the properties end behind the packet's end.
    """
    length = reader.varint()
    if length == 0:
        return None
    start = reader.position
    end = start + length
    if end > reader.end:
        raise RemoteProtocolError(MALFORMED_PACKET, "properties reach behind the packet's end")
    reader.position = end
    return decode_properties(reader.data, start, end, carrier)


def _read_packet_id(reader: Reader) -> int:
    packet_id = reader.two_bytes()
    if packet_id == 0:  # [MQTT-2.2.1-3], v3.1.1 [MQTT-2.3.1-1], v3.1 §2.4
        raise RemoteProtocolError(PROTOCOL_ERROR, "packet identifier 0")
    return packet_id


def _read_reason(reader: Reader, packet_type: int) -> int:
    """Read a reason code and check that this packet type may carry it: [MQTT-3.4.2-1], and the
    corresponding statement for each packet."""
    reason_code = reader.byte()
    if not is_allowed(reason_code, packet_type):
        name = packet_name(packet_type)
        raise RemoteProtocolError(PROTOCOL_ERROR, f"{name} with reason code 0x{reason_code:02x}")
    return reason_code


def _read_ack(reader: Reader, packet_type: int, first: int, version: int) -> Packet:
    packet_id = _read_packet_id(reader)
    reason_code = 0
    properties: Properties | None = None
    if version == V5 and not reader.at_end():  # both may be left out (v5 §3.4.2.1, §3.4.2.2.1)
        reason_code = _read_reason(reader, packet_type)
        if not reader.at_end():
            properties = read_properties(reader, packet_type)
    if packet_type == PUBACK:
        return Puback(packet_id, reason_code, properties)
    if packet_type == PUBREC:
        return Pubrec(packet_id, reason_code, properties)
    if packet_type == PUBREL:
        dup = version == V31 and first & 0x08 != 0  # v3.1 §4.1
        return Pubrel(packet_id, reason_code, properties, dup)
    return Pubcomp(packet_id, reason_code, properties)


def _read_subscribe(reader: Reader, version: int) -> Subscribe:
    packet_id = _read_packet_id(reader)
    properties = read_properties(reader, SUBSCRIBE) if version == V5 else None
    subscriptions: list[Subscription] = []
    while not reader.at_end():
        topic_filter = _read_topic_filter(reader)
        options = reader.byte()
        if version == V5:
            subscriptions.append(_subscription(topic_filter, options))
            continue
        if version == V31:
            options &= 0x03  # v3.1 §3.8: the upper six bits are not used
        if options > 2:  # v3.1.1 [MQTT-3.8.3-4]
            raise RemoteProtocolError(MALFORMED_PACKET, f"requested QoS is 0x{options:02x}")
        subscriptions.append(Subscription(topic_filter, options))
    if len(subscriptions) == 0:  # [MQTT-3.8.3-2], v3.1.1 [MQTT-3.8.3-3]
        raise RemoteProtocolError(PROTOCOL_ERROR, "SUBSCRIBE has no topic filter")
    return Subscribe(packet_id, subscriptions, properties)


def _subscription(topic_filter: str, options: int) -> Subscription:
    """Return the subscription with the options byte of MQTT 5 (v5 §3.8.3.1)."""
    if options & 0xC0:  # [MQTT-3.8.3-5]
        raise RemoteProtocolError(MALFORMED_PACKET, "reserved subscription options are set")
    qos = options & 0x03
    retain_handling = options >> 4 & 0x03
    no_local = options & 0x04 != 0
    if qos == 3 or retain_handling == 3:
        raise RemoteProtocolError(PROTOCOL_ERROR, "requested QoS or retain handling is 3")
    if no_local and topic_filter.startswith("$share/"):  # [MQTT-3.8.3-4]
        raise RemoteProtocolError(PROTOCOL_ERROR, "no local on a shared subscription")
    return Subscription(topic_filter, qos, no_local, options & 0x08 != 0, retain_handling)


def _read_topic_filter(reader: Reader) -> str:
    topic_filter = reader.string()
    if topic_filter == "":  # [MQTT-4.7.3-1]
        raise RemoteProtocolError(PROTOCOL_ERROR, "a topic filter is empty")
    return topic_filter


def _read_unsubscribe(reader: Reader, version: int) -> Unsubscribe:
    packet_id = _read_packet_id(reader)
    properties = read_properties(reader, UNSUBSCRIBE) if version == V5 else None
    topic_filters: list[str] = []
    while not reader.at_end():
        topic_filters.append(_read_topic_filter(reader))
    if len(topic_filters) == 0:  # [MQTT-3.10.3-2]
        raise RemoteProtocolError(PROTOCOL_ERROR, "UNSUBSCRIBE has no topic filter")
    return Unsubscribe(packet_id, topic_filters, properties)


def _read_suback(reader: Reader, version: int) -> Suback:
    packet_id = _read_packet_id(reader)
    properties = read_properties(reader, SUBACK) if version == V5 else None
    reason_codes: list[int] = []
    while not reader.at_end():
        if version == V5:
            reason_codes.append(_read_reason(reader, SUBACK))  # [MQTT-3.9.3-2]
            continue
        code = reader.byte()
        if version == V31 and code != UNSPECIFIED_ERROR:
            code &= 0x03  # v3.1 §3.9: the upper six bits are not used
        if code > 2 and code != UNSPECIFIED_ERROR:  # v3.1.1 [MQTT-3.9.3-2]
            raise RemoteProtocolError(PROTOCOL_ERROR, f"SUBACK with return code 0x{code:02x}")
        reason_codes.append(code)
    if len(reason_codes) == 0:
        raise RemoteProtocolError(PROTOCOL_ERROR, "SUBACK has no reason code")
    return Suback(packet_id, reason_codes, properties)


def _read_unsuback(reader: Reader, version: int) -> Unsuback:
    packet_id = _read_packet_id(reader)
    reason_codes: list[int] = []
    if version != V5:
        return Unsuback(packet_id, reason_codes)
    properties = read_properties(reader, UNSUBACK)
    while not reader.at_end():
        reason_codes.append(_read_reason(reader, UNSUBACK))  # [MQTT-3.11.3-2]
    if len(reason_codes) == 0:
        raise RemoteProtocolError(PROTOCOL_ERROR, "UNSUBACK has no reason code")
    return Unsuback(packet_id, reason_codes, properties)


def _read_connack(reader: Reader, version: int) -> Connack:
    flags = reader.byte()
    properties: Properties | None = None
    if version == V31:
        flags = 0  # v3.1 §3.2: the first byte is not used
    if flags & 0xFE:  # [MQTT-3.2.2-1]
        raise RemoteProtocolError(MALFORMED_PACKET, "reserved connect acknowledge flags are set")
    code = reader.byte()
    if version != V5:
        reason_code = reason_of_connack_code(code)
        if reason_code < 0:
            raise RemoteProtocolError(PROTOCOL_ERROR, f"CONNACK with return code {code}")
    elif code == 1 and reader.at_end():
        # The answer of a server that knows MQTT 3.1.1 at most (v3.1.1 §3.1.2.2).
        reason_code = UNSUPPORTED_PROTOCOL_VERSION
    else:
        if not is_allowed(code, CONNACK):  # [MQTT-3.2.2-8]
            raise RemoteProtocolError(PROTOCOL_ERROR, f"CONNACK with reason code 0x{code:02x}")
        reason_code = code
        properties = read_properties(reader, CONNACK)
    if reason_code != 0 and flags != 0:  # [MQTT-3.2.2-6], v3.1.1 [MQTT-3.2.2-4]
        raise RemoteProtocolError(PROTOCOL_ERROR, "session present in a refusal")
    return Connack(reason_code, flags != 0, properties)


def _read_disconnect(reader: Reader, version: int, server: bool) -> Disconnect:
    if version != V5 or reader.at_end():
        return Disconnect()
    reason_code = _read_reason(reader, DISCONNECT)  # [MQTT-3.14.2-1]
    properties: Properties | None = None
    if not reader.at_end():  # v5 §3.14.2.2.1: may be left out
        properties = read_properties(reader, DISCONNECT)
    if (
        not server and properties is not None and properties.session_expiry_interval is not None
    ):  # [MQTT-3.14.2-2]
        raise RemoteProtocolError(PROTOCOL_ERROR, "a server sent a session expiry interval")
    return Disconnect(reason_code, properties)


def _read_auth(reader: Reader) -> Auth:
    if reader.at_end():  # v5 §3.15.2.1: success without properties
        return Auth()
    reason_code = _read_reason(reader, AUTH)  # [MQTT-3.15.2-1]
    properties = read_properties(reader, AUTH)
    if properties is None or properties.authentication_method is None:  # v5 §3.15.2.2.2
        raise RemoteProtocolError(PROTOCOL_ERROR, "AUTH without an authentication method")
    return Auth(reason_code, properties)
