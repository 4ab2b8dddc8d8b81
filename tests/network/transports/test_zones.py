"""Listeners with bounds of their own: zones, connections at once, connections a second."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.protocol.kinds import V31, V311
from penstock.protocol.packets import Publish
from tests.support.broker import Broker, address_of
from tests.support.deadline import wait_for
from tests.support.fixtures import Clients, running_broker
from tests.support.raw_client import RawClient


def others(**listener: Any) -> dict[str, object]:
    services = {"name": "services", "bind": "127.0.0.1:0", **listener}
    return {"listener.others": json.dumps([services])}


def second(broker: Broker, version: int = V311) -> RawClient:
    """A connection to the second listener."""
    return RawClient(address_of(broker.urls[1]), version)


def test_the_window_is_that_of_the_listener(tmp_path: Path, clients: Clients) -> None:
    """Seed 000: settings by zone, as internal services 128 / 10000."""
    settings = {"limits.max_inflight": 2, **others(limits={"max_inflight": 5})}
    with running_broker(tmp_path, settings) as broker, second(broker) as inside:
        inside.connect("inside")
        outside = clients.join(broker, "outside", V311)
        for client in (inside, outside):
            client.subscribe("t", qos=1)
        publisher = clients.join(broker, "publisher")
        for number in range(8):
            publisher.publish("t", b"%d" % number)
        for client, window in ((inside, 5), (outside, 2)):
            arrived = [packet for packet in client.settle() if isinstance(packet, Publish)]
            assert [message.payload for message in arrived] == [b"%d" % n for n in range(window)]


def test_a_session_takes_the_zone_it_comes_back_through(tmp_path: Path, clients: Clients) -> None:
    settings = {"limits.max_inflight": 2, **others(limits={"max_inflight": 5})}
    with running_broker(tmp_path, settings) as broker:
        client = clients.join(broker, "moves", V311, clean_start=False)
        client.subscribe("t", qos=1)
        client.drop()
        publisher = clients.join(broker, "publisher")
        for number in range(8):
            publisher.publish("t", b"%d" % number)
        with second(broker) as again:
            again.connect("moves", clean_start=False)
            arrived = [again.expect(Publish).payload for _ in range(5)]
            assert arrived == [b"%d" % number for number in range(5)]
            assert not any(isinstance(packet, Publish) for packet in again.settle())


def test_longer_client_identifiers_of_mqtt_31_are_taken_where_allowed(
    tmp_path: Path, clients: Clients
) -> None:
    """Return code 2 elsewhere (v3.1 §3.1)."""
    name = "x" * 64
    with running_broker(tmp_path, others(limits={"v31_client_id_len_max": 64})) as broker:
        with second(broker, V31) as inside:
            assert inside.connect(name).reason_code == 0
        assert clients.open(broker, V31).connect(name).reason_code == 0x85


@pytest.mark.parametrize("bytes_max", [500])
def test_the_packet_size_is_that_of_the_listener(
    tmp_path: Path, clients: Clients, bytes_max: int
) -> None:
    """[MQTT-3.2.2-15]."""
    settings = others(limits={"max_packet_size_bytes": bytes_max})
    with running_broker(tmp_path, settings, "memory") as broker, second(broker, 5) as narrow:
        answer = narrow.connect("narrow")
        assert answer.properties is not None
        assert answer.properties.maximum_packet_size == bytes_max
        clients.join(broker, "wide").publish("t", bytes(1000))
        narrow.send_bytes(bytes.fromhex("30 e8 07"))
        narrow.expect_disconnect(0x95)


def test_each_listener_counts_its_own_connections(tmp_path: Path, clients: Clients) -> None:
    settings = {"listener.max_connections": 1, **others(max_connections=2)}
    with running_broker(tmp_path, settings, "memory") as broker:
        clients.join(broker, "first")
        clients.open(broker).expect_end()
        with second(broker) as one, second(broker) as two, second(broker) as three:
            assert one.connect("one").reason_code == 0
            assert two.connect("two").reason_code == 0
            three.expect_end()
        wait_for("the first line", lambda: "max_connections (1) of listener main" in broker.log())
        wait_for("the second", lambda: "max_connections (2) of listener services" in broker.log())


def test_connections_above_the_rate_wait_for_their_turn(tmp_path: Path) -> None:
    """Ten at once, then ten a second: the thirtieth has waited two seconds, none was refused."""
    settings = others(connections_per_s_max=10)
    with running_broker(tmp_path, settings, "memory") as broker:
        began_s = time.monotonic()
        opened = [second(broker) for _ in range(30)]
        for number, client in enumerate(opened):
            assert client.connect(f"c{number}").reason_code == 0
        assert time.monotonic() - began_s > 1.9
        for client in opened:
            client.drop()
