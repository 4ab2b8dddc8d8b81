"""The client with a real broker: what is published arrives, what arrives is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Unpack

import pytest

from penstock import Client, Message, Properties, Subscription
from penstock.client.options import Settings, Version
from penstock.errors import (
    ClientError,
    ConfigError,
    ConnectFailed,
    LocalProtocolError,
    NotConnected,
    PublishFailed,
    RequestFailed,
    SubscribeFailed,
)
from penstock.protocol.packets import Publish, Pubrec
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S
from tests.support.fixtures import Clients

VERSIONS: tuple[Version, ...] = ("3.1", "3.1.1", "5")


def url(broker: Broker) -> str:
    return f"mqtt://{broker.host}:{broker.port}"


@asynccontextmanager
async def opened(broker: Broker, **settings: Unpack[Settings]) -> AsyncIterator[Client]:
    async with asyncio.timeout(DEADLINE_S), Client(url(broker), **settings) as client:
        yield client


async def take(client: Client, count: int) -> list[Message]:
    """The next messages, acknowledged."""
    taken: list[Message] = []
    async for message in client.messages():
        message.acknowledge()
        taken.append(message)
        if len(taken) == count:
            break
    return taken


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_published_message_arrives_with_its_qos(
    shared_broker: Broker, name: str, version: Version
) -> None:
    async with opened(shared_broker, client_id=name, version=version) as client:
        assert await client.subscribe(f"{name}/#", qos=2) == [2]
        for qos in (0, 1, 2):
            assert await client.publish(f"{name}/a", f"{qos}", qos) == 0
        taken = await take(client, 3)
        assert [(one.topic, one.text, one.qos) for one in taken] == [
            (f"{name}/a", "0", 0),
            (f"{name}/a", "1", 1),
            (f"{name}/a", "2", 2),
        ]
        assert not any(one.duplicate or one.retain for one in taken)
        assert await client.unsubscribe(f"{name}/#") == [0]
    assert client.status.state == "closed"


async def test_properties_travel_both_ways(shared_broker: Broker, name: str) -> None:
    async with opened(shared_broker) as client:
        filters = Subscription(name, 1, retain_as_published=True)
        await client.subscribe(filters, properties=Properties(subscription_identifiers=[7]))
        said = Properties(
            content_type="text/plain", user_properties=[("message-id", "m-1"), ("a", "b")]
        )
        await client.publish(name, "x", 1, retain=True, properties=said)
        (message,) = await take(client, 1)
        assert message.retain
        assert message.id == "m-1"
        assert message.properties is not None
        assert message.properties.content_type == "text/plain"
        assert message.properties.subscription_identifiers == [7]
        await client.publish(name, b"", 1, retain=True)


async def test_many_are_sent_ahead_and_keep_their_order(shared_broker: Broker, name: str) -> None:
    async with opened(shared_broker, max_inflight=7) as client:
        await client.subscribe(name, qos=2)
        sent = [await client.send(name, str(number), 2) for number in range(500)]
        taken = await take(client, 500)
        assert [one.text for one in taken] == [str(number) for number in range(500)]
        assert [await publication for publication in sent] == [0] * 500
        assert client.pending == 0


async def test_reason_codes_of_the_server_are_returned(shared_broker: Broker, name: str) -> None:
    async with opened(shared_broker) as client:
        assert await client.publish(name, b"", 1) in (0, 0x10)
        assert await client.unsubscribe(name) == [0x11]


async def test_a_text_that_is_no_topic_is_refused_here(shared_broker: Broker, name: str) -> None:
    async with opened(shared_broker) as client:
        for wrong in ("", "a/+", "#", "a\0b", "\ud800", "x" * 65_536):
            with pytest.raises(LocalProtocolError):
                await client.publish(wrong)
        for wrong in ("", "a#", "a/#/b"):
            with pytest.raises(LocalProtocolError):
                await client.subscribe(wrong)
        with pytest.raises(LocalProtocolError, match="QoS is 0, 1 or 2"):
            await client.publish(name, qos=3)
        with pytest.raises(LocalProtocolError):
            await client.publish(name, properties=Properties(server_keep_alive=1))
        with pytest.raises(LocalProtocolError, match="not the program's to set"):
            await client.publish(name, properties=Properties(topic_alias=1))
        assert client.is_connected


async def test_mqtt_311_has_no_properties(shared_broker: Broker, name: str) -> None:
    async with opened(shared_broker, version="3.1.1") as client:
        with pytest.raises(LocalProtocolError, match="need MQTT 5"):
            await client.publish(name, properties=Properties(content_type="a"))
        with pytest.raises(RequestFailed, match="need MQTT 5"):
            await client.request(name)


async def test_a_refusal_of_the_server_is_told(shared_broker: Broker, name: str) -> None:
    """$SYS is the broker's own."""
    async with opened(shared_broker) as client:
        with pytest.raises(PublishFailed, match="not authorized") as refused:
            await client.publish(f"$SYS/{name}", b"", 1)
        assert refused.value.reason == 0x87
        with pytest.raises(SubscribeFailed, match="topic filter invalid") as too_deep:
            await client.subscribe(name, "a/" * 200)
        assert too_deep.value.reason == 0x8F
        await client.publish(name, "the other holds", 1)
        assert [one.text for one in await take(client, 1)] == ["the other holds"]


