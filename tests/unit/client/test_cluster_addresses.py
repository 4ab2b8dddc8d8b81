"""The addresses of a cluster: at most one server accepts us, the others send us on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Unpack, cast

import pytest

from penstock import BlockingClient, Client
from penstock.client.options import Settings, Version
from penstock.errors import ConfigError, ConnectFailed
from penstock.protocol import reasons
from penstock.protocol.packets import Connack, Connect, Disconnect, Packet, Publish, Pubrel
from penstock.protocol.properties import Properties
from tests.support.deadline import DEADLINE_S, until
from tests.support.scripted_server import (
    NOBODY,
    ScriptedServer,
    Visit,
    nothing_special,
    scripted_server,
)

NEVER_S: Final = 10 * DEADLINE_S  # a pause that a test would not survive

each_version = pytest.mark.parametrize("version", ["3.1.1", "5"])


def place_of(server: ScriptedServer) -> str:
    return server.url.removeprefix("mqtt://")


def refuses(code: int, named: Callable[[], str] = str) -> Callable[[Visit, Packet], bool]:
    """The script of a server that refuses each client, and names another."""

    def script(visit: Visit, packet: Packet) -> bool:
        if isinstance(packet, Connect):
            properties = Properties(server_reference=named() or None)
            visit.send(Connack(code, properties=properties))
            visit.end_soon()
        return True

    return script


@asynccontextmanager
async def client_of(*urls: str, **settings: Unpack[Settings]) -> AsyncIterator[Client]:
    """A client that makes no pause within the time of a test, but between addresses."""
    never: Settings = {"reconnect_s_min": NEVER_S, "reconnect_s_max": NEVER_S}
    chosen = cast("Settings", {**never, **settings})
    async with asyncio.timeout(DEADLINE_S), Client(urls, **chosen) as client:
        yield client


@each_version
@pytest.mark.parametrize(
    "code",
    [
        reasons.SERVER_UNAVAILABLE,
        reasons.SERVER_BUSY,
        reasons.USE_ANOTHER_SERVER,
        reasons.SERVER_MOVED,
    ],
)
async def test_one_that_refuses_us_leads_to_the_next_at_once(version: Version, code: int) -> None:
    """Before MQTT 5 each of these codes is return code 3."""
    async with (
        scripted_server(refuses(code)) as standby,
        scripted_server() as primary,
        client_of(NOBODY, standby.url, primary.url, version=version) as client,
    ):
        assert client.status.url == primary.url
        assert len(standby.visits) == len(primary.visits) == 1


@each_version
async def test_a_standby_names_the_primary(version: Version) -> None:
    """MQTT 3.1.1 has no Server Reference, so the one between them is asked."""
    async with (
        scripted_server() as primary,
        scripted_server(refuses(0x9C, lambda: place_of(primary))) as standby,
        scripted_server(refuses(0x9C)) as another,
        client_of(standby.url, another.url, primary.url, version=version) as client,
    ):
        assert client.status.url == primary.url
        assert len(another.visits) == (0 if version == "5" else 1)


async def test_login_and_session_go_to_no_server_that_was_not_given() -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        scripted_server() as stranger,
        scripted_server(refuses(0x9D, lambda: place_of(stranger))) as standby,
    ):
        with pytest.raises(ConnectFailed, match="server moved") as failed:
            async with client_of(standby.url, username="u", password="secret"):
                pass
        assert failed.value.reason == 0x9D
        assert stranger.visits == []


async def test_a_primary_that_hands_over_names_the_next() -> None:
    async with (
        scripted_server() as first,
        scripted_server() as between,
        scripted_server() as last,
        client_of(first.url, between.url, last.url) as client,
    ):
        named = Properties(server_reference=f"elsewhere:1 {place_of(last)}")
        first.visit.send(Disconnect(reasons.USE_ANOTHER_SERVER, named))
        await until("the last", lambda: client.status.url == last.url and client.is_connected)
        assert between.visits == []


async def test_standbys_that_name_each_other_end_in_a_pause() -> None:
    places = ["", ""]
    async with (
        scripted_server(refuses(0x9C, lambda: places[1])) as first,
        scripted_server(refuses(0x9C, lambda: places[0])) as second,
    ):
        places[:] = place_of(first), place_of(second)
        async with client_of(first.url, second.url, waits_for_connection=False) as client:
            await until("a long pause", lambda: client.status.pause_s > 1)
            assert client.status.attempt == 2
            assert client.status.next_url == first.url
            second.script = nothing_special
            client.connect_now()
            await until("the primary", lambda: client.is_connected)
            assert (client.status.url, client.status.next_url) == (second.url, "")


async def test_the_error_names_each_address_and_the_code_that_tells_most() -> None:
    async with (
        scripted_server(refuses(reasons.NOT_AUTHORIZED)) as primary,
        scripted_server(refuses(0x9C)) as standby,
    ):
        with pytest.raises(
            ConnectFailed, match=f"{primary.url}.*not auth.*; {standby.url}"
        ) as told:
            async with client_of(primary.url, standby.url):
                pass
        assert told.value.reason == reasons.NOT_AUTHORIZED


class OneSession:
    """Two servers of one session: the first dies at a packet, the other has what it had.

    Args:
        dies_at: the kind of that packet, which is not answered any more.
        counts: how many of those packets count; the answer to the last of them is lost.
    """

    def __init__(self, dies_at: type[Packet], counts: int) -> None:
        self.payloads: list[bytes] = []
        self._unreleased: dict[int, bytes] = {}  # QoS 2, by packet identifier
        self._dies_at = dies_at
        self._left = counts

    def first(self, visit: Visit, packet: Packet) -> bool:
        """Answer, and die at the packet."""
        if not isinstance(packet, self._dies_at):
            return self.second(visit, packet)
        self._left -= 1
        if self._left > 0:
            return self.second(visit, packet)
        if self._left == 0:
            self.second(visit, packet)  # it counts, and its answer is lost
        visit.end()
        return True

    def second(self, visit: Visit, packet: Packet) -> bool:
        """Answer as any server of this session."""
        match packet:
            case Connect():
                visit.send(Connack(session_present=not packet.clean_start))
                return True
            case Publish(qos=2):
                if packet.packet_id not in self._unreleased:
                    self._unreleased[packet.packet_id] = packet.payload
                    self.payloads.append(packet.payload)
            case Publish():
                self.payloads.append(packet.payload)
            case Pubrel():
                self._unreleased.pop(packet.packet_id, None)
        return False


@each_version
@pytest.mark.parametrize("dies_at", [Publish, Pubrel])
@pytest.mark.parametrize("counts", [0, 1, 3])
async def test_the_next_primary_gets_once_what_the_lost_one_did_not_acknowledge(
    version: Version, dies_at: type[Packet], counts: int
) -> None:
    session = OneSession(dies_at, counts)
    wanted = [b"%d" % number for number in range(20)]
    async with (
        scripted_server(session.first) as first,
        scripted_server(session.second) as second,
        client_of(first.url, second.url, version=version, client_id="c", session_expiry_s=60) as c,
    ):
        for payload in wanted:
            await c.send("a", payload, 1 + int(payload) % 2)
        await c.drain()
        assert c.status.url == second.url
        assert len(second.visits) == 1
    exactly_once = [payload for payload in session.payloads if int(payload) % 2]
    assert exactly_once == wanted[1::2]
    at_least_once = [payload for payload in session.payloads if not int(payload) % 2]
    assert list(dict.fromkeys(at_least_once)) == wanted[::2]


async def test_the_addresses_may_be_one_text() -> None:
    async with scripted_server() as primary:
        text = f"mqtt://127.0.0.1:1,{place_of(primary)}"
        async with client_of(text) as client:
            assert client.status.url == primary.url

        def blocking() -> str:
            with BlockingClient(text) as client:
                return client.status.url

        assert await asyncio.to_thread(blocking) == primary.url


@pytest.mark.parametrize("urls", ["", [], "mqtt://a,", ["mqtt://a"] * 101])
def test_a_mistake_in_the_addresses_is_told(urls: str | list[str]) -> None:
    with pytest.raises(ConfigError, match="URL"):
        Client(urls)
