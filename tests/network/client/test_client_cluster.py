"""A client with two addresses of one broker, of which the first is lost."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from penstock import Client
from penstock.client.options import Version
from penstock.protocol.kinds import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL
from tests.support.broker import Broker
from tests.support.commands import run
from tests.support.deadline import DEADLINE_S, until
from tests.support.faulty_client import Stati, first_of_each, hit, proxied, url_of, watching
from tests.support.fixtures import Clients
from tests.support.scripted_server import NOBODY
from tests.support.seen_packets import DOWN, UP

NEVER_S: Final = 10 * DEADLINE_S  # a pause that the test would not survive


@pytest.mark.parametrize("version", ["3.1.1", "5"])
@pytest.mark.parametrize(
    ("direction", "kind"),
    [
        pytest.param(UP, PUBLISH, id="PUBLISH"),
        pytest.param(DOWN, PUBACK, id="PUBACK"),
        pytest.param(DOWN, PUBREC, id="PUBREC"),
        pytest.param(UP, PUBREL, id="PUBREL"),
        pytest.param(DOWN, PUBCOMP, id="PUBCOMP"),
    ],
)
async def test_an_address_that_is_lost_costs_no_message(
    shared_broker: Broker, name: str, version: Version, direction: str, kind: int
) -> None:
    """QoS 2 arrives once, QoS 1 at least once, each in its order, without a pause."""
    wanted = [str(number) for number in range(20)]
    with proxied(shared_broker.address) as first, proxied(shared_broker.address) as second:
        async with (
            watching(shared_broker.address, name) as watcher,
            Client(
                [url_of(first.address), url_of(second.address)],
                client_id=f"{name}c",
                version=version,
                session_expiry_s=60,
                reconnect_s_min=NEVER_S,
                reconnect_s_max=NEVER_S,
            ) as client,
        ):
            cut = first.cut_before(direction, kind)
            for text in wanted:
                await client.send(name, text, 1 + int(text) % 2)
            await hit(cut)
            await client.drain()
            assert client.status.url == url_of(second.address)
            await watcher.has(*wanted)
        assert (first.connections, second.connections) == (1, 1)
    assert [text for text in watcher.texts if int(text) % 2] == wanted[1::2]
    assert first_of_each([text for text in watcher.texts if not int(text) % 2]) == wanted[::2]


async def test_a_broker_that_comes_back_is_found_at_either_address(
    own_broker: Broker, name: str
) -> None:
    """Killed under load; both addresses are refused until it is there again."""
    wanted = [str(number) for number in range(200)]
    with proxied(own_broker.address) as first, proxied(own_broker.address) as second:
        async with (
            watching(own_broker.address, name, client_id=name, session_expiry_s=60) as watcher,
            Client(
                f"{url_of(first.address)},{url_of(second.address)}",
                client_id=f"{name}c",
                session_expiry_s=60,
                reconnect_s_min=0.02,
                reconnect_s_max=0.02,
            ) as client,
        ):
            for text in wanted[:100]:
                await client.send(name, text, 2)
            first.refuse()
            await asyncio.to_thread(own_broker.restart)
            for text in wanted[100:]:
                await client.send(name, text, 2)
            await client.drain()
            assert client.status.url == url_of(second.address)
            await watcher.has(*wanted)
    assert watcher.texts == wanted


def test_pub_and_sub_take_several_hosts(shared_broker: Broker, clients: Clients, name: str) -> None:
    subscriber = clients.join(shared_broker, f"{name}s")
    subscriber.subscribe(name)
    place = f"127.0.0.1:{shared_broker.port}"
    assert run("pub", "-L", f"{NOBODY},{place}/{name}", "-m", "by URL", "-q", "1") == (0, b"", b"")
    hosts = ("-h", f"127.0.0.2,{shared_broker.host}", "-p", str(shared_broker.port))
    assert run("pub", *hosts, "-t", name, "-m", "by host", "-q", "1") == (0, b"", b"")
    assert [subscriber.take().payload for _ in range(2)] == [b"by URL", b"by host"]


async def test_a_lost_address_is_told_with_the_one_that_follows(shared_broker: Broker) -> None:
    with proxied(shared_broker.address) as first, proxied(shared_broker.address) as second:
        stati = Stati()
        async with Client(
            [url_of(first.address), url_of(second.address)], status_changed=stati
        ) as client:
            first.reset()
            await until("the second", lambda: client.status.url == url_of(second.address))
            (waiting,) = stati.of("waiting")
            assert (waiting.url, waiting.next_url) == (
                url_of(first.address),
                url_of(second.address),
            )
