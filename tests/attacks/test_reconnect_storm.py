"""All users come back at once, while wrong passwords come at 200 a second: all are let in.

What was right is remembered, so that it costs no checks; wrong ones, from other addresses, wait
their turn, are refused, and in the end banned.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from argon2 import PasswordHasher

from penstock.auth.files import write_passwords
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V311
from penstock.protocol.packets import Connect
from penstock.protocol.reasons import V3_BAD_USER_NAME_OR_PASSWORD
from tests.attacks.attack import SECONDS, TIMEOUT_S
from tests.support.broker import Address, Broker
from tests.support.fixtures import running_broker

USERS: Final = 10_000 if SECONDS >= 30 else 200
DIALLED_AT_ONCE: Final = 200
GUESSES_PER_S: Final = 200
ANSWER_S: Final = 60.0
CHEAP: Final = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)


async def log_in(
    address: Address, source: str, name: str, password: str
) -> tuple[int, asyncio.StreamWriter | None]:
    """Return the return code, -1 for none, and the connection while it is open."""
    connect = Connect(f"c-{name}", V311, True, 0, None, name, password.encode())
    assert isinstance(address, tuple)
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(ANSWER_S):
            opened = await asyncio.open_connection(*address, local_addr=(source, 0))
            reader, writer = opened
            writer.write(encode(connect, V311))
            return (await reader.readexactly(4))[3], writer
    except (OSError, asyncio.IncompleteReadError):  # a TimeoutError is an OSError
        let_go(writer)
        return -1, None
    except asyncio.CancelledError:
        let_go(writer)
        raise


def let_go(writer: asyncio.StreamWriter | None) -> None:
    """Close a connection at once."""
    if writer is not None:
        writer.transport.abort()


async def all_log_in(address: Address) -> list[tuple[int, asyncio.StreamWriter | None]]:
    """Let every user log in, from some fifty addresses."""
    room = asyncio.Semaphore(DIALLED_AT_ONCE)

    async def one(number: int) -> tuple[int, asyncio.StreamWriter | None]:
        source = f"127.1.{number // 200}.{number % 200 + 1}"
        async with room:
            return await log_in(address, source, f"user{number}", f"right{number}")

    return list(await asyncio.gather(*(one(number) for number in range(USERS))))


async def storm(broker: Broker) -> tuple[int, float, Counter[int]]:
    """Return how many are in after the storm, what it took, and what guesses were answered."""
    first = await all_log_in(broker.address)
    assert Counter(code for code, _ in first) == {0: USERS}
    for _, writer in first:
        let_go(writer)
    answers: Counter[int] = Counter()
    under_way = asyncio.Event()

    async def guess(number: int) -> None:
        source = f"127.9.0.{number % 3 + 1}"
        code, writer = await log_in(broker.address, source, f"guess{number}", "wrong")
        answers[code] += 1
        let_go(writer)
        under_way.set()

    async def attack() -> None:
        async with asyncio.TaskGroup() as guesses:
            number = 0
            while True:
                guesses.create_task(guess(number))
                number += 1
                await asyncio.sleep(1 / GUESSES_PER_S)

    attacking = asyncio.create_task(attack())
    await under_way.wait()
    begins_s = time.monotonic()
    again = await all_log_in(broker.address)
    took_s = time.monotonic() - begins_s
    attacking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await attacking
    for _, writer in again:
        let_go(writer)
    await asyncio.sleep(0)  # they are closed in the next turn
    codes = Counter(code for code, _ in again)
    assert codes == {0: USERS}
    return codes[0], took_s, answers


@pytest.mark.timeout(TIMEOUT_S)
def test_all_users_come_back_while_others_guess(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    lines = {f"user{number}": CHEAP.hash(f"right{number}") for number in range(USERS)}
    lines["slow"] = PasswordHasher().hash("what a guess costs")
    write_passwords(tmp_path / "passwords", lines)
    settings = {
        "access.password_file": tmp_path / "passwords",
        "access.ban_exempt": "[]",
        "listener.max_connections": 10 * USERS,  # those that are closing, and guesses, count, too
    }
    try:
        with running_broker(tmp_path, settings) as broker:
            let_in, took_s, answers = asyncio.run(storm(broker))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(f"{let_in} of {USERS} users were in after {took_s:.1f} s; guesses: {dict(answers)}")
    assert let_in == USERS
    assert answers[0] == 0
    assert answers[V3_BAD_USER_NAME_OR_PASSWORD] <= 3 * 30, "three addresses, banned after 30"
