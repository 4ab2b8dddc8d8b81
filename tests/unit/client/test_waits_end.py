"""Whoever waits for a client is told when there is nothing more to wait for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock import Client
from penstock.client.options import Status
from penstock.engine.batch.commit import Commit
from penstock.engine.values.message import Message
from penstock.errors import ConnectFailed, NotConnected, PublishFailed, StoreError, StoreUnavailable
from penstock.protocol.packets import Connack, Connect, Packet, Publish
from penstock.protocol.properties import Properties
from penstock.store.rocks import RocksStore
from tests.support.deadline import DEADLINE_S, until
from tests.support.scripted_server import NOBODY, Door, Visit, engine_of, opened, scripted_server


async def test_publishers_that_wait_for_room_are_told_of_the_end() -> None:
    async with asyncio.timeout(DEADLINE_S):
        client = Client(NOBODY, waits_for_connection=False, queue_messages_max=1, drain_s=0)
        await client.open()
        sent = await client.send("a", b"1")
        engine = engine_of(client)
        waiting: list[asyncio.Task[object]] = [
            asyncio.create_task(client.publish("a", b"x", qos)) for qos in (0, 0, 1, 1)
        ]
        waiting += [asyncio.create_task(client.send("a", b"x"))]
        waiting += [asyncio.create_task(client.request("a"))]
        await until("those of QoS 0", lambda: engine.socket_line.waiting_count == 2)
        await until("those of QoS 1", lambda: engine.line.waiting_count == 3)
        with pytest.raises(PublishFailed, match="1 messages were not acknowledged"):
            await client.close()
        for task in waiting:
            with pytest.raises(NotConnected):
                await task
        with pytest.raises(PublishFailed, match="closed before it was delivered") as lost:
            await sent
        assert not lost.value.is_kept


async def test_a_message_that_an_outbox_keeps_is_told_as_kept(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE_S):
        async with Client(NOBODY, client_id="meter", outbox=tmp_path) as client:
            sent = await client.send("a", b"1")
        with pytest.raises(PublishFailed, match="the outbox keeps it") as kept:
            await sent
        assert kept.value.is_kept


async def test_all_are_told_that_the_outbox_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second message fills the queue, and its commit fails once all the others wait."""
    write = RocksStore.commit
    may_fail = threading.Event()
    fails = False

    def commit(self: RocksStore, commit: Commit) -> None:
        if fails:
            assert may_fail.wait(DEADLINE_S)
            raise OSError("the disk is gone")
        write(self, commit)

    monkeypatch.setattr(RocksStore, "commit", commit)
    stati: list[Status] = []
    async with asyncio.timeout(DEADLINE_S):
        client = Client(
            NOBODY,
            client_id="meter",
            outbox=tmp_path,
            queue_messages_max=2,
            status_changed=stati.append,
        )
        await client.open()
        engine = engine_of(client)
        stored = await client.send("a", b"1")
        fails = True
        waiting: list[asyncio.Task[object]] = [asyncio.create_task(client.send("a", b"2"))]
        await until("both", lambda: client.pending == 2)
        waiting += [asyncio.create_task(client.publish("a", b"x", qos)) for qos in (0, 1)]
        waiting += [asyncio.create_task(client.send("a", b"3"))]
        subscribing = asyncio.create_task(client.subscribe("a"))
        taking = asyncio.ensure_future(anext(client.messages()))
        draining = asyncio.create_task(client.drain())
        await until(
            "who waits for room",
            lambda: engine.line.waiting_count + engine.socket_line.waiting_count == 3,
        )
        may_fail.set()
        for task in waiting:
            with pytest.raises(StoreUnavailable, match="the disk is gone"):
                await task
        with pytest.raises(NotConnected, match="the outbox failed"):
            await subscribing
        with pytest.raises(StoreUnavailable, match="the disk is gone"):
            await taking
        with pytest.raises(StoreUnavailable, match="the disk is gone"):
            await draining
        with pytest.raises(PublishFailed, match="the outbox failed"):
            await stored
        assert client.status.state == "failed"
        assert "the disk is gone" in client.status.error
        assert stati[-1].state == "failed"
        for asked in (client.publish("a", b"", 1), client.subscribe("a"), client.drain()):
            with pytest.raises(StoreUnavailable):
                await asked
        with pytest.raises(StoreError):
            await anext(client.messages())
        await client.close()
        assert client.status.state == "closed"


async def test_a_message_that_the_outbox_has_lost_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is damaged: neither who awaits the message nor who drains waits for ever."""

    def read(self: RocksStore, offsets: Iterable[int]) -> dict[int, Message]:
        del self, offsets
        return {}

    monkeypatch.setattr(RocksStore, "read", read)
    door = Door()

    async with opened(door, client_id="meter", outbox=tmp_path) as (client, server):
        lost = await client.send("a", b"1")
        draining = asyncio.create_task(client.drain())
        door.is_open = True
        with pytest.raises(PublishFailed, match="dropped: retention"):
            await lost
        await draining
        assert server.of(Publish) == []


async def test_to_drain_ends_with_the_last_message_that_is_given_up() -> None:
    """It is too large for the server, which says so late; before that it waits behind another."""

    def script(visit: Visit, packet: Packet) -> bool:
        del visit
        return isinstance(packet, Connect)

    async with (
        asyncio.timeout(DEADLINE_S),
        scripted_server(script) as server,
        Client(server.url, waits_for_connection=False, max_inflight=1) as client,
    ):
        await client.send("a", b"small")
        large = await client.send("a", b"x" * 1000)
        draining = asyncio.create_task(client.drain())
        await until("a connection", lambda: server.visits and server.visit.received)
        server.visit.send(Connack(properties=Properties(maximum_packet_size=100)))
        await draining
        assert client.pending == 0
        with pytest.raises(PublishFailed, match="too large"):
            await large


async def test_a_close_without_draining_ends_one_that_drains() -> None:
    async with asyncio.timeout(DEADLINE_S):
        client = Client(NOBODY, waits_for_connection=False, drain_s=2 * DEADLINE_S)
        await client.open()
        await client.send("a", b"1")
        closing = asyncio.create_task(client.close())
        engine = engine_of(client)
        await until("it drains", lambda: engine.has_waiters)
        await client.close(drain=False)
        assert client.status.state == "closed"
        with pytest.raises(PublishFailed, match="1 messages were not acknowledged"):
            await closing
        await client.close()


async def test_a_close_waits_for_that_of_another_task() -> None:
    async with opened() as (client, _):
        closing = [asyncio.create_task(client.close()) for _ in range(3)]
        await asyncio.gather(*closing)
        assert client.status.state == "closed"
        assert engine_of(client).is_closed


class Forgetful:
    """Authenticates with a token that it cannot get."""

    method = "token"

    def first(self) -> bytes:
        raise RuntimeError("the token service is away")

    def next(self, data: bytes | None) -> bytes | None:
        raise NotImplementedError


async def test_a_method_that_cannot_authenticate_does_not_connect() -> None:
    async with asyncio.timeout(DEADLINE_S), scripted_server() as server:
        client = Client(server.url, authentication=Forgetful())
        with pytest.raises(ConnectFailed, match="the token service is away"):
            await client.open()
        assert server.visits == []
        assert client.status.state == "closed"
