"""A message that the remote broker will not have does not hold up those behind it."""

from __future__ import annotations

import pytest

from tests.support.bridged import Start, bridge, client, first_of_each, status, with_bridges
from tests.support.broker import Broker
from tests.support.deadline import wait_for

LIMIT = 2000


@pytest.fixture
def small(start: Start) -> Broker:
    """A remote broker that ends the connection at a packet larger than ``LIMIT``."""
    return start({"limits.max_packet_size_bytes": LIMIT})


@pytest.mark.parametrize(
    "qos", [pytest.param(1, marks=pytest.mark.torture("the same in another QoS")), 2]
)
def test_the_third_connection_that_ends_at_a_message_sets_it_aside(
    start: Start, small: Broker, qos: int
) -> None:
    settings = bridge(small.address, version="3.1.1", ends_at_message_max=3)
    local = start(with_bridges(settings, **{"dead_letters.topic": "dead"}))
    with client(small, "far", "out/#") as far, client(local, "near", "dead") as near:
        near.publish("out/first", b"1", qos)
        near.publish("out/poison", b"x" * 2 * LIMIT, qos)
        near.publish("out/behind", b"2", qos)
        came = [far.take().topic]
        while came[-1] != "out/behind":  # QoS 1 may come again: it was sent beside the other one
            came.append(far.take().topic)
        assert first_of_each(came) == ["out/first", "out/behind"]
        dead = near.take()
        assert dead.payload == b"x" * 2 * LIMIT
        assert dead.properties is not None
        told = dict(dead.properties.user_properties or [])
        assert told["penstock-dropped-because"] == "connection_ended_at_it"
        assert told["penstock-topic"] == "out/poison"
    status(local, "dropped/connection_ended_at_it", b"1")
    wait_for("the log", lambda: "out/poison" in local.log())


def test_a_message_too_large_for_the_remote_broker_is_not_sent(start: Start, small: Broker) -> None:
    settings = bridge(small.address, version="3.1.1", max_packet_size_bytes=LIMIT)
    local = start(with_bridges(settings))
    with client(small, "far", "out/#") as far, client(local, "near") as near:
        near.publish("out/poison", b"x" * 2 * LIMIT, 1)
        near.publish("out/behind", b"2", 1)
        assert far.take().topic == "out/behind"
    status(local, "dropped/packet_too_large_for_the_receiver", b"1")
    assert local.log().count("bridge up: connected") == 1