async def test_a_message_too_large_for_the_server_is_told(shared_broker: Broker, name: str) -> None:
    async with opened(shared_broker) as client:
        with pytest.raises(PublishFailed, match="too large"):
            await client.publish(name, b"x" * 1_048_576, 2)
        assert await client.publish(name, b"x", 2) in (0, 0x10)


# -- acknowledging ---------------------------------------------------------------------------


async def test_a_message_is_acknowledged_when_the_next_is_asked_for(
    shared_broker: Broker, name: str
) -> None:
    """Until then the server keeps it: it comes again to the next program."""
    durable: Settings = {"client_id": name, "session_expiry_s": 60, "receive_maximum": 1}
    async with opened(shared_broker, **durable) as client:
        await client.subscribe(name)
        for text in ("0", "1", "2"):
            await client.publish(name, text, 1)
        messages = client.messages()
        assert (await anext(messages)).text == "0"
        assert (await anext(messages)).text == "1"
    async with opened(shared_broker, **durable) as client:
        taken = await take(client, 2)
        assert [(one.text, one.duplicate) for one in taken] == [("1", True), ("2", False)]


async def test_a_block_that_ends_well_acknowledges(shared_broker: Broker, name: str) -> None:
    durable: Settings = {"client_id": name, "session_expiry_s": 60}
    async with opened(shared_broker, **durable) as client:
        await client.subscribe(name, qos=2)
        await client.publish(name, "kept", 2)
        async for message in client.messages():
            async with message.processing():
                assert message.text == "kept"
            break
    async with opened(shared_broker, **durable) as client:
        await client.publish(name, "next", 1)
        assert [one.text for one in await take(client, 1)] == ["next"]


async def test_a_block_that_fails_gets_the_message_again(shared_broker: Broker, name: str) -> None:
    async with opened(shared_broker, redeliver_s=0.01) as client:
        await client.subscribe(name)
        await client.publish(name, "x", 1)
        seen: list[tuple[int, bool]] = []
        async for message in client.messages():
            try:
                async with message.processing():
                    seen.append((message.attempt, message.duplicate))
                    if message.attempt < 3:
                        raise ValueError("the database is away")
            except ValueError:
                continue
            break
        assert seen == [(1, False), (2, True), (3, True)]


