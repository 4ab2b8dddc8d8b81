"""Every property of MQTT 5 in every packet that may carry it, in both directions (v5 §2.2.2.2).

Each test says with ``covers`` which it shows; the last ones check that none is missing. They run
on the engine with real packets, as a server: "in" is what clients send, "out" what they get.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import pytest

from penstock.engine.values import drop_reasons
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.options import ServerOptions, SharingOptions
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
from penstock.protocol.packets import (
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
from penstock.protocol.properties import Properties
from penstock.protocol.property_rules import RULES, WILL
from penstock.protocol.reasons import SERVER_SHUTTING_DOWN
from tests.unit.engine.bench import Bench, Line, publishes

IN: Final = (CONNECT, WILL, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, UNSUBSCRIBE)
OUT: Final = (CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK)
BOTH: Final = (DISCONNECT, AUTH)

# What a server never sends, or never gets, and why that is right.
NEVER: Final[dict[tuple[str, int, str], str]] = {
    ("out", CONNACK, "maximum_qos"): "QoS 2 is served (v5 §3.2.2.3.4)",
    ("out", CONNACK, "retain_available"): "retained messages are",
    ("out", CONNACK, "wildcard_subscription_available"): "they are",
    ("out", CONNACK, "subscription_identifier_available"): "they are",
    ("out", PUBACK, "user_properties"): "nothing to say",
    ("out", PUBREC, "user_properties"): "nothing to say",
    ("out", PUBREL, "user_properties"): "nothing to say",
    ("out", PUBCOMP, "user_properties"): "nothing to say",
    ("out", SUBACK, "user_properties"): "nothing to say",
    ("out", UNSUBACK, "user_properties"): "nothing to say",
    ("out", DISCONNECT, "user_properties"): "nothing to say",
    ("out", PUBREL, "reason_string"): "a server never refuses with PUBREL",
    ("out", UNSUBACK, "reason_string"): "UNSUBSCRIBE is not refused",
    ("out", DISCONNECT, "session_expiry_interval"): "only a client's [MQTT-3.14.2-2]",
    ("in", DISCONNECT, "server_reference"): "only a server's (v5 §3.14.2.2.5)",
}
# Enhanced authentication has its own tests.
AUTHENTICATION: Final = ("authentication_method", "authentication_data")

covered: set[tuple[str, int, str]] = set()
Test = TypeVar("Test", bound=Callable[..., None])


def covers(direction: str, carriers: int | tuple[int, ...], *names: str) -> Callable[[Test], Test]:
    for carrier in (carriers,) if isinstance(carriers, int) else carriers:
        covered.update((direction, carrier, name) for name in names)
    return lambda test: test


def connected(bench: Bench, **wishes: object) -> tuple[Line, Properties]:
    """An accepted client and what CONNACK told it."""
    properties = Properties()
    for name, value in wishes.items():
        setattr(properties, name, value)
    line, connack = bench.connect(Connect("c", properties=properties))
    assert connack.reason_code == 0
    return line, connack.properties or Properties()


def only(bench: Bench, line: Line) -> Packet:
    bench.commit()
    (packet,) = line.read()
    return packet


# -- CONNECT and CONNACK ---------------------------------------------------------------


@covers("in", CONNECT, "session_expiry_interval")
@covers("out", CONNACK, "session_expiry_interval")
@pytest.mark.parametrize(("asked", "granted"), [(None, 0), (0, 0), (50, 50), (0xFFFFFFFF, 100)])
def test_session_expiry(asked: int | None, granted: int) -> None:
    """[MQTT-3.1.2-23]; CONNACK tells what differs."""
    bench = Bench(EngineLimits(session_expiry_s_max=100))
    line, told = connected(bench, session_expiry_interval=asked)
    assert told.session_expiry_interval == (granted if (asked or 0) != granted else None)
    line.cut()
    bench.pass_s(max(0, granted - 1))
    assert ("c" in bench.server.registry.sessions) is (granted > 0)
    bench.pass_s(1)
    assert "c" not in bench.server.registry.sessions


@covers("in", CONNECT, "receive_maximum")
@covers("out", CONNACK, "receive_maximum")
def test_receive_maximum_both_ways() -> None:
    """[MQTT-3.3.4-9]"""
    bench = Bench(EngineLimits(receive_maximum=7))
    line, told = connected(bench, receive_maximum=2)
    assert told.receive_maximum == 7
    line.send(Subscribe(1, [Subscription("t", 1)]))
    for number in range(5):
        bench.publish("t", str(number).encode())
    assert len(publishes(line.read())) == 2


@covers("in", CONNECT, "maximum_packet_size")
@covers("out", CONNACK, "maximum_packet_size")
def test_maximum_packet_size_both_ways() -> None:
    """[MQTT-3.1.2-24] [MQTT-3.1.2-25]"""
    bench = Bench(EngineLimits(max_packet_size_bytes=500))
    line, told = connected(bench, maximum_packet_size=60)
    assert told.maximum_packet_size == 500
    line.send(Subscribe(1, [Subscription("t", 0)]))
    bench.publish("t", bytes(60), 0)
    bench.publish("t", bytes(20), 0)
    assert [len(packet.payload) for packet in publishes(line.read())] == [20]
    line.send(Publish("t", bytes(600), 0))
    answer = only(bench, line)
    assert isinstance(answer, Disconnect)
    assert answer.reason_code == 0x95


@covers("in", CONNECT, "topic_alias_maximum")
@covers("out", CONNACK, "topic_alias_maximum")
@covers("in", PUBLISH, "topic_alias")
@covers("out", PUBLISH, "topic_alias")
def test_topic_aliases_both_ways() -> None:
    """[MQTT-3.1.2-26]; see ``tests/unit/engine/test_aliases.py``."""
    bench = Bench(EngineLimits(topic_alias_maximum=3))
    line, told = connected(bench, topic_alias_maximum=1)
    assert told.topic_alias_maximum == 3
    line.send(Subscribe(1, [Subscription("a/topic", 0)]))
    bench.commit()
    line.read()
    line.send(Publish("a/topic", b"1", properties=Properties(topic_alias=3)))
    line.send(Publish("", b"2", properties=Properties(topic_alias=3)))
    got = [(packet.topic, packet.properties) for packet in publishes(line.read())]
    assert got == [("a/topic", Properties(topic_alias=1)), ("", Properties(topic_alias=1))]


@covers("in", CONNECT, "request_response_information")
@covers("out", CONNACK, "response_information")
@pytest.mark.parametrize(
    ("asked", "template", "told"),
    [
        (1, "answers/%c/", "answers/c/"),
        (1, "%u/%c", "user/c"),
        (1, "", None),
        (0, "answers/%c/", None),
        (None, "answers/%c/", None),
    ],
)
def test_response_information(asked: int | None, template: str, told: str | None) -> None:
    """[MQTT-3.1.2-28]"""
    bench = Bench(options=ServerOptions(response_information=template))
    wish = Properties(request_response_information=asked)
    _, connack = bench.connect(Connect("c", username="user", properties=wish))
    assert connack.properties is not None
    assert connack.properties.response_information == told


def test_names_that_would_not_do_in_a_topic_get_no_response_information() -> None:
    bench = Bench(options=ServerOptions(response_information="answers/%c/%u"))
    wish = Properties(request_response_information=1)
    for client_id, username in (("a+", "user"), ("a", "#"), ("a", None)):
        _, connack = bench.connect(Connect(client_id, username=username, properties=wish))
        assert connack.properties is not None
        assert connack.properties.response_information is None


@covers("out", CONNACK, "assigned_client_identifier")
def test_an_assigned_client_identifier() -> None:
    """[MQTT-3.2.2-16]; it is the whole identity of the session."""
    bench = Bench()
    wish = Properties(session_expiry_interval=50)
    line, connack = bench.connect(Connect("", clean_start=False, properties=wish))
    assert connack.properties is not None
    assigned = connack.properties.assigned_client_identifier
    assert assigned
    line.cut()
    _, connack = bench.connect(Connect(assigned, clean_start=False, properties=wish))
    assert connack.session_present
    assert connack.properties is not None
    assert connack.properties.assigned_client_identifier is None


@covers("out", CONNACK, "server_keep_alive")
@pytest.mark.parametrize(("asked", "told"), [(0, 10), (11, 10), (10, None), (3, None)])
def test_server_keep_alive(asked: int, told: int | None) -> None:
    """[MQTT-3.1.2-21] [MQTT-3.2.2-21]"""
    bench = Bench(EngineLimits(keep_alive_s_max=10))
    line, connack = bench.connect(Connect("c", keep_alive_s=asked))
    assert connack.properties is not None
    assert connack.properties.server_keep_alive == told
    bench.pass_s(1.5 * (told or asked) + 0.1)
    line.connection.tick(bench.now)
    assert line.connection.link.is_closed


@covers("in", CONNECT, "request_problem_information")
@covers("out", (PUBACK, PUBREC, SUBACK, DISCONNECT, PUBCOMP), "reason_string")
@pytest.mark.parametrize("wanted", [None, 1, 0])
@pytest.mark.parametrize("size", [None, 20])
@pytest.mark.parametrize(
    ("cause", "kind", "code"),
    [
        (Publish("$SYS/x", b"", 1, packet_id=1), Puback, 0x87),
        (Publish("$SYS/x", b"", 2, packet_id=1), Pubrec, 0x87),
        (Subscribe(1, [Subscription("#/a", 1)]), Suback, 0x8F),
        (Pubrel(1), Pubcomp, 0x92),
        (Publish("a+", b"", 0), Disconnect, 0x90),
    ],
)
def test_refusals_say_why(
    cause: Packet, kind: type[Packet], code: int, wanted: int | None, size: int | None
) -> None:
    """[MQTT-3.1.2-29] [MQTT-3.4.2-2] [MQTT-3.5.2-2] [MQTT-3.7.2-2] [MQTT-3.9.2-1].

    [MQTT-3.14.2-3]; a DISCONNECT may always say it.
    """
    bench = Bench()
    line, _ = connected(bench, request_problem_information=wanted, maximum_packet_size=size)
    if isinstance(cause, Publish) and cause.qos == 0:
        line.receive(b"\x30\x05\x00\x02a+\x00")
    else:
        line.send(cause)
    answer = only(bench, line)
    assert isinstance(answer, kind)
    assert isinstance(answer, (Puback, Pubrec, Suback, Pubcomp, Disconnect))
    codes = answer.reason_codes if isinstance(answer, Suback) else [answer.reason_code]
    assert codes == [code]
    told = answer.properties is not None and answer.properties.reason_string is not None
    assert told is (size is None and (wanted != 0 or kind is Disconnect))


@covers("out", CONNACK, "reason_string")
@pytest.mark.parametrize(
    ("wanted", "size", "told"), [(None, None, True), (0, None, False), (1, 8, False)]
)
def test_a_refused_connect_says_why(wanted: int | None, size: int | None, told: bool) -> None:
    """[MQTT-3.2.2-19]"""
    bench = Bench()
    line = bench.line()
    wish = Properties(request_problem_information=wanted, maximum_packet_size=size)
    line.send(Connect("c", will=Will("a/#", b""), properties=wish))
    answer = only(bench, line)
    assert isinstance(answer, Connack)
    assert answer.reason_code == 0x90
    reason = None if answer.properties is None else answer.properties.reason_string
    assert (reason is not None) is told


@covers("in", CONNECT, "user_properties")
@covers("out", CONNACK, "user_properties")
def test_user_properties_of_connect() -> None:
    """[MQTT-3.2.2-20]: ours gives way to the client's maximum packet size."""
    _, told = connected(Bench(), user_properties=[("a", "b"), ("a", "c")])
    assert told.user_properties == [("penstock-acknowledged", "memory")]
    _, told = connected(Bench(), maximum_packet_size=30)
    assert told.user_properties is None


