"""Retention: it goes on whatever happens, and asks sessions without holding anyone up."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import final

import pytest

from penstock.config.stream import Stream
from penstock.control.reader_requests import Lease
from penstock.engine.server.server import Server
from penstock.engine.values.clock import Now
from penstock.engine.values.message import Message
from penstock.errors import StoreUnavailable
from penstock.protocol.packets import Connect, Puback
from penstock.runtime.machine_clock import MachineClock
from penstock.services import retention
from penstock.services.reader_leases import ReaderLeases
from penstock.store.mark import NO_MARK, Mark, Verdict
from penstock.store.memory import MemoryStore
from penstock.store.port import LogExtent
from tests.support.deadline import until
from tests.unit.engine.bench import Bench, publishes
from tests.unit.engine.pair import Pair, numbered


@final
class Trouble:
    """A store whose ``trim_log`` fails twice, in two ways, and then works."""

    def __init__(self) -> None:
        self.calls = 0
        self.works = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def trim_log(self, *_asked: int) -> int:
        self.calls += 1
        if self.calls == 1:
            raise StoreUnavailable("the disk is full")
        if self.calls == 2:
            raise RuntimeError("nobody thought of this")
        return 0

    def trim_archives(self, now_us: int) -> None:
        assert now_us > 1_700_000_000_000_000
        if self.calls > 2:
            self._loop.call_soon_threadsafe(self.works.set)


async def test_retention_goes_on_after_any_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retention, "INTERVAL_S", 0.001)
    store = Trouble()
    task = asyncio.create_task(
        retention.trim_log_periodically(
            Bench().server,
            store,  # type: ignore[arg-type]
            retention.RetentionLimits(0, 0),
            MachineClock().now,
        )
    )
    with caplog.at_level(logging.ERROR):
        await asyncio.wait_for(store.works.wait(), 10)
    task.cancel()
    assert [record.getMessage() for record in caplog.records] == [
        "the log could not be trimmed: the disk is full",
        "the log could not be trimmed",
    ]


@final
class Much:
    """A store with three calls' worth to remove."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.trimmed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def trim_log(self, *_asked: int) -> int:
        self.calls.append("retain")
        return min(30, 10 * len(self.calls))

    def trim_archives(self, _now_us: int) -> None:
        self.calls.append("trim")
        self._loop.call_soon_threadsafe(self.trimmed.set)


async def test_retention_goes_on_until_nothing_is_left_to_remove(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One call does a bounded amount of work; the log must not outgrow that."""
    monkeypatch.setattr(retention, "INTERVAL_S", 0.001)
    store = Much()
    task = asyncio.create_task(
        retention.trim_log_periodically(
            Bench().server,
            store,  # type: ignore[arg-type]
            retention.RetentionLimits(0, 0),
            MachineClock().now,
        )
    )
    await asyncio.wait_for(store.trimmed.wait(), 10)
    task.cancel()
    assert store.calls[:5] == ["retain", "retain", "retain", "retain", "trim"]


async def test_sessions_are_asked_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand sessions, and others have their turn in between."""
    now = Now(1.0, 1)
    server = Server(Bench().limits, MemoryStore("e").recover(), ("#",), "memory", now)
    server.context.batch.next_offset = 10_000
    for number in range(2000):
        session = server.registry.open(f"c{number}", False, 3600)
        session.outbound.deliver(
            Message("t", b"", 1, offset=5000 - number), 1, False, (), False, now
        )
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    monkeypatch.setattr(retention, "SLICE_S", 1e-9)
    assert await retention.lowest_needed_offset(server) == 3001
    task.cancel()
    assert turns > 2


def test_a_message_taken_over_while_sessions_are_asked_is_kept() -> None:
    pair = Pair()
    pair.publish(*numbered(3))
    pair.bench.commit()
    registry = pair.bench.server.registry
    registry.sessions.clear()
    asking = registry.search_lowest_offset(3)
    pair.bench.server.context.batch.note_moved(1)  # by a group, or from one
    while not asking.step():
        pass
    assert asking.lowest == 1


@final
class Asked:
    """A store that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []
        self.trimmed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    epoch = "e"

    def log_extent(self) -> LogExtent:
        return LogExtent(0, 100, 0)

    def judge(self, *_position: object) -> Verdict:
        return Verdict(True)

    def mark_at(self, _offset: int) -> Mark:
        return NO_MARK

    def trim_log(self, *asked: int) -> int:
        self.asked.append(asked)
        return 0

    def trim_archives(self, _now_us: int) -> None:
        self._loop.call_soon_threadsafe(self.trimmed.set)


@pytest.mark.parametrize(
    ("bytes_max", "hold_bytes_max", "expected"),
    [(50, 80, 80), (80, 50, 80), (0, 50, 50), (80, 0, 0)],
)
async def test_a_lease_holds_up_to_a_size_which_is_not_below_that_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    bytes_max: int,
    hold_bytes_max: int,
    expected: int,
) -> None:
    monkeypatch.setattr(retention, "INTERVAL_S", 0.001)
    store = Asked()
    settings = Stream(readers_hold_bytes_max=hold_bytes_max)
    leases = ReaderLeases(tmp_path, store, settings, MachineClock().now)  # type: ignore[arg-type]
    await leases.lease(Lease("etl", "messages", (), "e", 7, 60.0))
    task = asyncio.create_task(
        retention.trim_log_periodically(
            Bench().server,
            store,  # type: ignore[arg-type]
            retention.RetentionLimits(0, bytes_max),
            MachineClock().now,
            leases,
        )
    )
    await asyncio.wait_for(store.trimmed.wait(), 10)
    task.cancel()
    _, limit, _, leased_from, leased_bytes_max = store.asked[0]
    assert (limit, leased_from, leased_bytes_max) == (bytes_max or 2**63, 7, expected)


async def test_a_message_that_no_session_needs_leaves_memory_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a client that is away has not got stays, and all behind it; nothing else does."""
    monkeypatch.setattr(retention, "MEMORY_INTERVAL_S", 0.001)
    bench = Bench(streams=())
    here = bench.subscriber("here", "t", 1)
    away = bench.subscriber("away", "a", 1)
    away.cut()

    def acknowledge() -> None:
        here.send(*(Puback(message.packet_id) for message in publishes(here.read())))
        bench.commit()

    for number in range(5):
        bench.publish("t", b"%d" % number)
        acknowledge()
    bench.publish("a", b"kept")
    bench.publish("t", b"behind it")
    acknowledge()
    assert (bench.store.log_extent().earliest, bench.store.log_extent().end) == (0, 7)
    task = asyncio.create_task(retention.trim_memory_log(bench.server, bench.store))
    store = bench.store
    await until("what was acknowledged to leave", lambda: store.log_extent().earliest == 5)
    for _ in range(100):
        await asyncio.sleep(0)
    assert store.log_extent().earliest == 5
    back, _ = bench.connect(Connect("away", 5, False, 0))
    (message,) = publishes(back.read())
    assert message.payload == b"kept"
    back.send(Puback(message.packet_id))
    bench.commit()
    await until("the log to be empty", lambda: store.log_extent().size_bytes == 0)
    task.cancel()
