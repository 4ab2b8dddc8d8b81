"""Refusals: the code that a version has, and a sentence no longer than there is room for."""

import pytest

from penstock.engine.values.refusals import (
    NAME_CHARACTERS_MAX,
    REASON_CHARACTERS_MAX,
    claimed_names,
    fits,
    quote,
    refusal_code,
    refusal_version,
    refused_filters_text,
    refusing_connack,
)
from penstock.errors import RemoteProtocolError, UnsupportedProtocolVersion
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.kinds import BRIDGE_BIT, V5, V31, V311
from penstock.protocol.packets import Connack, Connect
from penstock.protocol.properties import Properties


def test_a_name_is_quoted_and_cut() -> None:
    assert quote("a\nb") == r"'a\nb'"
    longest = "x" * NAME_CHARACTERS_MAX
    assert quote(longest) == f"'{longest}'"
    assert quote(longest + "y") == f"'{longest}…'"


def test_the_log_is_told_who_a_client_claims_to_be() -> None:
    assert claimed_names(None) == ""
    assert claimed_names(Connect("c", V5)) == " (client 'c')"
    assert claimed_names(Connect("c", V5, username="u")) == " (client 'c', user 'u')"


def test_the_first_refused_filter_is_told_and_how_many_there_are() -> None:
    filters = ["a", "b", "c"]
    no, invalid = reasons.NOT_AUTHORIZED, reasons.TOPIC_FILTER_INVALID
    assert refused_filters_text(filters, [0, 1, reasons.NO_SUBSCRIPTION_EXISTED]) == ""
    first = f"'b': {reasons.name_of(no)}"
    assert refused_filters_text(filters, [2, no, 0]) == first
    assert refused_filters_text(filters, [0, no, invalid]) == first + "; 2 of 3 filters are refused"


def connect(size_bytes_max: int | None = None, wants_reasons: int | None = None) -> Connect:
    properties = Properties(
        maximum_packet_size=size_bytes_max, request_problem_information=wants_reasons
    )
    return Connect("c", V5, properties=properties)


def test_older_clients_and_those_without_a_connect_get_the_code_alone() -> None:
    code = reasons.SERVER_BUSY
    for one in (None, Connect("c", V311), Connect("c", V31)):
        assert refusing_connack(one, code, "why", "other") == Connack(code)


def test_a_client_that_wants_no_reasons_gets_none() -> None:
    """[MQTT-3.1.2-29]"""
    answer = refusing_connack(connect(wants_reasons=0), reasons.SERVER_BUSY, "why", "")
    assert answer.properties is not None
    assert answer.properties.reason_string is None


def test_another_server_is_named_only_to_those_who_are_sent_there() -> None:
    for code in (reasons.USE_ANOTHER_SERVER, reasons.SERVER_MOVED):
        sent = refusing_connack(connect(), code, "why", "other")
        assert sent.properties == Properties(reason_string="why", server_reference="other")
    kept = refusing_connack(connect(), reasons.SERVER_BUSY, "why", "other")
    assert kept.properties == Properties(reason_string="why")


def test_a_refusal_fits_whatever_the_client_takes() -> None:
    """[MQTT-3.2.2-19] The reason goes first, then the name of the other server."""
    code, why, other = reasons.USE_ANOTHER_SERVER, "w" * 1000, "other"
    whole = refusing_connack(connect(), code, why, other)
    assert whole.properties is not None
    assert whole.properties.reason_string == "w" * REASON_CHARACTERS_MAX
    size_bytes = len(encode(whole, V5))
    found = []
    for size_bytes_max in range(5, size_bytes + 1):
        answer = refusing_connack(connect(size_bytes_max), code, why, other)
        assert fits(answer, V5, size_bytes_max)
        properties = answer.properties
        told = properties is not None and (
            properties.server_reference is not None,
            properties.reason_string is not None,
        )
        if told not in found:
            found.append(told)
    assert found == [False, (True, False), (True, True)]


@pytest.mark.parametrize(
    ("level", "answered"),
    [(0, V311), (2, V311), (6, V5), (255 & ~BRIDGE_BIT, V5), (V5 | BRIDGE_BIT, V5)],
)
def test_an_unknown_version_is_refused_in_the_nearest_one(level: int, answered: int) -> None:
    """[MQTT-3.1.2-2]"""
    error = UnsupportedProtocolVersion(reasons.UNSUPPORTED_PROTOCOL_VERSION, "", level)
    assert refusal_version(error) == answered


def test_a_code_that_connack_has_not_becomes_one_that_it_has() -> None:
    taken = RemoteProtocolError(reasons.MALFORMED_PACKET, "")
    other = RemoteProtocolError(reasons.TOPIC_ALIAS_INVALID, "")
    assert refusal_code(taken) == reasons.MALFORMED_PACKET
    assert refusal_code(other) == reasons.PROTOCOL_ERROR
