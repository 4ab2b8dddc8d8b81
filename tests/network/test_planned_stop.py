"""A planned stop: what the broker took over it acknowledges, then it says that it ends."""

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Final

import pytest

from penstock.app.running import EXIT_STORE_FAILED
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Puback, Publish
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, until, wait_until_logged
from tests.support.fixtures import VERSIONS, Clients, running_broker
from tests.support.windowed_publisher import WindowedPublisher

WINDOWS: Final = (1, 20, 100, 1000)
SETTINGS: Final = {"limits.max_mqueue_len": 0, "limits.receive_maximum": 1000}


def received(broker: Broker, clients: Clients) -> list[str]:
    """Everything that the session of ``reader`` has, each acknowledged."""
    reader = clients.join(broker, "reader", clean_start=False, expiry_s=3600, present=True)
    found: list[str] = []
    clients.join(broker, "last").publish("load/last", b"last", 1)
    while True:
        message = reader.take()
        found.append(message.payload.decode())
        if message.topic == "load/last":
            return found[:-1]


async def stop_under_load(broker: Broker, publishers: list[WindowedPublisher]) -> None:
    """Stop the broker while all publish, each in full flow."""
    running = [asyncio.create_task(each.run(broker.address)) for each in publishers]
    await until(
        "every publisher to be in full flow",
        lambda: all(len(each.completed) >= min(each.window, 20) for each in publishers),
    )
    assert await asyncio.get_running_loop().run_in_executor(None, broker.stop) == 0
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*running)


def test_every_message_that_was_taken_over_is_acknowledged(
    tmp_path: Path, clients: Clients
) -> None:
    """Each version with each window, at QoS 1 and 2; MQTT 3.1 completes a QoS 2 message only with
    its PUBREL (v3.1 §3.6), the others take it over with PUBREC."""
    publishers = [
        WindowedPublisher(f"v{version}q{qos}w{window}", version, qos, window)
        for version in VERSIONS
        for qos in (1, 2)
        for window in WINDOWS
    ]
    with running_broker(tmp_path, SETTINGS) as broker:
        with contextlib.closing(clients):
            reader = clients.join(broker, "reader", clean_start=False, expiry_s=3600)
            reader.subscribe("load/#", qos=1)
        asyncio.run(stop_under_load(broker, publishers))
        broker.start()
        taken = received(broker, clients)
    for each in publishers:
        own = {payload for payload in taken if payload.startswith(f"{each.client_id}|")}
        assert each.completed <= own, "acknowledged and lost"
        told = each.completed if (each.version, each.qos) == (3, 2) else each.acknowledged
        assert own - told == set(), f"{each.client_id}: taken over, and not told"
        assert each.is_whole
        assert each.farewell == (0x8B if each.version == V5 else None)
    assert len(taken) == len(set(taken))


def test_a_peer_that_does_not_read_does_not_hold_the_stop(
    own_broker: Broker, clients: Clients
) -> None:
    """Others are told meanwhile; what is in no socket yet is lost to the one that does not read."""
    deaf = clients.join(own_broker, "deaf")
    deaf.subscribe("t", qos=0)
    publisher = clients.join(own_broker, "publisher")
    for _ in range(16):
        publisher.publish("t", bytes(1_000_000), 0)
    publisher.publish("other", b"x", 1)
    assert own_broker.stop() == 0
    publisher.expect_disconnect(0x8B)


@pytest.mark.torture("it waits for the whole time limit of the last commit")
def test_a_store_that_hangs_does_not_hold_the_stop(tmp_path: Path, clients: Clients) -> None:
    """Nothing is acknowledged that is not on disk, and each client is told that the broker ends."""
    hangs = tmp_path / "hangs"
    command = (sys.executable, "-m", "tests.support.hanging_broker", "serve")
    broker = Broker(tmp_path, command=command)
    broker.set_environment("HANGS_WITH", str(hangs))
    try:
        broker.start()
        reader = clients.join(broker, "reader", clean_start=False, expiry_s=3600)
        reader.subscribe("t", qos=1)
        reader.drop()
        publisher = clients.join(broker, "publisher", clean_start=False, expiry_s=3600)
        publisher.publish("t", b"before", 1)
        hangs.touch()
        publisher.send(Publish("t", b"during", 1, packet_id=7))
        assert broker.stop() == EXIT_STORE_FAILED
        publisher.expect_disconnect(0x8B)
        wait_until_logged(broker, "the store did not finish the last commit")
        assert broker.family() == []
        hangs.unlink()
        broker.start()
        again = clients.join(broker, "publisher", clean_start=False, expiry_s=3600, present=True)
        again.send(Publish("t", b"during", 1, True, packet_id=7))
        assert again.expect(Puback).packet_id == 7
    finally:
        broker.close()
