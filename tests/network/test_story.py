"""`penstock story` against a broker that runs, without events and with them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.control.story import BROKER
from penstock.errors import ConfigError
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.fixtures import Clients, running_broker


@pytest.fixture(params=["false", "true"])
def events(request: pytest.FixtureRequest) -> str:
    """Whether the broker writes events of its messages."""
    return str(request.param)


@pytest.fixture
def broker(tmp_path: Path, events: str) -> Iterator[Broker]:
    """A broker with its stream service, and short queues."""
    settings = {
        "limits.max_inflight": "1",
        "limits.max_mqueue_len": "1",
        "events.enabled": events,
        "events.topic_filters": '["plant/#"]',
    }
    with running_broker(tmp_path, settings, stream=True) as running:
        yield running


def story(broker: Broker, *words: str) -> Result:
    where: tuple[str, ...] = ("--data-dir", str(broker.data_dir))
    if "--client" not in words:
        host, port = broker.stream_address
        where += ("--server", f"{host}:{port}")
    result = CliRunner().invoke(app, ["story", *words, *where], terminal_width=200)
    assert result.exception is None or result.exit_code, result.output
    return result


def steps(broker: Broker, *words: str) -> list[list[tuple[str, str, str]]]:
    told = [json.loads(line) for line in story(broker, *words, "--json").stdout.splitlines()]
    return [[triple(step) for step in one["steps"]] for one in told]


def triple(step: dict[str, Any]) -> tuple[str, str, str]:
    return step["source"], step["target"], step["text"]


def test_the_last_messages_of_a_topic(
    broker: Broker, clients: Clients, events: str, tmp_path: Path
) -> None:
    slow = clients.join(broker, "slow", expiry_s=100)
    slow.subscribe("plant/+", qos=1)
    press = clients.join(broker, "press")
    for number in range(3):
        press.publish("plant/a", b"%d" % number, 1)
    published = ("press", BROKER, "PUBLISH QoS 1, 1 B")
    waits = (BROKER, "slow", "QoS 1, waits in its queue")
    dropped = (BROKER, "slow", "dropped: queue full")
    on_disk = (BROKER, BROKER, "on disk")
    sent = (BROKER, "slow", "sent")
    queued = (BROKER, "slow", "queued")
    if events == "false":  # the flight recorder has the times
        in_flight = (BROKER, "slow", "QoS 1, in flight: sent, not acknowledged yet")
        words = ("--topic", "plant/a", "--last", "3")
        assert steps(broker, *words) == [
            [published, on_disk, sent, in_flight],
            [published, on_disk, queued, dropped],
            [published, on_disk, queued, waits],
        ]
        for line in story(broker, *words, "--json").stdout.splitlines():
            timed = [step for step in json.loads(line)["steps"] if step["at_us"] is not None]
            assert [triple(step) for step in timed[:2]] == [published, on_disk]
            assert len(timed) >= 3
    else:

        def told() -> list[list[tuple[str, str, str]]] | None:
            found = steps(broker, "--topic", "plant/a", "--last", "3")
            return found if sent in found[0] else None

        first, second, third = wait_for("the events of the first message", told)
        assert first[0] == second[0] == third[0] == published
        assert first.index(on_disk) < first.index(sent)
        assert {queued, dropped} <= set(second)
        assert third[-1] == waits
    picture = tmp_path / "story.svg"
    shown = story(broker, "--topic", "plant/a", "--svg", str(picture)).stdout
    assert "├─ PUBLISH QoS 1, 1 B ──▶│" in shown
    assert picture.read_text(encoding="utf-8").startswith("<svg")


def test_the_story_of_a_client_that_is_gone_is_told(
    own_broker: Broker, clients: Clients, tmp_path: Path
) -> None:
    press = clients.join(own_broker, "press")
    for number in range(3):
        press.publish("plant/a", b"%d" % number, 1)
    press.drop()

    def told() -> list[dict[str, Any]] | None:
        (one,) = (
            json.loads(line) for line in client_story(own_broker, "press", "--json").splitlines()
        )
        found: list[dict[str, Any]] = one["steps"]
        return found if found[-1]["text"].startswith("disconnected") else None

    steps = wait_for("the end of the connection", told)
    assert all(step["at_us"] for step in steps)
    assert [step["at_us"] for step in steps] == sorted(step["at_us"] for step in steps)
    assert steps[0]["text"] == "connected: main"
    published = [step for step in steps if step["text"].startswith("published")]
    assert {(step["source"], step["target"]) for step in published} == {("press", BROKER)}
    picture = tmp_path / "press.svg"
    assert "├─ connected: main ─" in client_story(own_broker, "press", "--svg", str(picture))
    assert picture.read_text(encoding="utf-8").startswith("<svg")


def test_of_a_session_that_was_recovered_nothing_is_recorded(
    own_broker: Broker, clients: Clients
) -> None:
    clients.join(own_broker, "slow", expiry_s=600).drop()
    own_broker.restart()
    refused = story(own_broker, "--client", "slow").exception
    assert isinstance(refused, ConfigError)
    assert "nothing is recorded of 'slow'" in str(refused)


def client_story(broker: Broker, client_id: str, *words: str) -> str:
    where = ("--data-dir", str(broker.data_dir))
    result = CliRunner().invoke(
        app, ["story", "--client", client_id, *words, *where], terminal_width=200
    )
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_story_that_the_log_has_not_is_one_sentence(broker: Broker) -> None:
    for words, sentence in (
        (("99",), "offset 99 is not in the log yet, which ends before offset"),
        (
            ("--topic", "a"),
            "no recent message of 'a': look further back with `penstock tail -t a",
        ),
        (("--topic", "a/#"), "'a/#' is no topic"),
        ((), "name the message by its OFFSET or by --topic TOPIC, or a client by --client"),
        (("--client", "nobody"), "nothing is recorded of 'nobody'"),
    ):
        refused = story(broker, *words).exception
        assert isinstance(refused, ConfigError)
        assert sentence in str(refused)
