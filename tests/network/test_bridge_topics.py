"""Topics of bridges that are special: below $, of shared subscriptions, and their own state."""

from __future__ import annotations

from tests.support.bridged import Start, bridge, client, connected, with_bridges
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S


def test_topics_of_the_remote_broker_may_begin_with_a_dollar(
    start: Start, shared_broker: Broker, name: str
) -> None:
    forwards = [
        {"topic_filters": ["shadow/#"], "direction": "both", "remote_prefix": f"$aws/{name}/"},
        {"topic_filters": ["version"], "direction": "in", "remote_prefix": "$SYS/broker/"},
    ]
    settings = bridge(shared_broker.address, forwards=forwards, client_id=name)
    local = start(with_bridges(settings))
    connected(local)
    with client(local, "near", "shadow/#", "version") as near:
        assert near.take().topic == "version"
        with client(shared_broker, f"{name}-far", f"$aws/{name}/shadow/out") as far:
            near.publish("shadow/out", b"1", 1)
            assert far.take().payload == b"1"
            far.publish(f"$aws/{name}/shadow/in", b"2", 1)
            assert {near.take().payload, near.take().payload} == {b"1", b"2"}


def test_two_bridges_share_what_comes_in(start: Start, shared_broker: Broker, name: str) -> None:
    forwards = [
        {
            "topic_filters": [f"$share/{name}/in/#"],
            "direction": "in",
            "remote_prefix": f"{name}/",
            "local_prefix": f"{name}/",
        }
    ]
    both = [
        bridge(shared_broker.address, forwards=forwards, name=one, client_id=f"{name}-{one}")
        for one in ("up", "down")
    ]
    local = start(with_bridges(*both))
    connected(local, "up")
    connected(local, "down")
    with client(local, "near", f"{name}/in/#") as near, client(shared_broker, name) as far:
        for number in range(10):
            far.publish(f"{name}/in/{number}", b"", 1)
        assert {near.take().topic for _ in range(10)} == {f"{name}/in/{n}" for n in range(10)}
        assert near.settle() == []


def test_two_bridges_share_what_goes_out(start: Start, shared_broker: Broker, name: str) -> None:
    forwards = [
        {
            "topic_filters": [f"$share/{name}/out/#"],
            "direction": "out",
            "remote_prefix": f"{name}/",
        }
    ]
    both = [
        bridge(shared_broker.address, forwards=forwards, name=one, client_id=f"{name}-{one}")
        for one in ("up", "down")
    ]
    local = start(with_bridges(*both))
    connected(local, "up")
    connected(local, "down")
    with client(local, "near") as near, client(shared_broker, name, f"{name}/out/#") as far:
        for number in range(10):
            near.publish(f"out/{number}", b"", 1)
        assert {far.take().topic for _ in range(10)} == {f"{name}/out/{n}" for n in range(10)}
        assert far.settle() == []


def test_the_remote_broker_is_told_whether_the_bridge_is_connected(
    start: Start, shared_broker: Broker, name: str
) -> None:
    topic = f"bridges/{name}"
    settings = bridge(shared_broker.address, status_topic=topic, client_id=name)
    with client(shared_broker, f"{name}-watches", topic) as watching:
        local = start(with_bridges(settings))
        assert watching.take().payload == b"1"
        local.stop()  # in order: there is no will then
        assert watching.take().payload == b"0"
        local.start()
        assert watching.take().payload == b"1"
        local.kill()
        assert watching.take(DEADLINE_S).payload == b"0"
    with client(shared_broker, f"{name}-later", topic) as later:
        assert (later.take().payload) == b"0"
