"""What a CONNECT is granted, and what it is refused for."""

import pytest

from penstock.engine.values.limits import EngineLimits
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Connect,
    Will,
)
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench


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


def test_connack_of_mqtt_5_says_the_limits() -> None:
    bench = Bench(EngineLimits(receive_maximum=7, max_packet_size_bytes=999, topic_alias_maximum=3))
    _, connack = bench.connect(Connect("c", 5, True, 0))
    assert connack.properties == Properties(
        receive_maximum=7,
        maximum_packet_size=999,
        topic_alias_maximum=3,
        user_properties=[("penstock-acknowledged", "memory")],
    )


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