@covers("out", CONNACK, "shared_subscription_available")
@pytest.mark.parametrize("enabled", [True, False])
def test_connack_names_only_the_features_that_are_off(enabled: bool) -> None:
    """What is not mentioned is (v5 §3.2.2.3.4 to §3.2.2.3.13)."""
    _, told = connected(Bench(sharing=SharingOptions(enabled=enabled)))
    assert told.shared_subscription_available == (None if enabled else 0)
    assert told.maximum_qos is told.retain_available is None
    assert told.wildcard_subscription_available is told.subscription_identifier_available is None


@covers("out", (CONNACK, DISCONNECT), "server_reference")
@pytest.mark.parametrize(("redirect", "code"), [("temporary", 0x9C), ("permanent", 0x9D)])
@pytest.mark.parametrize("version", [3, 4, 5])
def test_server_redirection(redirect: str, code: int, version: int) -> None:
    """v5 §4.11"""
    bench = Bench(options=ServerOptions(redirect=redirect, server_reference="other:1883"))
    line = bench.line(version)
    line.send(Connect("c", version))
    answer = only(bench, line)
    assert isinstance(answer, Connack)
    assert line.connection.link.is_closed
    if version == 5:
        assert answer.reason_code == code
        assert answer.properties is not None
        assert answer.properties.server_reference == "other:1883"
    else:
        assert answer.reason_code == 0x88  # return code 3
    assert bench.server.registry.sessions == {}


