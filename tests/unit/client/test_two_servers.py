"""Several addresses: one that refuses us does not keep us from the next."""

from __future__ import annotations

import asyncio

from penstock import Client
from penstock.client.options import Status
from penstock.protocol import reasons
from penstock.protocol.packets import Connack, Connect, Packet
from tests.support.deadline import DEADLINE_S, until
from tests.support.scripted_server import SOON_S, Visit, scripted_server

LONG_S = 3600.0


def refuses(visit: Visit, packet: Packet) -> bool:
    if isinstance(packet, Connect):
        visit.send(Connack(reasons.NOT_AUTHORIZED))
        visit.end_soon()
    return True


async def test_a_refused_login_is_soon_tried_at_the_next_address() -> None:
    stati: list[Status] = []
    async with (
        asyncio.timeout(DEADLINE_S),
        scripted_server(refuses) as first,
        scripted_server() as second,
        Client(
            [first.url, second.url],
            reconnect_s_min=SOON_S,
            reconnect_s_max=LONG_S,
            status_changed=stati.append,
        ) as client,
    ):
        assert client.status.url == second.url
        (waited,) = [status for status in stati if status.state == "waiting"]
        assert waited.reason_code == reasons.NOT_AUTHORIZED
        assert waited.pause_s < 2 * SOON_S
        second.visit.end()
        await until("the first again", lambda: len(first.visits) == 2)
        await until("then the second", lambda: len(second.visits) == 2)


async def test_the_pause_is_long_when_all_servers_refuse_us() -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        scripted_server(refuses) as first,
        scripted_server(refuses) as second,
        Client(
            [first.url, second.url],
            waits_for_connection=False,
            reconnect_s_min=SOON_S,
            reconnect_s_max=LONG_S,
        ) as client,
    ):
        await until("both", lambda: client.status.attempt == 2 and client.status.pause_s > 0)
        assert client.status.pause_s > LONG_S / 2
        client.connect_now()
        await until("both again", lambda: len(first.visits) == len(second.visits) == 2)
        await until(
            "a long pause", lambda: client.status.attempt == 4 and client.status.pause_s > 0
        )
        assert client.status.pause_s > LONG_S / 2
