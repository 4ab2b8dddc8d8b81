"""A standby's answer to a client, whatever it sends and however it arrives."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.options import Offers
from penstock.protocol import reasons
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import Connack, Connect, Pingreq, Publish, Will
from penstock.protocol.properties import Properties
from penstock.services.referral import NO_CONNECT_YET, Referral
from tests.unit.protocol import strategies

PRIMARY = "b.plant.example:1883"


def referral(**limits: Any) -> Referral:
    return Referral(EngineLimits(**limits), 100.0)


def parse_answer(tested: Referral, version: int) -> Connack:
    decoder = Decoder(2**16, version, server=False)
    decoder.feed(tested.answer)
    answer = decoder.next_packet()
    assert isinstance(answer, Connack)
    assert decoder.next_packet() is None, "one packet, and nothing behind it"
    return answer


def answered(connect: Connect, primary: str = PRIMARY, **limits: Any) -> Connack:
    tested = referral(**limits)
    tested.receive(encode(connect, connect.version), primary)
    assert tested.is_over
    assert tested.is_referred
    return parse_answer(tested, connect.version)


def test_an_mqtt_5_client_is_told_the_primary() -> None:
    """v5 §4.11"""
    answer = answered(Connect("c", V5, True, 0))
    assert answer.reason_code == reasons.USE_ANOTHER_SERVER
    assert answer.properties is not None
    assert answer.properties.server_reference == PRIMARY
    assert "standby" in (answer.properties.reason_string or "")


def test_without_a_primary_an_mqtt_5_client_is_told_to_try_again() -> None:
    answer = answered(Connect("c", V5, True, 0), "")
    assert answer.reason_code == reasons.SERVER_UNAVAILABLE
    assert answer.properties is not None
    assert answer.properties.server_reference is None
    assert "try again" in (answer.properties.reason_string or "")


@pytest.mark.parametrize("version", [V31, V311])
@pytest.mark.parametrize("primary", ["", PRIMARY])
def test_older_clients_get_return_code_3(version: int, primary: str) -> None:
    tested = referral()
    tested.receive(encode(Connect("c", version, True, 0), version), primary)
    assert tested.answer == bytes([0x20, 2, 0, 3])


def test_no_reason_string_for_a_client_that_wants_none() -> None:
    """[MQTT-3.1.2-29]"""
    asked = Properties(request_problem_information=0)
    answer = answered(Connect("c", V5, True, 0, properties=asked))
    assert answer.properties is not None
    assert answer.properties.reason_string is None
    assert answer.properties.server_reference == PRIMARY


@pytest.mark.parametrize(("size_bytes_max", "length"), [(30, 28), (20, 5), (5, 5), (4, 0)])
def test_no_answer_is_larger_than_the_client_takes(size_bytes_max: int, length: int) -> None:
    """[MQTT-3.1.2-24]"""
    tested = referral()
    asked = Properties(maximum_packet_size=size_bytes_max)
    tested.receive(encode(Connect("c", V5, True, 0, properties=asked), V5), PRIMARY)
    assert tested.is_over
    assert len(tested.answer) == length


@pytest.mark.parametrize(("level", "version"), [(6, V5), (1, V311), (7, V5), (0x7F, V5)])
def test_an_unknown_version_is_refused_as_by_the_broker(level: int, version: int) -> None:
    """[MQTT-3.1.2-2]"""
    tested = referral()
    tested.receive(b"\x10\x0c\x00\x04MQTT" + bytes([level]) + b"\x02\x00\x00\x00\x00", PRIMARY)
    assert tested.is_over
    assert not tested.is_referred
    assert parse_answer(tested, version).reason_code == reasons.UNSUPPORTED_PROTOCOL_VERSION


def test_a_version_that_the_listener_does_not_accept_is_refused() -> None:
    limits = EngineLimits()
    limits.offers = Offers(versions=(V5,))
    tested = Referral(limits, 0.0)
    tested.receive(encode(Connect("c", V311, True, 0), V311), PRIMARY)
    assert not tested.is_referred
    assert tested.answer == bytes([0x20, 2, 0, 1])


@pytest.mark.parametrize(
    "data",
    [
        encode(Pingreq(), V311),
        encode(Publish("t", b"x"), V311),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        bytes(16),
        b"\xff" * 16,
    ],
)
def test_a_packet_that_is_no_connect_gets_no_answer(data: bytes) -> None:
    tested = referral()
    tested.receive(data, PRIMARY)
    assert tested.is_over
    assert not tested.is_referred
    assert tested.answer == b""
    assert tested.because


def test_a_huge_connect_is_refused_by_its_length() -> None:
    """Before the rest of it is read."""
    whole = encode(Connect("c", V5, True, 0, Will("t", bytes(5000), 0, False)), V5)
    tested = referral(connect_packet_size_bytes_max=1000)
    tested.receive(whole[:20], PRIMARY)
    assert tested.is_over
    assert parse_answer(tested, V5).reason_code == reasons.PACKET_TOO_LARGE


def test_a_standby_waits_as_long_as_the_broker_however_slow_the_bytes() -> None:
    tested = referral(connect_timeout_s=7.0)
    whole = encode(Connect("c", V311, True, 0), V311)
    for number in range(len(whole) - 1):
        tested.receive(whole[number : number + 1], PRIMARY)
        assert tested.partial_connect_bytes == number + 1
    assert tested.deadline_s == 107.0
    tested.give_up()
    assert tested.is_over
    assert not tested.is_referred
    assert (tested.answer, tested.because, tested.partial_connect_bytes) == (b"", NO_CONNECT_YET, 0)


def test_a_password_is_in_no_sentence() -> None:
    tested = referral()
    connect = Connect("c", V5, True, 0, username="u", password=b"secret")
    tested.receive(encode(connect, V5), PRIMARY)
    assert "secret" not in tested.because
    assert b"secret" not in tested.answer


@given(st.data())
def test_every_connect_has_the_same_answer_however_it_arrives(data: st.DataObject) -> None:
    """Whatever else it says: nothing is told about users and clients."""
    version = data.draw(strategies.VERSIONS)
    connect = data.draw(strategies.connects(version))
    whole = encode(connect, version) + data.draw(st.binary(max_size=8))
    at_once, in_pieces = referral(), referral()
    at_once.receive(whole, PRIMARY)
    position = 0
    while position < len(whole):
        size = data.draw(st.integers(1, len(whole)))
        in_pieces.receive(whole[position : position + size], PRIMARY)
        position += size
    assert at_once.is_referred
    assert in_pieces.is_referred
    assert at_once.answer == in_pieces.answer
    if version != V5:
        assert at_once.answer == bytes([0x20, 2, 0, 3])
    elif at_once.answer:
        assert parse_answer(at_once, V5).reason_code == reasons.USE_ANOTHER_SERVER


@given(st.lists(st.binary(max_size=64), max_size=8), st.sampled_from(["", PRIMARY]))
def test_any_bytes_are_answered_or_not_and_never_fail(pieces: list[bytes], primary: str) -> None:
    tested = referral()
    for piece in pieces:
        tested.receive(piece, primary)
        if tested.is_over:
            assert tested.partial_connect_bytes == 0
            assert tested.because


def test_a_connect_behind_another_packet_is_ignored() -> None:
    tested = referral()
    tested.receive(encode(Pingreq(), V311), PRIMARY)
    tested.receive(encode(Connect("c", V5, True, 0), V5), PRIMARY)
    assert (tested.answer, tested.is_referred) == (b"", False)
    assert tested.because == "PINGREQ came before CONNECT"
