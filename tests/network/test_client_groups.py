"""Metrics of a real broker by listener and client group, and a reload of the groups."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.control.admin_requests import Reload, Reloaded
from penstock.control.client import ask
from penstock.control.metric_requests import Metrics, ReadMetrics
from penstock.protocol.packets import Connect
from tests.support.broker import SERVE, Broker, address_of
from tests.support.deadline import wait_for
from tests.support.fixtures import Clients
from tests.support.raw_client import RawClient

SETTINGS = """\
[listener]
allow_anonymous = true

[[listener.others]]
name = "inner"
bind = "127.0.0.1:0"

[[metrics.client_groups]]
name = "presses"
client = "press-*"

[[metrics.client_groups]]
name = "inside"
listener = "inner"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.toml"
    path.write_text(SETTINGS)
    return path


@pytest.fixture
def broker(tmp_path: Path, config: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path, command=(*SERVE, "--config", str(config)))
    broker.start()
    yield broker
    broker.close()


def counted(broker: Broker, name: str) -> dict[tuple[str, ...], float]:
    """The values of a family that are not 0, by their labels."""
    found = ask(broker.data_dir, ReadMetrics(), Metrics, 5.0).samples[name]
    return {sample.labels: sample.value for sample in found if sample.value}


def test_traffic_of_clients_counts_by_listener_and_group(broker: Broker, clients: Clients) -> None:
    press = clients.join(broker, "press-1")
    press.publish("t", b"one", 1)
    press.publish("t", b"two", 1)
    inner = RawClient(address_of(broker.urls[1]), 5)
    inner.connect("reader")
    inner.subscribe("t", qos=1)
    clients.join(broker, "else").publish("t", b"three", 1)
    inner.take_payloads(1)
    assert counted(broker, "client_group_messages_received") == {
        ("main", "presses"): 2,
        ("main", "other"): 1,
    }
    assert counted(broker, "client_group_messages_sent") == {("inner", "inside"): 1}
    assert counted(broker, "client_group_connections_accepted") == {
        ("main", "presses"): 1,
        ("main", "other"): 1,
        ("inner", "inside"): 1,
    }
    assert counted(broker, "listener_connections_opened") == {("main",): 2, ("inner",): 1}
    wait_for(
        "the survey",
        lambda: (
            counted(broker, "client_group_clients")
            == {("main", "presses"): 1, ("main", "other"): 1, ("inner", "inside"): 1}
        ),
    )
    for pairs, total in (
        ("client_group_received_bytes", "received_bytes"),
        ("client_group_sent_bytes", "sent_bytes"),
        ("client_group_packets_received", "packets_received"),
        ("client_group_packets_sent", "packets_sent"),
        ("client_group_messages_dropped", "messages_dropped"),
    ):
        assert sum(counted(broker, pairs).values()) == sum(counted(broker, total).values())
    inner.drop()


def test_a_reload_of_the_groups_counts_for_new_connections(
    broker: Broker, config: Path, clients: Clients
) -> None:
    early = clients.join(broker, "press-1")
    config.write_text(SETTINGS.replace('"presses"', '"machines"'))
    reloaded = ask(broker.data_dir, Reload(), Reloaded, 5.0)
    assert [(one.setting, one.counts) for one in reloaded.changed] == [
        ("metrics.client_groups", "new")
    ]
    early.publish("t", b"x", 1)
    late = clients.open(broker)
    late.send(Connect("press-2", 5, True, 0))
    late.publish("t", b"x", 1)
    late.publish("t", b"x", 1)
    assert counted(broker, "client_group_messages_received") == {
        ("main", "presses"): 1,
        ("main", "machines"): 2,
    }
