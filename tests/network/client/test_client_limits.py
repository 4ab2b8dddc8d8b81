"""What bounds the client: the server's limits, which it keeps; its own, with the server away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final, Unpack

import pytest

from penstock import Client, Properties, Publication
from penstock.client.options import Overflow, Settings
from penstock.errors import NotConnected, PublishFailed, QueueFull
from penstock.protocol.kinds import CONNECT, PUBACK, PUBCOMP, PUBLISH
from tests.support.broker import Broker
from tests.support.deadline import until
from tests.support.fake_server import FakeServer, only_to, well_behaved
from tests.support.fault_proxy import FaultProxy
from tests.support.faulty_client import Watcher, dropped, opened, proxied, watching
from tests.support.fixtures import running_broker
from tests.support.seen_packets import DOWN, UP

AT_ONCE: Final = 3
PACKET_BYTES: Final = 1000


@pytest.fixture(scope="module")
def narrow_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that accepts few messages at once, and small ones."""
    settings = {"limits.receive_maximum": AT_ONCE, "limits.max_packet_size_bytes": PACKET_BYTES}
    with running_broker(tmp_path_factory.mktemp("narrow"), settings, "memory") as broker:
        yield broker


# -- the server's ------------------------------------------------------------------------------


def most_at_once(proxy: FaultProxy) -> int:
    """How many QoS 1 and 2 messages were unacknowledged on one connection, as the record has it."""
    most = 0
    open_ones: dict[int, set[int]] = {}
    for packet in proxy.seen:
        ids = open_ones.setdefault(packet.connection, set())
        if packet.way == UP and packet.kind == PUBLISH and packet.qos > 0:
            assert packet.packet_id not in ids
            ids.add(packet.packet_id)
        elif packet.way == DOWN and packet.kind in (PUBACK, PUBCOMP):
            ids.discard(packet.packet_id)
        most = max(most, len(ids))
    return most


@pytest.mark.parametrize("qos", [1, 2], ids=["QoS 1", "QoS 2"])
async def test_receive_maximum_of_the_server_is_never_exceeded(
    narrow_broker: Broker, name: str, qos: int
) -> None:
    """[MQTT-3.3.4-7]; the first message again after a cut counts, too."""
    with proxied(narrow_broker.address) as proxy:
        proxy.cut(UP, PUBLISH, nth=25, times=3)
        async with opened(proxy.address, client_id=name) as client:
            sent = [await client.send(name, str(number), qos) for number in range(100)]
            assert {await one for one in sent} <= {0, 0x10}
        assert proxy.connections == 4
        assert most_at_once(proxy) == AT_ONCE


@pytest.mark.parametrize("qos", [0, 1, 2], ids=["QoS 0", "QoS 1", "QoS 2"])
async def test_maximum_packet_size_of_the_server_is_never_exceeded(
    narrow_broker: Broker, name: str, qos: int
) -> None:
    """[MQTT-3.2.2-15]; who awaits the message is told, and the others go."""
    with proxied(narrow_broker.address) as proxy:
        async with (
            watching(narrow_broker.address, name) as watcher,
            opened(proxy.address, client_id=name) as client,
        ):
            fits = PACKET_BYTES - len(name) - 20
            for size in (fits, PACKET_BYTES + 1, fits - 1):
                if size > PACKET_BYTES:
                    with pytest.raises(PublishFailed, match="too large"):
                        await client.publish(name, "x" * size, qos)
                else:
                    await client.publish(name, "x" * size, qos)
            await until("both", lambda: len(watcher.seen) == 2)
            assert [len(one.payload) for one in watcher.seen] == [fits, fits - 1]
        assert max(len(one.raw) for one in proxy.passed(UP)) <= PACKET_BYTES
        assert proxy.connections == 1


async def test_quality_and_retain_that_the_server_does_not_have_are_not_sent() -> None:
    """[MQTT-3.2.2-11] [MQTT-3.2.2-14]: QoS is lowered, the flag is left out."""
    accepts = Properties(maximum_qos=0, retain_available=0)
    async with (
        FakeServer(well_behaved(accepts=accepts)) as server,
        opened(server.address, client_id="c") as client,
    ):
        assert await client.publish("a", "x", 2, retain=True) == 0
        await until("the message", lambda: server.of(PUBLISH))
        (packet,) = server.of(PUBLISH)
        assert (packet.qos, packet.raw[0] & 1) == (0, 0)


async def test_keep_alive_of_the_server_is_kept() -> None:
    """[MQTT-3.2.2-21]: we asked for a minute."""
    accepts = Properties(server_keep_alive=1)
    async with (
        FakeServer(well_behaved(accepts=accepts)) as server,
        opened(server.address, client_id="c", keep_alive_s=60),
    ):
        await until("a ping", lambda: server.of(12))
        assert server.connections == 1


