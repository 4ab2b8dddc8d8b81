"""Every property alone, in every packet, twice, and wrong."""

import pytest

from penstock.errors import LocalProtocolError, RemoteProtocolError
from penstock.protocol.kinds import PUBLISH
from penstock.protocol.properties import (
    USER_PROPERTIES_MAX,
    Properties,
    decode_properties,
    encode_for,
    encode_properties,
    parse_properties,
)
from penstock.protocol.property_rules import RULES
from penstock.protocol.reasons import QUOTA_EXCEEDED
from tests.vectors.properties import (
    EVERY_CARRIER,
    MISTAKES,
    PROPERTIES,
    PropertyMistake,
    PropertyVector,
)

IDS = [vector.data.hex(" ") for vector in PROPERTIES]


def test_every_property_of_the_table_has_a_vector() -> None:
    names = {name for vector in PROPERTIES for name, _ in vector.properties.present()}
    assert names == {rule.name for rule in RULES}
    assert len(RULES) == 27


@pytest.mark.parametrize("vector", PROPERTIES, ids=IDS)
def test_both_ways(vector: PropertyVector) -> None:
    assert parse_properties(vector.data) == vector.properties
    assert encode_properties(vector.properties) == vector.data


def test_a_stored_message_may_have_more_user_properties_than_a_packet_may() -> None:
    """A log of an older version must be readable."""
    pairs = [("a", "b")] * (USER_PROPERTIES_MAX + 1)
    encoded = encode_properties(Properties(user_properties=pairs))
    assert parse_properties(encoded).user_properties == pairs
    with pytest.raises(RemoteProtocolError) as caught:
        decode_properties(encoded, 0, len(encoded), PUBLISH)
    assert caught.value.reason == QUOTA_EXCEEDED


@pytest.mark.parametrize("carrier", sorted(EVERY_CARRIER))
@pytest.mark.parametrize("vector", PROPERTIES, ids=IDS)
def test_carriers(vector: PropertyVector, carrier: int) -> None:
    """A property outside its packets is a malformed packet (v5 §2.2.2.2)."""
    end = len(vector.data)
    if carrier in vector.carriers:
        assert decode_properties(vector.data, 0, end, carrier) == vector.properties
        assert encode_for(vector.properties, carrier) == vector.data
        return
    with pytest.raises(RemoteProtocolError) as remote:
        decode_properties(vector.data, 0, end, carrier)
    assert remote.value.reason == 0x81
    with pytest.raises(LocalProtocolError) as local:
        encode_for(vector.properties, carrier)
    assert local.value.reason == 0x81


@pytest.mark.parametrize("vector", PROPERTIES, ids=IDS)
def test_twice(vector: PropertyVector) -> None:
    """Only user properties may repeat, and subscription identifiers in PUBLISH."""
    for carrier in vector.carriers:
        repeats = vector.data[0] == 0x26 or (vector.data[0], carrier) == (0x0B, 3)
        if repeats:
            found = decode_properties(vector.data * 2, 0, 2 * len(vector.data), carrier)
            assert encode_properties(found) == vector.data * 2
            continue
        with pytest.raises(RemoteProtocolError) as caught:
            decode_properties(vector.data * 2, 0, 2 * len(vector.data), carrier)
        assert caught.value.reason == 0x82


@pytest.mark.parametrize("vector", PROPERTIES, ids=IDS)
def test_cut_off(vector: PropertyVector) -> None:
    for end in range(1, len(vector.data)):
        with pytest.raises(RemoteProtocolError) as caught:
            decode_properties(vector.data, 0, end, min(vector.carriers))
        assert caught.value.reason == 0x81


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.name for mistake in MISTAKES])
def test_mistakes(mistake: PropertyMistake) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_properties(mistake.data, 0, len(mistake.data), mistake.carrier)
    assert caught.value.reason == mistake.reason


@pytest.mark.parametrize(
    "properties",
    [
        Properties(payload_format_indicator=2),
        Properties(maximum_qos=-1),
        Properties(receive_maximum=0),
        Properties(receive_maximum=65536),
        Properties(topic_alias=0),
        Properties(maximum_packet_size=0),
        Properties(session_expiry_interval=2**32),
        Properties(session_expiry_interval=-1),
        Properties(subscription_identifiers=[0]),
        Properties(subscription_identifiers=[268_435_456]),
        Properties(response_topic="a/#"),
        Properties(response_topic=""),
        Properties(content_type="\0"),
        Properties(reason_string="\udfff"),
        Properties(correlation_data=bytes(65536)),
        Properties(user_properties=[("a" * 65536, "")]),
    ],
    ids=repr,
)
def test_values_we_do_not_write(properties: Properties) -> None:
    with pytest.raises(LocalProtocolError):
        encode_properties(properties)


def test_order_is_that_of_the_identifiers_and_of_the_user() -> None:
    shuffled = Properties(
        user_properties=[("z", "1"), ("a", "2"), ("z", "1")], payload_format_indicator=1
    )
    assert encode_properties(shuffled) == (
        b"\x01\x01\x26\x00\x01z\x00\x011\x26\x00\x01a\x00\x012\x26\x00\x01z\x00\x011"
    )


def test_empty_lists_are_absent() -> None:
    empty = Properties(user_properties=[], subscription_identifiers=[])
    assert empty == Properties()
    assert encode_for(empty, 2) == b""
    assert empty.present() == []


def test_equality_and_appearance() -> None:
    one = Properties(topic_alias=1, content_type="t")
    assert one == Properties(content_type="t", topic_alias=1)
    assert one != Properties(content_type="t")
    assert one != "t"
    assert repr(one) == "Properties(content_type='t', topic_alias=1)"
    with pytest.raises(TypeError):
        hash(one)
