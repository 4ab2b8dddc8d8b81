"""Stock clients over every transport they speak, against one listener of each kind."""

import subprocess

import pytest
from aiomqtt import Client, ProtocolVersion
from paho.mqtt.enums import MQTTProtocolVersion

from tests.interop import mosquitto
from tests.interop.paho_client import VERSIONS, joined_at
from tests.interop.test_aiomqtt import take
from tests.network.transports.conftest import Transports
from tests.support.broker import address_of
from tests.support.deadline import DEADLINE_S


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
@pytest.mark.parametrize("transport", ["tls", "ws", "wss", "unix"])
def test_paho(
    transports: Transports, name: str, transport: str, version: MQTTProtocolVersion
) -> None:
    url, context = transports.urls[transport], transports.authority.client_context()
    with (
        joined_at(url, context, f"{name}s", version) as subscriber,
        joined_at(url, context, f"{name}p", version) as publisher,
    ):
        for qos in (0, 1, 2):
            subscriber.subscribe(f"{name}/{qos}", qos)
            for number in range(50):
                publisher.client.publish(f"{name}/{qos}", b"%d" % number, qos)
            received = subscriber.take(50)
            assert [message.payload for message in received] == [b"%d" % n for n in range(50)]
            assert {message.qos for message in received} == {qos}
        publisher.publish(f"{name}/2", bytes(900_000), 2)
        assert [len(message.payload) for message in subscriber.take(1)] == [900_000]


def aiomqtt_client(transports: Transports, transport: str, client_id: str, version: int) -> Client:
    """A client to enter."""
    place = transports.urls[transport].partition("//")[2].partition("/")[0]
    websocket = transport in ("ws", "wss")
    return Client(
        "localhost",
        address_of(f"//{place}")[1],
        identifier=client_id,
        protocol=ProtocolVersion(version),
        timeout=DEADLINE_S,
        transport="websockets" if websocket else "tcp",
        websocket_path="/broker/mqtt" if transport == "wss" else "/mqtt",
        tls_context=transports.authority.client_context() if transport != "ws" else None,
    )


@pytest.mark.parametrize("version", [3, 4, 5], ids=["v31", "v311", "v5"])
@pytest.mark.parametrize("transport", ["tls", "ws", "wss"])
async def test_aiomqtt(transports: Transports, name: str, transport: str, version: int) -> None:
    async with (
        aiomqtt_client(transports, transport, f"{name}s", version) as subscriber,
        aiomqtt_client(transports, transport, f"{name}p", version) as publisher,
    ):
        for qos in (0, 1, 2):
            await subscriber.subscribe(f"{name}/{qos}", qos)
            for number in range(30):
                await publisher.publish(f"{name}/{qos}", b"%d" % number, qos)
            received = await take(subscriber, 30)
            assert [message.payload for message in received] == [b"%d" % n for n in range(30)]


def _unix_is_supported() -> bool:
    """mosquitto's clients know --unix from 2.0.13 on."""
    try:
        said = subprocess.run(["mosquitto_pub", "--help"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        return False
    return "--unix" in said


@mosquitto.needed
@pytest.mark.parametrize("version", mosquitto.VERSIONS)
@pytest.mark.parametrize(
    "transport",
    [
        "tls",
        "tcp6",
        pytest.param(
            "unix",
            marks=pytest.mark.skipif(
                not _unix_is_supported(), reason="this mosquitto_pub has no option --unix"
            ),
        ),
    ],
)
def test_mosquitto(transports: Transports, name: str, transport: str, version: str) -> None:
    """WebSocket is left out: Mosquitto's command line clients do not speak it before 2.1."""
    url = transports.urls[transport]
    if transport == "unix":
        at = ["--unix", url.partition("//")[2]]
    else:
        host, port = ("::1" if transport == "tcp6" else "localhost"), address_of(url)[1]
        at = ["-h", host, "-p", str(port)]
    if transport == "tls":
        at += ["--cafile", transports.authority.file]
    options = ("-t", f"{name}/t", "-q", "2", "-F", "got %p")
    with mosquitto.Subscriber(transports.broker, version, *options, at=at) as subscriber:
        lines = "".join(f"{number}\n" for number in range(50))
        mosquitto.publish(
            transports.broker, version, f"{name}/t", "-q", "2", "-l", lines=lines, at=at
        )
        assert subscriber.lines(50, "got ") == [f"got {number}" for number in range(50)]
