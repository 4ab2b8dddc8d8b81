"""The table of MQTT 5 properties (v5 §2.2.2.2 and the chapter of each packet).

For each identifier: the name of the attribute of `Properties`, the data type of the value, the
packets that may carry the property, and the range of integer values.
"""

from typing import Final, final

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
from penstock.protocol.wire import FOUR_BYTE_MAX, TWO_BYTE_MAX, VARINT_MAX

# Data types of values (v5 §1.5).
BYTE: Final = 1
TWO_BYTES: Final = 2
FOUR_BYTES: Final = 3
VARINT: Final = 4
STRING: Final = 5
BINARY: Final = 6
STRING_PAIR: Final = 7

# A carrier is a packet type, or this number for the will properties in CONNECT.
WILL: Final = 0


@final
class PropertyRule:
    """The rule of the specification for one property; an integer value is ``low`` to ``high``."""

    def __init__(
        self,
        identifier: int,
        name: str,
        wire_type: int,
        carriers: tuple[int, ...],
        low: int = 0,
        high: int = 0,
    ) -> None:
        self.identifier = identifier
        self.name = name
        self.wire_type = wire_type
        self.carriers = carriers
        self.low = low
        self.high = high
        self.carrier_bits = 0
        for carrier in carriers:
            self.carrier_bits |= 1 << carrier

    def allows(self, carrier: int) -> bool:
        """Return whether this packet type (or WILL) may carry the property."""
        return self.carrier_bits >> carrier & 1 == 1


_ACKS: Final = (PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK)
_ALL: Final = (
    *(WILL, CONNECT, CONNACK, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, AUTH),
    *_ACKS,
)

RULES: Final[list[PropertyRule]] = [
    PropertyRule(0x01, "payload_format_indicator", BYTE, (PUBLISH, WILL), 0, 1),
    PropertyRule(0x02, "message_expiry_interval", FOUR_BYTES, (PUBLISH, WILL), 0, FOUR_BYTE_MAX),
    PropertyRule(0x03, "content_type", STRING, (PUBLISH, WILL)),
    PropertyRule(0x08, "response_topic", STRING, (PUBLISH, WILL)),
    PropertyRule(0x09, "correlation_data", BINARY, (PUBLISH, WILL)),
    PropertyRule(0x0B, "subscription_identifiers", VARINT, (PUBLISH, SUBSCRIBE), 1, VARINT_MAX),
    PropertyRule(
        0x11,
        "session_expiry_interval",
        FOUR_BYTES,
        (CONNECT, CONNACK, DISCONNECT),
        0,
        FOUR_BYTE_MAX,
    ),
    PropertyRule(0x12, "assigned_client_identifier", STRING, (CONNACK,)),
    PropertyRule(0x13, "server_keep_alive", TWO_BYTES, (CONNACK,), 0, TWO_BYTE_MAX),
    PropertyRule(0x15, "authentication_method", STRING, (CONNECT, CONNACK, AUTH)),
    PropertyRule(0x16, "authentication_data", BINARY, (CONNECT, CONNACK, AUTH)),
    PropertyRule(0x17, "request_problem_information", BYTE, (CONNECT,), 0, 1),
    PropertyRule(0x18, "will_delay_interval", FOUR_BYTES, (WILL,), 0, FOUR_BYTE_MAX),
    PropertyRule(0x19, "request_response_information", BYTE, (CONNECT,), 0, 1),
    PropertyRule(0x1A, "response_information", STRING, (CONNACK,)),
    PropertyRule(0x1C, "server_reference", STRING, (CONNACK, DISCONNECT)),
    PropertyRule(0x1F, "reason_string", STRING, (CONNACK, *_ACKS, DISCONNECT, AUTH)),
    PropertyRule(0x21, "receive_maximum", TWO_BYTES, (CONNECT, CONNACK), 1, TWO_BYTE_MAX),
    PropertyRule(0x22, "topic_alias_maximum", TWO_BYTES, (CONNECT, CONNACK), 0, TWO_BYTE_MAX),
    PropertyRule(0x23, "topic_alias", TWO_BYTES, (PUBLISH,), 1, TWO_BYTE_MAX),
    PropertyRule(0x24, "maximum_qos", BYTE, (CONNACK,), 0, 1),
    PropertyRule(0x25, "retain_available", BYTE, (CONNACK,), 0, 1),
    PropertyRule(0x26, "user_properties", STRING_PAIR, _ALL),
    PropertyRule(0x27, "maximum_packet_size", FOUR_BYTES, (CONNECT, CONNACK), 1, FOUR_BYTE_MAX),
    PropertyRule(0x28, "wildcard_subscription_available", BYTE, (CONNACK,), 0, 1),
    PropertyRule(0x29, "subscription_identifier_available", BYTE, (CONNACK,), 0, 1),
    PropertyRule(0x2A, "shared_subscription_available", BYTE, (CONNACK,), 0, 1),
]
BY_IDENTIFIER: Final[dict[int, PropertyRule]] = {rule.identifier: rule for rule in RULES}
IDENTIFIERS_OF: Final[list[int]] = [  # by carrier: bit n is set if it may have the identifier n
    sum([1 << rule.identifier for rule in RULES if rule.allows(carrier)]) for carrier in range(16)
]