@pytest.mark.parametrize(
    ("reference", "redirect", "code"),
    [("", "none", 0x8B), ("other", "none", 0x9C), ("other", "permanent", 0x9D)],
)
def test_a_server_that_stops_says_where_to_go(reference: str, redirect: str, code: int) -> None:
    bench = Bench(options=ServerOptions(server_reference=reference))
    line = bench.join("c")
    bench.server.options = ServerOptions(redirect=redirect, server_reference=reference)
    bench.server.shut_down(SERVER_SHUTTING_DOWN, "the server is shutting down", bench.now)
    answer = only(bench, line)
    assert isinstance(answer, Disconnect)
    assert answer.reason_code == code
    assert answer.properties is not None
    assert answer.properties.server_reference == (reference or None)
    assert answer.properties.reason_string == "the server is shutting down"


# -- messages --------------------------------------------------------------------------


FORWARDED: Final = (
    Properties(payload_format_indicator=1),
    Properties(payload_format_indicator=0),
    Properties(content_type="text/plain"),
    Properties(response_topic="answer/here"),
    Properties(correlation_data=b"\x00\xff"),
    Properties(user_properties=[("b", "1"), ("a", "2"), ("b", "1")]),
    Properties(
        payload_format_indicator=1,
        content_type="",
        response_topic="r",
        correlation_data=b"",
        user_properties=[("", "")],
    ),
)


