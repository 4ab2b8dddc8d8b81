"""What is delivered leaves the outbox; that it cannot is told, and ends nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock import Client
from penstock.client import outbox
from penstock.errors import StoreUnavailable
from penstock.store.rocks import RocksStore
from tests.support.deadline import DEADLINE_S, until
from tests.support.scripted_server import NOBODY, opened


@pytest.mark.parametrize("error", [OSError("bad sector"), StoreUnavailable("bad sector")])
async def test_trimming_that_fails_is_told_and_tried_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    def trim_log(self: RocksStore, older_than_us: int, bytes_max: int, keep_from: int) -> int:
        del self, older_than_us, bytes_max, keep_from
        raise error

    def told() -> int:
        return sum("could not be trimmed" in record.getMessage() for record in caplog.records)

    monkeypatch.setattr(outbox, "INTERVAL_S", 0.001)
    monkeypatch.setattr(RocksStore, "trim_log", trim_log)
    async with asyncio.timeout(DEADLINE_S):
        async with Client(NOBODY, client_id="meter", outbox=tmp_path) as client:
            await client.send("a", b"x")
            await until("two attempts", lambda: told() >= 2)
        assert client.status.state == "closed"
        async with Client(NOBODY, client_id="meter", outbox=tmp_path) as client:
            assert client.pending == 1  # the store was closed: it opens again


async def test_delivered_messages_are_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trim = RocksStore.trim_log
    trimmed_to: list[int] = []

    def trim_log(self: RocksStore, older_than_us: int, bytes_max: int, keep_from: int) -> int:
        trimmed_to.append(keep_from)
        return trim(self, older_than_us, bytes_max, keep_from)

    monkeypatch.setattr(outbox, "INTERVAL_S", 0.001)
    monkeypatch.setattr(RocksStore, "trim_log", trim_log)
    async with opened(client_id="meter", outbox=tmp_path) as (client, _):
        for _ in range(5):
            await client.publish("a", b"x", 1)
        await until("all of it", lambda: trimmed_to and trimmed_to[-1] == 5)


async def test_close_waits_for_what_is_being_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    trim, shut = RocksStore.trim_log, RocksStore.close
    begun, goes_on = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def wait() -> None:
        begun.set()
        await goes_on.wait()

    def trim_log(self: RocksStore, older_than_us: int, bytes_max: int, keep_from: int) -> int:
        asyncio.run_coroutine_threadsafe(wait(), loop).result(DEADLINE_S)
        found = trim(self, older_than_us, bytes_max, keep_from)
        done.append("trimmed")
        return found

    def close(self: RocksStore) -> None:
        done.append("closed")
        shut(self)

    monkeypatch.setattr(outbox, "INTERVAL_S", 0.001)
    monkeypatch.setattr(RocksStore, "trim_log", trim_log)
    monkeypatch.setattr(RocksStore, "close", close)
    async with asyncio.timeout(DEADLINE_S):
        client = Client(NOBODY, client_id="meter", outbox=tmp_path)
        await client.open()
        await begun.wait()
        closing = asyncio.create_task(client.close())
        assert client._lifecycle is not None
        await until("it stops", client._lifecycle.stop_trimming.is_set)
        goes_on.set()
        await closing
    assert done[-1] == "closed"
    assert set(done[:-1]) == {"trimmed"}
