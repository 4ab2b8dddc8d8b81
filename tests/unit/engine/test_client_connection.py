"""The connecting role, packet by packet: what it says, obeys and refuses."""

from __future__ import annotations

import pytest

from penstock.engine.dialling.client_connection import ClientConnection
from penstock.engine.session.poison_message import PoisonMessageDetector
from penstock.engine.session.window import InFlightWindow
from penstock.engine.values.drop_reasons import CONNECTION_ENDED
from penstock.engine.values.limits import PACKET_IDENTIFIERS, EngineLimits
from penstock.engine.values.message import Delivery, Message
from penstock.engine.values.states import CLOSED, CONNECTED
from penstock.errors import LocalProtocolError
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Auth,
    Connack,
    Disconnect,
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
)
from penstock.protocol.properties import Properties
from tests.unit.engine.dialled_rig import DONE, Rig, opened

# -- the handshake -------------------------------------------------------------------------


def test_connect_leaves_with_the_commit_that_keeps_the_session() -> None:
    rig = Rig()
    rig.context.seal()
    rig.connection = ClientConnection(
        rig.context,
        rig.session,
        rig.arrivals,
        rig.connect,
        EngineLimits(),
        rig,
        True,
        rig.now,
    )
    assert rig.context.turn.ready == []
    assert len(rig.context.seal().deferred_packets) == 1


@pytest.mark.parametrize("version", [3, 4, 5])
def test_the_session_is_taken_up_when_the_server_lets_us_in(version: int) -> None:
    rig = Rig(version)
    assert rig.publish(b"before", 1) == []
    assert rig.says(Connack(0, True))[0] == Publish("t", b"before", 1, False, False, 1)
    assert rig.connection.state == CONNECTED
    assert len(rig.told) == 1


def test_mqtt_31_does_not_say_whether_there_is_a_session() -> None:
    """What is in flight is sent again as the same message: it may be there."""
    rig = opened(3, present=False)
    rig.publish(b"0", 2)
    assert rig.again(present=False) == [Publish("t", b"0", 2, False, True, 1)]


def test_a_refusal_ends_it_with_the_servers_words() -> None:
    rig = Rig()
    rig.says(Connack(0x87, False, Properties(reason_string="not you")))
    assert rig.connection.state == CLOSED
    assert rig.connection.reason_code == 0x87
    assert rig.connection.close_reason == "the server refused: not authorized: not you"
    assert (rig.ends, rig.told) == (1, [])


def test_a_reason_that_only_repeats_the_code_is_told_once() -> None:
    rig = Rig()
    rig.says(Connack(0x86, False, Properties(reason_string="bad user name or password")))
    assert rig.connection.close_reason == "the server refused: bad user name or password"


def test_a_server_that_does_not_answer_is_given_up() -> None:
    rig = Rig()
    assert rig.connection.deadline_s() == 110.0
    rig.now_s = 110.0
    rig.connection.tick(rig.now)
    assert rig.connection.close_reason == "no answer to CONNECT for 10 s"


@pytest.mark.parametrize(("clean", "known"), [(True, True), (False, False)])
def test_a_session_that_we_know_nothing_of_is_not_taken(clean: bool, known: bool) -> None:
    """[MQTT-3.2.2-4]"""
    rig = Rig(clean=clean, known=known)
    rig.says(Connack(0, True))
    assert rig.connection.state == CLOSED
    assert rig.connection.has_foreign_session


def test_a_server_must_begin_with_connack() -> None:
    rig = Rig()
    rig.says(Publish("t", b"x"))
    assert rig.connection.state == CLOSED
    assert rig.came == []


def test_enhanced_authentication_goes_both_ways() -> None:
    rig = Rig()
    rig.connect.properties = Properties(authentication_method="M", authentication_data=b"1")
    rig.dial()
    rig.answer = b"3"
    asked = Auth(0x18, Properties(authentication_method="M", authentication_data=b"2"))
    assert rig.says(asked) == [
        Auth(0x18, Properties(authentication_method="M", authentication_data=b"3"))
    ]
    rig.says(Connack(0, True))
    assert rig.connection.state == CONNECTED


def test_a_server_that_fails_to_authenticate_itself_is_left() -> None:
    rig = Rig()
    rig.connect.properties = Properties(authentication_method="M")
    rig.dial()
    rig.says(Auth(0x18, Properties(authentication_method="M")))
    assert rig.connection.close_reason == "the server did not authenticate itself"


