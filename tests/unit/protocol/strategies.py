"""Hypothesis strategies for packets that every version (or one) can carry."""

from hypothesis import strategies as st

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
    V5,
    V31,
    V311,
)
from penstock.protocol.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from penstock.protocol.properties import Properties
from penstock.protocol.property_rules import (
    BINARY,
    RULES,
    STRING,
    STRING_PAIR,
    WILL,
    PropertyRule,
)
from penstock.protocol.reasons import all_reasons, is_allowed, reason_of_connack_code

VERSIONS = st.sampled_from([V31, V311, V5])
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
NAMES = TEXT.filter(bool)
RESPONSE_TOPICS = NAMES.filter(lambda topic: "+" not in topic and "#" not in topic)
BLOBS = st.binary(max_size=300)
QOS = st.integers(0, 2)
PACKET_IDS = st.integers(1, 65535)


def reasons_of(packet_type: int) -> st.SearchStrategy[int]:
    return st.sampled_from([r for r in all_reasons() if is_allowed(r, packet_type)])


def values_of(rule: PropertyRule, carrier: int) -> st.SearchStrategy[object]:
    if rule.wire_type == STRING_PAIR:
        return st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4)
    if rule.name == "response_topic":
        return RESPONSE_TOPICS
    if rule.wire_type == STRING:
        return TEXT
    if rule.wire_type == BINARY:
        return BLOBS
    numbers = st.integers(rule.low, rule.high)
    if rule.name == "subscription_identifiers":
        return st.lists(numbers, min_size=1, max_size=4 if carrier == PUBLISH else 1)
    return numbers


def properties_of(carrier: int) -> st.SearchStrategy[Properties | None]:
    """Properties this packet type may carry; None when none is drawn, as decoding gives it."""
    rules = [rule for rule in RULES if rule.allows(carrier)]
    optional = {rule.name: st.none() | values_of(rule, carrier) for rule in rules}
    return st.fixed_dictionaries(optional).map(_properties_with)


def _properties_with(values: dict[str, object]) -> Properties | None:
    properties = Properties()
    for name, value in values.items():
        setattr(properties, name, value)
    return properties if properties.present() else None


def _wills(version: int) -> st.SearchStrategy[Will]:
    properties = properties_of(WILL) if version == V5 else st.none()
    return st.builds(Will, NAMES, BLOBS, QOS, st.booleans(), properties)


def _has_method_for_data(packet: Connect) -> bool:
    properties = packet.properties
    return (
        properties is None
        or properties.authentication_data is None
        or properties.authentication_method is not None
    )


def connects(version: int) -> st.SearchStrategy[Connect]:
    credentials = st.tuples(st.none() | TEXT, st.none() | BLOBS)
    if version != V5:
        credentials = credentials.filter(lambda pair: pair[0] is not None or pair[1] is None)
    return st.builds(
        lambda client_id, clean, keep_alive_s, will, pair, properties: Connect(
            client_id, version, clean, keep_alive_s, will, pair[0], pair[1], properties
        ),
        TEXT,
        st.booleans(),
        st.integers(0, 65535),
        st.none() | _wills(version),
        credentials,
        properties_of(CONNECT) if version == V5 else st.none(),
    ).filter(_has_method_for_data)


def connacks(version: int) -> st.SearchStrategy[Connack]:
    if version == V5:
        reasons = reasons_of(CONNACK)
    else:
        reasons = st.integers(0, 5).map(reason_of_connack_code)
    properties = properties_of(CONNACK) if version == V5 else st.none()
    return st.builds(
        lambda reason, present, properties: Connack(
            reason, present and reason == 0 and version != V31, properties
        ),
        reasons,
        st.booleans(),
        properties,
    )


