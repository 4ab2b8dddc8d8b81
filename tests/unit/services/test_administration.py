"""An operator's requests, done in portions: others have their turn in between."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar, final

import pytest

from penstock.control.admin_requests import (
    ClearRetained,
    Kick,
    ListRetained,
    ListSessions,
    RemoveSessions,
    SessionFilter,
)
from penstock.engine.values.clock import Now
from penstock.engine.values.message import Message
from penstock.errors import ConfigError, StoreError
from penstock.services import administration, portions
from penstock.services.administration import WALKS_MAX, Administration
from tests.unit.engine.bench import Bench

SESSIONS = 1000
Done = TypeVar("Done")


@final
class Loop:
    """A driver that has nothing to do but to say what time it is, and to be asked to end turns."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def now(self) -> Now:
        return self._bench.now

    def end_turn_soon(self) -> None:
        pass

    async def wait_durable(self) -> None:
        self._bench.commit()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(portions, "PORTION_S", 0.0)
    made = Bench()
    for number in range(SESSIONS):
        made.server.registry.open(f"c{number}", False, 3600).detach(made.now)
        message = Message(f"r/{number}", b"x", 0, True, "c", made.now.wall_us)
        made.server.router.publish(message, None, made.now)
    made.commit()
    return made


@pytest.fixture
def operator(bench: Bench) -> Administration:
    return Administration(bench.server, Loop(bench))  # type: ignore[arg-type]


async def turns_of_others(doing: Awaitable[Done]) -> tuple[Done, int]:
    """What is done, and how often others had their turn meanwhile."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    done = await doing
    task.cancel()
    return done, turns


async def test_others_have_their_turn_while_all_are_looked_at(operator: Administration) -> None:
    at_least = SESSIONS // administration.VISITS
    page, turns = await turns_of_others(
        operator.list_sessions(ListSessions(SessionFilter(client="no")))
    )
    assert (page.entries, page.cursor) == ([], "")
    assert turns >= at_least
    _, turns = await turns_of_others(operator.list_retained(ListRetained("r/+/no")))
    assert turns >= at_least
    counted, turns = await turns_of_others(
        operator.remove(RemoveSessions(SessionFilter(), only_count=True))
    )
    assert counted.count == SESSIONS
    assert turns >= SESSIONS
    removed, turns = await turns_of_others(operator.remove(RemoveSessions(SessionFilter())))
    assert removed.count == SESSIONS
    assert turns >= SESSIONS
    cleared, turns = await turns_of_others(operator.clear(ClearRetained("#")))
    assert cleared.count == SESSIONS
    assert turns >= at_least


async def test_pages_together_are_the_list(bench: Bench, operator: Administration) -> None:
    seen: list[object] = []
    cursor = ""
    while True:
        page = await operator.list_sessions(ListSessions(cursor=cursor, limit=300))
        seen += [entry.client_id for entry in page.entries]
        cursor = page.cursor
        if not cursor:
            break
        bench.server.registry.end(bench.server.registry.sessions[str(seen[-1])], bench.now)
    assert seen == [f"c{number}" for number in range(SESSIONS)]
    topics: list[object] = []
    while True:
        retained = await operator.list_retained(ListRetained("r/#", 0.0, cursor, 300))
        topics += [entry["topic"] for entry in retained.entries]
        cursor = retained.cursor
        if not cursor:
            break
        bench.server.router.retained.remove(str(topics[-1]))
    assert topics == [f"r/{number}" for number in range(SESSIONS)]


async def test_lists_that_nobody_goes_on_with_are_forgotten(
    operator: Administration, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ListRetained("#", 0.0, "", 1)
    cursors = [(await operator.list_retained(asked)).cursor for _ in range(WALKS_MAX + 1)]
    with pytest.raises(ConfigError, match="begin it anew"):
        await operator.list_retained(ListRetained("#", 0.0, cursors[0], 1))
    await operator.list_retained(ListRetained("#", 0.0, cursors[-1], 1))
    late_s = time.monotonic() + administration.WALK_S_MAX + 1.0
    monkeypatch.setattr(time, "monotonic", lambda: late_s)
    with pytest.raises(ConfigError, match="begin it anew"):
        await operator.list_retained(ListRetained("#", 0.0, cursors[-2], 1))


@pytest.mark.parametrize(
    "asked",
    [
        ListSessions(limit=0),
        ListSessions(limit=1001),
        ListSessions(cursor="x"),
        ListSessions(SessionFilter(address="a/b")),
    ],
)
async def test_an_impossible_request_is_one_sentence(
    operator: Administration, asked: ListSessions
) -> None:
    with pytest.raises(ConfigError):
        await operator.list_sessions(asked)
    with pytest.raises(ConfigError, match="is no topic filter"):
        await operator.clear(ClearRetained("a/#/b"))


async def test_a_connected_client_is_removed_only_where_that_is_meant(
    bench: Bench, operator: Administration
) -> None:
    line = bench.join("here", durable=True)
    assert (await operator.remove(RemoveSessions(SessionFilter()))).count == SESSIONS
    assert not line.connection.link.is_closed
    assert (await operator.remove(RemoveSessions(SessionFilter(connected=True)))).count == 1
    assert line.connection.link.is_closed


async def test_an_answered_change_is_on_disk(bench: Bench, operator: Administration) -> None:
    await operator.remove(RemoveSessions(SessionFilter()))
    assert bench.store.recover().sessions == []
    await operator.clear(ClearRetained("#"))
    assert bench.store.recover().retained == []


async def test_a_client_that_is_away_is_not_kicked(operator: Administration) -> None:
    assert (await operator.kick(Kick(SessionFilter()))).count == 0


async def test_nothing_is_done_while_it_could_not_be_stored(
    bench: Bench, operator: Administration
) -> None:
    """Done means on disk: an operator would wait for as long as the disk is full."""
    bench.server.context.store_health.mark_failed("the store cannot write: No space left on device")
    for act in (
        operator.remove(RemoveSessions(SessionFilter())),
        operator.clear(ClearRetained("#")),
    ):
        with pytest.raises(StoreError, match="nothing was done: the store cannot write: No space"):
            await act
    assert (await operator.remove(RemoveSessions(SessionFilter(), True))).count == SESSIONS
    bench.server.context.store_recovered()
    assert (await operator.remove(RemoveSessions(SessionFilter()))).count == SESSIONS
