"""A session that the server has kept: what it holds for us is not lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock import Client
from penstock.client.options import Settings, Version
from penstock.protocol import reasons
from penstock.protocol.packets import Connack, Connect, Packet, Publish, Pubrel
from penstock.protocol.properties import Properties
from tests.support.deadline import DEADLINE_S
from tests.support.scripted_server import SOON_S, Visit, opened, scripted_server


@pytest.mark.parametrize("version", ["3.1", "3.1.1", "5"])
@pytest.mark.parametrize(
    ("settings", "begins_clean"),
    [
        (Settings(clean_start=False), False),
        (Settings(session_expiry_s=600), False),
        (Settings(session_expiry_s=600, clean_start=True), True),
        (Settings(clean_start=True), True),
        (Settings(), True),
    ],
)
async def test_a_session_is_begun_anew_only_by_who_wants_that(
    version: Version, settings: Settings, begins_clean: bool
) -> None:
    named: Settings = {"client_id": "d", "version": version}
    async with opened(**(named | settings)) as (_, server):
        (connect,) = server.of(Connect)
        assert connect.clean_start is begins_clean


async def test_a_client_without_name_begins_clean_and_keeps_its_session_through_outages() -> None:
    async with opened() as (client, server):
        server.visit.end()
        await client.publish("a", b"", 1)
        assert [connect.clean_start for connect in server.of(Connect)] == [True, False]


def has_a_message(visit: Visit, packet: Packet) -> bool:
    """A server that kept a session, and a message for it; it is told in the CONNACK that it has
    no QoS 2, so that nothing need be released."""
    if not isinstance(packet, Connect):
        return False
    visit.send(
        Connack(session_present=not packet.clean_start, properties=Properties(maximum_qos=1))
    )
    if not packet.clean_start:
        visit.send(Publish("a", b"kept", 1, packet_id=7))
    return True


async def test_a_new_outbox_takes_up_the_session_that_the_server_has(tmp_path: Path) -> None:
    async with opened(has_a_message, client_id="e", outbox=tmp_path) as (client, server):
        assert (await anext(client.messages())).payload == b"kept"
        assert [connect.clean_start for connect in server.of(Connect)] == [False]
        assert server.of(Pubrel) == []


async def test_a_session_on_a_server_without_qos_2_need_not_be_released() -> None:
    settings = Settings(client_id="e", session_expiry_s=60)
    async with opened(has_a_message, **settings) as (client, server):
        assert await client.publish("a", b"x", 1) == 0
        assert server.of(Pubrel) == []


async def test_a_message_that_cannot_be_released_is_not_waited_for_for_ever() -> None:
    """Some servers end the connection at a PUBREL of which they know nothing."""

    def script(visit: Visit, packet: Packet) -> bool:
        if isinstance(packet, Connect):
            visit.send(Connack(session_present=True))
            return True
        if isinstance(packet, Pubrel):
            visit.end()
            return True
        return False

    async with opened(script, client_id="e", session_expiry_s=60) as (client, server):
        assert await client.publish("a", b"x", 1) == 0
        assert len(server.visits) == 4
        assert [bool(visit.of(Pubrel)) for visit in server.visits] == [True, True, True, False]
        assert [visit.of(Publish) != [] for visit in server.visits] == [False, False, False, True]


async def test_a_server_that_lets_nobody_in_was_not_asked() -> None:
    """Only connections that were let in count: what it may hold is released when it is up again."""

    def script(visit: Visit, packet: Packet) -> bool:
        if not isinstance(packet, Connect):
            return False
        if visit.number <= 5:
            visit.send(Connack(reasons.SERVER_UNAVAILABLE))
            visit.end_soon()
        else:
            visit.send(Connack(session_present=True))
        return True

    settings = Settings(client_id="e", session_expiry_s=60, waits_for_connection=False)
    async with opened(script, **settings) as (client, server):
        assert await client.publish("a", b"x", 2) == 0
        assert [bool(visit.of(Pubrel)) for visit in server.visits] == [False] * 5 + [True]
        kinds = [type(packet) for packet in server.visit.received]
        assert kinds.index(Pubrel) < kinds.index(Publish)


async def test_a_server_that_does_not_answer_the_release_is_not_waited_for_for_ever() -> None:
    def script(visit: Visit, packet: Packet) -> bool:
        if isinstance(packet, Connect):
            visit.send(Connack(session_present=True))
            return True
        return isinstance(packet, Pubrel)

    async with asyncio.timeout(DEADLINE_S), scripted_server(script) as server:
        client = Client(
            server.url,
            client_id="e",
            session_expiry_s=60,
            connect_timeout_s=0.5,
            waits_for_connection=False,
            reconnect_s_min=SOON_S,
        )
        async with client:
            assert await client.publish("a", b"x", 1) == 0
            assert server.of(Pubrel)