def test_auth_without_a_method_is_an_error() -> None:
    """[MQTT-4.12.0-6]"""
    rig = Rig()
    rig.says(Auth(0x18, Properties(authentication_method="M")))
    assert rig.connection.state == CLOSED


# -- what the server accepts ---------------------------------------------------------------


def test_receive_maximum_is_obeyed() -> None:
    """[MQTT-3.3.4-7]"""
    rig = opened(properties=Properties(receive_maximum=2))
    sent = [packet for n in range(3) for packet in rig.publish(b"%d" % n, 1)]
    assert [packet.payload for packet in sent if isinstance(packet, Publish)] == [b"0", b"1"]
    assert rig.says(Puback(1)) == [Publish("t", b"2", 1, packet_id=3)]


def test_maximum_packet_size_is_obeyed() -> None:
    rig = opened(properties=Properties(maximum_packet_size=20))
    assert rig.publish(b"x" * 30, 1) == []
    assert len(rig.publish(b"x", 1)) == 1


@pytest.mark.parametrize(("qos", "maximum", "sent"), [(2, 1, 1), (2, 0, 0), (1, 0, 0), (1, 1, 1)])
def test_maximum_qos_is_obeyed(qos: int, maximum: int, sent: int) -> None:
    rig = Rig()
    rig.publish(b"waited", qos)
    first = rig.says(Connack(0, True, Properties(maximum_qos=maximum)))
    second = rig.publish(b"came", qos)
    assert [packet.qos for packet in first + second if isinstance(packet, Publish)] == [sent] * 2
    assert rig.session.window_length == (2 if sent else 0)
    assert rig.session.queue_length == 0


@pytest.mark.parametrize("maximum", [0, 1])
def test_a_message_in_flight_is_sent_again_with_the_qos_that_the_server_takes_now(
    maximum: int,
) -> None:
    rig = opened()
    rig.publish(b"x", 2)
    rig.connection.lost("cut", rig.now)
    rig.dial()
    (again,) = rig.says(Connack(0, False, Properties(maximum_qos=maximum)))
    assert isinstance(again, Publish)
    assert (again.payload, again.qos, again.dup) == (b"x", maximum, False)
    if maximum:
        rig.says(Puback(again.packet_id))
    assert rig.session.window_length == 0


def test_a_server_without_retained_messages_gets_none() -> None:
    rig = opened(properties=Properties(retain_available=0))
    for qos in (0, 1):
        (packet,) = rig.publish(b"x", qos, retain=True)
        assert isinstance(packet, Publish)
        assert not packet.retain


def test_topic_aliases_are_defined_for_a_server_that_takes_them() -> None:
    rig = Rig()
    rig.says(Connack(0, True, Properties(topic_alias_maximum=5)))
    message = Message("a/long/topic", b"x")
    for _ in range(2):
        rig.session.outbound.deliver(message, 0, False, (), True, rig.now)
    first, second = rig.turn()
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    assert (first.topic, second.topic) == ("a/long/topic", "")


# -- the session was lost ------------------------------------------------------------------


def test_messages_that_a_server_forgot_are_sent_anew_without_dup_and_in_order() -> None:
    """[MQTT-3.2.2-5], as far as nothing is lost by it."""
    rig = opened()
    for n, qos in enumerate((1, 2, 2)):
        rig.publish(b"%d" % n, qos)
    rig.says(Pubrec(2))
    packets = rig.again(present=False)
    assert packets == [
        Publish("t", b"0", 1, False, False, 1),
        Publish("t", b"2", 2, False, False, 3),
    ]
    packets = rig.again()
    assert [packet.dup for packet in packets if isinstance(packet, Publish)] == [True, True]


def test_messages_of_a_session_that_the_server_remembers_are_sent_again_with_dup() -> None:
    rig = opened()
    rig.publish(b"0", 1)
    rig.publish(b"1", 2)
    rig.says(Pubrec(2))
    assert rig.again() == [Publish("t", b"0", 1, False, True, 1), Pubrel(2)]


def test_a_packet_identifier_means_another_message_in_another_session() -> None:
    rig = opened()
    rig.says(Publish("t", b"old", 2, packet_id=7))
    assert rig.settle(0) == [Pubrec(7)]
    rig.again(present=False)
    rig.says(Publish("t", b"new", 2, packet_id=7))
    assert [arrival.publish.payload for arrival in rig.came] == [b"old", b"new"]


