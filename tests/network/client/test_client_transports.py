"""The client over every transport, to a broker that listens on all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import BlockingClient, Client, TlsFiles
from penstock.errors import ConfigError, ConnectFailed
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S
from tests.support.dial import Authority
from tests.support.fixtures import running_broker


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("transports")
    certificate, key = authority.issue("localhost", "localhost")
    tls = {"certificate": str(certificate), "key": str(key)}
    bind = "127.0.0.1:0"
    others = [
        {"name": "tls", "kind": "tls", "bind": bind, **tls},
        {"name": "ws", "kind": "ws", "bind": bind},
        {"name": "wss", "kind": "wss", "bind": bind, **tls},
        {"name": "unix", "kind": "unix", "bind": str(directory / "socket")},
    ]
    settings = {"listener.others": json.dumps(others)}
    with running_broker(directory, settings, "memory") as started:
        yield started


def url_of(broker: Broker, scheme: str) -> str:
    """Where the broker said that it listens, by the name in its certificate."""
    (url,) = [one for one in broker.urls if one.startswith(f"{scheme}://")]
    return url.replace("127.0.0.1", "localhost") if scheme in ("mqtts", "wss") else url


@pytest.mark.parametrize("scheme", ["mqtts", "wss"])
async def test_tls_at_a_port_without_it_says_so(broker: Broker, scheme: str) -> None:
    """It said "no answer for 10 s" after half a second."""
    plain = url_of(broker, "mqtt").partition("://")[2]
    with pytest.raises(ConnectFailed, match="is this its port for TLS"):
        await Client(f"{scheme}://{plain}").open()


async def test_an_address_where_nothing_listens_is_told_in_words() -> None:
    with pytest.raises(ConnectFailed, match=r"mqtt://127\.0\.0\.1:1: Connection refused$"):
        await Client("mqtt://127.0.0.1:1").open()


@pytest.mark.parametrize("scheme", ["mqtt", "mqtts", "ws", "wss", "unix"])
async def test_messages_travel_both_ways(
    broker: Broker, authority: Authority, name: str, scheme: str
) -> None:
    is_encrypted = scheme in ("mqtts", "wss")
    tls = TlsFiles(ca=authority.file) if is_encrypted else None
    body = bytes(range(256)) * 1000
    async with asyncio.timeout(DEADLINE_S), Client(url_of(broker, scheme), tls=tls) as client:
        await client.subscribe(name, qos=2)
        await client.publish(name, body, 2)
        assert (await anext(client.messages())).payload == body


async def test_a_certificate_of_nobody_we_know_is_refused(broker: Broker) -> None:
    with pytest.raises(ConnectFailed, match="unable to get local issuer certificate"):
        async with Client(url_of(broker, "mqtts")):
            pass


@pytest.mark.parametrize("path", ["/elsewhere"])
async def test_another_path_is_no_websocket(broker: Broker, path: str) -> None:
    url = url_of(broker, "ws").removesuffix("/mqtt") + path
    with pytest.raises(ConnectFailed, match=f"refused WebSocket at {path} with status 404"):
        async with Client(url):
            pass


async def test_a_server_without_websocket_is_told(broker: Broker) -> None:
    url = url_of(broker, "mqtt").replace("mqtt://", "ws://")
    with pytest.raises(ConnectFailed):
        async with Client(url, connect_timeout_s=5):
            pass


def test_files_that_are_not_used_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only mqtts"):
        Client("mqtt://localhost", tls=TlsFiles(ca="ca.pem"))
    with pytest.raises(ConfigError, match="cannot be used for TLS"):
        Client("mqtts://localhost", tls=TlsFiles(ca=str(tmp_path / "none.pem")))


def test_the_blocking_client_does_the_same(broker: Broker, name: str) -> None:
    with BlockingClient(url_of(broker, "mqtt"), client_id=name) as client:
        assert client.is_connected
        assert client.client_id == name
        assert client.subscribe(name, qos=2) == [2]
        assert client.publish(name, "now", 2, timeout_s=DEADLINE_S) == 0
        client.send(name, "ahead")
        texts = []
        for message in client.messages(timeout_s=DEADLINE_S):
            with message.processing():
                texts.append(message.text)
            if len(texts) == 2:
                break
        assert texts == ["now", "ahead"]
        assert list(client.messages(timeout_s=0.01)) == []
        assert client.unsubscribe(name) == [0]
    assert client.status.state == "closed"


def test_a_blocking_client_that_cannot_connect_leaves_no_thread() -> None:
    client = BlockingClient("mqtt://127.0.0.1:1")
    with pytest.raises(ConnectFailed):
        client.open()
    assert client._thread is not None
    assert not client._thread.is_alive()


def test_a_failed_block_of_the_blocking_client_gets_the_message_again(
    broker: Broker, name: str
) -> None:
    with BlockingClient(url_of(broker, "mqtt"), redeliver_s=0.01) as client:
        client.subscribe(name)
        client.publish(name, "x", 1)
        attempts = []
        for message in client.messages(timeout_s=DEADLINE_S):
            attempts.append(message.attempt)
            try:
                with message.processing():
                    if message.attempt == 1:
                        raise ValueError("once")
            except ValueError:
                continue
            break
        assert attempts == [1, 2]
