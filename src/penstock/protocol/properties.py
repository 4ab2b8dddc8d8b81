"""The properties of MQTT 5 as a class with a typed attribute for each, and their encoding.

A property that is absent is None. Decoding follows the table in `property_rules`; a property that
is not in the table is refused. Encoding is written out property by property in the order of the
identifiers, for speed: it is done for every message that has properties.
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr, u8

from penstock.errors import LocalProtocolError, RemoteProtocolError
from penstock.protocol.kinds import PUBLISH, SUBSCRIBE, packet_name
from penstock.protocol.property_rules import (
    BINARY,
    BY_IDENTIFIER,
    BYTE,
    FOUR_BYTES,
    IDENTIFIERS_OF,
    RULES,
    STRING,
    STRING_PAIR,
    TWO_BYTES,
    WILL,
    PropertyRule,
)
from penstock.protocol.reasons import (
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    QUOTA_EXCEEDED,
    TOPIC_ALIAS_INVALID,
)
from penstock.protocol.wire import (
    Reader,
    append_binary,
    append_four_bytes,
    append_string,
    append_two_bytes,
    append_varint,
)

ANY_CARRIER: Final = -1

# In one packet. A packet of 1 MiB may have 200,000, whose decoding and encoding take 0.2 s.
USER_PROPERTIES_MAX: Final = 10_000


@mypyc_attr(acyclic=True)
@final
class Properties:
    """The properties of one packet or will; an absent property is None.

    Integers are unsigned: flags 0 or 1, ``*_interval`` in seconds, four-byte values up to
    0xFFFFFFFF. ``subscription_identifiers`` has one item in SUBSCRIBE and any number in PUBLISH; an
    empty list of these or of ``user_properties`` is the same as None.

    Attributes:
        is_shared: True if several packets have this object, which must not be changed then.
    """

    def __init__(
        self,
        *,
        payload_format_indicator: int | None = None,
        message_expiry_interval: int | None = None,
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | None = None,
        subscription_identifiers: list[int] | None = None,
        session_expiry_interval: int | None = None,
        assigned_client_identifier: str | None = None,
        server_keep_alive: int | None = None,
        authentication_method: str | None = None,
        authentication_data: bytes | None = None,
        request_problem_information: int | None = None,
        will_delay_interval: int | None = None,
        request_response_information: int | None = None,
        response_information: str | None = None,
        server_reference: str | None = None,
        reason_string: str | None = None,
        receive_maximum: int | None = None,
        topic_alias_maximum: int | None = None,
        topic_alias: int | None = None,
        maximum_qos: int | None = None,
        retain_available: int | None = None,
        user_properties: list[tuple[str, str]] | None = None,
        maximum_packet_size: int | None = None,
        wildcard_subscription_available: int | None = None,
        subscription_identifier_available: int | None = None,
        shared_subscription_available: int | None = None,
    ) -> None:
        self.is_shared = False
        self.payload_format_indicator = payload_format_indicator
        self.message_expiry_interval = message_expiry_interval
        self.content_type = content_type
        self.response_topic = response_topic
        self.correlation_data = correlation_data
        self.subscription_identifiers = subscription_identifiers
        self.session_expiry_interval = session_expiry_interval
        self.assigned_client_identifier = assigned_client_identifier
        self.server_keep_alive = server_keep_alive
        self.authentication_method = authentication_method
        self.authentication_data = authentication_data
        self.request_problem_information = request_problem_information
        self.will_delay_interval = will_delay_interval
        self.request_response_information = request_response_information
        self.response_information = response_information
        self.server_reference = server_reference
        self.reason_string = reason_string
        self.receive_maximum = receive_maximum
        self.topic_alias_maximum = topic_alias_maximum
        self.topic_alias = topic_alias
        self.maximum_qos = maximum_qos
        self.retain_available = retain_available
        self.user_properties = user_properties
        self.maximum_packet_size = maximum_packet_size
        self.wildcard_subscription_available = wildcard_subscription_available
        self.subscription_identifier_available = subscription_identifier_available
        self.shared_subscription_available = shared_subscription_available

    def present(self) -> list[tuple[str, object]]:
        """Return name and value of every property that is present, in the order of the
        identifiers."""
        return [(rule.name, getattr(self, rule.name)) for rule in RULES if is_present(self, rule)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Properties) and self.present() == other.present()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        raise TypeError("Properties is mutable and has no hash")

    def __repr__(self) -> str:
        return f"Properties({', '.join([f'{name}={value!r}' for name, value in self.present()])})"


def is_present(properties: Properties, rule: PropertyRule) -> bool:
    """Return whether the property of this rule is present; an empty list counts as absent."""
    value: object = getattr(properties, rule.name)
    return value is not None and value != []


@mypyc_attr(acyclic=True)
@final
class _PropertyWriter:
    """Appends properties to ``out``, each of which its carrier may have.

    Args:
        carrier: the packet type, WILL, or ANY_CARRIER.
    """

    def __init__(self, carrier: int) -> None:
        self.out = BytesWriter()
        self._carrier = carrier
        self._allowed: i64 = -1 if carrier == ANY_CARRIER else IDENTIFIERS_OF[carrier]

    def _begin(self, identifier: i64) -> None:
        """Append the identifier of the next property.

        Raises:
            LocalProtocolError: 0x81, the carrier may not have this property.
        """
        if not self._allowed >> identifier & 1:
            error = _misplaced_error(BY_IDENTIFIER[identifier], self._carrier)
            raise LocalProtocolError(MALFORMED_PACKET, error)
        self.out.append(u8(identifier))

    def flag(self, identifier: i64, value: int) -> None:
        """Append a property whose value is 0 or 1.

        Raises:
            LocalProtocolError: 0x82, it is neither.
        """
        self._begin(identifier)
        if value != 0 and value != 1:
            name = BY_IDENTIFIER[identifier].name
            raise LocalProtocolError(PROTOCOL_ERROR, f"{name} must be 0 or 1, not {value}")
        self.out.append(value)

    def two_bytes(self, identifier: i64, value: int, low: int = 0) -> None:
        """Append a property whose value has two bytes and is at least ``low``."""
        self._begin(identifier)
        _check_low(identifier, value, low)
        append_two_bytes(self.out, value)

    def four_bytes(self, identifier: i64, value: int, low: int = 0) -> None:
        """Append a property whose value has four bytes and is at least ``low``."""
        self._begin(identifier)
        _check_low(identifier, value, low)
        append_four_bytes(self.out, value)

    def varint(self, identifier: i64, value: int, low: int) -> None:
        """Append a property whose value is a variable byte integer of at least ``low``."""
        self._begin(identifier)
        _check_low(identifier, value, low)
        append_varint(self.out, value)

    def string(self, identifier: i64, value: str) -> None:
        """Append a property whose value is a string."""
        self._begin(identifier)
        append_string(self.out, value)

    def binary(self, identifier: i64, value: bytes) -> None:
        """Append a property whose value is binary data."""
        self._begin(identifier)
        append_binary(self.out, value)

    def pair(self, identifier: i64, name: str, value: str) -> None:
        """Append a property whose value is a pair of strings."""
        self._begin(identifier)
        append_string(self.out, name)
        append_string(self.out, value)


def encode_properties(properties: Properties) -> bytes:
    """Return the encoded properties in the order of their identifiers, without the property length.

    Raises:
        LocalProtocolError: the specification forbids a value (0x82), or a string or number cannot
            be encoded (0x81).
    """
    return _encoded(properties, ANY_CARRIER)


def _encoded(properties: Properties, carrier: int) -> bytes:
    writer = _PropertyWriter(carrier)
    _append_message_properties(writer, properties)
    _append_session_properties(writer, properties)
    _append_limits(writer, properties)
    return writer.out.getvalue()


def _append_message_properties(to: _PropertyWriter, p: Properties) -> None:
    """Append the properties with identifiers 0x01 to 0x0B."""
    if p.payload_format_indicator is not None:
        to.flag(0x01, p.payload_format_indicator)
    if p.message_expiry_interval is not None:
        to.four_bytes(0x02, p.message_expiry_interval)
    if p.content_type is not None:
        to.string(0x03, p.content_type)
    if p.response_topic is not None:
        if not is_response_topic(p.response_topic):  # [MQTT-3.3.2-14]
            raise LocalProtocolError(PROTOCOL_ERROR, "a response topic is empty or has wildcards")
        to.string(0x08, p.response_topic)
    if p.correlation_data is not None:
        to.binary(0x09, p.correlation_data)
    if p.subscription_identifiers is not None:
        for subscription_identifier in p.subscription_identifiers:
            to.varint(0x0B, subscription_identifier, 1)


def _append_session_properties(to: _PropertyWriter, p: Properties) -> None:
    """Append the properties with identifiers 0x11 to 0x1F."""
    if p.session_expiry_interval is not None:
        to.four_bytes(0x11, p.session_expiry_interval)
    if p.assigned_client_identifier is not None:
        to.string(0x12, p.assigned_client_identifier)
    if p.server_keep_alive is not None:
        to.two_bytes(0x13, p.server_keep_alive)
    if p.authentication_method is not None:
        to.string(0x15, p.authentication_method)
    if p.authentication_data is not None:
        to.binary(0x16, p.authentication_data)
    if p.request_problem_information is not None:
        to.flag(0x17, p.request_problem_information)
    if p.will_delay_interval is not None:
        to.four_bytes(0x18, p.will_delay_interval)
    if p.request_response_information is not None:
        to.flag(0x19, p.request_response_information)
    if p.response_information is not None:
        to.string(0x1A, p.response_information)
    if p.server_reference is not None:
        to.string(0x1C, p.server_reference)
    if p.reason_string is not None:
        to.string(0x1F, p.reason_string)


def _append_limits(to: _PropertyWriter, p: Properties) -> None:
    """Append the properties with identifiers 0x21 to 0x2A."""
    if p.receive_maximum is not None:
        to.two_bytes(0x21, p.receive_maximum, 1)
    if p.topic_alias_maximum is not None:
        to.two_bytes(0x22, p.topic_alias_maximum)
    if p.topic_alias is not None:
        to.two_bytes(0x23, p.topic_alias, 1)  # [MQTT-3.3.2-8]
    if p.maximum_qos is not None:
        to.flag(0x24, p.maximum_qos)
    if p.retain_available is not None:
        to.flag(0x25, p.retain_available)
    if p.user_properties is not None:
        for name, value in p.user_properties:  # in their order [MQTT-3.3.2-18]
            to.pair(0x26, name, value)
    if p.maximum_packet_size is not None:
        to.four_bytes(0x27, p.maximum_packet_size, 1)
    if p.wildcard_subscription_available is not None:
        to.flag(0x28, p.wildcard_subscription_available)
    if p.subscription_identifier_available is not None:
        to.flag(0x29, p.subscription_identifier_available)
    if p.shared_subscription_available is not None:
        to.flag(0x2A, p.shared_subscription_available)


def _check_low(identifier: i64, value: int, low: int) -> None:
    if value < low:
        name = BY_IDENTIFIER[identifier].name
        raise LocalProtocolError(PROTOCOL_ERROR, f"{name} must be at least {low}, not {value}")


def encode_for(properties: Properties | None, carrier: int) -> bytes:
    """Return the encoded properties for a packet of this type, or for WILL; empty for None.

    Raises:
        LocalProtocolError: the packet may not carry one of them (0x81), or as `encode_properties`.
    """
    if properties is None:
        return b""
    identifiers = properties.subscription_identifiers
    if identifiers is not None and len(identifiers) > 1 and carrier == SUBSCRIBE:
        raise LocalProtocolError(PROTOCOL_ERROR, "only PUBLISH has many subscription identifiers")
    return _encoded(properties, carrier)


def append_properties(out: BytesWriter, properties: Properties | None, carrier: int) -> None:
    """Append the property length and the properties; the length is 0 if there are none
    [MQTT-2.2.2-1]."""
    encoded = encode_for(properties, carrier)
    append_varint(out, len(encoded))
    out.write(encoded)


def decode_properties(data: bytes, start: int, end: int, allowed: int) -> Properties:
    """Decode the properties in data[start:end], which begins after the property length.

    Args:
        data: the bytes.
        start: the index of the first property.
        end: the index after the last property.
        allowed: the packet type that carries them; WILL for those of a will; ANY_CARRIER for
            stored properties.

    Raises:
        RemoteProtocolError: 0x81 if they are malformed, or have an identifier that does not exist
            or that the packet may not carry (v5 §2.2.2.2); 0x82 for a property that is there twice
            or a forbidden value; 0x94 for topic alias 0; 0x97 for more than USER_PROPERTIES_MAX
            user properties, unless ``allowed`` is ANY_CARRIER.
    """
    reader = Reader(data, start, end)
    properties = Properties()
    seen = 0
    pairs = 0
    while not reader.at_end():
        identifier = reader.varint()
        rule = BY_IDENTIFIER.get(identifier)
        if rule is None:
            raise RemoteProtocolError(MALFORMED_PACKET, f"no property has identifier {identifier}")
        if allowed != ANY_CARRIER and not rule.allows(allowed):
            raise RemoteProtocolError(MALFORMED_PACKET, _misplaced_error(rule, allowed))
        if seen >> identifier & 1 and not _may_repeat(rule, allowed):
            raise RemoteProtocolError(PROTOCOL_ERROR, f"{rule.name} is there twice")
        seen |= 1 << identifier
        if rule.wire_type == STRING_PAIR:
            pairs += 1
            if pairs > USER_PROPERTIES_MAX and allowed != ANY_CARRIER:
                raise RemoteProtocolError(
                    QUOTA_EXCEEDED, f"more than {USER_PROPERTIES_MAX} user properties in a packet"
                )
        _read_value(reader, rule, properties)
    return properties


def parse_properties(data: bytes) -> Properties:
    """Decode stored properties, the result of `encode_properties` for any packet type."""
    return decode_properties(data, 0, len(data), ANY_CARRIER)


def _may_repeat(rule: PropertyRule, carrier: int) -> bool:
    if rule.wire_type == STRING_PAIR:
        return True
    # v5 §3.3.2.3.8 and §3.8.2.1.2: many in a PUBLISH, one in a SUBSCRIBE.
    return rule.identifier == 0x0B and carrier in (PUBLISH, ANY_CARRIER)


def _misplaced_error(rule: PropertyRule, carrier: int) -> str:
    where = "a will" if carrier == WILL else packet_name(carrier)
    return f"{rule.name} does not belong into {where}"


def _read_value(reader: Reader, rule: PropertyRule, properties: Properties) -> None:
    """Read the value of one property into its attribute."""
    wire_type = rule.wire_type
    if wire_type == STRING_PAIR:
        pair = (reader.string(), reader.string())
        if properties.user_properties is None:
            properties.user_properties = [pair]
        else:
            properties.user_properties.append(pair)
    elif wire_type == STRING:
        text = reader.string()
        if rule.identifier == 0x08 and not is_response_topic(text):  # [MQTT-3.3.2-14]
            raise RemoteProtocolError(PROTOCOL_ERROR, "a response topic is empty or has wildcards")
        setattr(properties, rule.name, text)
    elif wire_type == BINARY:
        setattr(properties, rule.name, reader.binary())
    else:
        number = _read_number(reader, rule)
        if rule.identifier != 0x0B:
            setattr(properties, rule.name, number)
        elif properties.subscription_identifiers is None:
            properties.subscription_identifiers = [number]
        else:
            properties.subscription_identifiers.append(number)


def _read_number(reader: Reader, rule: PropertyRule) -> int:
    wire_type = rule.wire_type
    if wire_type == BYTE:
        number = reader.byte()
    elif wire_type == TWO_BYTES:
        number = reader.two_bytes()
    elif wire_type == FOUR_BYTES:
        number = reader.four_bytes()
    else:
        number = reader.varint()
    if number < rule.low or number > rule.high:
        # A topic alias of 0 has its own reason code [MQTT-3.3.2-8].
        reason = TOPIC_ALIAS_INVALID if rule.identifier == 0x23 else PROTOCOL_ERROR
        raise RemoteProtocolError(reason, f"{rule.name} may not be {number}")
    return number


def is_response_topic(topic: str) -> bool:
    """Return whether ``topic`` may be a response topic: not empty, and without wildcards."""
    return topic != "" and "+" not in topic and "#" not in topic