@covers("in", (PUBLISH, WILL), "payload_format_indicator", "content_type", "response_topic")
@covers("in", (PUBLISH, WILL), "correlation_data", "user_properties")
@covers("out", PUBLISH, "payload_format_indicator", "content_type", "response_topic")
@covers("out", PUBLISH, "correlation_data", "user_properties")
@pytest.mark.parametrize("as_will", [False, True])
@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize("properties", FORWARDED, ids=repr)
def test_forwarded_as_they_are(properties: Properties, offline: bool, as_will: bool) -> None:
    """[MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18].

    [MQTT-3.3.2-20]. Also through the log and a restart, and from a will.
    """
    bench = Bench()
    line = bench.subscriber("s", "t", 1)
    if offline:
        line.cut()
    if as_will:
        source = bench.join("p", will=Will("t", b"text", 1, properties=properties))
        source.cut()
    else:
        source = bench.join("p")
        source.send(Publish("t", b"text", 1, packet_id=1, properties=properties))
    bench.commit()
    if offline:
        bench.restart()
        line = bench.join("s", durable=True)
        bench.commit()
    (packet,) = publishes(line.read())
    expected = properties
    assert packet.properties == expected


@covers("in", (PUBLISH, WILL), "message_expiry_interval")
@covers("out", PUBLISH, "message_expiry_interval")
@pytest.mark.parametrize("as_will", [False, True])
@pytest.mark.parametrize(("waited_s", "left_s"), [(0, 10), (4, 6), (9.5, 1), (10, None)])
def test_message_expiry(waited_s: float, left_s: int | None, as_will: bool) -> None:
    """[MQTT-3.3.2-5] [MQTT-3.3.2-6]"""
    bench = Bench()
    bench.subscriber("s", "t", 1).cut()
    properties = Properties(message_expiry_interval=10)
    if as_will:
        bench.join("p", will=Will("t", b"x", 1, properties=properties)).cut()
    else:
        bench.join("p").send(Publish("t", b"x", 1, packet_id=1, properties=properties))
    bench.commit()
    bench.pass_s(waited_s)
    line = bench.join("s", durable=True)
    bench.commit()
    got = [packet.properties for packet in publishes(line.read())]
    assert got == ([] if left_s is None else [Properties(message_expiry_interval=left_s)])
    assert bench.server.drops.counts[drop_reasons.EXPIRED] == (left_s is None)