# -- its own, with the server away -----------------------------------------------------------------


@asynccontextmanager
async def away(
    broker: Broker, name: str, **settings: Unpack[Settings]
) -> AsyncIterator[tuple[Client, FaultProxy, Watcher]]:
    """A client that has lost its connection until the proxy accepts."""
    with proxied(broker.address) as proxy:
        async with (
            watching(broker.address, name) as watcher,
            opened(proxy.address, **settings) as client,
        ):
            proxy.refuse()
            await dropped(client, proxy.reset)
            yield client, proxy, watcher


async def failed(sent: list[Publication]) -> list[int]:
    """Which of them were given up."""
    ended = await asyncio.gather(*sent, return_exceptions=True)
    return [number for number, one in enumerate(ended) if isinstance(one, PublishFailed)]


async def test_wait_waits_for_room(shared_broker: Broker, name: str) -> None:
    async with away(shared_broker, name, queue_messages_max=3) as (client, proxy, watcher):
        tasks = [asyncio.create_task(client.publish(name, str(n), 1)) for n in range(10)]
        await until("a full queue", lambda: client.pending == 3)
        with pytest.raises(QueueFull, match="buffer is full"):
            client.send_nowait(name, "no room")
        assert not any(task.done() for task in tasks)
        proxy.accept()
        assert await asyncio.gather(*tasks) == [0] * 10
        assert watcher.texts == [str(n) for n in range(10)]


async def test_raise_raises(shared_broker: Broker, name: str) -> None:
    async with away(shared_broker, name, queue_messages_max=3, overflow="raise") as (
        client,
        proxy,
        watcher,
    ):
        sent = [await client.send(name, str(n), 1) for n in range(3)]
        for _ in range(2):
            with pytest.raises(QueueFull, match="3 messages wait for their acknowledgement"):
                await client.send(name, "one more", 1)
        with pytest.raises(NotConnected):
            await client.publish(name, "QoS 0", 0)
        proxy.accept()
        assert await failed(sent) == []
        assert await client.publish(name, "room again", 1) == 0
        assert watcher.texts == ["0", "1", "2", "room again"]


@pytest.mark.parametrize(
    ("overflow", "dropped_ones", "kept"),
    [
        ("drop_oldest", [0, 1, 2, 3, 4, 5, 6], ["7", "8", "9"]),
        ("drop_newest", [3, 4, 5, 6, 7, 8, 9], ["0", "1", "2"]),
    ],
    ids=["oldest", "newest"],
)
async def test_dropping_tells_who_awaits_it(
    shared_broker: Broker,
    name: str,
    overflow: Overflow,
    dropped_ones: list[int],
    kept: list[str],
) -> None:
    async with away(shared_broker, name, queue_messages_max=3, overflow=overflow) as (
        client,
        proxy,
        watcher,
    ):
        sent = [await client.send(name, str(n), 1) for n in range(10)]
        assert client.pending == 3
        with pytest.raises(PublishFailed, match="the client is not connected"):
            await client.publish(name, "QoS 0", 0)
        proxy.accept()
        assert await failed(sent) == dropped_ones
        await watcher.has(*kept)
        assert watcher.texts == kept


async def test_bytes_are_bounded_too(shared_broker: Broker, name: str) -> None:
    async with away(shared_broker, name, queue_bytes_max=5000, overflow="raise") as (
        client,
        proxy,
        watcher,
    ):
        sent = [await client.send(name, "x" * 1000, 1) for _ in range(5)]
        with pytest.raises(QueueFull, match="queue_bytes_max"):
            await client.send(name, "x", 1)
        proxy.accept()
        assert await failed(sent) == []
        await until("all", lambda: len(watcher.seen) == len(sent))


async def test_a_message_that_waits_too_long_is_given_up(shared_broker: Broker, name: str) -> None:
    async with away(shared_broker, name, age_s_max=0.3) as (client, proxy, watcher):
        old = await client.send(name, "old", 1)
        await asyncio.sleep(0.3)  # it is the age that is given up
        proxy.accept()
        with pytest.raises(PublishFailed, match="dropped"):
            await old
        assert client.pending == 0
        assert await client.publish(name, "new", 1) == 0
        await watcher.has("new")
        assert watcher.texts == ["new"]


async def test_a_message_that_waits_too_long_is_given_up_while_the_server_is_away(
    shared_broker: Broker, name: str
) -> None:
    async with away(shared_broker, name, age_s_max=0.1) as (client, _, _watcher):
        with pytest.raises(PublishFailed, match="dropped"):
            await client.publish(name, "old", 1)
        assert client.pending == 0


