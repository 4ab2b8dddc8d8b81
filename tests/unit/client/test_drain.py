"""Waiting until the server has everything; the server here only acknowledges."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from penstock import BlockingClient, Client
from penstock.errors import NotConnected, StoreUnavailable
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connack, Connect, Packet, Puback, Publish

NOBODY: Final = "mqtt://127.0.0.1:1"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accept a client and acknowledge what it publishes, each at once."""
    decoder = Decoder(100_000)
    while data := await reader.read(4096):
        decoder.feed(data)
        while (packet := decoder.next_packet()) is not None:
            answer: Packet | None = None
            if isinstance(packet, Connect):
                answer = Connack()
            elif isinstance(packet, Publish):
                answer = Puback(packet.packet_id)
            if answer is not None:
                writer.write(encode(answer, V5))
    writer.close()


async def test_draining_waits_for_messages_that_an_earlier_program_left_in_the_outbox(
    tmp_path: Path,
) -> None:
    async with Client(NOBODY, client_id="meter", outbox=tmp_path) as client:
        for _ in range(3):
            await client.send("t", b"x", 1)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Client(url, client_id="meter", outbox=tmp_path) as client:
            assert client.pending == 3
            await client.drain()
            assert client.pending == 0
            await client.drain()  # there is nothing to wait for


async def test_a_caller_that_drains_is_told_that_the_client_was_closed(tmp_path: Path) -> None:
    client = Client(NOBODY, client_id="meter", outbox=tmp_path)
    async with client:
        await client.send("t", b"x", 1)
        draining = asyncio.create_task(client.drain())
        await asyncio.sleep(0)
    with pytest.raises(NotConnected):
        await draining


async def test_a_caller_that_drains_is_told_that_the_outbox_failed(tmp_path: Path) -> None:
    async with Client(NOBODY, client_id="meter", outbox=tmp_path) as client:
        await client.send("t", b"x", 1)
        draining = asyncio.create_task(client.drain())
        await asyncio.sleep(0)
        assert client._engine is not None
        client._engine._on_store_failed(StoreUnavailable("the disk is gone"))
        with pytest.raises(StoreUnavailable, match="the disk is gone"):
            await draining


def test_scripts_may_wait_for_so_long(tmp_path: Path) -> None:
    with BlockingClient(NOBODY, client_id="meter", outbox=tmp_path) as client:
        client.drain(1)
        client.send("t", b"x")
        with pytest.raises(TimeoutError):
            client.drain(0.05)
