"""``$SYS`` through sockets, as a Mosquitto user reads it."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import Broker
from tests.support.fixtures import VERSIONS, Clients, running_broker
from tests.support.raw_client import RawClient

INTERVAL_S = 0.5


@pytest.fixture(scope="module")
def telling_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"status.sys_interval_s": INTERVAL_S}
    with running_broker(tmp_path_factory.mktemp("telling"), settings) as broker:
        yield broker


@pytest.mark.parametrize("version", VERSIONS)
def test_values_come_at_once_and_changes_later(
    telling_broker: Broker, clients: Clients, name: str, version: int
) -> None:
    client = clients.join(telling_broker, name, version)
    client.subscribe("$SYS/broker/uptime", "$SYS/broker/acknowledged_when", qos=1)
    first = [client.take(), client.take()]
    assert {message.topic for message in first} == {
        "$SYS/broker/uptime",
        "$SYS/broker/acknowledged_when",
    }
    assert {message.retain for message in first} == {True}
    assert b"fsync" in {message.payload for message in first}
    changed = client.take()
    assert (changed.topic, changed.retain, changed.qos) == ("$SYS/broker/uptime", False, 0)


def test_sys_messages_are_not_in_the_log(
    telling_broker: Broker, clients: Clients, name: str
) -> None:
    client = clients.join(telling_broker, name, expiry_s=3600)
    client.subscribe("$SYS/broker/log/latest", "$SYS/broker/uptime", qos=2)
    uptimes = 0
    latest = b""
    while uptimes < 3:
        message = client.take()
        if message.topic.endswith("uptime"):
            uptimes += 1
        else:
            latest = message.payload
    assert latest == b"0"


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto-clients is missing")
def test_mosquitto_sub_reads_them(telling_broker: Broker) -> None:
    command = ["mosquitto_sub", "-h", telling_broker.host, "-p", str(telling_broker.port)]
    answer = subprocess.run(
        [*command, "-V", "mqttv5", "-v", "-t", "$SYS/#", "-C", "60", "-W", "20"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stderr
    assert "$SYS/broker/clients/connected " in answer.stdout
    assert "$SYS/broker/retained messages/count 0" in answer.stdout


def test_topics_that_are_acknowledged_in_memory(tmp_path: Path) -> None:
    """``durability.acknowledge_in_memory`` is told in CONNACK and below $SYS."""
    settings = {"durability.acknowledge_in_memory": '["fast/#", "+/now"]'}
    with running_broker(tmp_path, settings) as broker, RawClient(broker.address) as client:
        connack = client.connect("c")
        assert connack.properties is not None
        assert connack.properties.user_properties == [
            ("penstock-acknowledged", "fsync"),
            ("penstock-acknowledged-in-memory", "fast/#"),
            ("penstock-acknowledged-in-memory", "+/now"),
        ]
        client.subscribe("$SYS/broker/acknowledged_in_memory", qos=1)
        assert client.take().payload == b"fast/#\n+/now"
        assert client.publish("fast/x", b"payload") == 0x10  # nobody subscribes, and no streams
