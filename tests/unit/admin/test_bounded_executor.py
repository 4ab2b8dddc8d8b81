"""A bounded executor has so many turns, and so many places for those that wait."""

import asyncio
import threading

import pytest

from penstock.admin.bounded_executor import BoundedExecutor
from penstock.errors import StoreError


async def test_so_many_wait_and_the_next_is_refused_at_once() -> None:
    executor = BoundedExecutor("lists", 1, 2)
    go_on = threading.Event()
    waiting = [asyncio.create_task(executor.run(go_on.wait)) for _ in range(3)]
    await asyncio.sleep(0)  # each has begun
    with pytest.raises(StoreError, match="too many lists are waiting; try again"):
        await executor.run(go_on.wait)
    go_on.set()
    assert await asyncio.gather(*waiting) == [True, True, True]
    assert await executor.run(go_on.wait), "there is room again"


async def test_a_caller_that_gives_up_makes_room() -> None:
    executor = BoundedExecutor("lists", 1, 1)
    go_on = threading.Event()
    first, second = (asyncio.create_task(executor.run(go_on.wait)) for _ in range(2))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    third = asyncio.create_task(executor.run(go_on.wait))
    await asyncio.sleep(0)
    go_on.set()
    assert all(await asyncio.gather(first, third))
