"""The client over a link that is slow, cut, half closed or silent, publishing and receiving.

QoS 1: nothing is lost, and what comes again comes after what came before it. QoS 2: nothing is
lost and nothing comes twice. The order is kept in either case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import pytest

from penstock import Client
from penstock.client.options import Version
from penstock.errors import PublishFailed
from penstock.protocol.kinds import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, packet_name
from tests.support.broker import Broker
from tests.support.deadline import until
from tests.support.fault_proxy import FaultProxy
from tests.support.faulty_client import first_of_each, hit, opened, proxied, watching
from tests.support.seen_packets import DOWN, UP

COUNT: Final = 40
BEGIN, END = 10, 30

each_qos = pytest.mark.parametrize("qos", [1, 2], ids=["QoS 1", "QoS 2"])
each_way = pytest.mark.parametrize("way", ["publishing", "receiving"])

Disturb = Callable[[FaultProxy, int], None]


def again_and_again(fault: Callable[[FaultProxy], None]) -> Disturb:
    """With every tenth message."""

    def disturb(proxy: FaultProxy, number: int) -> None:
        if number % 10 == 5:
            fault(proxy)

    return disturb


def in_the_middle(
    begin: Callable[[FaultProxy], None], end: Callable[[FaultProxy], None]
) -> Disturb:
    """From one message to another."""

    def disturb(proxy: FaultProxy, number: int) -> None:
        if number == BEGIN:
            begin(proxy)
        elif number == END:
            end(proxy)

    return disturb


def unreachable(proxy: FaultProxy) -> None:
    proxy.refuse()
    proxy.reset()


FAULTS: Final[dict[str, tuple[Disturb, bool]]] = {  # and whether it ends connections
    "delay": (in_the_middle(lambda at: at.delay(0.02), lambda at: at.delay(0)), False),
    "throttle": (in_the_middle(lambda at: at.throttle(5_000), lambda at: at.throttle(0)), False),
    "partition": (in_the_middle(FaultProxy.partition, FaultProxy.heal), False),
    "half close up": (again_and_again(lambda at: at.half_close(UP)), True),
    "half close down": (again_and_again(lambda at: at.half_close(DOWN)), True),
    "reset": (again_and_again(FaultProxy.reset), True),
    "refuse": (in_the_middle(unreachable, FaultProxy.accept), True),
}


async def exchange(
    proxy: FaultProxy, broker: Broker, name: str, qos: int, way: str, disturb: Disturb
) -> list[str]:
    """Messages while the link is disturbed; what arrived of them.

    The client behind the proxy is the one that sends, or the one that gets them.
    """
    behind, beside = proxy.address, broker.address
    here, there = (behind, beside) if way == "publishing" else (beside, behind)
    async with (
        watching(there, name, client_id=f"{name}w") as watcher,
        opened(here, client_id=f"{name}s") as client,
    ):
        sent = []
        for number in range(COUNT):
            disturb(proxy, number)
            sent.append(await client.send(name, str(number), qos))
            await asyncio.sleep(0)
            if number % 10 == 9 and not BEGIN <= number < END:
                await asyncio.gather(*sent)  # the next fault hits a connection that stands
        await client.drain()
        await watcher.has(*wanted())
        await client.publish(name, "end", qos)
        await watcher.has("end")
        return watcher.texts[: watcher.texts.index("end")]


def wanted() -> list[str]:
    return [str(number) for number in range(COUNT)]


@each_way
@each_qos
@pytest.mark.parametrize("fault", FAULTS)
async def test_nothing_is_lost_and_order_is_kept(
    shared_broker: Broker, name: str, fault: str, qos: int, way: str
) -> None:
    disturb, ends_connections = FAULTS[fault]
    with proxied(shared_broker.address) as proxy:
        arrived = await exchange(proxy, shared_broker, name, qos, way, disturb)
        assert first_of_each(arrived) == wanted()
        if qos == 2:
            assert arrived == wanted()
        assert (proxy.connections > 1) == ends_connections


PACKETS: Final = [
    pytest.param(1, "to", PUBLISH, id="PUBLISH of QoS 1"),
    pytest.param(1, "from", PUBACK, id="PUBACK"),
    pytest.param(2, "to", PUBLISH, id="PUBLISH of QoS 2"),
    pytest.param(2, "from", PUBREC, id="PUBREC"),
    pytest.param(2, "to", PUBREL, id="PUBREL"),
    pytest.param(2, "from", PUBCOMP, id="PUBCOMP"),
]


def way_of(packet: str, way: str) -> str:
    """The direction of a packet: to the receiver of the messages, or from it."""
    return UP if (packet == "to") == (way == "publishing") else DOWN


def nothing(proxy: FaultProxy, number: int) -> None:
    """Rules do it."""
    del proxy, number


@each_way
@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
@pytest.mark.parametrize(("qos", "direction", "kind"), PACKETS)
async def test_cuts_at_each_packet(
    shared_broker: Broker, name: str, qos: int, direction: str, kind: int, before: bool, way: str
) -> None:
    """After the packet arrived, or before it does: three times, with the seventh of them each."""
    with proxied(shared_broker.address) as proxy:
        cut = proxy.cut_before if before else proxy.cut
        rule = cut(way_of(direction, way), kind, nth=7, times=3)
        arrived = await exchange(proxy, shared_broker, name, qos, way, nothing)
        assert rule.hits == 3
        assert first_of_each(arrived) == wanted()
        if qos == 2:
            assert arrived == wanted()


@each_way
@pytest.mark.parametrize(("qos", "direction", "kind"), PACKETS)
async def test_a_packet_that_vanishes(
    shared_broker: Broker, name: str, qos: int, direction: str, kind: int, way: str
) -> None:
    """The connection stands, so that nothing is sent again on it; the next one mends it."""
    with proxied(shared_broker.address) as proxy:
        behind, beside = proxy.address, shared_broker.address
        here, there = (behind, beside) if way == "publishing" else (beside, behind)
        async with (
            watching(there, name, client_id=f"{name}w") as watcher,
            opened(here, client_id=f"{name}s") as client,
        ):
            vanishes = proxy.swallow(way_of(direction, way), kind)
            first = await client.send(name, "0", qos)
            await hit(vanishes)
            assert client.pending == 1 or way == "receiving"
            proxy.reset()
            await first
            for text in ("1", "2"):
                await client.publish(name, text, qos)
            await watcher.has("0", "1", "2")
            assert first_of_each(watcher.texts) == ["0", "1", "2"]
            if qos == 2 or kind == PUBLISH:
                assert watcher.texts == ["0", "1", "2"]
            names = [packet_name(one.kind) for one in proxy.seen if not one.passed]
            assert names == [packet_name(kind)]


@pytest.mark.parametrize("version", ["3.1", "3.1.1"])
@each_qos
async def test_older_versions_lose_nothing_either(
    shared_broker: Broker, name: str, qos: int, version: Version
) -> None:
    """They have no session that ends after a while: ``session_expiry_s`` keeps it."""
    with proxied(shared_broker.address) as proxy:
        async with (
            watching(
                proxy.address, name, version=version, client_id=f"{name}w", session_expiry_s=60
            ) as watcher,
            opened(
                proxy.address, version=version, client_id=f"{name}s", session_expiry_s=60
            ) as client,
        ):
            proxy.cut_before(UP, PUBLISH, nth=7, times=2)
            proxy.cut_before(DOWN, PUBACK if qos == 1 else PUBCOMP, nth=5, times=2)
            for text in wanted():
                await client.send(name, text, qos)
            await watcher.has(*wanted())
            await client.drain()
            assert first_of_each(watcher.texts) == wanted()
            if qos == 2:
                assert watcher.texts == wanted()


async def test_a_partition_that_outlives_the_keep_alive(shared_broker: Broker, name: str) -> None:
    """A server that says nothing for one and a half keep alives is given up [MQTT-3.1.2-24 is its
    side of it]; what was sent meanwhile arrives all the same, on another connection."""
    with proxied(shared_broker.address) as proxy:
        async with (
            watching(shared_broker.address, name) as watcher,
            opened(proxy.address, keep_alive_s=1, client_id=name) as client,
        ):
            await client.publish(name, "before", 2)
            proxy.partition()
            silent = await client.send(name, "in silence", 2)
            await until("the client to give up", lambda: "1.5 x keep alive" in client.status.error)
            proxy.heal()
            await silent
            await client.publish(name, "after", 2)
            await watcher.has("after")
            assert watcher.texts == ["before", "in silence", "after"]
            assert proxy.connections > 1


async def test_pings_keep_a_quiet_connection(shared_broker: Broker, name: str) -> None:
    """For longer than the broker waits, one and a half keep alives."""
    with proxied(shared_broker.address) as proxy:
        async with opened(proxy.address, keep_alive_s=1, client_id=name) as client:
            await until("three pings", lambda: pings(proxy) >= 3)
            assert client.is_connected
            assert proxy.connections == 1


def pings(proxy: FaultProxy) -> int:
    return sum(1 for packet in proxy.passed(DOWN) if packet.kind == 13)


async def test_a_client_that_is_closed_in_a_partition_ends(
    shared_broker: Broker, name: str
) -> None:
    """It says what it could not deliver, and leaves nothing behind."""
    with proxied(shared_broker.address) as proxy:
        async with opened(proxy.address, client_id=name, drain_s=0.05) as client:
            proxy.partition()
            publication = await client.send(name, "x", 1)
            with pytest.raises(
                PublishFailed, match="1 messages were not acknowledged within drain_s"
            ):
                await client.close()
        assert publication.is_done
        assert _others() == []
        proxy.heal()


def _others() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_two_clients_with_one_identifier_dismiss_each_other(
    shared_broker: Broker, name: str
) -> None:
    """The server dismisses the first with 0x8E [MQTT-3.1.4-3]; it comes back, and so on: its status
    says why."""
    async with opened(shared_broker.address, client_id=name) as first:
        told: list[int] = []

        def tells(client: Client) -> bool:
            told.append(client.status.reason_code)
            return 0x8E in told

        async with opened(shared_broker.address, client_id=name):
            await until("the first to be dismissed", lambda: tells(first))
