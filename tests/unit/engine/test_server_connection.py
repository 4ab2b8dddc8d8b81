"""The accepting side of a connection: its table, and what differs between the versions."""

import pytest

from penstock.engine.values import drop_reasons
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.options import Offers
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
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
from tests.unit.engine.bench import Bench, Line, farewell, publishes

VERSIONS = (3, 4, 5)


# -- the table -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "packet", [Pingreq(), Disconnect(), Publish("t", b""), Subscribe(1, [Subscription("t", 0)])]
)
def test_the_first_packet_is_connect(packet: Packet, version: int) -> None:
    """[MQTT-3.1.0-1]: closed without an answer."""
    bench = Bench()
    line = bench.line(version)
    line.send(packet)
    assert line.connection.link.is_closed
    assert line.read() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_connect_is_a_protocol_error(version: int) -> None:
    """[MQTT-3.1.0-2]"""
    bench = Bench()
    line = bench.join("c", version)
    line.send(Connect("c", version, True, 0))
    assert line.connection.link.is_closed
    if version == 5:
        assert farewell(line) == reasons.PROTOCOL_ERROR


def test_auth_was_not_agreed_upon() -> None:
    bench = Bench()
    line = bench.join("c", 5)
    line.send(Auth(0x18, Properties(authentication_method="x")))
    assert farewell(line) == reasons.PROTOCOL_ERROR


def test_packets_after_the_end_are_not_heard() -> None:
    bench = Bench()
    line = bench.join("c", 4)
    line.send(Disconnect(), Publish("t", b"", 1, packet_id=1))
    line.send(Publish("t", b"", 1, packet_id=2))
    assert bench.server.context.batch.next_offset == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_may_come_one_by_one(version: int) -> None:
    bench = Bench()
    line = bench.line(version)
    packets = [Connect("c", version, True, 0), Publish("t", b"x", 1, packet_id=5), Pingreq()]
    for byte in b"".join(encode(packet, version) for packet in packets):
        line.receive(bytes([byte]))
    bench.commit()
    kinds = [type(packet).__name__ for packet in line.read()]
    assert sorted(kinds) == ["Connack", "Pingresp", "Puback"]
    assert kinds[0] == "Connack"


# -- CONNECT -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connect", "code"),
    [
        (Connect("", 3, True, 0), reasons.CLIENT_IDENTIFIER_NOT_VALID),
        (Connect("c" * 24, 3, True, 0), reasons.CLIENT_IDENTIFIER_NOT_VALID),
        (Connect("c" * 23, 3, True, 0), reasons.SUCCESS),
        (Connect("", 4, False, 0), reasons.CLIENT_IDENTIFIER_NOT_VALID),
        (Connect("", 4, True, 0), reasons.SUCCESS),
        (Connect("c" * 24, 4, True, 0), reasons.SUCCESS),
        (Connect("", 5, False, 0), reasons.SUCCESS),
        (
            Connect("c", 5, True, 0, properties=Properties(authentication_method="x")),
            reasons.BAD_AUTHENTICATION_METHOD,
        ),
    ],
)
def test_connect_is_judged(connect: Connect, code: int) -> None:
    """[MQTT3-3.1.3-8] [MQTT3-3.1.3-9] [V31-3.1-CLIENT-ID-REFUSED]"""
    bench = Bench()
    line, connack = bench.connect(connect)
    assert connack.reason_code == code
    assert line.connection.link.is_closed == (code != reasons.SUCCESS)
    assert len(bench.server.registry.sessions) == (code == reasons.SUCCESS)


@pytest.mark.parametrize(
    ("limits_name", "characters", "taken"),
    [("old", 0, False), ("old", 24, True), ("old", 64, True), ("old", 65, False), ("", 24, False)],
)
def test_longer_client_identifiers_of_mqtt_31_where_allowed(
    limits_name: str, characters: int, taken: bool
) -> None:
    """23 characters (v3.1 §3.1) unless a setting of its listener relaxes it."""
    bench = Bench(limits_by_name={"old": EngineLimits(v31_client_id_len_max=64, name="old")})
    _, connack = bench.connect(Connect("ü" * characters, 3, True, 0), limits_name)
    code = reasons.SUCCESS if taken else reasons.CLIENT_IDENTIFIER_NOT_VALID
    assert connack.reason_code == code


