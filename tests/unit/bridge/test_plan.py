"""What a bridge's settings ask of the engine."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.bridge.plan import (
    check_packets,
    connect_of,
    incoming,
    local_subscriptions,
    outgoing,
    remote_subscriptions,
)
from penstock.config.bridge import ForwardingRule, RemoteBroker
from penstock.errors import ConfigError
from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import Subscription

BOTH = ForwardingRule(
    topic_filters=("heat/#",), direction="both", local_prefix="7/", remote_prefix="b/", qos_max=1
)


def remote(**settings: Any) -> RemoteBroker:
    given: dict[str, Any] = {"name": "up", "addresses": ("mqtt://a",), "forwards": (BOTH,)}
    return RemoteBroker(**given | settings)


def test_each_direction_subscribes_where_the_messages_come_from() -> None:
    there_and_back = remote()
    local = local_subscriptions(outgoing(there_and_back), persist=True)
    assert local == {"7/heat/#": Subscription("7/heat/#", 1, True, True, 1)}
    asked = remote_subscriptions(incoming(there_and_back), V5)
    assert asked == [Subscription("b/heat/#", 1, True, True, 1)]
    assert remote_subscriptions(incoming(there_and_back), V311) == [Subscription("b/heat/#", 1)]
    rule = incoming(there_and_back).rule_for("b/heat/x")
    assert rule is not None
    assert rule.topic_for("b/heat/x") == "7/heat/x"


def test_a_subscription_that_is_not_persistent_is_asked_for_with_qos_0() -> None:
    (asked,) = local_subscriptions(outgoing(remote()), persist=False).values()
    assert asked.qos == 0


def test_connect_says_what_we_take() -> None:
    connect = connect_of(remote(username="u", password="p"), 10, 1000, False, False)
    assert (connect.client_id, connect.username, connect.password) == ("penstock-up", "u", b"p")
    assert not connect.clean_start
    assert connect.properties is not None
    assert (connect.properties.receive_maximum, connect.properties.maximum_packet_size) == (
        10,
        1000,
    )
    assert connect_of(remote(version="3.1.1"), 10, 1000, True, False).properties is None


@pytest.mark.parametrize(
    "settings",
    [
        {"version": "3.1.1", "password": "p"},
        {"username": "x" * 65_536},
        {"username": "a\0b"},
        {"user_properties": {"site": "x" * 65_536}},
    ],
)
def test_settings_that_mqtt_cannot_say_are_refused_before_the_start(
    settings: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError, match="bridge 'up': "):
        check_packets(remote(**settings))
    check_packets(remote())
