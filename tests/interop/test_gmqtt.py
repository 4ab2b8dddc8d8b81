"""Penstock with gmqtt, a client of its own making on asyncio: 3.1.1 and 5, over TCP and TLS."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any, final

import gmqtt
import pytest

from tests.network.transports.conftest import Transports
from tests.support.broker import address_of
from tests.support.deadline import DEADLINE_S

versions = pytest.mark.parametrize("version", [4, 5], ids=["v311", "v5"])
every_transport = pytest.mark.parametrize("transport", ["tcp", "tls"])


@final
class Joined:
    """A connected client with what it received in a queue."""

    def __init__(self, client_id: str, **options: Any) -> None:
        self.client = gmqtt.Client(client_id, **options)
        self.client.set_config({"reconnect_retries": 0})
        self.messages: asyncio.Queue[tuple[str, bytes, int, dict[str, Any]]] = asyncio.Queue()
        self._subscribed: asyncio.Queue[tuple[int, ...]] = asyncio.Queue()
        self._connected = asyncio.Event()
        self.client.on_message = self._on_message
        self.client.on_subscribe = self._on_subscribe
        self.client.on_connect = lambda *_: self._connected.set()

    async def connect(self, transports: Transports, transport: str, version: int) -> None:
        secure = transports.authority.client_context() if transport == "tls" else False
        port = address_of(transports.urls[transport])[1]
        await self.client.connect("localhost", port, ssl=secure, version=version)
        await asyncio.wait_for(self._connected.wait(), DEADLINE_S)

    async def subscribe(self, topic_filter: str, qos: int) -> None:
        self.client.subscribe(topic_filter, qos)
        granted = await asyncio.wait_for(self._subscribed.get(), DEADLINE_S)
        assert list(granted) == [qos]

    async def take(self, count: int) -> list[tuple[str, bytes, int, dict[str, Any]]]:
        return [await asyncio.wait_for(self.messages.get(), DEADLINE_S) for _ in range(count)]

    def _on_message(
        self, client: object, topic: str, payload: bytes, qos: int, properties: dict[str, Any]
    ) -> int:
        del client
        self.messages.put_nowait((topic, bytes(payload), qos, properties))
        return 0

    def _on_subscribe(
        self, client: object, mid: int, qos: tuple[int, ...], properties: object
    ) -> None:
        del client, mid, properties
        self._subscribed.put_nowait(qos)


@contextlib.asynccontextmanager
async def joined(
    transports: Transports, transport: str, version: int, client_id: str, **options: Any
) -> AsyncIterator[Joined]:
    """A connected client; it leaves in order."""
    found = Joined(client_id, **options)
    await found.connect(transports, transport, version)
    try:
        yield found
    finally:
        with contextlib.suppress(ssl.SSLError):  # asyncio, when the end of a QoS 2 flow meets it
            await found.client.disconnect()


@versions
@every_transport
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_each_qos(
    transports: Transports, name: str, transport: str, version: int, qos: int
) -> None:
    async with (
        joined(transports, transport, version, f"{name}s") as subscriber,
        joined(transports, transport, version, f"{name}p") as publisher,
    ):
        await subscriber.subscribe(f"{name}/+", qos)
        for number in range(50):
            publisher.client.publish(f"{name}/t", b"%d" % number, qos=qos)
        received = await subscriber.take(50)
        assert [(topic, payload, of) for topic, payload, of, _ in received] == [
            (f"{name}/t", b"%d" % number, qos) for number in range(50)
        ]


@versions
@every_transport
async def test_retained_and_will(
    transports: Transports, name: str, transport: str, version: int
) -> None:
    will = gmqtt.Message(f"{name}/will", b"gone", qos=1)
    async with joined(transports, transport, version, f"{name}s") as subscriber:
        dying = Joined(f"{name}d", will_message=will)
        await dying.connect(transports, transport, version)
        await subscriber.subscribe(f"{name}/#", 1)
        subscriber.client.publish(f"{name}/kept", b"kept", qos=1, retain=True)
        assert [payload for _, payload, _, _ in await subscriber.take(1)] == [b"kept"]
        dying.client._connection._transport.abort()  # without DISCONNECT
        assert [payload for _, payload, _, _ in await subscriber.take(1)] == [b"gone"]
    async with joined(transports, transport, version, f"{name}l") as late:
        await late.subscribe(f"{name}/kept", 1)
        [(_, payload, _, properties)] = await late.take(1)
        assert (payload, properties["retain"]) == (b"kept", 1)


async def test_mqtt5_properties(transports: Transports, name: str) -> None:
    async with joined(transports, "tls", 5, name) as client:
        await client.subscribe(f"{name}/t", 1)
        client.client.publish(
            f"{name}/t",
            b"x",
            qos=1,
            content_type="text/plain",
            user_property=[("room", "17"), ("room", "18")],
            message_expiry_interval=100,
        )
        [(_, _, _, properties)] = await client.take(1)
        assert properties["content_type"] == ["text/plain"]
        assert properties["user_property"] == [("room", "17"), ("room", "18")]
