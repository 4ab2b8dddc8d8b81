"""`penstock flow` and the limit warnings, against a real broker."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.protocol.packets import Puback
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.fixtures import Clients
from tests.support.processes import run_penstock


@pytest.fixture
def telling_broker(tmp_path: Path) -> Iterator[Broker]:
    settings = {"status.sys_interval_s": 0.3, "status.limit_warning_s": 0.5}
    broker = Broker(tmp_path, settings)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def penstock_flow(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_penstock("flow", *arguments)


def address(broker: Broker) -> str:
    return f"{broker.host}:{broker.port}"


def test_a_slow_client_is_seen_and_named(
    telling_broker: Broker, clients: Clients, name: str
) -> None:
    """Seed "flow control": "Provide observability - log when clients approach or exceed limits"."""
    slow = clients.join(telling_broker, f"{name}/slow+", properties=Properties(receive_maximum=1))
    slow.subscribe(f"{name}/t", qos=1)
    publisher = clients.join(telling_broker, f"{name}p", 4)
    for number in range(3):
        publisher.publish(f"{name}/t", str(number).encode())
    answer = penstock_flow("--broker", address(telling_broker), "--json")
    assert answer.returncode == 0, answer.stderr
    flows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [flow["client_id"] for flow in flows] == [f"{name}/slow+", f"{name}p"]
    seen = flows[0]
    assert seen["window"] == {"used": 1, "size": 1, "client_receive_maximum": 1}
    assert seen["queue"]["messages"] == 2
    assert seen["queue"]["bytes"] > 0
    assert (seen["limits"]["window"]["reached"], seen["limits"]["window"]["times"]) == (True, 1)
    table = penstock_flow("--broker", address(telling_broker))
    assert table.returncode == 0, table.stderr
    assert f"{name}/slow+" in table.stdout
    assert "window for" in table.stdout
    wait_for(
        "the warning",
        lambda: f"client {name}/slow+ is at its limit" in telling_broker.log(),
    )
    for _ in range(3):
        slow.send(Puback(slow.take().packet_id))
    wait_for(
        "the recovery",
        lambda: f"client {name}/slow+ is below its limit again" in telling_broker.log(),
    )


def test_no_broker_is_one_sentence(unused_port: int) -> None:
    answer = penstock_flow("--broker", f"127.0.0.1:{unused_port}")
    assert answer.returncode == 2
    assert answer.stderr.startswith(f"penstock: no broker answers at 127.0.0.1:{unused_port}")
    assert answer.stderr.count("\n") == 1


def test_a_broker_that_does_not_tell_is_one_sentence(
    tmp_path: Path, clients: Clients, name: str
) -> None:
    broker = Broker(tmp_path, {"status.sys_interval_s": 0})
    try:
        broker.start()
        clients.join(broker, name)
        answer = penstock_flow("--broker", address(broker), "--timeout", "1")
    finally:
        broker.close()
    assert answer.returncode == 1
    assert "status.sys_interval_s may be 0" in answer.stderr
    assert answer.stderr.count("\n") == 1


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