# -- subscriptions -------------------------------------------------------------------------


def test_subscribe_takes_a_packet_identifier_that_no_message_has() -> None:
    rig = opened()
    rig.publish(b"0", 1)
    packet_id = rig.connection.subscribe([Subscription("a", 1)])
    assert rig.turn() == [Subscribe(65_535, [Subscription("a", 1)])]
    assert packet_id == 65_535
    rig.publish(b"1", 1)
    assert rig.session.window_length == 2
    rig.says(Suback(65_535, [1]))
    assert rig.told[-1] == Suback(65_535, [1])
    rig.says(Suback(65_535, [1]))
    assert rig.connection.state == CLOSED


def test_a_request_made_when_the_server_lets_us_in_is_answered() -> None:
    rig = opened()
    rig.publish(b"0", 1)
    rig.subscribes_at_once = True
    again = Publish("t", b"0", 1, False, True, 1)
    assert rig.again() == [Subscribe(65_535, [Subscription("a", 1)]), again]
    rig.says(Suback(65_535, [1]))
    assert rig.told[-1] == Suback(65_535, [1])


def test_a_subscribe_that_the_server_would_not_accept_is_not_sent() -> None:
    """[MQTT-3.2.2-15]"""
    rig = opened(properties=Properties(maximum_packet_size=20))
    with pytest.raises(LocalProtocolError, match="as large as"):
        rig.connection.subscribe([Subscription("a" * 20, 1)])
    assert rig.turn() == []


def test_no_message_waits_for_an_identifier_that_is_not_there() -> None:
    window = InFlightWindow(PACKET_IDENTIFIERS)
    assert window.allocate_request_id() == 1
    for _ in range(PACKET_IDENTIFIERS - 1):
        assert window.has_room()
        window.add(Delivery(None, 0, 1))
    assert not window.has_room()
    assert window.free == 0
    assert window.allocate_request_id() == 0
    window.free_request_id(1)
    assert window.has_room()


def test_a_new_connection_awaits_no_answers() -> None:
    rig = opened()
    rig.connection.subscribe([Subscription("a", 1)])
    rig.turn()
    rig.again()
    rig.says(Suback(1, [1]))
    assert rig.connection.state == CLOSED


# -- keep alive and the end ----------------------------------------------------------------


def test_a_ping_leaves_every_three_quarters_of_the_keep_alive() -> None:
    rig = opened()
    assert rig.connection.deadline_s() == 145.0
    rig.now_s = 145.0
    rig.connection.tick(rig.now)
    assert rig.turn() == [Pingreq()]
    assert rig.says(Pingresp()) == []
    assert rig.connection.deadline_s() == 190.0


def test_a_silent_server_is_given_up() -> None:
    rig = opened()
    rig.now_s = 145.0
    rig.connection.tick(rig.now)
    rig.now_s = 190.0
    rig.connection.tick(rig.now)
    assert rig.connection.close_reason == "the server said nothing for 1.5 x keep alive"
    assert rig.session.link is None


def test_the_server_may_set_the_keep_alive() -> None:
    """[MQTT-3.2.2-21]"""
    rig = opened(properties=Properties(server_keep_alive=8))
    assert rig.connection.deadline_s() == 106.0
    rig = opened(properties=Properties(server_keep_alive=0))
    rig.now_s = 1e6
    rig.connection.tick(rig.now)
    assert rig.connection.state == CONNECTED


def test_a_settled_message_is_acknowledged_before_we_leave() -> None:
    rig = opened()
    rig.says(Publish("t", b"0", 1, packet_id=1))
    rig.connection.settle(rig.came[0], DONE, rig.now)
    rig.connection.disconnect(rig.now)
    assert rig.turn() == [Puback(1), Disconnect(0)]
    assert rig.connection.state == CLOSED
    assert (rig.ends, rig.session.link) == (1, None)


def test_nothing_is_sent_after_disconnect() -> None:
    """[MQTT-3.14.4-1]"""
    rig = opened()
    rig.says(Publish("t", b"0", 1, packet_id=1))
    rig.session.outbound.deliver(Message("t", b"held"), 0, False, (), False, rig.now)
    rig.session.outbound.deliver(Message("t", b"behind"), 0, False, (), True, rig.now)
    rig.connection.disconnect(rig.now)
    rig.connection.settle(rig.came[0], DONE, rig.now)
    assert rig.turn() == [Publish("t", b"held"), Publish("t", b"behind"), Disconnect(0)]