@covers("in", WILL, "will_delay_interval")
def test_will_delay() -> None:
    """[MQTT-3.1.3-9]"""
    bench = Bench()
    line = bench.subscriber("s", "t", 1)
    will = Will("t", b"gone", 1, properties=Properties(will_delay_interval=5))
    bench.join("p", durable=True, will=will).cut()
    bench.pass_s(4)
    bench.commit()
    assert line.read() == []
    bench.pass_s(1)
    bench.commit()
    (packet,) = publishes(line.read())
    assert packet.properties is None


@covers("in", SUBSCRIBE, "subscription_identifiers")
@covers("in", PUBLISH, "subscription_identifiers")
@covers("out", PUBLISH, "subscription_identifiers")
def test_subscription_identifiers() -> None:
    """[MQTT-3.3.4-3] [MQTT-3.3.4-4] [MQTT-3.3.4-6]"""
    bench = Bench()
    line = bench.join("c")
    for number, name in ((3, "t"), (0x0FFFFFFF, "#")):
        properties = Properties(subscription_identifiers=[number])
        line.send(Subscribe(number & 0xFF, [Subscription(name, 0)], properties))
    bench.publish("t", b"x", 0)
    (packet,) = publishes(line.read())
    assert packet.properties is not None
    assert sorted(packet.properties.subscription_identifiers or []) == [3, 0x0FFFFFFF]
    line.send(Publish("t", b"", properties=Properties(subscription_identifiers=[1])))
    answer = only(bench, line)
    assert isinstance(answer, Disconnect)
    assert answer.reason_code == 0x82


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("checked", [True, False])
def test_a_payload_that_is_not_the_text_it_says(qos: int, checked: bool) -> None:
    """v5 §3.3.2.3.2: 0x99"""
    bench = Bench(options=ServerOptions(check_payload_format=checked))
    reader = bench.subscriber("s", "t", 2)
    line = bench.join("c")
    text = Properties(payload_format_indicator=1)
    line.send(Publish("t", b"\xff", qos, packet_id=1 if qos else 0, properties=text))
    bench.commit()
    answers = line.read()
    assert len(publishes(reader.read())) == (not checked)
    assert bench.server.drops.counts[drop_reasons.PAYLOAD_FORMAT] == checked
    if not checked:
        assert line.connection.link.is_closed is False
        return
    (answer,) = answers
    assert isinstance(answer, (Disconnect, Puback, Pubrec)[qos])
    assert isinstance(answer, (Disconnect, Puback, Pubrec))
    assert answer.reason_code == 0x99
    if qos == 2:  # the packet identifier is free again
        line.send(Publish("t", b"\xc3\xa4", 2, packet_id=1, properties=text))
        assert only(bench, line) == Pubrec(1)
        assert [packet.payload for packet in publishes(reader.read())] == [b"\xc3\xa4"]


@pytest.mark.parametrize(("payload", "code"), [(b"\xff", 0x99), (b"ok", 0)])
def test_a_will_that_is_not_the_text_it_says(payload: bytes, code: int) -> None:
    """v5 §3.1.3.2.3"""
    bench = Bench()
    line = bench.line()
    will = Will("t", payload, properties=Properties(payload_format_indicator=1))
    line.send(Connect("c", will=will))
    answer = only(bench, line)
    assert isinstance(answer, Connack)
    assert answer.reason_code == code


