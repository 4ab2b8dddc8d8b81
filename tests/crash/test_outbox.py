"""The outbox: what ``send`` returned for is delivered, whoever is killed, and when.

The seed is printed; ``CRASH_SEED=... pytest tests/crash/test_outbox.py`` draws the same again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from penstock import Client
from penstock.errors import ConfigError, QueueFull, StoreError
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, until, wait_for
from tests.support.environment import environment
from tests.support.faulty_client import hit, opened, proxied, url_of, watching
from tests.support.fixtures import Clients
from tests.support.outbox_program import accepted
from tests.support.raw_client import RawClient

COUNT: Final = 900  # no more than wait for a subscriber who is away
KILLS: Final = 3
AWAY: Final = "mqtt://127.0.0.1:1"
MIB: Final = 1_048_576


@contextlib.contextmanager
def program(broker: Broker, directory: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """``outbox_program``, ended with the block."""
    running = subprocess.Popen(
        [
            sys.executable, "-m", "tests.support.outbox_program", url_of(broker.address),
            str(directory / "box"), str(directory / "note"), name, name, str(COUNT),
        ],
        env=environment(),
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield running
    finally:
        if running.poll() is None:
            running.kill()
        _, said = running.communicate()
        assert b"Traceback" not in said, said.decode()


def has_come_to(note: Path, target: int, running: subprocess.Popen[bytes]) -> bool:
    """Whether so many are accepted, or there is nothing to wait for."""
    return accepted(note) >= target or running.poll() is not None


def everything(subscriber: RawClient, last: set[bytes]) -> list[tuple[str, int]]:
    """All that comes up to the last of each QoS, by topic."""
    came: list[tuple[str, int]] = []
    left = set(last)
    while left:
        message = subscriber.take()
        came.append((message.topic, int(message.payload)))
        left.discard(message.payload)
    return came


def test_program_and_broker_are_killed_and_all_that_was_accepted_arrives_in_order(
    own_broker: Broker, clients: Clients, tmp_path: Path, name: str
) -> None:
    """QoS 2 once, but for the message under way at a kill: the program was not told of that one,
    and sent it again as one more."""
    seed = int(os.environ.get("CRASH_SEED", time.time_ns() % 2**32))
    print(f"CRASH_SEED={seed}")
    draw = random.Random(seed)
    joined = clients.join(own_broker, f"{name}w", expiry_s=3600)
    joined.subscribe(f"{name}/#", qos=2)
    joined.drop()
    note = tmp_path / "note"
    killed_at: list[int] = []
    for _ in range(KILLS):
        with program(own_broker, tmp_path, name) as running:
            target = min(COUNT - 100, accepted(note) + draw.randrange(20, 250))
            wait_for("progress", partial(has_come_to, note, target, running))
            assert running.poll() is None
            if draw.random() < 0.6:
                own_broker.kill()
            time.sleep(draw.uniform(0, 0.05))  # the moment is what is drawn
            running.kill()
            running.wait(DEADLINE_S)
        killed_at.append(accepted(note))
        if own_broker.process.poll() is not None:
            own_broker.start()
    with program(own_broker, tmp_path, name) as running:
        assert running.wait(2 * DEADLINE_S) == 0
    subscriber = clients.join(own_broker, f"{name}w", clean_start=False, present=True)
    came = everything(subscriber, {b"%d" % (COUNT - 1), b"%d" % (COUNT - 2)})
    for qos in (1, 2):
        numbers = [number for topic, number in came if topic == f"{name}/{qos}"]
        wanted = [number for number in range(COUNT) if 2 - number % 2 == qos]
        assert list(dict.fromkeys(numbers)) == wanted
        if qos == 2:
            twice = {number for number in numbers if numbers.count(number) > 1}
            assert twice <= set(killed_at)


async def test_a_program_without_a_connection_leaves_it_to_the_next(
    shared_broker: Broker, tmp_path: Path, name: str
) -> None:
    async with Client(AWAY, client_id=name, outbox=tmp_path / "box") as first:
        for number in range(50):
            await first.send(name, str(number), 2)
        assert first.pending == 50
    async with (
        watching(shared_broker.address, name) as watcher,
        opened(shared_broker.address, outbox=tmp_path / "box") as second,
    ):
        assert second.client_id == name
        await second.drain()
        await watcher.has("49")
        assert watcher.texts == [str(number) for number in range(50)]


async def test_a_cut_in_each_program_and_qos_2_comes_once(
    shared_broker: Broker, tmp_path: Path, name: str
) -> None:
    """Each program ends without its acknowledgements; the fourth finds all that is left."""
    with proxied(shared_broker.address) as proxy:
        async with watching(shared_broker.address, name) as watcher:
            for start in range(0, 90, 30):
                async with opened(
                    proxy.address, client_id=name, outbox=tmp_path / "box", drain_s=0
                ) as client:
                    await until("the connection", lambda: client.is_connected)
                    cut = proxy.cut_before("down", 5 + start // 30 % 2 * 2, nth=5, refuse=True)
                    for number in range(start, start + 30):
                        await client.send(name, str(number), 2)
                    await hit(cut)
                proxy.accept()
            async with opened(proxy.address, outbox=tmp_path / "box") as last:
                await last.drain()
            await watcher.has("89")
            assert watcher.texts == [str(number) for number in range(90)]


async def test_the_outbox_of_another_client_is_refused(tmp_path: Path) -> None:
    async with Client(AWAY, client_id="one", outbox=tmp_path / "box"):
        pass
    with pytest.raises(ConfigError, match="is the outbox of client 'one', not of 'two': each"):
        async with Client(AWAY, client_id="two", outbox=tmp_path / "box"):
            pass


async def test_an_outbox_in_use_is_refused(own_broker: Broker, tmp_path: Path, name: str) -> None:
    """By another process; and by this one."""
    with program(own_broker, tmp_path, name):
        wait_for("the program", lambda: accepted(tmp_path / "note") > 0)
        with pytest.raises(StoreError, match="another process") as refused:
            async with Client(AWAY, client_id=name, outbox=tmp_path / "box"):
                pass
        assert "\n" not in str(refused.value)
    async with Client(AWAY, client_id=name, outbox=tmp_path / "box"):
        with pytest.raises(StoreError):
            async with Client(AWAY, client_id=name, outbox=tmp_path / "box"):
                pass


async def test_an_outbox_is_bounded_and_stays_so_after_a_start(
    shared_broker: Broker, tmp_path: Path, name: str
) -> None:
    box = tmp_path / "box"
    async with Client(AWAY, client_id=name, outbox=box, queue_messages_max=5, overflow="raise") as (
        first
    ):
        for number in range(5):
            await first.send(name, str(number))
        with pytest.raises(QueueFull, match="5 messages wait"):
            await first.send(name, "one more")
    with proxied(shared_broker.address) as proxy:
        proxy.refuse()
        async with (
            watching(shared_broker.address, name) as watcher,
            opened(proxy.address, outbox=box, queue_messages_max=5) as second,
        ):
            waiting = asyncio.create_task(second.send(name, "5"))
            await asyncio.wait((waiting,), timeout=0.1)
            assert not waiting.done()
            proxy.accept()
            await (await waiting)
            assert watcher.texts == [str(number) for number in range(6)]


async def test_a_delivered_message_leaves_the_disk(
    shared_broker: Broker, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the last chunk, which tells where the log ends."""
    monkeypatch.setattr("penstock.client.outbox.INTERVAL_S", 0.05)
    async with opened(shared_broker.address, client_id=name, outbox=tmp_path / "box") as client:
        assert client._lifecycle is not None
        extent = client._lifecycle.store.log_extent
        for _ in range(20):
            await client.send(name, os.urandom(10_000))
        assert extent().end == 20
        await client.drain()
        await until("the last chunk alone", lambda: extent().earliest == 19)
        assert extent().size_bytes < 12_000
        await client.publish(name, "goes on", 1)
        assert extent().end == 21


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory that holds 32 MiB and no more."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "penstock-test", str(disk)],
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.decode().strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.parametrize("overflow", ["wait", "raise"])
async def test_a_full_disk(
    shared_broker: Broker, small_disk: Path, name: str, overflow: str
) -> None:
    """``send`` waits, or raises with what is wrong; QoS 0 goes; with room all goes on."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(20 * MIB))
    body = os.urandom(100_000)
    with proxied(shared_broker.address) as proxy:
        async with (
            watching(shared_broker.address, f"{name}/0", f"{name}/end") as watcher,
            opened(
                proxy.address,
                client_id=name,
                outbox=small_disk / "box",
                overflow="wait" if overflow == "wait" else "raise",
            ) as client,
        ):
            await until("the connection", lambda: client.is_connected)
            assert client._engine is not None
            context = client._engine.server.context
            accepted_ones = []
            sending: asyncio.Task[object] | None = None
            while not context.store_health.is_failing:
                sending = asyncio.create_task(client.send(f"{name}/1", body, 1))
                accepted_ones.append(sending)
                await asyncio.wait((sending,), timeout=0.5)
            stuck = asyncio.create_task(client.send(f"{name}/end", "stuck", 1))
            await asyncio.wait((stuck,), timeout=0.2)
            if overflow == "raise":
                with pytest.raises(QueueFull, match="No space left on device"):
                    await stuck
            else:
                assert not stuck.done()
            await client.publish(f"{name}/0", "QoS 0 goes", 0)
            await watcher.has("QoS 0 goes")
            ballast.unlink()
            await asyncio.gather(*accepted_ones)
            if overflow == "wait":
                await stuck
            await until("the store", lambda: not context.store_health.is_failing)
            await client.publish(f"{name}/end", "after", 1)
            await watcher.has("after")


def test_an_outbox_is_a_store_like_any_other(tmp_path: Path, name: str) -> None:
    """The tools for a broker's store look at it, too."""

    async def fill() -> None:
        async with Client(AWAY, client_id=name, outbox=tmp_path / "data") as client:
            await client.send(name, "kept")

    asyncio.run(fill())
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "store", "check", "--data-dir", str(tmp_path / "data")],
        env=environment(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
