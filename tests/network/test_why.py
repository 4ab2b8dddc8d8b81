"""`penstock why` against a broker that runs: nothing is switched on before."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.errors import ConfigError
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.fixtures import Clients, running_broker


@pytest.fixture
def streaming_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker with its stream service, and short queues."""
    settings = {"limits.max_inflight": "1", "limits.max_mqueue_len": "1"}
    with running_broker(tmp_path, settings, stream=True) as broker:
        yield broker


def why(broker: Broker, *words: str) -> Result:
    host, port = broker.stream_address
    where = ("--data-dir", str(broker.data_dir), "--server", f"{host}:{port}")
    result = CliRunner().invoke(app, ["why", *words, *where], terminal_width=200)
    assert result.exception is None or result.exit_code, result.output
    return result


def test_the_fate_of_the_last_messages_of_a_topic_is_told(
    streaming_broker: Broker, clients: Clients
) -> None:
    slow = clients.join(streaming_broker, "slow", expiry_s=100)
    slow.subscribe("plant/+/temp", qos=1)
    press = clients.join(streaming_broker, "press")
    for number in range(4):
        press.publish("plant/line1/temp", b"%d" % number, 1)

    def asked() -> dict[str, Any] | None:  # until the stream service answers within its second
        shown = why(streaming_broker, "slow", "plant/line1/temp", "--json").stdout
        (found,) = map(json.loads, shown.splitlines())
        return found if found["messages"] is not None else None

    told = wait_for("an answer with messages of the log", asked)
    messages = [(one["offset"], one["client_id"], one["qos"]) for one in told["messages"]]
    first = messages[-1][0]
    assert messages == [(first + number, "press", 1) for number in (3, 2, 1, 0)]
    assert told["states"] == {
        str(first): "in_flight",
        str(first + 1): "dropped:queue_full",
        str(first + 2): "dropped:queue_full",
        str(first + 3): "waiting",
    }
    assert "window is full (1 of 1)" in told["reason"]
    assert told["recorded"]["runs"][0]["kind"] == "connected"
    shown = why(streaming_broker, "slow", "plant/line1/temp").stdout
    assert f"offsets up to {first:,}" in shown
    assert "dropped: queue full" in shown
    assert "does not acknowledge" in shown


def test_a_client_that_nobody_knows_and_a_topic_that_nobody_has(
    streaming_broker: Broker, clients: Clients
) -> None:
    assert "no session of 'x'" in why(streaming_broker, "x").stdout
    one = clients.join(streaming_broker, "one")
    one.subscribe("plant/#")
    assert "nearest is 'plant/#'" in why(streaming_broker, "one", "Plant/a").stdout
    assert "no message of 'plant/a'" in why(streaming_broker, "one", "plant/a").stdout
    refused = why(streaming_broker, "one", "plant/#").exception
    assert isinstance(refused, ConfigError)
    assert str(refused).startswith("'plant/#' is no topic")


def test_without_the_stream_service_the_broker_is_asked_alone(
    own_broker: Broker, clients: Clients
) -> None:
    clients.join(own_broker, "one").subscribe("a")
    words = ("why", "one", "a", "--data-dir", str(own_broker.data_dir), "--server", "127.0.0.1:1")
    result = CliRunner().invoke(app, words, terminal_width=200)
    assert result.exit_code == 0, result.output
    assert "cannot be read: " in result.stdout
