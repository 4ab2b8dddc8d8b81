"""Every property of MQTT 5: its bytes, its value, and who may carry it (v5 §2.2.2.2, table 2-4)."""

from dataclasses import dataclass

from penstock.protocol.kinds import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
)
from penstock.protocol.properties import Properties
from penstock.protocol.property_rules import WILL
from tests.vectors import octets


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


EVERY_CARRIER = frozenset(
    {
        *(WILL, CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP),
        *(SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, DISCONNECT, AUTH),
    }
)
_WITH_REASON = EVERY_CARRIER - {WILL, CONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE}


def _vector(commented: str, properties: Properties, *carriers: int) -> PropertyVector:
    return PropertyVector(octets(commented), properties, frozenset(carriers))


PROPERTIES = [
    _vector("01 00", Properties(payload_format_indicator=0), PUBLISH, WILL),
    _vector("02 00 00 00 00", Properties(message_expiry_interval=0), PUBLISH, WILL),
    _vector("02 ff ff ff ff", Properties(message_expiry_interval=0xFFFFFFFF), PUBLISH, WILL),
    _vector("03 00 02 c3 a9", Properties(content_type="\u00e9"), PUBLISH, WILL),
    _vector("03 00 00", Properties(content_type=""), PUBLISH, WILL),
    _vector("08 00 03 61 2f 62", Properties(response_topic="a/b"), PUBLISH, WILL),
    _vector("09 00 02 00 ff", Properties(correlation_data=b"\x00\xff"), PUBLISH, WILL),
    _vector("0b ff 7f", Properties(subscription_identifiers=[16383]), PUBLISH, SUBSCRIBE),
    _vector(
        "11 00 01 00 00", Properties(session_expiry_interval=65536), CONNECT, CONNACK, DISCONNECT
    ),
    _vector("12 00 01 61", Properties(assigned_client_identifier="a"), CONNACK),
    _vector("13 00 00", Properties(server_keep_alive=0), CONNACK),
    _vector("15 00 01 6d", Properties(authentication_method="m"), CONNECT, CONNACK, AUTH),
    _vector("16 00 01 00", Properties(authentication_data=b"\x00"), CONNECT, CONNACK, AUTH),
    _vector("17 01", Properties(request_problem_information=1), CONNECT),
    _vector("18 00 00 00 01", Properties(will_delay_interval=1), WILL),
    _vector("19 00", Properties(request_response_information=0), CONNECT),
    _vector("1a 00 01 72", Properties(response_information="r"), CONNACK),
    _vector("1c 00 01 73", Properties(server_reference="s"), CONNACK, DISCONNECT),
    _vector("1f 00 01 79", Properties(reason_string="y"), *_WITH_REASON),
    _vector("21 00 01", Properties(receive_maximum=1), CONNECT, CONNACK),
    _vector("22 ff ff", Properties(topic_alias_maximum=65535), CONNECT, CONNACK),
    _vector("23 00 01", Properties(topic_alias=1), PUBLISH),
    _vector("24 00", Properties(maximum_qos=0), CONNACK),
    _vector("25 01", Properties(retain_available=1), CONNACK),
    _vector("26 00 01 6b 00 00", Properties(user_properties=[("k", "")]), *EVERY_CARRIER),
    _vector("27 00 00 00 01", Properties(maximum_packet_size=1), CONNECT, CONNACK),
    _vector("28 01", Properties(wildcard_subscription_available=1), CONNACK),
    _vector("29 01", Properties(subscription_identifier_available=1), CONNACK),
    _vector("2a 00", Properties(shared_subscription_available=0), CONNACK),
]


def _mistake(name: str, commented: str, carrier: int, reason: int) -> PropertyMistake:
    return PropertyMistake(name, octets(commented), carrier, reason)


MISTAKES = [
    _mistake("payload format indicator 2", "01 02", WILL, 0x82),
    _mistake("request problem information 255", "17 ff", CONNECT, 0x82),
    _mistake("request response information 2", "19 02", CONNECT, 0x82),
    _mistake("subscription identifier 0", "0b 00", SUBSCRIBE, 0x82),
    _mistake("subscription identifier of five bytes", "0b 80 80 80 80 01", SUBSCRIBE, 0x81),
    _mistake("subscription identifier longer than needed", "0b 81 00", SUBSCRIBE, 0x81),
    _mistake("receive maximum 0", "21 00 00", CONNACK, 0x82),
    _mistake("topic alias 0 [MQTT-3.3.2-8]", "23 00 00", PUBLISH, 0x94),
    _mistake("maximum QoS 2", "24 02", CONNACK, 0x82),
    _mistake("retain available 3", "25 03", CONNACK, 0x82),
    _mistake("maximum packet size 0", "27 00 00 00 00", CONNECT, 0x82),
    _mistake("wildcard subscription available 2", "28 02", CONNACK, 0x82),
    _mistake("subscription identifier available 2", "29 02", CONNACK, 0x82),
    _mistake("shared subscription available 2", "2a 02", CONNACK, 0x82),
    _mistake("response topic with + [MQTT-3.3.2-14]", "08 00 01 2b", WILL, 0x82),
    _mistake("identifier 4", "04 00", PUBLISH, 0x81),
    _mistake("identifier 43", "2b 00", CONNACK, 0x81),
    _mistake("identifier of two bytes", "ff 01 00", CONNACK, 0x81),
    _mistake("identifier longer than needed [MQTT-1.5.5-1]", "81 00 00", PUBLISH, 0x81),
    _mistake("identifier alone", "01", PUBLISH, 0x81),
    _mistake("two bytes cut off", "21 00", CONNECT, 0x81),
    _mistake("four bytes cut off", "11 00 00 00", CONNECT, 0x81),
    _mistake("string cut off", "03 00 02 61", PUBLISH, 0x81),
    _mistake("pair without a value", "26 00 01 61", PUBLISH, 0x81),
    _mistake("pair with U+0000 [MQTT-1.5.7-1]", "26 00 01 61 00 01 00", PUBLISH, 0x81),
    _mistake("name with ill-formed UTF-8 [MQTT-1.5.7-1]", "26 00 01 ff 00 01 61", PUBLISH, 0x81),
    _mistake("reason string with a surrogate", "1f 00 03 ed a0 80", PUBACK, 0x81),
]
