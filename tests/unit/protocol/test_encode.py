"""Writing: what our own callers may not ask for, and the functions of the hot path."""

import pytest

from penstock.errors import LocalProtocolError
from penstock.protocol.encode import encode, encode_ack, encode_publish
from penstock.protocol.kinds import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, V5, V31, V311
from penstock.protocol.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
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
from penstock.protocol.properties import Properties, encode_properties

REFUSED: list[tuple[str, Packet, int, int]] = [
    ("PUBLISH with QoS 3", Publish("a", b"", 3, packet_id=1), V5, 0x81),
    ("PUBLISH with QoS -1", Publish("a", b"", -1, packet_id=1), V5, 0x81),
    ("PUBLISH without packet id", Publish("a", b"", 1), V311, 0x82),
    ("PUBLISH with a packet id too large", Publish("a", b"", 1, packet_id=65536), V311, 0x82),
    ("PUBLISH at QoS 0 with packet id", Publish("a", b"", packet_id=1), V5, 0x82),
    ("PUBLISH at QoS 0 with DUP", Publish("a", b"", dup=True), V5, 0x82),
    ("PUBLISH without a topic", Publish("", b""), V311, 0x82),
    ("PUBLISH without topic and alias", Publish("", b"", properties=Properties()), V5, 0x82),
    ("alias below 5", Publish("", b"", properties=Properties(topic_alias=1)), V311, 0x82),
    ("topic with U+0000", Publish("a\0", b""), V5, 0x81),
    ("topic with a surrogate", Publish("\ud800", b""), V5, 0x81),
    ("topic of 65,536 bytes", Publish("a" * 65536, b""), V5, 0x81),
    ("topic of 32,768 characters in 3.1", Publish("a" * 32768, b""), V31, 0x90),
    ("topic alias 0", Publish("a", b"", properties=Properties(topic_alias=0)), V5, 0x82),
    ("property misplaced", Publish("a", b"", properties=Properties(maximum_qos=1)), V5, 0x81),
    ("CONNECT of another version", Connect("a", V311), V5, 0x82),
    ("password alone", Connect("a", V311, password=b""), V311, 0x81),
    ("will QoS 3", Connect("a", V5, will=Will("w", b"", 3)), V5, 0x81),
    ("will without a topic", Connect("a", V5, will=Will("", b"")), V5, 0x82),
    ("will of 65,536 bytes", Connect("a", V5, will=Will("w", bytes(65536))), V5, 0x81),
    ("keep alive of 65,536 s", Connect("a", V5, keep_alive_s=65536), V5, 0x81),
    (
        "authentication data alone",
        Connect("a", properties=Properties(authentication_data=b"")),
        V5,
        0x82,
    ),
    ("CONNACK with a reason of others", Connack(0x8E), V5, 0x82),
    ("session present in a refusal", Connack(0x87, True), V311, 0x82),
    ("PUBACK for packet id 0", Puback(0), V5, 0x82),
    ("PUBACK with a reason of others", Puback(1, 0x92), V5, 0x82),
    ("PUBREL with DUP", Pubrel(1, dup=True), V311, 0x81),
    ("SUBSCRIBE without filters", Subscribe(1, []), V5, 0x82),
    ("SUBSCRIBE with packet id 0", Subscribe(0, [Subscription("a")]), V5, 0x82),
    ("SUBSCRIBE with an empty filter", Subscribe(1, [Subscription("")]), V5, 0x82),
    ("SUBSCRIBE with QoS 3", Subscribe(1, [Subscription("a", 3)]), V311, 0x82),
    ("retain handling 3", Subscribe(1, [Subscription("a", retain_handling=3)]), V5, 0x82),
    ("no local, shared", Subscribe(1, [Subscription("$share/g/a", no_local=True)]), V5, 0x82),
    (
        "two subscription identifiers",
        Subscribe(1, [Subscription("a")], Properties(subscription_identifiers=[1, 2])),
        V5,
        0x82,
    ),
    ("SUBACK without codes", Suback(1, []), V5, 0x82),
    ("SUBACK with 3", Suback(1, [3]), V5, 0x82),
    ("UNSUBSCRIBE without filters", Unsubscribe(1, []), V5, 0x82),
    ("UNSUBACK without codes", Unsuback(1, []), V5, 0x82),
    ("DISCONNECT with CONNACK's reason", Disconnect(0x84), V5, 0x82),
    ("AUTH below 5", Auth(), V311, 0x81),
    ("AUTH without a method", Auth(0x18), V5, 0x82),
]