def publishes(version: int, *, from_client: bool = False) -> st.SearchStrategy[Publish]:
    @st.composite
    def publish(draw: st.DrawFn) -> Publish:
        properties = draw(properties_of(PUBLISH)) if version == V5 else None
        if properties is not None and from_client:
            properties.subscription_identifiers = None
            properties = properties if properties.present() else None
        has_alias = properties is not None and properties.topic_alias is not None
        topic = draw(TEXT if has_alias else NAMES)
        qos = draw(QOS)
        return Publish(
            topic,
            draw(BLOBS),
            qos,
            draw(st.booleans()),
            draw(st.booleans()) if qos else False,
            draw(PACKET_IDS) if qos else 0,
            properties,
        )

    return publish()


def _acks(version: int) -> st.SearchStrategy[Packet]:
    five = version == V5
    kinds = ((Puback, PUBACK), (Pubrec, PUBREC), (Pubcomp, PUBCOMP))
    packets: list[st.SearchStrategy[Packet]] = [
        st.builds(
            kind,
            PACKET_IDS,
            reasons_of(packet_type) if five else st.just(0),
            properties_of(packet_type) if five else st.none(),
        )
        for kind, packet_type in kinds
    ]
    packets.append(
        st.builds(
            Pubrel,
            PACKET_IDS,
            reasons_of(PUBREL) if five else st.just(0),
            properties_of(PUBREL) if five else st.none(),
            st.booleans() if version == V31 else st.just(False),
        )
    )
    return st.one_of(packets)


def _subscriptions(version: int) -> st.SearchStrategy[Subscription]:
    if version != V5:
        return st.builds(Subscription, NAMES, QOS)
    return st.builds(
        Subscription,
        NAMES.filter(lambda topic_filter: not topic_filter.startswith("$share/")),
        QOS,
        st.booleans(),
        st.booleans(),
        st.integers(0, 2),
    )


def from_client(version: int) -> st.SearchStrategy[Packet]:
    """What a client sends after CONNECT."""
    five = version == V5
    packets: list[st.SearchStrategy[Packet]] = [
        publishes(version, from_client=True),
        _acks(version),
        st.builds(
            Subscribe,
            PACKET_IDS,
            st.lists(_subscriptions(version), min_size=1, max_size=5),
            properties_of(SUBSCRIBE) if five else st.none(),
        ),
        st.builds(
            Unsubscribe,
            PACKET_IDS,
            st.lists(NAMES, min_size=1, max_size=5),
            properties_of(UNSUBSCRIBE) if five else st.none(),
        ),
        st.just(Pingreq()),
        st.builds(
            Disconnect,
            reasons_of(DISCONNECT) if five else st.just(0),
            properties_of(DISCONNECT) if five else st.none(),
        ),
    ]
    if five:
        packets.append(_auths())
    return st.one_of(packets)


def _auths() -> st.SearchStrategy[Auth]:
    with_method = properties_of(AUTH).filter(
        lambda properties: properties is not None and properties.authentication_method is not None
    )
    return st.just(Auth()) | st.builds(Auth, reasons_of(AUTH), with_method)


def _server_disconnects() -> st.SearchStrategy[Disconnect]:
    without_expiry = properties_of(DISCONNECT).filter(
        lambda properties: properties is None or properties.session_expiry_interval is None
    )
    return st.builds(Disconnect, reasons_of(DISCONNECT), without_expiry)


def from_server(version: int) -> st.SearchStrategy[Packet]:
    """What a server sends."""
    five = version == V5
    packets: list[st.SearchStrategy[Packet]] = [
        connacks(version),
        publishes(version),
        _acks(version),
        st.builds(
            Suback,
            PACKET_IDS,
            st.lists(
                reasons_of(SUBACK) if five else st.sampled_from([0, 1, 2, 0x80]),
                min_size=1,
                max_size=5,
            ),
            properties_of(SUBACK) if five else st.none(),
        ),
        st.builds(
            Unsuback,
            PACKET_IDS,
            st.lists(reasons_of(UNSUBACK), min_size=1, max_size=5) if five else st.just([]),
            properties_of(UNSUBACK) if five else st.none(),
        ),
        st.just(Pingresp()),
    ]
    if five:
        packets += [_auths(), _server_disconnects()]
    return st.one_of(packets)
