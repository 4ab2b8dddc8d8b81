"""What a listener offers of MQTT: versions, QoS, RETAIN, and names for clients without one."""

from __future__ import annotations

import pytest

from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import (
    Connack,
    Connect,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from penstock.protocol.reasons import (
    QOS_NOT_SUPPORTED,
    RETAIN_NOT_SUPPORTED,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from tests.support.bridged import Start
from tests.support.broker import Broker
from tests.support.raw_client import RawClient


@pytest.fixture
def little(start: Start) -> Broker:
    """A broker whose listener offers little."""
    return start(
        {
            "listener.maximum_qos": 1,
            "listener.retain_available": False,
            "listener.accept_protocol_versions": '["3.1.1", "5"]',
            "listener.auto_id_prefix": "plant-",
        }
    )


def test_a_listener_offers_what_its_settings_say(little: Broker) -> None:
    with RawClient(little.address, V5) as client:
        client.send(Connect("", V5))
        told = client.expect(Connack).properties
        assert told is not None
        assert (told.maximum_qos, told.retain_available) == (1, 0)
        assert (told.assigned_client_identifier or "").startswith("plant-")
        client.send(Subscribe(1, [Subscription("a", 2)]))
        assert client.expect(Suback).reason_codes == [1]
        client.send(Publish("a", b"", 2, packet_id=1))
        client.expect_disconnect(QOS_NOT_SUPPORTED)
    with RawClient(little.address, V5) as client:
        client.connect("retains")
        client.send(Publish("a", b"1", 0, True))
        client.expect_disconnect(RETAIN_NOT_SUPPORTED)
    with RawClient(little.address, V311) as older:
        older.connect("older")
        older.send(Publish("a", b"", 2, packet_id=1))
        older.expect_end()


def test_a_feature_not_offered_is_refused_at_connect(little: Broker) -> None:
    for will, code in (
        (Will("a", b"", 2), QOS_NOT_SUPPORTED),
        (Will("a", b"", 1, True), RETAIN_NOT_SUPPORTED),
    ):
        with RawClient(little.address, V5) as client:
            client.send(Connect("wills", V5, will=will))
            assert client.expect(Connack).reason_code == code
    with RawClient(little.address, V31) as old:
        old.send(Connect("old", V31))
        assert old.expect(Connack).reason_code == UNSUPPORTED_PROTOCOL_VERSION