def test_a_client_without_identifier_is_told_its_own() -> None:
    """[MQTT-3.1.3-7] [MQTT-3.2.2-16]"""
    bench = Bench()
    names = set()
    for _ in range(3):
        line, connack = bench.connect(Connect("", 5, True, 0))
        assert connack.properties is not None
        assert connack.properties.assigned_client_identifier == line.connection.client_id
        names.add(line.connection.client_id)
    assert len(names) == 3


@pytest.mark.parametrize(("level", "version"), [(1, 4), (2, 4), (6, 5), (127, 5)])
def test_an_unknown_version_is_told_in_a_known_one(level: int, version: int) -> None:
    """[MQTT-3.1.2-2]"""
    bench = Bench()
    line = bench.line(version)
    line.receive(b"\x10\x0d\x00\x04MQTT" + bytes([level]) + b"\x02\x00\x00\x00\x01c")
    (answer,) = line.read()
    assert isinstance(answer, Connack)
    assert answer.reason_code == reasons.UNSUPPORTED_PROTOCOL_VERSION
    assert line.connection.link.is_closed


def test_connack_of_mqtt_5_says_the_limits() -> None:
    bench = Bench(EngineLimits(receive_maximum=7, max_packet_size_bytes=999, topic_alias_maximum=3))
    _, connack = bench.connect(Connect("c", 5, True, 0))
    assert connack.properties == Properties(
        receive_maximum=7,
        maximum_packet_size=999,
        topic_alias_maximum=3,
        user_properties=[("penstock-acknowledged", "memory")],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_session_present(version: int) -> None:
    """[MQTT-3.2.2-3]; MQTT 3.1 has no such flag."""
    bench = Bench()
    bench.join("c", version, durable=True).cut()
    line = bench.line(version)
    properties = Properties(session_expiry_interval=60) if version == 5 else None
    line.send(Connect("c", version, False, 0, properties=properties))
    bench.commit()
    (connack,) = line.read()
    assert isinstance(connack, Connack)
    assert connack.session_present == (version > 3)


# -- the end -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_shutting_down_is_told_in_mqtt_5(version: int) -> None:
    bench = Bench()
    line = bench.join("c", version)
    bench.server.shut_down(reasons.SERVER_SHUTTING_DOWN, "maintenance", bench.now)
    assert line.connection.link.is_closed
    if version == 5:
        assert farewell(line) == reasons.SERVER_SHUTTING_DOWN
    else:
        assert line.read() == []


def test_a_farewell_fits_what_the_client_accepts() -> None:
    """[MQTT-3.14.2-3]"""
    bench = Bench()
    line = bench.join("c", 5, max_packet_size=20)
    line.read()
    line.connection.close(reasons.SERVER_BUSY, "a reason far too long to tell", bench.now)
    assert line.read() == [Disconnect(reasons.SERVER_BUSY)]


def test_the_end_is_settled_once() -> None:
    bench = Bench()
    line = bench.join("c", 5, will=Will("will", b"x", 1))
    line.cut()
    line.cut()
    line.connection.close(reasons.SERVER_BUSY, "late", bench.now)
    line.connection.tick(bench.now)
    assert bench.server.context.batch.next_offset == 1
    assert bench.server.connections == {}


# -- PUBLISH -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_qos_2_flow(version: int) -> None:
    """[MQTT-4.3.3-10] [MQTT-4.3.3-11]: one message, however often PUBLISH and PUBREL come."""
    bench = Bench()
    line = bench.join("p", version, durable=True)
    for dup in (False, True):
        line.send(Publish("t", b"x", 2, dup=dup, packet_id=9))
        bench.commit()
        assert line.read() == [Pubrec(9)]
    line.send(Pubrel(9))
    line.send(Pubrel(9))
    bench.commit()
    missing = reasons.PACKET_IDENTIFIER_NOT_FOUND if version == 5 else 0
    assert line.read() == [Pubcomp(9), Pubcomp(9, missing)]
    rows = bench.store.read(range(bench.server.context.batch.next_offset))
    assert [row.internal for row in rows.values()].count(False) == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_nobody_to_deliver_to(qos: int) -> None:
    """MQTT 5 may be told (§3.4.2.1); a message that the log has is not for nobody."""
    bench = Bench(streams=("kept",))
    line = bench.join("p", 5)
    for topic, code in (("kept", reasons.SUCCESS), ("t", reasons.NO_MATCHING_SUBSCRIBERS)):
        line.send(Publish(topic, b"", qos, packet_id=1 if topic == "t" else 2))
        bench.commit()
        (answer,) = line.read()
        assert isinstance(answer, Puback | Pubrec)
        assert answer.reason_code == code


@pytest.mark.parametrize("topic", ["$SYS/x", "$SYS", "$penstock/x", "$penstock"])
@pytest.mark.parametrize("version", VERSIONS)
def test_system_topics_are_the_brokers(version: int, topic: str) -> None:
    """Also the parent, which "$SYS/#" matches too (MQTT 5 §4.7.1.2)."""
    bench = Bench(streams=("$SYS/#", "$penstock/#"))
    line = bench.join("p", version)
    line.send(Publish(topic, b""), Publish(topic, b"", 1, packet_id=1))
    line.send(Publish(topic, b"", 2, packet_id=2))
    bench.commit()
    code = reasons.NOT_AUTHORIZED if version == 5 else 0
    assert line.read() == [Puback(1, code), Pubrec(2, code)]
    assert bench.server.drops.counts[drop_reasons.NO_PERMISSION] == 3
    assert bench.server.context.batch.next_offset == 0


@pytest.mark.parametrize("version", [4, 5])
def test_a_topic_too_deep_is_a_protocol_error(version: int) -> None:
    bench = Bench(EngineLimits(topic_levels_max=3))
    line = bench.join("p", version)
    line.send(Publish("a/b/c/d", b""))
    assert line.connection.link.is_closed
    if version == 5:
        assert farewell(line) == reasons.TOPIC_NAME_INVALID


@pytest.mark.parametrize("character", ["\n", "\x7f", "\x85"])
def test_control_characters_in_topics_are_refused_where_they_are_not_wanted(character: str) -> None:
    topic = f"a{character}b"
    accepts = Bench()
    line = accepts.join("p")
    line.send(Publish(topic, b"", 1, packet_id=1), Subscribe(2, [Subscription(topic, 0)]))
    accepts.commit()
    assert line.read() == [Puback(1, 0), Suback(2, [0])]
    refuses = Bench(EngineLimits(control_characters_in_topics=False))
    line = refuses.join("p")
    shared = Subscription(f"$share/{topic}/t", 0)
    line.send(Subscribe(2, [Subscription(topic, 0), shared, Subscription("a\u00a0b", 0)]))
    refuses.commit()
    invalid = reasons.TOPIC_FILTER_INVALID
    assert line.read() == [Suback(2, [invalid, invalid, 0])]
    line.send(Publish(topic, b""))
    assert farewell(line) == reasons.TOPIC_NAME_INVALID
    _, connack = refuses.connect(Connect("w", 5, True, 0, Will(topic, b"")))
    assert connack.reason_code == reasons.TOPIC_NAME_INVALID


def alias(topic: str, number: int) -> Publish:
    return Publish(topic, b"", properties=Properties(topic_alias=number))


def test_topic_aliases() -> None:
    """[MQTT-3.3.2-12] [MQTT-3.3.2-7]: defined, used, defined anew; gone with the connection."""
    bench = Bench()
    line = bench.join("p", 5)
    line.send(alias("a", 1), alias("", 1), alias("b", 1), alias("", 1))
    bench.commit()
    assert [bench.store.read([n])[n].topic for n in range(4)] == ["a", "a", "b", "b"]
    assert bench.store.read([1])[1].properties == b"", "an alias is not forwarded"
    again = bench.join("p", 5)
    again.send(alias("", 1))
    assert farewell(again) == reasons.PROTOCOL_ERROR


def test_topic_aliases_have_a_maximum() -> None:
    """[MQTT-3.3.2-9]"""
    bench = Bench(EngineLimits(topic_alias_maximum=2))
    line = bench.join("p", 5)
    line.send(alias("a", 2))
    assert not line.connection.link.is_closed
    line.send(alias("a", 3))
    assert farewell(line) == reasons.TOPIC_ALIAS_INVALID


# -- Receive Maximum -----------------------------------------------------------------------


def receive_maximum_bench(version: int = 5) -> tuple[Bench, Line]:
    bench = Bench(EngineLimits(receive_maximum=2))
    return bench, bench.join("p", version, durable=True)


@pytest.mark.parametrize("qos", [1, 2])
def test_more_than_the_receive_maximum_is_a_protocol_error(qos: int) -> None:
    """[MQTT-3.3.4-7]"""
    _, line = receive_maximum_bench()
    line.send(*[Publish("t", b"", qos, packet_id=n) for n in (1, 2)])
    assert not line.connection.link.is_closed
    line.send(Publish("t", b"", 0), Publish("t", b"", qos, packet_id=3))
    assert farewell(line) == reasons.RECEIVE_MAXIMUM_EXCEEDED


def test_a_released_acknowledgement_makes_room() -> None:
    bench, line = receive_maximum_bench()
    for number in range(1, 20):
        line.send(Publish("t", b"", 1, packet_id=number))
        bench.commit()
    line.send(*[Publish("t", b"", 2, packet_id=n) for n in (1, 2)])
    bench.commit()
    line.send(Pubrel(1), Pubrel(2))
    bench.commit()
    line.send(*[Publish("t", b"", 2, packet_id=n) for n in (3, 4)])
    assert not line.connection.link.is_closed


def test_pubrec_makes_no_room() -> None:
    bench, line = receive_maximum_bench()
    line.send(*[Publish("t", b"", 2, packet_id=n) for n in (1, 2)])
    bench.commit()
    line.send(Publish("t", b"", 2, packet_id=3))
    assert farewell(line) == reasons.RECEIVE_MAXIMUM_EXCEEDED


def test_a_repeated_message_takes_no_room() -> None:
    bench, line = receive_maximum_bench()
    line.send(*[Publish("t", b"", 2, packet_id=n) for n in (1, 2)])
    line.cut()
    line = bench.join("p", 5, durable=True)
    line.send(*[Publish("t", b"", 2, dup=True, packet_id=n) for n in (1, 2)])
    assert not line.connection.link.is_closed


@pytest.mark.parametrize("known", [True, False])
def test_the_count_starts_anew_with_a_connection(known: bool) -> None:
    """MQTT 5 §4.9: a PUBREL sent again takes nothing of the quota, its PUBCOMP adds to it.

    ``known``: whether PUBREL was already heard on the connection before.
    """
    bench, line = receive_maximum_bench()
    line.send(*[Publish("t", b"", 2, packet_id=n) for n in (1, 2)])
    bench.commit()
    if not known:
        line.send(Pubrel(1), Pubrel(2))
        bench.commit()
    line.cut()
    line = bench.join("p", 5, durable=True)
    line.send(Pubrel(1), Pubrel(2))
    line.send(*[Publish("t", b"", 1, packet_id=n) for n in (3, 4)])
    bench.commit()
    assert not line.connection.link.is_closed


@pytest.mark.parametrize("version", [3, 4])
def test_older_clients_are_slowed_down_instead(version: int) -> None:
    bench, line = receive_maximum_bench(version)
    line.send(*[Publish("t", b"", 1, packet_id=n) for n in range(1, 10)])
    before = line.connection.is_saturated
    bench.commit()
    assert (before, line.connection.is_saturated) == (True, False)
    assert not line.connection.link.is_closed
    assert len(line.read()) == 9


# -- SUBSCRIBE, UNSUBSCRIBE ----------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_suback_grants_or_refuses_each_filter(version: int) -> None:
    """[MQTT-3.8.4-6] [MQTT-3.9.3-1]"""
    bench = Bench(EngineLimits(subscriptions_per_session_max=3))
    line = bench.join("c", version)
    filters = ["a", "b/#", "c/+", "d", "a", "bad/#/filter", "$share/g"]
    line.send(Subscribe(5, [Subscription(name, n % 3) for n, name in enumerate(filters)]))
    bench.commit()
    (answer,) = line.read()
    assert isinstance(answer, Suback)
    refused = [
        reasons.QUOTA_EXCEEDED,
        reasons.TOPIC_FILTER_INVALID,
        reasons.TOPIC_FILTER_INVALID,
    ]
    if version != 5:
        refused = [reasons.UNSPECIFIED_ERROR] * 3
    assert answer.reason_codes == [0, 1, 2, refused[0], 1, refused[1], refused[2]]
    assert set(line.session.subscriptions) == {"a", "b/#", "c/+"}


def test_unsuback_says_which_subscriptions_existed() -> None:
    """[MQTT-3.11.3-1]"""
    bench = Bench()
    line = bench.join("c", 5)
    line.send(Subscribe(1, [Subscription("a", 0)]), Unsubscribe(2, ["a", "b"]))
    bench.commit()
    answer = line.read()[-1]
    assert answer == Unsuback(2, [0, reasons.NO_SUBSCRIPTION_EXISTED])


@pytest.mark.parametrize("publisher", VERSIONS)
@pytest.mark.parametrize("subscriber", VERSIONS)
def test_every_version_speaks_with_every_other(publisher: int, subscriber: int) -> None:
    bench = Bench()
    line = bench.subscriber("s", "t", 1, subscriber)
    source = bench.join("p", publisher)
    properties = Properties(content_type="text") if publisher == 5 else None
    source.send(Publish("t", b"x", 1, packet_id=1, properties=properties))
    bench.commit()
    (message,) = publishes(line.read())
    assert message.payload == b"x"
    both = publisher == subscriber == 5
    assert message.properties == (Properties(content_type="text") if both else None)


@pytest.mark.parametrize("version", [4, 5])
def test_a_large_connect_is_refused_by_its_length(version: int) -> None:
    """Nobody knows yet who sends it: MQTT 5 is told why, others are closed (v5 §4.13.1)."""
    will = Will("t", bytes(65_535))
    whole = encode(Connect("c", version, True, 0, will), version)
    line = Bench().line(version)
    line.receive(whole[:13])
    line.bench.commit()
    answer = line.read()
    if version == 5:
        assert [packet.reason_code for packet in answer if isinstance(packet, Connack)] == [0x95]
    else:
        assert answer == []
    assert line.connection.link.is_closed


def test_a_listener_may_take_a_larger_connect() -> None:
    bench = Bench(EngineLimits(connect_packet_size_bytes_max=100_000))
    _, connack = bench.connect(Connect("c", 5, True, 0, Will("t", bytes(65_535))))
    assert connack.reason_code == reasons.SUCCESS


def test_a_connect_has_few_user_properties() -> None:
    """Those of its will count too."""
    pairs = [("name", "value")]
    bench = Bench(EngineLimits(connect_user_properties_max=64))

    def connect(own: int, will: int) -> int:
        last = Will("t", b"", properties=Properties(user_properties=will * pairs))
        properties = Properties(user_properties=own * pairs)
        return bench.connect(Connect("c", 5, True, 0, last, properties=properties))[1].reason_code

    assert connect(60, 4) == reasons.SUCCESS
    assert connect(65, 0) == reasons.QUOTA_EXCEEDED
    assert connect(61, 4) == reasons.QUOTA_EXCEEDED


@pytest.mark.parametrize(
    ("offers", "qos", "retain", "code"),
    [
        (Offers(qos_max=1), 2, False, reasons.QOS_NOT_SUPPORTED),
        (Offers(qos_max=0), 1, False, reasons.QOS_NOT_SUPPORTED),
        (Offers(retain_available=False), 0, True, reasons.RETAIN_NOT_SUPPORTED),
        (Offers(retain_available=False), 1, True, reasons.RETAIN_NOT_SUPPORTED),
        (Offers(qos_max=1), 1, True, reasons.SUCCESS),
        (Offers(retain_available=False), 2, False, reasons.SUCCESS),
    ],
)
def test_a_feature_that_a_listener_does_not_offer_ends_the_connection(
    offers: Offers, qos: int, retain: bool, code: int
) -> None:
    """[MQTT-3.2.2-11] [MQTT-3.2.2-14]: to publish it is an error, and to ask for it by a will."""
    limits = EngineLimits()
    limits.offers = offers
    line = Bench(limits).join("c")
    line.send(Publish("t", b"x", qos, retain, packet_id=1 if qos else 0))
    if code != reasons.SUCCESS:
        assert farewell(line) == code
    assert line.connection.link.is_closed is (code != reasons.SUCCESS)
    _, answer = Bench(limits).connect(Connect("c", will=Will("w", b"", qos, retain)))
    assert answer.reason_code == code


@pytest.mark.parametrize("version", [3, 4])
def test_a_foreign_bridge_subscribes_as_its_dialect_means(version: int) -> None:
    """A shared subscription has no No Local [MQTT-3.8.3-4]."""
    line, _ = Bench().connect(Connect("c", version, is_bridge=True))
    line.send(Subscribe(1, [Subscription("t", 1), Subscription("$share/g/t", 1)]))
    asked = [entry.subscription for entry in line.session.subscriptions.values()]
    assert [one.no_local for one in asked] == [True, False]
    assert [one.retain_as_published for one in asked] == [True, True]
