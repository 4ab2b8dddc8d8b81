"""Encodes the body of all packets except PUBLISH: the bytes after the fixed header.

The checks mirror those of `decode_body`: we send nothing that we would refuse from a peer.
"""

from librt.strings import BytesWriter

from penstock.errors import LocalProtocolError
from penstock.protocol.encode_connect import append_connect
from penstock.protocol.kinds import (
    AUTH,
    CONNACK,
    DISCONNECT,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V31,
    packet_name,
)
from penstock.protocol.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from penstock.protocol.properties import append_properties, encode_for
from penstock.protocol.reasons import (
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    connack_code,
    is_allowed,
    suback_code,
)
from penstock.protocol.wire import append_string, append_two_bytes, append_varint


def append_body(out: BytesWriter, packet: Packet, version: int) -> None:
    """Append the variable header and payload of a packet.

    Raises:
        LocalProtocolError: the packet breaks the protocol or does not exist in this version.
    """
    if isinstance(packet, Ack):
        _append_ack(out, packet, version)
    elif isinstance(packet, Connect):
        append_connect(out, packet)
    elif isinstance(packet, Connack):
        _append_connack(out, packet, version)
    elif isinstance(packet, Subscribe):
        _append_subscribe(out, packet, version)
    elif isinstance(packet, Suback):
        _append_suback(out, packet, version)
    elif isinstance(packet, Unsubscribe):
        _append_unsubscribe(out, packet, version)
    elif isinstance(packet, Unsuback):
        _append_unsuback(out, packet, version)
    elif isinstance(packet, Disconnect):
        _append_disconnect(out, packet, version)
    elif isinstance(packet, Auth):
        _append_auth(out, packet, version)
    elif not isinstance(packet, (Pingreq, Pingresp)):
        raise LocalProtocolError(PROTOCOL_ERROR, f"packet type {packet.type} is reserved")


def _append_packet_id(out: BytesWriter, packet_id: int) -> None:
    if packet_id == 0:  # [MQTT-2.2.1-3], v3.1.1 [MQTT-2.3.1-1], v3.1 §2.4
        raise LocalProtocolError(PROTOCOL_ERROR, "packet identifier 0")
    append_two_bytes(out, packet_id)


def _append_reason(out: BytesWriter, reason_code: int, packet_type: int) -> None:
    """Check that this packet type may carry a reason code ([MQTT-3.4.2-1] and the corresponding
    statements), and append it."""
    if not is_allowed(reason_code, packet_type):
        name = packet_name(packet_type)
        raise LocalProtocolError(PROTOCOL_ERROR, f"{name} with reason code 0x{reason_code:02x}")
    out.append(reason_code)


def _append_ack(out: BytesWriter, packet: Ack, version: int) -> None:
    _append_packet_id(out, packet.packet_id)
    if version != V5:
        return
    properties = encode_for(packet.properties, packet.type)
    if packet.reason_code == 0 and len(properties) == 0:  # v5 §3.4.2.1
        return
    _append_reason(out, packet.reason_code, packet.type)
    if len(properties) > 0:  # v5 §3.4.2.2.1
        append_varint(out, len(properties))
        out.write(properties)


def _append_connack(out: BytesWriter, packet: Connack, version: int) -> None:
    reason_code = packet.reason_code
    if not is_allowed(reason_code, CONNACK):  # [MQTT-3.2.2-8]
        raise LocalProtocolError(PROTOCOL_ERROR, f"CONNACK with reason code 0x{reason_code:02x}")
    if packet.session_present and reason_code != 0:  # [MQTT-3.2.2-6], v3.1.1 [MQTT-3.2.2-4]
        raise LocalProtocolError(PROTOCOL_ERROR, "session present in a refusal")
    # v3.1 §3.2: the first byte is reserved, there is no session present.
    out.append(1 if packet.session_present and version != V31 else 0)
    out.append(connack_code(reason_code, version))
    if version == V5:
        append_properties(out, packet.properties, CONNACK)


