"""``age_s_max`` with an outbox: what waits too long is not sent, and takes nothing with it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from penstock import Client
from penstock.client import outbox
from penstock.client.options import Settings
from penstock.protocol.packets import Packet, Publish
from tests.support.deadline import DEADLINE_S, until
from tests.support.scripted_server import NOBODY, Visit, opened


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_message_that_an_earlier_program_left_too_long_ago_is_not_sent(
    tmp_path: Path, qos: int
) -> None:
    """It lies in the last chunk of the log, which is never removed."""
    kept = Settings(client_id="meter", outbox=tmp_path)
    async with asyncio.timeout(DEADLINE_S), Client(NOBODY, **kept) as client:
        await client.send("a", b"old", qos)
        sent_at_s = time.monotonic()
    await until("its time is over", lambda: time.monotonic() > sent_at_s + 0.1)
    kept["age_s_max"] = 0.1
    async with opened(**kept) as (client, server):
        assert client.pending == 1
        await client.drain()
        await until("the connection", lambda: client.is_connected)
        assert server.of(Publish) == []
    async with Client(NOBODY, **kept) as client:
        assert client.pending == 0


async def test_a_message_on_its_way_keeps_its_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not answer before the second connection, when the message is long too old."""

    def script(visit: Visit, packet: Packet) -> bool:
        return isinstance(packet, Publish) and visit.number == 1

    monkeypatch.setattr(outbox, "INTERVAL_S", 0.001)
    settings = Settings(
        client_id="meter", outbox=tmp_path, age_s_max=0.1, waits_for_connection=True
    )
    async with opened(script, **settings) as (client, server):
        first = await client.send("a", b"1")
        second = await client.send("a", b"2")  # in another chunk
        sent_at_s = time.monotonic()
        await until("both", lambda: len(server.of(Publish)) == 2)
        await until("its time is over", lambda: time.monotonic() > sent_at_s + 0.2)
        server.visit.end()
        assert await first == 0
        assert await second == 0
        assert [one.payload for one in server.visit.of(Publish)] == [b"1", b"2"]