@pytest.mark.parametrize(
    ("packet", "version", "reason"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_refused(packet: Packet, version: int, reason: int) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        encode(packet, version)
    assert caught.value.reason == reason


@pytest.mark.parametrize("version", [0, 2, 6])
def test_unknown_version(version: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode(Puback(1), version)


@pytest.mark.parametrize("version", [V31, V311])
def test_older_versions_leave_out_what_they_cannot_say(version: int) -> None:
    properties = Properties(reason_string="no", user_properties=[("a", "b")])
    assert encode(Puback(1, 0x97, properties), version) == b"\x40\x02\x00\x01"
    assert encode(Connack(0x97, False, properties), version) == b"\x20\x02\x00\x03"
    assert (
        encode(Suback(1, [0, 0x97, 0x8F], properties), version) == b"\x90\x05\x00\x01\x00\x80\x80"
    )
    assert encode(Unsuback(1, [0x11], properties), version) == b"\xb0\x02\x00\x01"
    assert encode(Disconnect(0x8E, properties), version) == b"\xe0\x00"
    assert encode(Publish("a", b"x", properties=properties), version) == b"\x30\x04\x00\x01ax"
    options = Subscription("a", 1, True, True, 2)
    assert encode(Subscribe(1, [options]), version) == b"\x82\x06\x00\x01\x00\x01a\x01"


def test_session_present_is_not_told_in_31() -> None:
    assert encode(Connack(0, True), V31) == b"\x20\x02\x00\x00"


@pytest.mark.parametrize("version", [V31, V311, V5])
@pytest.mark.parametrize("payload_size", [0, 1, 120, 122, 123, 4095, 4096, 16376, 2_097_145])
def test_encode_publish_is_encode(version: int, payload_size: int) -> None:
    """At all sizes where the header grows or the payload is joined instead of copied."""
    properties = Properties(content_type="t", user_properties=[("a", "b")] * 20)
    packet = Publish("a/\u00e9", bytes(payload_size), 1, True, True, 9, properties)
    fast = encode_publish(
        "a/\u00e9".encode(),
        packet.payload,
        1,
        True,
        True,
        9,
        version,
        encode_properties(properties),
    )
    assert fast == encode(packet, version)
    assert fast.endswith(packet.payload)


def test_encode_publish_without_properties() -> None:
    """[MQTT-2.2.2-1], [MQTT-2.2.1-2], [MQTT3-2.3.1-5]."""
    assert encode_publish(b"a", b"x", 0, False, False, 0, V311, b"") == b"\x30\x04\x00\x01ax"
    assert encode_publish(b"a", b"x", 0, False, False, 0, V5, b"") == b"\x30\x05\x00\x01a\x00x"
    assert encode_publish(b"a", b"", 2, True, True, 258, V311, b"") == b"\x3d\x05\x00\x01a\x01\x02"


@pytest.mark.parametrize(
    ("topic", "qos", "dup", "packet_id"),
    [
        (b"a", 0, True, 0),
        (b"a", 0, False, 1),
        (b"a", 1, False, 0),
        (b"a", 3, False, 1),
        (b"a", -1, False, 1),
        (b"a", 2, False, 65536),
        (b"a" * 65536, 0, False, 0),
    ],
)
def test_encode_publish_refuses(topic: bytes, qos: int, dup: bool, packet_id: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode_publish(topic, b"", qos, False, dup, packet_id, V5, b"")


@pytest.mark.parametrize("version", [V31, V311, V5])
@pytest.mark.parametrize(
    ("packet_type", "kind"),
    [(PUBACK, Puback), (PUBREC, Pubrec), (PUBREL, Pubrel), (PUBCOMP, Pubcomp)],
)
def test_encode_ack_is_encode(version: int, packet_type: int, kind: type[Ack]) -> None:
    failure = 0x92 if packet_type in (PUBREL, PUBCOMP) else 0x97
    for packet_id in (1, 255, 256, 65535):
        for reason_code in (0, failure):
            expected = encode(kind(packet_id, reason_code), version)
            assert encode_ack(packet_type, packet_id, reason_code, version) == expected


@pytest.mark.parametrize(
    ("packet_type", "packet_id", "reason_code"),
    [(PUBLISH, 1, 0), (8, 1, 0), (PUBACK, 0, 0), (PUBACK, 65536, 0), (PUBACK, 1, 0x92)],
)
def test_encode_ack_refuses(packet_type: int, packet_id: int, reason_code: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode_ack(packet_type, packet_id, reason_code, V5)