def _append_subscribe(out: BytesWriter, packet: Subscribe, version: int) -> None:
    _append_packet_id(out, packet.packet_id)
    if version == V5:
        append_properties(out, packet.properties, SUBSCRIBE)
    if len(packet.subscriptions) == 0:  # [MQTT-3.8.3-2], v3.1.1 [MQTT-3.8.3-3]
        raise LocalProtocolError(PROTOCOL_ERROR, "SUBSCRIBE has no topic filter")
    for subscription in packet.subscriptions:
        _append_topic_filter(out, subscription.topic_filter)
        options = _options(subscription)
        out.append(options if version == V5 else options & 0x03)


def _options(subscription: Subscription) -> int:
    """Return the byte of subscription options (v5 §3.8.3.1)."""
    qos = subscription.qos
    retain_handling = subscription.retain_handling
    if qos < 0 or qos > 2 or retain_handling < 0 or retain_handling > 2:
        raise LocalProtocolError(
            PROTOCOL_ERROR, f"requested QoS {qos}, retain handling {retain_handling}"
        )
    options = qos | retain_handling << 4
    if subscription.no_local:
        if subscription.topic_filter.startswith("$share/"):  # [MQTT-3.8.3-4]
            raise LocalProtocolError(PROTOCOL_ERROR, "no local on a shared subscription")
        options |= 0x04
    if subscription.retain_as_published:
        options |= 0x08
    return options


def _append_topic_filter(out: BytesWriter, topic_filter: str) -> None:
    if topic_filter == "":  # [MQTT-4.7.3-1]
        raise LocalProtocolError(PROTOCOL_ERROR, "a topic filter is empty")
    append_string(out, topic_filter)


def _append_suback(out: BytesWriter, packet: Suback, version: int) -> None:
    _append_packet_id(out, packet.packet_id)
    if version == V5:
        append_properties(out, packet.properties, SUBACK)
    if len(packet.reason_codes) == 0:
        raise LocalProtocolError(PROTOCOL_ERROR, "SUBACK has no reason code")
    for reason_code in packet.reason_codes:  # in the order of the SUBSCRIBE [MQTT-3.9.3-1]
        _append_reason(out, suback_code(reason_code, version), SUBACK)


def _append_unsubscribe(out: BytesWriter, packet: Unsubscribe, version: int) -> None:
    _append_packet_id(out, packet.packet_id)
    if version == V5:
        append_properties(out, packet.properties, UNSUBSCRIBE)
    if len(packet.topic_filters) == 0:  # [MQTT-3.10.3-2]
        raise LocalProtocolError(PROTOCOL_ERROR, "UNSUBSCRIBE has no topic filter")
    for topic_filter in packet.topic_filters:
        _append_topic_filter(out, topic_filter)


def _append_unsuback(out: BytesWriter, packet: Unsuback, version: int) -> None:
    _append_packet_id(out, packet.packet_id)
    if version != V5:
        return
    append_properties(out, packet.properties, UNSUBACK)
    if len(packet.reason_codes) == 0:
        raise LocalProtocolError(PROTOCOL_ERROR, "UNSUBACK has no reason code")
    for reason_code in packet.reason_codes:  # in the order of the UNSUBSCRIBE [MQTT-3.11.3-1]
        _append_reason(out, reason_code, UNSUBACK)


def _append_disconnect(out: BytesWriter, packet: Disconnect, version: int) -> None:
    if version != V5:
        return
    properties = encode_for(packet.properties, DISCONNECT)
    if packet.reason_code == 0 and len(properties) == 0:  # v5 §3.14.2.1
        return
    _append_reason(out, packet.reason_code, DISCONNECT)
    if len(properties) > 0:  # v5 §3.14.2.2.1
        append_varint(out, len(properties))
        out.write(properties)


def _append_auth(out: BytesWriter, packet: Auth, version: int) -> None:
    if version != V5:
        raise LocalProtocolError(MALFORMED_PACKET, "AUTH exists in MQTT 5 only")
    properties = packet.properties
    if packet.reason_code == 0 and properties is None:  # v5 §3.15.2.1
        return
    if properties is None or properties.authentication_method is None:  # v5 §3.15.2.2.2
        raise LocalProtocolError(PROTOCOL_ERROR, "AUTH without an authentication method")
    _append_reason(out, packet.reason_code, AUTH)
    append_properties(out, properties, AUTH)