async def test_a_block_that_fails_leaves_the_message_to_the_next_program(
    shared_broker: Broker, name: str
) -> None:
    durable: Settings = {"client_id": name, "session_expiry_s": 60}

    async def fail() -> None:
        async with opened(shared_broker, **durable) as client:
            await client.subscribe(name, qos=2)
            await client.publish(name, "x", 2)
            async for message in client.messages():
                async with message.processing():
                    raise ValueError("the power goes")

    with pytest.raises(ValueError, match="power"):
        await fail()
    async with opened(shared_broker, **durable) as client:
        (message,) = await take(client, 1)
        assert (message.text, message.duplicate) == ("x", True)


async def test_a_block_may_refuse_what_it_cannot_process(shared_broker: Broker, name: str) -> None:
    """The broker counts it as dropped, and does not send it again."""
    durable: Settings = {"client_id": name, "session_expiry_s": 60}
    async with opened(shared_broker, **durable) as client:
        await client.subscribe(name)
        await client.publish(name, "bad", 1)
        await client.publish(name, "good", 1)
        messages = client.messages()
        message = await anext(messages)
        with pytest.raises(ValueError, match="no number"):
            async with message.processing(refuse=0x99):
                raise ValueError("no number")
        assert message.is_settled
        assert (await anext(messages)).text == "good"
        await asyncio.sleep(0)
    async with opened(shared_broker, **durable) as client:
        assert [one.text for one in await take(client, 1)] == ["good"]


async def test_deferred_messages_are_acknowledged_by_any_task(
    shared_broker: Broker, name: str
) -> None:
    """The acknowledgements leave in the order of the messages [MQTT-4.6.0-2]."""
    async with opened(shared_broker, receive_maximum=3) as client:
        await client.subscribe(name)
        held: list[Message] = []
        for number in range(6):
            await client.send(name, str(number), 1)
        async for message in client.messages():
            message.defer()
            held.append(message)
            if len(held) == 3:
                break
        held[2].acknowledge()
        held[1].acknowledge()
        assert len(client._engine.inbox if client._engine else "") == 0
        held[0].acknowledge()
        assert [one.text for one in await take(client, 3)] == ["3", "4", "5"]


async def test_a_message_can_only_be_refused_with_a_code_that_it_has(
    shared_broker: Broker, name: str
) -> None:
    async with opened(shared_broker) as client:
        await client.subscribe(name)
        await client.publish(name, "x", 1)
        message = await anext(client.messages())
        with pytest.raises(LocalProtocolError):
            message.refuse(0x8D)
        message.acknowledge()
        message.acknowledge()
        message.refuse()


async def test_several_loops_share_the_messages(shared_broker: Broker, name: str) -> None:
    async with opened(shared_broker) as client:
        await client.subscribe(name)
        seen: list[str] = []

        async def work() -> None:
            async for message in client.messages():
                async with message.processing():
                    await asyncio.sleep(0)
                    seen.append(message.text)
                if len(seen) >= 40:
                    return

        async with asyncio.TaskGroup() as tasks:
            workers = [tasks.create_task(work()) for _ in range(4)]
            for number in range(40):
                await client.publish(name, str(number), 1)
            await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
            for worker in workers:
                worker.cancel()
        assert sorted(seen, key=int) == [str(number) for number in range(40)]


# -- the beginning and the end -----------------------------------------------------------------


async def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1: "):
        async with Client("mqtt://127.0.0.1:1"):
            pass


async def test_the_first_server_that_answers_is_used(shared_broker: Broker) -> None:
    urls = ["mqtt://127.0.0.1:1", url(shared_broker)]
    settings: Settings = {"reconnect_s_min": 0.01}
    async with asyncio.timeout(DEADLINE_S), Client(urls, **settings) as client:
        assert client.status.url == urls[1]


async def test_nothing_waits_for_the_first_connection_if_told_so(
    shared_broker: Broker, name: str
) -> None:
    stati: list[str] = []
    async with opened(
        shared_broker,
        waits_for_connection=False,
        status_changed=lambda status: stati.append(status.state),
    ) as client:
        assert not client.is_connected
        publishing = asyncio.create_task(client.publish(name, "x", 0))
        await client.publish(name, "y", 1)
        await publishing
    assert stati == ["dialling", "connected", "closed"]


