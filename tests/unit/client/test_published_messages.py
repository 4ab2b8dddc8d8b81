"""What may be published, and what becomes of what cannot be delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from penstock import Client
from penstock.client.checks import Payload
from penstock.client.options import Overflow, Settings, Version
from penstock.errors import LocalProtocolError, PublishFailed
from penstock.protocol.decode import PACKET_SIZE_BYTES_MAX
from penstock.protocol.packets import Connack, Connect, Packet, Publish
from penstock.protocol.properties import Properties
from tests.support.deadline import DEADLINE_S, until
from tests.support.scripted_server import NOBODY, Door, Visit, engine_of, opened


@pytest.mark.parametrize(
    ("payload", "sent"),
    [
        (b"a", b"a"),
        (bytearray(b"b"), b"b"),
        (memoryview(b"cd")[1:], b"d"),
        ("ä", "ä".encode()),
        (5, b"5"),
        (-21.5, b"-21.5"),
        (None, b""),
    ],
)
async def test_a_payload_of_each_type_is_sent_as_its_bytes(payload: Payload, sent: bytes) -> None:
    async with opened() as (client, server):
        await client.publish("a", payload, 0)
        await client.publish("a", payload, 1)
        await (await client.send("a", payload, 2))
        publication = client.send_nowait("a", payload)
        assert publication is not None
        await publication
        assert [one.payload for one in server.of(Publish)] == [sent] * 4


@pytest.mark.parametrize("payload", [[1, 2], True, {"a": 1}, (b"a",), object()])
async def test_a_payload_of_another_type_is_refused(payload: object) -> None:
    given = cast("Payload", payload)
    async with opened() as (client, server):
        for qos in (0, 1):
            with pytest.raises(TypeError, match="bytes, text or a number"):
                await client.publish("a", given, qos)
        with pytest.raises(TypeError):
            await client.send("a", given)
        with pytest.raises(TypeError):
            client.send_nowait("a", given)
        with pytest.raises(TypeError):
            await client.request("a", given)
        assert client.pending == 0
        await client.publish("a", b"next", 1)
        assert [one.payload for one in server.of(Publish)] == [b"next"]


@pytest.mark.parametrize("qos", [1.5, True, False, 1.0, "1", None, -1, 3])
async def test_a_value_that_is_no_qos_is_refused(qos: object) -> None:
    given = cast("int", qos)
    async with opened() as (client, server):
        with pytest.raises(LocalProtocolError, match="QoS is 0, 1 or 2"):
            await client.publish("a", b"", given)
        with pytest.raises(LocalProtocolError, match="QoS is 0, 1 or 2"):
            await client.publish("a", b"", given, properties=Properties(content_type="b"))
        assert server.of(Publish) == []


async def test_a_message_too_large_for_the_server_is_told_with_every_qos() -> None:
    def script(visit: Visit, packet: Packet) -> bool:
        if isinstance(packet, Connect):
            visit.send(Connack(properties=Properties(maximum_packet_size=100)))
        return isinstance(packet, Connect)

    async with opened(script) as (client, server):
        for qos in (0, 1, 2):
            with pytest.raises(PublishFailed, match="too large"):
                await client.publish("a", b"x" * 1000, qos)
        with pytest.raises(PublishFailed, match="too large"):
            client.send_nowait("a", b"x" * 1000, 0)
        await client.publish("a", b"x", 0)
        await client.publish("a", b"x", 1)
        assert [one.payload for one in server.of(Publish)] == [b"x", b"x"]


@pytest.mark.parametrize("version", ["3.1.1", "5"])
async def test_a_message_too_large_for_mqtt_is_told_with_every_qos(version: Version) -> None:
    async with opened(version=version) as (client, server):
        too_large = bytes(PACKET_SIZE_BYTES_MAX)
        for qos in (0, 1, 2):
            with pytest.raises(PublishFailed, match="too large"):
                await client.publish("a", too_large, qos)
        assert client.pending == 0
        assert await client.publish("a", b"x", 2) == 0
        assert len(server.visits) == 1


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest"])
async def test_qos_0_without_connection_is_told_where_nobody_waits(overflow: Overflow) -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        Client(NOBODY, waits_for_connection=False, overflow=overflow) as client,
    ):
        with pytest.raises(PublishFailed, match="dropped: the client is not connected"):
            await client.publish("a")


async def test_the_expiry_that_a_publisher_gives_goes_to_the_server() -> None:
    """``age_s_max`` is about what waits here, not there."""
    async with opened(age_s_max=3) as (client, server):
        said = Properties(message_expiry_interval=100_000)
        await client.publish("a", b"", 1, properties=said)
        await client.publish("a", b"", 1)
        assert said == Properties(message_expiry_interval=100_000)
        first, second = server.of(Publish)
        assert first.properties is not None
        expiry_s = first.properties.message_expiry_interval
        assert expiry_s is not None
        assert 100_000 - DEADLINE_S < expiry_s <= 100_000  # less what it waited here
        assert second.properties is None


async def test_a_message_that_waits_too_long_for_a_connection_is_given_up_and_makes_room() -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        Client(NOBODY, waits_for_connection=False, queue_messages_max=1, age_s_max=0.05) as client,
    ):
        first = await client.send("a", b"1")
        second = await client.send("a", b"2")  # there is room again
        for given_up in (first, second):
            with pytest.raises(PublishFailed, match="dropped: expired"):
                await given_up
        await client.drain()
        assert client.pending == 0


async def test_a_message_younger_than_the_age_limit_is_sent() -> None:
    door = Door()

    waits: Settings = {"waits_for_connection": False, "age_s_max": 2 * DEADLINE_S}
    async with opened(door, **waits) as (client, _):
        sent = await client.send("a", b"1")
        looks = engine_of(client)._ages.offset_samples
        await until("two looks at the ages", lambda: len(looks) >= 2)
        door.is_open = True
        assert await sent == 0


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_program_that_only_publishes_lets_others_run(qos: int) -> None:
    async with opened() as (client, server):
        ran = asyncio.Event()
        publish: Callable[..., Coroutine[Any, Any, object]]
        publish = client.publish if qos == 0 else client.send
        others = asyncio.get_running_loop().call_soon(ran.set)
        published = 0
        while not ran.is_set():
            await publish("a", b"x", qos)
            published += 1
            assert published <= 100_000
        others.cancel()
        await client.publish("barrier", b"", 1)
        assert len(server.of(Publish)) == published + 1


@pytest.mark.parametrize(("qos", "turns_min"), [(0, 1), (1, 15), (2, 15)])
async def test_a_program_that_only_publishes_leaves_others_their_turn(
    qos: int, turns_min: int
) -> None:
    """Answers are read meanwhile; QoS 0 has none, and goes further in a turn."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with opened() as (client, _):
        rest = asyncio.create_task(others())
        for _ in range(1000):
            if qos == 0:
                await client.publish("a", b"", 0)
            else:
                await client.send("a", b"", qos)
        rest.cancel()
        assert turns_min <= turns <= 50
