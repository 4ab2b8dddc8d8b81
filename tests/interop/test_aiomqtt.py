"""Penstock with aiomqtt, in every version of the protocol it speaks."""

import asyncio
from typing import Any

import pytest
from aiomqtt import Client, Message, ProtocolVersion, Will
from paho.mqtt.packettypes import PacketTypes

from tests.interop.paho_client import properties_of
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S

versions = pytest.mark.parametrize("version", ProtocolVersion, ids=lambda version: version.name)


def client_of(
    broker: Broker, client_id: str, version: ProtocolVersion, stays: bool = False, will: str = ""
) -> Client:
    """A client to enter; ``stays``: its session outlives the connection."""
    options: dict[str, Any] = {}
    if version == ProtocolVersion.V5:
        options["clean_start"] = not stays
        expiry_s = 3600 if stays else 0
        options["properties"] = properties_of(PacketTypes.CONNECT, SessionExpiryInterval=expiry_s)
    else:
        options["clean_session"] = not stays
    if will:
        options["will"] = Will(will, b"gone", 1)
    return Client(
        broker.host,
        broker.port,
        identifier=client_id,
        protocol=version,
        timeout=DEADLINE_S,
        **options,
    )


async def take(client: Client, count: int) -> list[Message]:
    """The next ``count`` messages."""
    messages = aiter(client.messages)
    return [await asyncio.wait_for(anext(messages), DEADLINE_S) for _ in range(count)]


@versions
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_each_qos(
    shared_broker: Broker, name: str, version: ProtocolVersion, qos: int
) -> None:
    async with (
        client_of(shared_broker, f"{name}s", version) as subscriber,
        client_of(shared_broker, f"{name}p", version) as publisher,
    ):
        await subscriber.subscribe(f"{name}/+", qos)
        for number in range(50):
            await publisher.publish(f"{name}/t", b"%d" % number, qos)
        received = await take(subscriber, 50)
        assert [(str(message.topic), message.payload, message.qos) for message in received] == [
            (f"{name}/t", b"%d" % number, qos) for number in range(50)
        ]


@versions
async def test_many_at_once(shared_broker: Broker, name: str, version: ProtocolVersion) -> None:
    async with client_of(shared_broker, name, version) as client:
        await client.subscribe(f"{name}/#", 2)
        await asyncio.gather(
            *(client.publish(f"{name}/{number % 7}", b"%d" % number, 2) for number in range(200))
        )
        received = await take(client, 200)
        assert sorted(int(message.payload) for message in received) == list(range(200))


@versions
async def test_retained_and_will(
    shared_broker: Broker, name: str, version: ProtocolVersion
) -> None:
    async with client_of(shared_broker, f"{name}s", version) as subscriber:
        async with client_of(shared_broker, f"{name}p", version, will=f"{name}/will") as publisher:
            await publisher.publish(f"{name}/kept", b"kept", 1, retain=True)
            await subscriber.subscribe(f"{name}/#", 1)
            [kept] = await take(subscriber, 1)
            assert (kept.payload, bool(kept.retain)) == (b"kept", True)
        await subscriber.publish(f"{name}/last", b"no will before", 1)
        [last] = await take(subscriber, 1)
        assert last.payload == b"no will before"


@versions
async def test_a_persistent_session(
    shared_broker: Broker, name: str, version: ProtocolVersion
) -> None:
    async with client_of(shared_broker, name, version, stays=True) as subscriber:
        await subscriber.subscribe(f"{name}/t", 2)
    async with client_of(shared_broker, f"{name}p", version) as publisher:
        for number in range(20):
            await publisher.publish(f"{name}/t", b"%d" % number, 2)
    async with client_of(shared_broker, name, version, stays=True) as again:
        received = await take(again, 20)
        assert [message.payload for message in received] == [b"%d" % n for n in range(20)]


async def test_mqtt5_properties(shared_broker: Broker, name: str) -> None:
    values = {
        "ContentType": "text/plain",
        "UserProperty": [("room", "17"), ("room", "18")],
        "ResponseTopic": f"{name}/answers",
        "CorrelationData": b"\x00\x01",
        "MessageExpiryInterval": 100,
    }
    properties = properties_of(PacketTypes.PUBLISH, **values)
    async with client_of(shared_broker, name, ProtocolVersion.V5) as client:
        await client.subscribe(f"{name}/t", 1)
        await client.publish(f"{name}/t", b"x", 1, properties=properties)
        [message] = await take(client, 1)
        assert message.properties is not None
        assert {key: getattr(message.properties, key) for key in values} == values
