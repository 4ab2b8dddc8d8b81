"""One broker with a listener of every kind."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from penstock.protocol.kinds import V5
from tests.support.broker import Broker
from tests.support.dial import Authority, dial
from tests.support.fixtures import running_broker
from tests.support.raw_client import RawClient

TRANSPORTS: Final = ("tcp", "tcp6", "tls", "ws", "wss", "unix")


@dataclass(frozen=True)
class Transports:
    """A broker that listens on every transport.

    Attributes:
        broker: it.
        authority: that signed its certificate.
        urls: transport to where it is.
    """

    broker: Broker
    authority: Authority
    urls: dict[str, str]

    def open(self, transport: str, version: int = V5) -> RawClient:
        """A connection without CONNECT."""
        stream = dial(self.urls[transport], self.authority.client_context())
        return RawClient(("", 0), version, stream)

    def join(self, transport: str, client_id: str, version: int = V5) -> RawClient:
        """A connected client."""
        client = self.open(transport, version)
        assert client.connect(client_id).reason_code == 0
        return client


def listeners(directory: Path, authority: Authority) -> list[dict[str, object]]:
    """The settings of the listeners beside the main one."""
    certificate, key = authority.issue("server", "localhost", "127.0.0.1")
    encrypted = {"bind": "127.0.0.1:0", "certificate": certificate, "key": key}
    return [
        {"name": "tcp6", "bind": "[::1]:0"},
        {"name": "tls", "kind": "tls", **encrypted},
        {"name": "ws", "kind": "ws", "bind": "127.0.0.1:0"},
        {"name": "wss", "kind": "wss", "path": "/broker/mqtt", **encrypted},
        {"name": "unix", "kind": "unix", "bind": str(directory / "mqtt.sock")},
    ]


@pytest.fixture(scope="session")
def transports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transports]:
    """One broker for all tests that keep to their own names."""
    directory = tmp_path_factory.mktemp("transports")
    authority = Authority(directory)
    settings = {
        "listener.others": json.dumps(listeners(directory, authority)),
        "limits.max_packet_size_bytes": 1_000_000,
    }
    with running_broker(directory, settings) as broker:
        yield Transports(broker, authority, dict(zip(TRANSPORTS, broker.urls, strict=True)))
