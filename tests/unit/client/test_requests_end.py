"""Requests that fail leave nothing behind."""

from __future__ import annotations

import asyncio
import gc

import pytest

from penstock import Client, Receipt
from penstock.errors import NotConnected, PublishFailed, RequestFailed
from penstock.protocol.packets import Connack, Connect, Packet, Puback, Publish, Subscribe
from penstock.protocol.properties import Properties
from tests.support.deadline import until
from tests.support.scripted_server import Script, Visit, opened


def waiting(client: Client) -> int:
    """How many responses are waited for."""
    assert client._responses is not None
    return len(client._responses._futures)


def answers(code: int) -> Script:
    """Every request is acknowledged with ``code``."""

    def script(visit: Visit, packet: Packet) -> bool:
        if isinstance(packet, Publish):
            visit.send(Puback(packet.packet_id, code))
        return isinstance(packet, Publish)

    return script


async def test_nobody_subscribes() -> None:
    async with opened(answers(0x10)) as (client, _):
        for _ in range(3):
            with pytest.raises(RequestFailed, match="nobody subscribes"):
                await client.request("a")
            await asyncio.sleep(0)
            assert waiting(client) == 0


async def test_the_server_refuses_it() -> None:
    async with opened(answers(0x87)) as (client, _):
        with pytest.raises(PublishFailed, match="not authorized"):
            await client.request("a")
        await asyncio.sleep(0)
        assert waiting(client) == 0


async def test_nobody_answers() -> None:
    async with opened() as (client, _):
        with pytest.raises(RequestFailed, match=r"no response within 0\.05 s"):
            await client.request("a", timeout_s=0.05)
        await asyncio.sleep(0)
        assert waiting(client) == 0


async def test_a_request_that_is_given_up_leaves_nothing_behind() -> None:
    async with opened() as (client, server):
        asking = asyncio.create_task(client.request("a"))
        await until("the request", lambda: server.of(Publish))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.sleep(0)
        assert waiting(client) == 0


async def test_the_time_is_for_the_subscription_too() -> None:
    def script(visit: Visit, packet: Packet) -> bool:
        del visit
        return isinstance(packet, Subscribe)

    async with opened(script) as (client, server):
        with pytest.raises(RequestFailed, match="no response within"):
            await client.request("a", timeout_s=0.05)
        assert server.of(Publish) == []
        assert waiting(client) == 0


async def test_the_properties_of_the_program_stay_as_they_are() -> None:
    def script(visit: Visit, packet: Packet) -> bool:
        if isinstance(packet, Publish):
            assert packet.properties is not None
            topic = packet.properties.response_topic
            assert topic is not None
            correlation = Properties(correlation_data=packet.properties.correlation_data)
            visit.send(Puback(packet.packet_id), Publish(topic, b"yes", properties=correlation))
        return isinstance(packet, Publish)

    async with opened(script) as (client, server):
        said = Properties(content_type="text/plain", user_properties=[("a", "b")])
        for _ in range(2):
            assert (await client.request("a", properties=said, timeout_s=30.5)).payload == b"yes"
        assert said == Properties(content_type="text/plain", user_properties=[("a", "b")])
        own = Properties(message_expiry_interval=7000)
        await client.request("a", properties=own)
        assert own == Properties(message_expiry_interval=7000)
        await asyncio.sleep(0)
        assert waiting(client) == 0
        sent = [request.properties or Properties() for request in server.of(Publish)]
        assert [one.content_type for one in sent] == ["text/plain", "text/plain", None]
        assert sent[0].correlation_data != sent[1].correlation_data
        expiries = [one.message_expiry_interval or 0 for one in sent]
        assert 0 < expiries[0] <= 31
        assert 31 < expiries[2] <= 7000
        assert len(server.of(Subscribe)) == 1


async def test_a_closed_client_ends_them() -> None:
    def script(visit: Visit, packet: Packet) -> bool:
        if isinstance(packet, Connect):
            visit.send(Connack())
        return isinstance(packet, Connect | Publish)

    async with opened(script, drain_s=0) as (client, server):
        asking = asyncio.create_task(client.request("a"))
        await until("the request", lambda: server.of(Publish))
        await client.close(drain=False)
        with pytest.raises((PublishFailed, NotConnected)):
            await asking
        await asyncio.sleep(0)
        assert waiting(client) == 0


async def test_a_closed_client_ends_those_that_were_delivered() -> None:
    async with opened() as (client, server):
        asking = asyncio.create_task(client.request("a", timeout_s=3600))
        await until("it is delivered", lambda: server.of(Publish) and client.pending == 0)
        await client.close()
        with pytest.raises(NotConnected):
            await asking


async def test_a_receipt_that_nobody_holds_is_forgotten() -> None:
    async with opened() as (client, _):
        receipt = Receipt("readings")
        await client.publish("a", qos=1, receipt=receipt)
        assert waiting(client) == 1
        del receipt
        await until("it is forgotten", lambda: gc.collect() >= 0 and waiting(client) == 0)
