"""What a client subscribes to stays asked for until a server has answered."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import pytest

from penstock.errors import LocalProtocolError, SubscribeFailed
from penstock.protocol.packets import (
    Connack,
    Connect,
    Packet,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
)
from penstock.protocol.properties import Properties
from tests.support.deadline import until
from tests.support.scripted_server import Visit, engine_of, opened


def filters_of(visit: Visit) -> list[list[str]]:
    """What was asked for, by SUBSCRIBE."""
    return [[one.topic_filter for one in asked.subscriptions] for asked in visit.of(Subscribe)]


async def test_a_session_whose_subscriptions_were_not_restored_gets_them_later() -> None:
    """The second server begins a new session and is gone before SUBACK; the third has it."""

    def script(visit: Visit, packet: Packet) -> bool:
        if isinstance(packet, Connect):
            visit.send(Connack(session_present=visit.number > 2))
            return True
        if isinstance(packet, Subscribe) and visit.number in (2, 3):
            visit.end()
            return True
        return False

    async with opened(script) as (client, server):
        await client.subscribe("a", "b")
        server.visit.end()
        await until("a fourth connection", lambda: len(server.visits) == 4)
        await until("what it is asked for", lambda: filters_of(server.visit))
        await client.publish("barrier", b"", 1)
        assert [filters_of(visit) for visit in server.visits] == [[["a", "b"]]] * 4
        server.visit.end()
        await until("a fifth connection", lambda: len(server.visits) == 5)
        await client.publish("barrier", b"", 1)
        assert filters_of(server.visit) == []  # it was answered, and the server has the session


async def test_two_lost_sessions_are_not_asked_for_twice() -> None:
    def script(visit: Visit, packet: Packet) -> bool:
        if isinstance(packet, Subscribe) and visit.number in (2, 3):
            visit.end()
            return True
        return False

    async with opened(script) as (client, server):
        await client.subscribe("a")
        server.visit.end()
        await until("a fourth connection", lambda: len(server.visits) == 4)
        await until("what it is asked for", lambda: filters_of(server.visit))
        await client.publish("barrier", b"", 1)
        assert filters_of(server.visit) == [["a"]]


async def test_subscriptions_too_large_together_are_asked_for_one_by_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = [f"{letter * 100}/#" for letter in "abc"]

    def script(visit: Visit, packet: Packet) -> bool:
        if isinstance(packet, Connect) and visit.number > 1:
            visit.send(Connack(properties=Properties(maximum_packet_size=150)))
            return True
        return False

    async with opened(script) as (client, server):
        await client.subscribe(*names)
        with caplog.at_level(logging.ERROR):
            server.visit.end()
            await until("a second connection", lambda: len(server.visits) == 2)
            await until("all of it", lambda: len(filters_of(server.visit)) == 3)
        assert filters_of(server.visit) == [[name] for name in names]
        assert caplog.records == []


async def test_a_subscription_too_large_alone_is_told_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def script(visit: Visit, packet: Packet) -> bool:
        if isinstance(packet, Connect) and visit.number > 1:
            visit.send(Connack(properties=Properties(maximum_packet_size=150)))
            return True
        return False

    async with opened(script) as (client, server):
        await client.subscribe("small", "x" * 200)
        with caplog.at_level(logging.ERROR):
            server.visit.end()
            await until("a second connection", lambda: len(server.visits) == 2)
            await until("the small one", lambda: filters_of(server.visit))
        assert filters_of(server.visit) == [["small"]]
        (record,) = caplog.records
        assert record.getMessage().startswith(
            "could not subscribe again: the server does not accept"
        )


async def test_more_than_there_are_packet_identifiers_are_all_answered() -> None:
    """In a session of a former program only a thousand and some are used."""

    def script(visit: Visit, packet: Packet) -> bool:
        if isinstance(packet, Connect):
            visit.send(Connack(session_present=True))
            return True
        return False

    async with opened(script, client_id="known", session_expiry_s=60) as (client, server):
        await client.publish("barrier", b"", 1)
        released = len(server.of(Pubrel))
        answers = await asyncio.gather(*(client.subscribe(f"t/{n}") for n in range(released + 100)))
        assert answers == [[1]] * (released + 100)
        assert max(asked.packet_id for asked in server.of(Subscribe)) <= released


@pytest.mark.parametrize("ends", ["subscribe", "unsubscribe"])
async def test_a_server_that_never_answers_is_given_up_after_five_connections(ends: str) -> None:
    """Some end the connection to say no."""
    asked: list[Packet] = []

    def script(visit: Visit, packet: Packet) -> bool:
        if isinstance(packet, Subscribe) is (ends == "subscribe") and packet.type in (8, 10):
            asked.append(packet)
            visit.end()
            return True
        return False

    async with opened(script) as (client, server):
        if ends == "unsubscribe":
            await client.subscribe("a")
        with pytest.raises(SubscribeFailed, match="5 connections ended before the server answered"):
            await (client.subscribe("a") if ends == "subscribe" else client.unsubscribe("a"))
        assert len(asked) == 5
        await client.publish("barrier", b"", 1)  # it is not asked for any more
        assert len(asked) == 5
        assert len(server.visits) == 6


async def test_an_answer_in_time_begins_the_count_anew() -> None:
    def script(visit: Visit, packet: Packet) -> bool:
        if isinstance(packet, Subscribe) and visit.number < 5:
            visit.end()
            return True
        if isinstance(packet, Subscribe):
            visit.send(Suback(packet.packet_id, [packet.subscriptions[0].qos]))
            return True
        return False

    async with opened(script) as (client, server):
        assert await client.subscribe(Subscription("a", 2)) == [2]
        assert len(server.visits) == 5


@pytest.mark.parametrize("is_connected", [True, False])
@pytest.mark.parametrize(
    ("asked", "properties"),
    [
        ("x" * 70_000, None),
        ("a\ud800", None),
        ("a\0b", None),
        (Subscription("a", 3), None),
        (Subscription("$share/g/a", 1, no_local=True), None),
        ("a", Properties(subscription_identifiers=[0])),
        ("a", Properties(topic_alias=1)),
    ],
)
async def test_a_subscription_that_mqtt_cannot_carry_is_told_at_once(
    asked: str | Subscription, properties: Properties | None, is_connected: bool
) -> None:
    """Without connection as with one, where it would disturb what is asked for together with it."""

    def script(visit: Visit, packet: Packet) -> bool:
        if isinstance(packet, Connect) and not is_connected:
            visit.end()
            return True
        return False

    async with opened(script, waits_for_connection=is_connected) as (client, server):
        with pytest.raises(LocalProtocolError):
            await client.subscribe(asked, properties=properties)
        assert not engine_of(client).subscriptions.awaits_answer
        is_connected = True
        await client.subscribe("b")
        assert [one.packet_id for one in server.of(Subscribe)] == [1]


@pytest.mark.parametrize("qos", ["1", 1.5, None])
async def test_a_qos_that_is_no_number_is_told_without_connection_too(qos: object) -> None:
    async with opened(lambda *_: True, waits_for_connection=False) as (client, _):
        with pytest.raises(TypeError):
            await client.subscribe("a", qos=cast("int", qos))


async def test_a_request_that_could_not_be_sent_uses_no_packet_identifier() -> None:
    async with opened() as (client, _):
        engine = engine_of(client)
        for _ in range(3):
            with pytest.raises(SubscribeFailed):
                await engine.send_request([Subscription("x" * 70_000)], [], None)
            with pytest.raises(SubscribeFailed):
                await engine.send_request([], ["x" * 70_000], None)
        assert not any(
            engine.session.transmission.free_packet_id(number) for number in range(1, 10)
        )
