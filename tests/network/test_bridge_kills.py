"""Bridges whose brokers are killed: nothing is lost, and no QoS 2 message comes twice.

What ends the connection without ending a broker is in ``test_bridge_outages.py``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import mosquitto_broker
from tests.support.bridged import (
    Line,
    Start,
    bridge,
    client,
    connected,
    each_version,
    numbered,
    with_bridges,
)
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.fault_proxy import FaultProxy
from tests.support.mosquitto_broker import Mosquitto
from tests.support.raw_client import RawClient

KILLS = 2


def publish_many(at: Broker, topic: str, count: int, begin: int = 0) -> list[bytes]:
    """QoS 2 messages, each acknowledged."""
    payloads = numbered(count, begin)
    with client(at, f"{topic} publisher") as publisher:
        for payload in payloads:
            publisher.publish(topic, payload, 2)
    return payloads


def own_bridge(remote: Broker, name: str) -> dict[str, object]:
    """Settings of a broker of its own, whose bridge ``name`` hands on and takes NAME/…."""
    forwards = [
        {"topic_filters": [f"{name}/out/#"], "direction": "out"},
        {"topic_filters": [f"{name}/in/#"], "direction": "in"},
    ]
    return with_bridges(bridge(remote.address, name=name, forwards=forwards))


def survives(local: Broker, remote: Broker, topic: str, kill: Callable[[], None]) -> None:
    """Messages from ``local`` reach ``remote`` each once and in order, over all kills."""
    with client(remote, f"{topic} far", topic, kept=True):
        pass
    expected: list[bytes] = []
    for number in range(KILLS):
        expected += publish_many(local, topic, 100, 100 * number)
        kill()
    expected += publish_many(local, topic, 100, 100 * KILLS)
    with client(remote, f"{topic} far", kept=True) as far:
        assert far.take_payloads(len(expected)) == expected
        assert far.settle() == []


@pytest.mark.torture("test_a_kill_of_both_brokers kills it, too")
def test_a_kill_of_the_local_broker(start: Start, shared_broker: Broker, name: str) -> None:
    """Restart scenarios: markers are reset, everything unacknowledged is sent again."""
    local = start(own_bridge(shared_broker, name))
    connected(local, name)
    survives(local, shared_broker, f"{name}/out", local.restart)


@pytest.mark.bridge(port="closed")
@pytest.mark.torture("test_a_kill_of_both_brokers kills it, too")
def test_a_kill_of_the_remote_broker(line: Line, start: Start) -> None:
    remote = start()
    line.go_up(remote.address)
    line.connected()
    survives(line.local, remote, line.out, remote.restart)


def test_a_kill_of_both_brokers(start: Start, name: str) -> None:
    remote = start()
    local = start(own_bridge(remote, name))
    connected(local, name)

    def kill() -> None:
        local.kill()
        remote.restart()
        local.start()

    survives(local, remote, f"{name}/out", kill)


def test_an_incoming_message_is_not_lost_by_a_kill_nor_repeated(
    start: Start, shared_broker: Broker, name: str
) -> None:
    local = start(own_bridge(shared_broker, name))
    connected(local, name)
    with client(local, "near", f"{name}/in", kept=True):
        pass
    payloads = numbered(100 * KILLS)
    with client(shared_broker, f"{name}-far") as far:
        for number, payload in enumerate(payloads):
            far.publish(f"{name}/in", payload, 2)
            if number % 100 == 50:
                local.restart()
    with client(local, "near", kept=True) as near:
        assert near.take_payloads(len(payloads)) == payloads
        assert near.settle() == []


@pytest.mark.bridge(port="closed")
@pytest.mark.torture("test_bridge_outages has the same with a link that is cut")
def test_messages_published_while_the_remote_is_away_wait_and_keep_their_order(
    line: Line, start: Start
) -> None:
    remote = start()
    line.go_up(remote.address)
    line.connected()
    with line.far(kept=True):
        pass
    remote.kill()
    line.told("connected", "0")  # until then it still sends, and what it has sent is in flight
    payloads = publish_many(line.local, line.out, 300)
    line.tiers(300, 0)
    remote.start()
    with line.far(kept=True) as far:
        assert far.take_payloads(300) == payloads
        assert far.settle() == []
    line.all_gone()


@pytest.mark.bridge(port="closed")
def test_a_session_that_the_remote_lost_begins_anew_without_loss(line: Line, start: Start) -> None:
    remote = start()
    line.go_up(remote.address)
    line.connected()
    remote.kill()
    with line.near(line.into) as near:
        payloads = publish_many(line.local, line.out, 50)
        shutil.rmtree(remote.data_dir)
        line.proxy.refuse()  # an attempt that waits would be given up, and have made the session
        remote.start()
        with line.far() as far:
            line.proxy.accept()
            assert far.take_payloads(50) == payloads
            line.connected(2)
            far.publish(line.into, b"back", 1)
            assert near.take().payload == b"back"
    assert line.local.log().count("begins a new session") >= 2


@pytest.mark.torture("starts a broker three times")
def test_a_session_that_only_the_remote_has_is_replaced(
    start: Start, shared_broker: Broker, name: str
) -> None:
    with FaultProxy(shared_broker.address) as proxy:
        forwards = [{"topic_filters": [f"{name}/#"], "direction": "out"}]
        settings = bridge(proxy.address, forwards=forwards, client_id=name)
        local = start(with_bridges(settings))
        connected(local)
        local.kill()
        shutil.rmtree(local.data_dir)
        proxy.refuse()
        local.start()
        local.restart()  # its session is there, and was never connected
        proxy.accept()
        wait_for("the warning", lambda: "that is unknown here" in local.log())
        connected(local, times=2)
        with client(local, "near") as near, client(shared_broker, f"{name}-far", name) as far:
            near.publish(name, b"x", 2)
            assert far.take().payload == b"x"


def test_a_message_that_a_bridge_has_no_room_for_waits_at_the_remote(
    start: Start, shared_broker: Broker, name: str
) -> None:
    """A queue that refuses: the remote broker keeps the message until there is room."""
    with FaultProxy(shared_broker.address) as proxy:
        forwards = [{"topic_filters": [f"{name}/#"], "direction": "in"}]
        settings = bridge(proxy.address, forwards=forwards, client_id=name)
        bounds = {"limits.mqueue_overflow": "reject", "limits.max_mqueue_len": 5}
        local = start(with_bridges(settings, **bounds))
        connected(local)
        with client(local, "away", name, kept=True):
            pass
        with client(shared_broker, f"{name}-far") as far:
            for payload in numbered(60):
                far.publish(name, payload, 2)
        proxy.reset()
        with client(local, "away", kept=True) as back:
            assert back.take_payloads(60) == numbered(60)
            assert back.settle() == []


@mosquitto_broker.needed
@pytest.mark.bridge(port="closed", limits={"max_inflight": 20})
@each_version
def test_mosquitto_gets_each_qos_2_message_once_over_its_restarts(
    line: Line, tmp_path: Path
) -> None:
    mosquitto = Mosquitto(tmp_path)
    try:
        mosquitto.start()
        line.go_up(mosquitto.address)
        line.connected()
        with line.far(kept=True):
            pass
        expected: list[bytes] = []
        for restart in range(KILLS):
            expected += publish_many(line.local, line.out, 100, 100 * restart)
            line.all_gone()
            mosquitto.stop()
            mosquitto.start()
        with RawClient(mosquitto.address) as far:
            answer = far.connect(f"{line.name}-far", clean_start=False, expiry_s=3600)
            assert answer.session_present
            assert far.take_payloads(len(expected)) == expected
    finally:
        mosquitto.close()
