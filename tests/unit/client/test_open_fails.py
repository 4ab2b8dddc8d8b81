"""An outbox is closed by whoever opened it, whatever comes between: the next client has it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Client
from penstock.client import lifecycle
from penstock.errors import NotConnected
from penstock.store.rocks import RocksStore
from tests.support.deadline import DEADLINE_S
from tests.support.scripted_server import NOBODY


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[RocksStore]:
    """The stores that were closed: kept here, so that none is because nobody knows it any more."""
    shut = RocksStore.close
    stores: list[RocksStore] = []

    def close(self: RocksStore) -> None:
        shut(self)
        stores.append(self)

    monkeypatch.setattr(RocksStore, "close", close)
    return stores


async def opens_again(path: Path) -> None:
    async with Client(NOBODY, client_id="meter", outbox=path) as client:
        await client.send("a", b"x")


def held_up(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[asyncio.Event, Callable[[], None]]:
    """This method of the store waits: tells when it does, and is told to go on."""
    loop = asyncio.get_running_loop()
    begun = asyncio.Event()
    goes_on = threading.Event()
    method: Callable[..., Any] = getattr(RocksStore, name)

    def slow(self: RocksStore, *arguments: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        assert goes_on.wait(DEADLINE_S)
        return method(self, *arguments)

    monkeypatch.setattr(RocksStore, name, slow)
    return begun, goes_on.set


@pytest.mark.parametrize("cancellations", [1, 2])
@pytest.mark.parametrize("name", ["__init__", "recover"])
async def test_an_opening_that_is_cancelled_leaves_the_outbox_closed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    closed: list[RocksStore],
    name: str,
    cancellations: int,
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        begun, go_on = held_up(monkeypatch, name)
        task = asyncio.create_task(Client(NOBODY, client_id="meter", outbox=tmp_path).open())
        await begun.wait()
        for _ in range(cancellations):
            task.cancel()
            await asyncio.sleep(0)
        go_on()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(closed) == 1
        await opens_again(tmp_path)


@pytest.mark.parametrize("name", ["recover", "commit"])
async def test_a_client_closed_while_it_is_opened_leaves_the_outbox_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        begun, go_on = held_up(monkeypatch, name)
        client = Client(NOBODY, client_id="meter", outbox=tmp_path)
        task = asyncio.create_task(client.open())
        await begun.wait()
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        go_on()
        await closing
        with pytest.raises(NotConnected, match="closed while it was opened"):
            await task
        assert client.status.state == "closed"
        await opens_again(tmp_path)


@pytest.mark.parametrize("name", ["Server", "ClientEngine", "client_id_in"])
async def test_a_defect_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fails(*arguments: object) -> None:
        raise RuntimeError(f"{len(arguments)} were too many")

    async with asyncio.timeout(DEADLINE_S):
        client = Client(NOBODY, client_id="meter", outbox=tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(lifecycle, name, fails)
            with pytest.raises(RuntimeError, match="too many"):
                await client.open()
        assert client.status.state == "closed"
        await opens_again(tmp_path)
