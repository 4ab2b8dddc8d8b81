"""The program's own numbers: stored in one step with the messages they belong to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from penstock import BlockingClient, Client
from penstock.client.engine_options import session_limits
from penstock.client.options import Options
from penstock.engine.batch.commit import Commit
from penstock.errors import ClientError, NotConnected, OutOfSequence
from penstock.store.rocks import RocksStore

NOBODY: Final = "mqtt://127.0.0.1:1"


@asynccontextmanager
async def sending(outbox: Path) -> AsyncIterator[Client]:
    """A client whose server is not there."""
    async with Client(NOBODY, client_id="meter", outbox=outbox) as client:
        yield client


async def test_a_program_that_starts_again_knows_how_far_it_got(tmp_path: Path) -> None:
    async with sending(tmp_path) as client:
        assert client.last_sequence == 0
        for number in (1, 2, 7):
            await client.send("t", b"x", 2, sequence=number)
        await client.send("t", b"without", 1)
        assert client.last_sequence == 7
    async with sending(tmp_path) as client:
        assert (client.last_sequence, client.pending) == (7, 4)
        await client.send("t", b"x", 1, sequence=8)
    async with sending(tmp_path) as client:
        assert (client.last_sequence, client.pending) == (8, 5)


async def test_a_number_that_does_not_grow_is_refused_and_nothing_is_sent(tmp_path: Path) -> None:
    async with sending(tmp_path) as client:
        client.send_nowait("t", b"x", 1, sequence=5)
        for wrong in (5, 4, 0, -1, 2**63):
            with pytest.raises(OutOfSequence, match="the last one is 5"):
                await client.send("t", b"x", 1, sequence=wrong)
            with pytest.raises(OutOfSequence):
                client.send_nowait("t", b"x", 1, sequence=wrong)
        assert client.pending == 1
        await client.send("t", b"x", 1, sequence=2**63 - 1)
    async with sending(tmp_path) as client:
        assert client.last_sequence == 2**63 - 1


async def test_a_number_needs_an_outbox_that_keeps_it(tmp_path: Path) -> None:
    async with Client(NOBODY, waits_for_connection=False, drain_s=0) as client:
        with pytest.raises(ClientError, match="needs an outbox"):
            await client.send("t", b"x", 1, sequence=1)
        assert (client.last_sequence, client.pending) == (0, 0)
    async with sending(tmp_path) as client:
        with pytest.raises(ClientError, match="QoS 0"):
            client.send_nowait("t", b"x", 0, sequence=1)
    with pytest.raises(NotConnected):
        assert client.last_sequence


async def test_messages_sent_at_the_same_time_keep_their_order(tmp_path: Path) -> None:
    numbers = range(1, 51)
    async with Client(NOBODY, client_id="meter", outbox=tmp_path) as client:
        sends = (client.send("t", b"x", 1, sequence=number) for number in numbers)
        await asyncio.gather(*sends)
        assert client.last_sequence == 50


def test_the_same_for_scripts(tmp_path: Path) -> None:
    for number in (1, 2):
        with BlockingClient(NOBODY, client_id="meter", outbox=tmp_path) as client:
            assert client.last_sequence == number - 1
            client.send("t", b"x", sequence=number)
            assert client.last_sequence == number


def test_a_program_that_was_silent_for_long_is_not_forgotten() -> None:
    assert session_limits(Options(outbox="x")).producer_expiry_s == 0


async def test_each_commit_has_the_number_of_its_last_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = RocksStore.commit
    stored: list[tuple[int, int]] = []  # messages in the log, and the number stored last

    def commit(self: RocksStore, commit: Commit) -> None:
        write(self, commit)
        numbers = [0 if record is None else record.sequence for _, record in commit.producers]
        stored.append((self.log_extent().end, max(numbers, default=stored[-1][1] if stored else 0)))

    monkeypatch.setattr(RocksStore, "commit", commit)
    async with sending(tmp_path) as client:
        for first in range(1, 40, 4):
            group = range(first, first + 4)
            await asyncio.gather(*(client.send("t", b"x", 2, sequence=n) for n in group))
    assert stored[-1] == (40, 40)
    assert all(messages == number for messages, number in stored)
