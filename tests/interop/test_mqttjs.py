"""Penstock with MQTT.js, in every version and over every transport it speaks."""

from pathlib import Path
from typing import Any

import pytest

from tests.interop.mqttjs import converse, install
from tests.network.transports.conftest import Transports

KINDS = ("tcp", "ws", "wss", "tls")
versions = pytest.mark.parametrize("version", [3, 4, 5], ids=["v31", "v311", "v5"])
every_transport = pytest.mark.parametrize("transport", KINDS)


@pytest.fixture(scope="session")
def modules() -> Path:
    return install()


def where(transports: Transports, transport: str) -> dict[str, Any]:
    """Its address as MQTT.js wants it; the certificate is for the host name."""
    url = transports.urls[transport].replace("127.0.0.1", "localhost")
    return {"url": url, "ca": transports.authority.file}


@versions
@every_transport
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_qos(
    transports: Transports, modules: Path, name: str, transport: str, version: int, qos: int
) -> None:
    found = converse(
        modules,
        "messages",
        **where(transports, transport),
        name=name,
        version=version,
        qos=qos,
        count=100,
        size=200,
    )
    expected = [f"{number}{200 * 'x'}" for number in range(100)]
    assert [message["payload"] for message in found] == expected
    assert {(message["topic"], message["qos"]) for message in found} == {(f"{name}/t", qos)}


@versions
def test_large_messages_over_websocket(
    transports: Transports, modules: Path, name: str, version: int
) -> None:
    """[MQTT-6.0.0-2], [MQTT3-6.0.0-2]: MQTT.js cuts its frames where its buffers end."""
    asked: dict[str, Any] = {"name": name, "version": version, "qos": 1}
    found = converse(
        modules, "messages", **where(transports, "wss"), **asked, count=5, size=500_000
    )
    assert [len(message["payload"]) for message in found] == 5 * [500_001]


@versions
@pytest.mark.parametrize("transport", ["tcp", "ws"])
def test_retained(
    transports: Transports, modules: Path, name: str, transport: str, version: int
) -> None:
    found = converse(
        modules, "retained", **where(transports, transport), name=name, version=version
    )
    assert [(one["topic"], one["payload"], one["retain"]) for one in found] == [
        (f"{name}/kept", "kept", True),
        (f"{name}/last", "last", False),
    ]


@versions
@pytest.mark.parametrize("transport", ["tcp", "ws"])
def test_a_will(
    transports: Transports, modules: Path, name: str, transport: str, version: int
) -> None:
    [found] = converse(modules, "will", **where(transports, transport), name=name, version=version)
    assert (found["topic"], found["payload"]) == (f"{name}/will/lost", "gone")


@versions
@pytest.mark.parametrize("transport", ["tcp", "wss"])
def test_a_persistent_session(
    transports: Transports, modules: Path, name: str, transport: str, version: int
) -> None:
    said = converse(
        modules, "stays", **where(transports, transport), name=name, version=version, count=50
    )
    assert [one["payload"] for one in said["found"]] == [str(number) for number in range(50)]
    assert (said["before"], said["after"]) == (False, version != 3)  # MQTT 3.1 has no word for it


def test_mqtt5_properties(transports: Transports, modules: Path, name: str) -> None:
    [found] = converse(modules, "properties", **where(transports, "ws"), name=name, version=5)
    assert found["contentType"] == "text/plain"
    assert found["correlation"] == "\x00\x01\xff"
    assert found["user"] == {"room": ["17", "18"]}