async def test_the_age_here_is_not_the_expiry_there(shared_broker: Broker, name: str) -> None:
    """What is told to the server is what the program said."""
    async with (
        watching(shared_broker.address, name) as watcher,
        opened(shared_broker.address, age_s_max=20) as client,
    ):
        for interval_s in (None, 5, 3600):
            said = Properties(message_expiry_interval=interval_s)
            await client.publish(name, "x", 1, properties=said)
        await until("all", lambda: len(watcher.seen) == 3)
        told = [
            one.properties.message_expiry_interval if one.properties else None
            for one in watcher.seen
        ]
        assert told[0] is None
        assert told[1] in (4, 5)
        assert told[2] in range(3590, 3601)


# -- cancellation -----------------------------------------------------------------------------


async def cancel(task: asyncio.Task[object]) -> None:
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()


@pytest.mark.parametrize("qos", [1, 2], ids=["QoS 1", "QoS 2"])
async def test_a_publish_that_is_cancelled_had_found_room(
    shared_broker: Broker, name: str, qos: int
) -> None:
    """Only the waiting ends: the message goes, and the client is whole."""
    async with away(shared_broker, name) as (client, proxy, watcher):
        task = asyncio.create_task(client.publish(name, "cancelled", qos))
        await until("room", lambda: client.pending == 1)
        await cancel(task)
        proxy.accept()
        assert await client.publish(name, "next", qos) == 0
        assert watcher.texts == ["cancelled", "next"]


async def test_a_publish_that_is_cancelled_in_line_is_not_sent(
    shared_broker: Broker, name: str
) -> None:
    """And its place goes to the one behind it: first, in the middle, or both at once."""
    async with away(shared_broker, name, queue_messages_max=1) as (client, proxy, watcher):
        tasks = [asyncio.create_task(client.publish(name, str(n), 1)) for n in range(6)]
        await until("a full queue", lambda: client.pending == 1)
        for number in (1, 3, 4):
            await cancel(tasks[number])
        proxy.accept()
        assert [await tasks[number] for number in (0, 2, 5)] == [0, 0, 0]
        assert watcher.texts == ["0", "2", "5"]


async def test_a_qos_0_that_is_cancelled_is_not_sent(shared_broker: Broker, name: str) -> None:
    async with away(shared_broker, name) as (client, proxy, watcher):
        tasks = [asyncio.create_task(client.publish(name, str(n), 0)) for n in range(3)]
        await asyncio.sleep(0)
        await cancel(tasks[1])
        proxy.accept()
        await asyncio.gather(tasks[0], tasks[2])
        await client.publish(name, "end", 0)
        await watcher.has("end")
        assert watcher.texts == ["0", "2", "end"]


async def test_a_subscribe_that_is_cancelled_leaves_the_client_whole(
    shared_broker: Broker, name: str
) -> None:
    async with away(shared_broker, name) as (client, proxy, _):
        for asked in (client.subscribe(f"{name}/a"), client.unsubscribe(f"{name}/b")):
            task = asyncio.create_task(asked)
            await asyncio.sleep(0)
            await cancel(task)
        proxy.accept()
        assert await client.subscribe(f"{name}/c") == [1]
        await client.publish(f"{name}/a", "not subscribed", 1)
        await client.publish(f"{name}/c", "subscribed", 1)
        assert (await anext(client.messages())).text == "subscribed"


async def test_an_anext_that_is_cancelled_loses_no_message(
    shared_broker: Broker, name: str
) -> None:
    """Neither when it waits nor in the moment in which it is woken."""
    async with opened(shared_broker.address) as client:
        await client.subscribe(name)
        messages = client.messages()
        taken: list[str] = []
        for number in range(20):
            waiting = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0)
            if number % 2:
                await client.publish(name, str(number), 1)
                waiting.cancel()
            else:
                waiting.cancel()
                await client.publish(name, str(number), 1)
            await asyncio.wait((waiting,))
            if not waiting.cancelled():
                taken.append(waiting.result().text)
        while len(taken) < 20:
            taken.append((await anext(messages)).text)
        assert taken == [str(number) for number in range(20)]


async def test_an_open_that_is_cancelled_leaves_nothing_behind() -> None:
    async with FakeServer(only_to(CONNECT, b"")) as server:
        opening = asyncio.create_task(Client(f"mqtt://127.0.0.1:{server.address[1]}").open())
        await until("CONNECT", lambda: server.seen)
        await cancel(opening)
        await until("the end", lambda: len(asyncio.all_tasks()) <= 2)  # this one and the server's