# -- what clients may add to any packet ----------------------------------------------------


@covers("in", (PUBACK, PUBREC, PUBREL, PUBCOMP), "reason_string", "user_properties")
@covers("in", (SUBSCRIBE, UNSUBSCRIBE), "user_properties")
def test_words_of_the_client_change_nothing() -> None:
    """Reason strings and user properties are taken and not forwarded."""
    bench = Bench()
    words = Properties(reason_string="because", user_properties=[("a", "b")])
    pairs = Properties(user_properties=[("a", "b"), ("a", "b")])
    line = bench.join("c")
    line.send(Subscribe(1, [Subscription("t", 2)], pairs))
    assert only(bench, line) == Suback(1, [2])
    line.send(Publish("t", b"", 1, packet_id=1))
    bench.commit()
    (packet,) = publishes(line.read())
    line.send(Puback(packet.packet_id, 0, words))
    line.send(Publish("t", b"", 2, packet_id=2))
    bench.commit()
    (packet,) = publishes(line.read())
    line.send(Pubrel(2, 0, words))
    assert only(bench, line) == Pubcomp(2)
    line.send(Pubrec(packet.packet_id, 0, words))
    assert only(bench, line) == Pubrel(packet.packet_id)
    line.send(Pubcomp(packet.packet_id, 0, words))
    line.send(Unsubscribe(3, ["t"], pairs))
    assert only(bench, line) == Unsuback(3, [0])
    assert line.session.window_length == 0


@covers("in", DISCONNECT, "session_expiry_interval", "reason_string", "user_properties")
@pytest.mark.parametrize(
    ("before", "after", "kept"), [(50, None, 50), (50, 0, 0), (50, 20, 20), (50, 200, 100)]
)
def test_session_expiry_changed_when_leaving(before: int, after: int | None, kept: int) -> None:
    """v5 §3.14.2.2.2; a server that shut it down keeps its limit."""
    bench = Bench(EngineLimits(session_expiry_s_max=100))
    line, _ = connected(bench, session_expiry_interval=before)
    words = Properties(
        session_expiry_interval=after, reason_string="bye", user_properties=[("a", "b")]
    )
    line.send(Disconnect(0, words))
    bench.pass_s(max(0, kept - 1))
    assert ("c" in bench.server.registry.sessions) is (kept > 0)
    bench.pass_s(1)
    assert "c" not in bench.server.registry.sessions


def test_session_expiry_cannot_be_given_to_a_session_without_one() -> None:
    """v5 §3.14.2.2.2: 0x82, and the will is published."""
    bench = Bench()
    reader = bench.subscriber("s", "t", 1)
    line = bench.join("c", will=Will("t", b"will", 1))
    line.send(Disconnect(0, Properties(session_expiry_interval=1)))
    answer = only(bench, line)
    assert isinstance(answer, Disconnect)
    assert answer.reason_code == 0x82
    assert [packet.payload for packet in publishes(reader.read())] == [b"will"]


def test_a_client_names_no_other_server() -> None:
    """v5 §3.14.2.2.5: only a server does; from a client it changes nothing."""
    bench = Bench()
    line = bench.join("c")
    line.send(Disconnect(0, Properties(server_reference="elsewhere")))
    assert line.connection.link.is_closed


# -- completeness ----------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["in", "out"])
def test_no_property_of_any_packet_is_missing(direction: str) -> None:
    packets = (IN if direction == "in" else OUT) + BOTH
    wanted = {
        (direction, carrier, rule.name)
        for rule in RULES
        for carrier in rule.carriers
        if carrier in packets and carrier != AUTH and rule.name not in AUTHENTICATION
    }
    accounted = {entry for entry in covered | NEVER.keys() if entry[0] == direction}
    assert wanted - accounted == set()
    assert accounted - wanted == set()
    assert covered & NEVER.keys() == set()
