"""Two brokers on one machine: a command asks the one that is meant, or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import Broker
from tests.support.commands import run
from tests.support.fixtures import Clients, running_broker


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker whose stream service is where the settings of the commands say."""
    with running_broker(tmp_path_factory.mktemp("other"), stream=True) as started:
        yield started


@pytest.fixture
def meant(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path, stream=True) as started:
        yield started


@pytest.fixture
def config(other: Broker, tmp_path: Path) -> Path:
    """Settings with the other's address; the default is one for all brokers of a machine, too."""
    file = tmp_path / "penstock.toml"
    file.write_text('[stream]\nbind = "{}:{}"\n'.format(*other.stream_address))
    return file


@pytest.mark.parametrize(
    "words",
    [
        ("tail", "--last", "1"),
        ("why", "p", "t"),
        ("story", "-t", "t"),
        ("sql", "SELECT payload FROM messages"),
    ],
)
def test_a_data_directory_names_the_broker_and_its_stream(
    words: tuple[str, ...], config: Path, other: Broker, meant: Broker, clients: Clients
) -> None:
    """`why --data-dir X` read another broker's stream at the default port."""
    clients.join(other, "p").publish("t", b"of another broker", qos=1)
    clients.join(meant, "p").publish("t", b"of this broker", qos=1)
    code, output, told = run(*words, "--config", str(config), "--data-dir", str(meant.data_dir))
    assert code == 0, told
    assert b"another" not in output


@pytest.mark.parametrize("words", [("stream", "readers"), ("stream", "tables"), ("tail",)])
def test_a_data_directory_without_a_broker_is_one_sentence(
    words: tuple[str, ...], config: Path, tmp_path: Path
) -> None:
    code, output, told = run(
        *words, "--config", str(config), "--data-dir", str(tmp_path / "nowhere")
    )
    assert (code, output) == (1, b"")
    assert b"no broker that uses" in told


def test_a_service_with_another_log_is_refused(
    meant: Broker, other: Broker, config: Path, clients: Clients
) -> None:
    """The broker of a configuration does not run, and another one listens there."""
    clients.join(meant, "p").publish("t", b"of this broker", qos=1)
    meant.stop()
    with config.open("a") as file:
        file.write(f'[durability]\ndata_dir = "{meant.data_dir}"\n')
    code, output, told = run("tail", "--last", "1", "--config", str(config))
    assert (code, output) == (2, b"")
    address = "{}:{}".format(*other.stream_address)
    assert f"the stream service at {address} has another log".encode() in told


def test_a_broker_without_a_stream_service_says_so(tmp_path: Path) -> None:
    with running_broker(tmp_path, {"stream.enabled": "false"}) as broker:
        code, _, told = run("tail", "--data-dir", str(broker.data_dir))
        shown, output, _ = run("why", "p", "t", "--data-dir", str(broker.data_dir))
    assert (shown, b"has no stream service" in output) == (0, True), "the rest is shown"
    assert code == 2
    assert b"has no stream service: set stream.enabled" in told
