"""Staged sets in a running broker: what is answered, who waits for whom, and what is given up."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.control.client import Abandon, Publish, PublishProgress
from penstock.engine.server.server import Server
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.sink_batches import Row
from penstock.errors import StoreError
from penstock.runtime.driver import Driver
from penstock.services import staged_rows as staged_rows_module
from penstock.services.staged_rows import StagedRowsPublisher
from penstock.store.memory import MemoryStore
from penstock.store.staging import STAGED_SCHEMA, StagedBatch, Staging
from tests.support.deadline import DEADLINE_S, until
from tests.support.staged import staged_files
from tests.unit.engine.bench import EPOCH, START_US


class Running:
    """An engine with a driver and a publisher, and a staging area."""

    def __init__(self, data_dir: Path, limits: EngineLimits, expiry_s: float = 0.0) -> None:
        self.data_dir = data_dir
        self.store = MemoryStore(EPOCH)
        now = Now(time.monotonic(), START_US)
        self.server = Server(limits, self.store.recover(), ("#",), "memory", now)
        self.driver = Driver(self.server, self.store, 1_000_000, lambda _failure: None)
        self.staging = Staging(data_dir)
        self.publisher = StagedRowsPublisher(self.server, self.driver, self.staging, expiry_s)

    def propose(self, sink: str, batch: int, count: int, topic: str = "t") -> Publish:
        rows = [
            {"topic": topic, "payload": b"%d" % n, "qos": 1, "retain": False, "properties": None}
            for n in range(count)
        ]
        table = pa.Table.from_pylist(rows, STAGED_SCHEMA)
        file = self.staging.stage(sink, batch, "run", 0, table)
        return Publish(sink, batch, self.staging.propose(StagedBatch(sink, batch, sink, (file,))))

    def log(self) -> list[tuple[str, bytes]]:
        end = self.store.log_extent().end
        found = self.store.read(range(end))
        return [(found[offset].client_id, found[offset].payload) for offset in range(end)]

    async def close(self) -> None:
        await self.publisher.stop()
        await self.driver.stop()


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    made = Running(tmp_path, EngineLimits())
    yield made
    await made.close()


async def test_a_set_is_published_and_its_repetition_is_done(running: Running) -> None:
    request = running.propose("s", 2, 3)
    assert await running.publisher.publish(request) == PublishProgress(True)
    again = running.propose("s", 2, 5)
    assert await running.publisher.publish(again) == PublishProgress(True)
    before = await running.publisher.publish(running.propose("s", 1, 5))
    assert before == PublishProgress(True, later=2)
    assert running.log() == [("s", b"0"), ("s", b"1"), ("s", b"2")]


async def test_sets_of_several_sinks_take_turns(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both files are read at once, before the first row: no piece waits for a thread, or sleeps.
    monkeypatch.setattr(staged_rows_module, "PIECE_BYTES_MAX", 4)  # two rows
    monkeypatch.setattr(staged_rows_module, "ANSWER_S_MAX", 0.05)
    monkeypatch.setattr(staged_rows_module, "_RETRY_S", 0.0)
    running.server.context.store_health.mark_failed("no space")  # until both are at work
    at_work: set[str] = set()
    end_of_piece = staged_rows_module._end_of_piece

    def noted(rows: list[Row], first: int) -> int:
        at_work.add(rows[first][0])
        return end_of_piece(rows, first)

    monkeypatch.setattr(staged_rows_module, "_end_of_piece", noted)
    asked = [running.publisher.publish(running.propose(sink, 0, 6, sink)) for sink in ("a", "b")]
    assert await asyncio.gather(*asked) == [PublishProgress(False, 0)] * 2
    await until("both are at work", lambda: at_work == {"a", "b"})
    running.server.context.store_recovered()
    await until("all rows", lambda: _rows(running) == 12)
    order = "".join(sink for sink, _ in running.log())
    assert sorted(order) == list("aaaaaabbbbbb")
    assert "aaaa" not in order
    assert "bbbb" not in order


async def test_a_caller_is_not_kept_waiting_while_the_store_cannot_write(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_rows_module, "ANSWER_S_MAX", 0.05)
    running.server.context.store_health.mark_failed("no space")
    request = running.propose("s", 0, 6)
    assert await running.publisher.publish(request) == PublishProgress(False, 0)
    running.server.context.store_recovered()
    await until("all rows", lambda: _rows(running) == 6)
    monkeypatch.setattr(staged_rows_module, "ANSWER_S_MAX", DEADLINE_S)
    assert await running.publisher.publish(request) == PublishProgress(True)


def _rows(running: Running) -> int:
    return running.store.log_extent().end


async def test_a_proposal_that_is_not_there_is_refused_and_nothing_decided(
    running: Running,
) -> None:
    with pytest.raises(StoreError, match="there is no proposal"):
        await running.publisher.publish(Publish("s", 0, "nothing.proposal"))
    with pytest.raises(StoreError, match="a name must be"):
        await running.publisher.publish(Publish("../s", 0, "nothing.proposal"))
    assert await running.publisher.publish(running.propose("s", 0, 1)) == PublishProgress(True)


async def test_one_sink_too_many_is_refused(tmp_path: Path) -> None:
    running = Running(tmp_path, EngineLimits(producers_per_user_max=1))
    await running.publisher.publish(running.propose("a", 0, 1))
    with pytest.raises(StoreError, match="no room for one more sink"):
        await running.publisher.publish(running.propose("b", 0, 1))
    assert (await running.publisher.publish(running.propose("a", 1, 1))).is_done
    await running.close()


async def test_a_file_that_cannot_be_read_is_told_and_read_again_when_asked(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    request = running.propose("s", 0, 3)
    (path,) = staged_files(running.data_dir, ".arrow")
    whole = path.read_bytes()
    path.write_bytes(b"\xff" * len(whole))
    with pytest.raises(StoreError, match="cannot be read"):
        await running.publisher.publish(request)
    await until("the log", lambda: "continues with its next request" in caplog.text)
    path.write_bytes(whole)
    assert (await running.publisher.publish(request)).is_done
    assert len(running.log()) == 3


async def test_an_attempt_is_given_up_unless_it_is_decided(running: Running) -> None:
    request = running.propose("s", 0, 3)
    assert await running.publisher.abandon(Abandon("s", 0, "run")) == PublishProgress(False)
    assert not staged_files(running.data_dir, ".arrow")
    with pytest.raises(StoreError, match="are not here any more"):
        await running.publisher.publish(request)
    assert (await running.publisher.publish(running.propose("s", 0, 3))).is_done
    assert (await running.publisher.abandon(Abandon("s", 0, "run"))).is_done
    assert len(running.log()) == 3


async def test_a_batch_that_nobody_decides_is_removed_when_its_time_is_over(tmp_path: Path) -> None:
    running = Running(tmp_path, EngineLimits(), expiry_s=3600.0)
    running.propose("s", 0, 3)
    for path in staged_files(tmp_path, ".arrow"):
        os.utime(path, (1000.0, 1000.0))
    running.publisher.start()
    await until("the removal", lambda: not staged_files(tmp_path, ".arrow"))
    await running.close()


async def test_a_start_goes_on_with_what_was_decided(running: Running) -> None:
    for batch, count in ((4, 3), (5, 2)):
        request = running.propose("s", batch, count)
        running.staging.decide("s", batch, request.proposal)
    running.publisher.start()
    await until("all rows", lambda: _rows(running) == 5)
    await until("the removal", lambda: not staged_files(running.data_dir, ".arrow"))
    assert running.server.sink_positions.is_published("s", 5)


async def test_a_sink_that_gets_an_owner_goes_on_where_it_was(running: Running) -> None:
    """A token that is given a name, or whose broker did not tell sinks apart, repeats its batch."""
    request = running.propose("s", 4, 3)
    running.staging.decide("s", 4, request.proposal)
    running.server.context.store_health.mark_failed("no space")
    running.publisher.start()
    asked = asyncio.create_task(running.publisher.publish(running.propose("plant~s", 4, 3)))
    await until("it is staged", lambda: staged_files(running.data_dir, ".arrow")[1:])
    running.server.context.store_recovered()
    assert await asked == PublishProgress(True)
    assert await running.publisher.abandon(Abandon("other~s", 4, "run")) == PublishProgress(True)
    assert await running.publisher.publish(running.propose("plant~s", 5, 2)) == PublishProgress(
        True
    )
    assert await running.publisher.publish(running.propose("s", 5, 1)) == PublishProgress(True)
    assert running.log() == [
        *[("s", b"%d" % n) for n in range(3)],
        *[("plant~s", b"%d" % n) for n in range(2)],
        ("s", b"0"),
    ]


async def test_while_the_broker_stops_nothing_more_is_begun(running: Running) -> None:
    await running.publisher.stop()
    answer = await running.publisher.publish(running.propose("s", 0, 3))
    assert answer == PublishProgress(False)
    assert running.log() == []
    assert running.staging.is_decided("s", 0)  # for the next run


async def test_a_batch_before_the_latest_is_told_to_be_so(running: Running) -> None:
    for batch in (1, 2, 5):
        assert await running.publisher.publish(running.propose("s", batch, 3)) == PublishProgress(
            True
        )
    assert await running.publisher.publish(running.propose("s", 5, 3)) == PublishProgress(True)
    for batch in (0, 2, 4):
        again = await running.publisher.publish(running.propose("s", batch, 3))
        assert again == PublishProgress(True, later=5)
    assert len(running.log()) == 9


async def test_a_batch_that_is_half_published_and_whose_staged_rows_are_gone_is_refused(
    running: Running,
) -> None:
    """Spark repeats it, perhaps with its rows in another order: which ones are missing?"""
    rows: list[Row] = [("t", b"%d" % n, 1, False, b"") for n in range(3)]
    now = running.driver.now_of_turn()
    assert running.server.sink_positions.publish("s", 4, "plan", "s", rows, 0, now) == 3
    answer = await running.publisher.publish(running.propose("s", 4, 9))
    assert not answer.is_done
    assert answer.refusal.startswith("of batch 4 of this query 3 rows are published")
    assert _rows(running) == 0  # the open commit has those three