async def test_a_closed_client_says_so(shared_broker: Broker, name: str) -> None:
    client = Client(url(shared_broker))
    with pytest.raises(NotConnected):
        await client.publish(name)
    async with client:
        messages = client.messages()
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
    with pytest.raises(StopAsyncIteration):
        await waiting
    for asked in (client.publish(name), client.subscribe(name), client.request(name)):
        with pytest.raises(NotConnected):
            await asked
    with pytest.raises(ClientError, match="once"):
        await client.open()
    await client.close()


async def test_close_waits_for_what_is_not_acknowledged(shared_broker: Broker, name: str) -> None:
    async with opened(shared_broker) as client:
        sent = [await client.send(name, str(number), 2) for number in range(100)]
        assert client.pending > 0
    assert all(one.is_done for one in sent)
    assert {await one for one in sent} <= {0, 0x10}


async def test_the_session_ends_with_the_client_unless_it_is_to_be_kept(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    async with opened(shared_broker, client_id=name):
        pass
    clients.join(shared_broker, name, clean_start=False, present=False).drop()
    async with opened(shared_broker, client_id=f"{name}k", session_expiry_s=60):
        pass
    clients.join(shared_broker, f"{name}k", clean_start=False, present=True)


async def test_a_session_of_a_former_program_is_inherited_without_losing_a_message(
    shared_broker: Broker, clients: Clients, name: str
) -> None:
    """A program died between PUBREC and PUBREL; the next one uses the same packet identifier."""
    former = clients.join(shared_broker, name, clean_start=False, expiry_s=60)
    former.send(Publish(name, b"former", 2, False, False, 1))
    former.expect(Pubrec)
    former.drop()
    durable: Settings = {"client_id": name, "session_expiry_s": 60}
    async with opened(shared_broker) as watching, opened(shared_broker, **durable) as client:
        await watching.subscribe(name, qos=2)
        assert client.connack is not None
        assert client.connack.session_present
        await client.publish(name, "mine", 2)
        assert [one.text for one in await take(watching, 1)] == ["mine"]


# -- requests --------------------------------------------------------------------------------


async def test_a_request_gets_its_response(shared_broker: Broker, name: str) -> None:
    async with opened(shared_broker) as answering, opened(shared_broker) as asking:
        await answering.subscribe(name)

        async def answer() -> None:
            async for message in answering.messages():
                asked = message.properties
                assert asked is not None
                assert asked.response_topic is not None
                said = Properties(correlation_data=asked.correlation_data)
                await answering.publish(
                    asked.response_topic, message.payload.upper(), 1, properties=said
                )

        task = asyncio.create_task(answer())
        responses = await asyncio.gather(
            *(asking.request(name, f"ask {number}") for number in range(5))
        )
        assert [one.text for one in responses] == [f"ASK {number}" for number in range(5)]
        task.cancel()


async def test_a_request_that_nobody_answers_fails(shared_broker: Broker, name: str) -> None:
    async with opened(shared_broker) as client:
        await client.subscribe(name)
        with pytest.raises(RequestFailed, match="no response within"):
            await client.request(name, timeout_s=0.05)


# -- options ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"keep_alive_s": 70_000}, "keep_alive_s is 70000, and must be 0 to 65535"),
        ({"version": "4"}, "version is '4'"),
        ({"overflow": "drop"}, "overflow is 'drop'"),
        ({"clean_start": False}, "needs the client_id"),
        ({"outbox": "o", "session_expiry_s": 0}, "outlives a connection"),
        ({"version": "3.1", "user_properties": [("a", "b")]}, "need version 5"),
    ],
    ids=["range", "version", "overflow", "clean start", "outbox", "user properties"],
)
def test_options_that_make_no_sense_are_refused(settings: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Client(**settings)


@pytest.mark.parametrize("wrong", ["localhost", "http://a", []])
def test_a_url_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        Client(wrong)
