"""Publishers that wait for room go on in the order in which they came."""

from __future__ import annotations

import asyncio

from penstock.client.publisher_line import PublisherLine


async def test_nobody_passes_the_next_in_line_while_it_is_being_woken() -> None:
    places = [0]
    line = PublisherLine(lambda: places[0] > 0)
    went: list[str] = []

    async def publisher(name: str) -> None:
        if not line.is_free:
            await line.wait()
        places[0] -= 1
        went.append(name)

    first = asyncio.create_task(publisher("first"))
    second = asyncio.create_task(publisher("second"))
    await asyncio.sleep(0)  # both stand in line
    places[0] = 3
    line.notify()
    await asyncio.sleep(0)  # the first is about to go on: then the line is nobody's for a moment
    third = asyncio.create_task(publisher("third"))
    await asyncio.gather(first, second, third)
    assert went == ["first", "second", "third"]


async def test_a_publisher_that_gives_up_waiting_leaves_the_line() -> None:
    places = [0]
    line = PublisherLine(lambda: places[0] > 0)
    waiting = asyncio.create_task(line.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert not line.is_free
    places[0] = 1
    assert line.is_free
