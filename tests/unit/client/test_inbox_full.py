"""A program that does not take what comes: it is bounded, and nobody waits for ever."""

from __future__ import annotations

import pytest

from penstock.client.message import Message
from penstock.client.options import Status
from penstock.engine.values.drop_reasons import SLOW_CONSUMER
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Packet, Puback, Publish, Suback, Subscribe
from tests.support.deadline import until
from tests.support.scripted_server import Script, Visit, engine_of, opened


def sends(count: int, qos: int, size_bytes: int) -> Script:
    """Whoever subscribes gets so many messages, numbered."""

    def script(visit: Visit, packet: Packet) -> bool:
        if not isinstance(packet, Subscribe):
            return False
        numbers = range(1, count + 1)
        visit.send(Suback(packet.packet_id, [qos]))
        visit.send(
            *(Publish("a", b"%d" % n * size_bytes, qos, packet_id=n if qos else 0) for n in numbers)
        )
        return True

    return script


async def test_a_program_that_publishes_what_it_gets_goes_on_with_a_full_inbox() -> None:
    """The PUBACK that it waits for lies behind what it has no room for."""
    async with opened(sends(200, 1, 1), inbox_messages_max=10) as (client, server):
        await client.subscribe("a")
        done: list[bytes] = []
        async for message in client.messages():
            async with message.processing():
                await client.publish("out", message.payload, 1)
            done.append(message.payload)
            if len(done) == 200:
                break
        assert done == [b"%d" % n for n in range(1, 201)]
        assert [one.payload for one in server.of(Publish)] == done
        await until("all acknowledgements", lambda: len(server.of(Puback)) == 200)


async def test_a_program_that_subscribes_goes_on_with_a_full_inbox() -> None:
    async with opened(sends(50, 1, 1), inbox_messages_max=10) as (client, _):
        await client.subscribe("a")
        engine = engine_of(client)
        await until("a full inbox", lambda: engine.inbox.is_full)
        assert await client.unsubscribe("a") == [0]
        seen = [(await anext(client.messages())).payload for _ in range(1)]
        assert seen == [b"1"]


async def test_while_it_waits_for_an_answer_qos_0_beyond_is_dropped_and_counted() -> None:
    def script(visit: Visit, packet: Packet) -> bool:
        if not isinstance(packet, Publish):
            return False
        visit.send(*(Publish("a", b"%d" % n) for n in range(50)), Puback(packet.packet_id))
        return True

    async with opened(script, inbox_messages_max=10) as (client, _):
        await client.publish("b", b"", 1)
        engine = engine_of(client)
        assert len(engine.inbox) == 10
        assert engine.server.drops.counts[SLOW_CONSUMER] == 40
        messages = client.messages()
        assert [(await anext(messages)).payload for _ in range(10)] == [
            b"%d" % n for n in range(10)
        ]


async def test_nothing_is_dropped_while_it_waits_for_nothing() -> None:
    """Nothing more is read then, and all of it comes later."""
    async with opened(sends(100, 0, 1), inbox_messages_max=10) as (client, _):
        await client.subscribe("a")
        engine = engine_of(client)
        await until("a full inbox", lambda: engine.inbox.is_full)
        assert engine.dialler.connection is not None
        assert engine.dialler.connection.is_application_full
        assert len(engine.inbox) == 10
        messages = client.messages()
        seen = [(await anext(messages)).payload for _ in range(100)]
        assert seen == [b"%d" % n for n in range(1, 101)]
        assert engine.server.drops.counts[SLOW_CONSUMER] == 0


async def test_the_inbox_is_bounded_in_bytes_too() -> None:
    async with opened(sends(9, 0, 1000), inbox_bytes_max=5000) as (client, _):
        await client.subscribe("a")
        engine = engine_of(client)
        await until("a full inbox", lambda: engine.inbox.is_full)
        assert engine.dialler.connection is not None
        assert engine.dialler.connection.is_application_full
        assert len(engine.inbox) == 5
        messages = client.messages()
        seen = [(await anext(messages)).payload[:1] for _ in range(9)]
        assert seen == [b"%d" % n for n in range(1, 10)]
        assert not engine.inbox.is_full
        assert not engine.dialler.connection.is_application_full


@pytest.mark.parametrize("qos", [1, 2])
async def test_acknowledgements_are_written_while_the_program_keeps_the_loop(qos: int) -> None:
    """The server sends on while the program works on the rest."""
    async with opened(sends(200, qos, 1)) as (client, server):
        await client.subscribe("a")
        await until("all messages", lambda: len(engine_of(client).inbox) == 200)
        visit = server.visits[0]
        messages = client.messages()
        written: list[int] = []
        for _ in range(200):
            await anext(messages)  # lets go of nothing: they are there
            written.append(visit.unacknowledged_bytes())
        acknowledgement_bytes = len(encode(Puback(1), V5))
        assert written[99] == 0
        assert written[101:150] == [100 * acknowledgement_bytes] * 49
        assert written[-1] >= (200 - 32) * acknowledgement_bytes


async def test_acknowledgements_given_as_we_are_let_in_again_wait_for_the_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``status_changed`` is called within the driver's own work, which nothing may cut in two."""
    had: list[Message] = []
    pushed: list[str] = []

    def changed(status: Status) -> None:
        if status.state == "connected" and had:
            for message in had:
                message.acknowledge()
            pushed.append("told")

    async with opened(sends(100, 1, 1), status_changed=changed, reconnect_s_min=0.01) as (
        client,
        server,
    ):
        await client.subscribe("a")
        messages = client.messages()
        for _ in range(100):
            message = await anext(messages)
            message.defer()
            had.append(message)
        inbox = engine_of(client).inbox
        monkeypatch.setattr(inbox, "_write_acknowledgements", lambda: pushed.append("written"))
        server.visits[0].end()
        await until("the second connection", lambda: "told" in pushed)
        assert pushed == ["told"]
        assert all(message.is_settled for message in had)
