"""A message is acknowledged when its processing ended well, and never before."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client.inbox import Inbox
from penstock.client.message import Message
from penstock.errors import LocalProtocolError
from penstock.protocol.packets import Packet, Puback, Publish, Suback, Subscribe
from tests.support.deadline import until
from tests.support.scripted_server import Visit, engine_of, opened


def five(visit: Visit, packet: Packet) -> bool:
    """To whoever subscribes, five messages."""
    if not isinstance(packet, Subscribe):
        return False
    visit.send(Suback(packet.packet_id, [1]))
    visit.send(*(Publish("a", b"%d" % n, 1, packet_id=n) for n in range(1, 6)))
    return True


def one(visit: Visit, packet: Packet) -> bool:
    """To whoever subscribes, one message."""
    if not isinstance(packet, Subscribe):
        return False
    visit.send(Suback(packet.packet_id, [1]), Publish("a", b"1", 1, packet_id=1))
    return True


async def fail(message: Message) -> None:
    with pytest.raises(OSError, match="the database is away"):
        async with message.processing():
            raise OSError("the database is away")


async def test_a_failed_message_is_not_acknowledged_however_late_the_next_is_asked_for() -> None:
    async with opened(one, redeliver_s=0.001) as (client, server):
        await client.subscribe("a")
        messages = client.messages()
        waiting = engine_of(client).inbox.__len__
        for attempt in (1, 2, 3):
            message = await anext(messages)
            assert (message.attempt, message.duplicate) == (attempt, attempt > 1)
            await client.publish("barrier", b"", 1)  # an acknowledgement would be before it
            assert server.of(Puback) == []
            await fail(message)
            await until("it is there again", waiting)
        async with (await anext(messages)).processing():
            pass
        await until("its acknowledgement", lambda: server.of(Puback))
        assert server.of(Puback) == [Puback(1)]


async def test_a_loop_does_not_acknowledge_what_another_one_processes() -> None:
    async with opened(one, redeliver_s=0.001) as (client, server):
        await client.subscribe("a")
        first, second = client.messages(), client.messages()
        await fail(await anext(first))
        message = await anext(second)
        waiting = asyncio.ensure_future(anext(first))
        await client.publish("barrier", b"", 1)
        assert not message.is_settled
        assert server.of(Puback) == []
        server.visit.send(Publish("a", b"2", 1, packet_id=2))
        assert (await waiting).payload == b"2"
        assert not message.is_settled


async def test_a_message_that_a_loop_left_comes_again_to_the_next_and_holds_up_nothing() -> None:
    async with opened(five, receive_maximum=5) as (client, server):
        await client.subscribe("a")
        async for message in client.messages():
            assert message.payload == b"1"
            break
        del message
        seen: list[tuple[bytes, int]] = []
        async for message in client.messages():
            seen.append((message.payload, message.attempt))
            message.acknowledge()
            if len(seen) == 5:
                break
        assert seen == [(b"1", 2), (b"2", 1), (b"3", 1), (b"4", 1), (b"5", 1)]
        await until("all acknowledgements", lambda: len(server.of(Puback)) == 5)
        assert [one.packet_id for one in server.of(Puback)] == [1, 2, 3, 4, 5]


async def test_messages_left_by_an_iterator_are_acknowledged_by_asking_for_more() -> None:
    async with opened(five) as (client, server):
        await client.subscribe("a")
        messages = client.messages()
        await anext(messages)
        await messages.aclose()
        await messages.aclose()
        again = [(await anext(messages)).payload for _ in range(5)]
        assert again == [b"1", b"2", b"3", b"4", b"5"]
        await until("all but the last", lambda: len(server.of(Puback)) == 4)


async def test_a_code_that_refuses_nothing_is_told_before_the_block() -> None:
    async with opened(one) as (client, _):
        await client.subscribe("a")
        message = await anext(client.messages())
        for wrong in (0x8E, 0x10, 0x7F):
            with pytest.raises(LocalProtocolError, match="no reason code to refuse"):
                message.processing(refuse=wrong)
        assert not message.is_deferred
        assert not message.is_settled


def knows(message: Message, inbox: Inbox) -> bool:
    return message._settler is inbox


async def test_a_message_that_waits_again_when_the_client_is_closed_does_not_hold_it() -> None:
    """Compiled, the garbage collector does not look into messages: they must not make a cycle."""
    async with opened(one, redeliver_s=0.001) as (client, _):
        await client.subscribe("a")
        message = await anext(client.messages())
        await fail(message)
        inbox = engine_of(client).inbox
        await until("it waits again", lambda: len(inbox) == 1)
        assert knows(message, inbox)
    assert not knows(message, inbox)
    message.acknowledge()
    assert message.is_settled