def test_a_disconnect_of_the_server_says_why() -> None:
    rig = opened()
    rig.says(Disconnect(0x8B, Properties(reason_string="bye")))
    assert rig.connection.reason_code == 0x8B
    assert rig.connection.close_reason.startswith("the server disconnected: ")
    assert rig.connection.close_reason.endswith(": bye")
    assert rig.ends == 1


@pytest.mark.parametrize(
    ("code", "counts"),
    [
        (reasons.PACKET_TOO_LARGE, True),
        (reasons.TOPIC_NAME_INVALID, True),
        (reasons.SERVER_BUSY, False),
        (reasons.SERVER_SHUTTING_DOWN, False),
        (reasons.SESSION_TAKEN_OVER, False),
        (reasons.ADMINISTRATIVE_ACTION, False),
    ],
)
def test_a_server_that_has_reasons_of_its_own_does_not_end_at_a_message(
    code: int, counts: bool
) -> None:
    rig = opened()
    rig.session.transmission.poison_detector = PoisonMessageDetector(2)
    rig.publish(b"x", 1)
    for _ in range(2):
        rig.says(Disconnect(code))
        rig.connection.lost("closed", rig.now)
        rig.dial()
        rig.says(Connack(0, True))
    assert rig.drops.counts[CONNECTION_ENDED] == int(counts)
    assert rig.session.window_length == (0 if counts else 1)


@pytest.mark.parametrize("ours", [False, True])
def test_only_the_server_ends_a_connection_at_a_message(ours: bool) -> None:
    rig = opened()
    rig.session.transmission.poison_detector = PoisonMessageDetector(1)
    rig.publish(b"x", 1)
    if ours:
        rig.connection.close(reasons.KEEP_ALIVE_TIMEOUT, "nothing heard", rig.now)
    else:
        rig.connection.lost("cut", rig.now)
    assert rig.drops.counts[CONNECTION_ENDED] == int(not ours)


@pytest.mark.parametrize(("code", "may_not"), [(0x84, True), (0x87, False), (None, True)])
def test_a_server_that_does_not_know_our_dialect_says_so_or_hangs_up(
    code: int | None, may_not: bool
) -> None:
    rig = Rig(4)
    if code is not None:
        rig.says(Connack(code))
    else:
        rig.connection.lost("cut", rig.now)
    assert rig.connection.may_not_know_dialect is may_not


def test_a_server_that_is_silent_may_know_it() -> None:
    rig = Rig(4)
    rig.connection.close(reasons.UNSPECIFIED_ERROR, "no CONNACK in time", rig.now)
    assert not rig.connection.may_not_know_dialect


@pytest.mark.parametrize(
    ("theirs", "ours", "least"),
    [(None, 0, 0), (1000, 0, 1000), (None, 500, 500), (1000, 500, 500), (500, 1000, 500)],
)
def test_packets_are_as_large_as_both_sides_allow(
    theirs: int | None, ours: int, least: int
) -> None:
    limits = EngineLimits()
    limits.sent_packet_bytes_max = ours
    rig = Rig(limits=limits)
    rig.says(Connack(0, True, Properties(maximum_packet_size=theirs)))
    assert rig.connection.link.max_packet_size_bytes == least


def test_messages_that_only_the_server_knows_are_released_before_anything_is_sent() -> None:
    """This side is an older copy: its next message would be taken for a repeat of that one."""
    rig = opened()
    rig.publish(b"known", 2)
    rig.connection.lost("cut", rig.now)
    rig.dial()
    told = Properties(user_properties=[("penstock-unreleased", "1 2")])
    assert rig.says(Connack(0, True, told)) == [Pubrel(2)]
    assert rig.publish(b"new", 2) == []
    assert rig.says(Pubcomp(2, 0x92)) == [
        Publish("t", b"known", 2, False, True, 1),
        Publish("t", b"new", 2, False, False, 2),
    ]


@pytest.mark.parametrize("told", ["", "0", "x", "1  2", "70000", "1 " * 501])
def test_a_list_of_messages_that_is_none_is_passed_over(told: str) -> None:
    rig = opened()
    rig.connection.lost("cut", rig.now)
    rig.dial()
    properties = Properties(user_properties=[("penstock-unreleased", told)])
    assert rig.says(Connack(0, True, properties)) == []
