"""The survey of clients: exact while nobody moves, in portions, within its share of the loop."""

import asyncio
import time
from typing import cast, final

import pytest

from penstock.engine.values.limit_usage import WINDOW
from penstock.engine.values.limits import EngineLimits
from penstock.protocol.kinds import V311
from penstock.protocol.packets import Publish, Subscribe, Subscription
from penstock.runtime.driver import Driver
from penstock.services import client_survey
from penstock.services.client_survey import SHARE, ClientSurvey
from tests.unit.engine.bench import Bench

SESSIONS = 1000


@final
class Loop:
    """A driver that is asked to end turns, and counts how often."""

    def __init__(self) -> None:
        self.turns = 0

    def end_turn_soon(self) -> None:
        self.turns += 1


def survey_of(bench: Bench) -> tuple[ClientSurvey, Loop]:
    loop = Loop()
    return ClientSurvey(bench.server, cast(Driver, loop)), loop


async def test_windows_queues_versions_and_limits_are_counted() -> None:
    bench = Bench(EngineLimits(max_inflight=10))
    slow = bench.join("slow", version=V311)
    slow.send(Subscribe(1, [Subscription("t", 1)]))
    bench.join("idle")
    publisher = bench.join("p")
    publisher.send(*(Publish("t", b"x", 1, packet_id=number) for number in range(1, 16)))
    bench.commit()
    survey, _ = survey_of(bench)
    found = await survey.refresh()
    assert found is not None
    assert sum(found.window.counts) == 3
    assert found.window.total == 10
    assert (sum(found.queue.counts), found.queue.total) == (3, 5)
    assert found.by_version == {V311: 1, 5: 2}
    assert found.at_limit[WINDOW] == 1


async def test_many_are_looked_at_in_portions_and_those_away_have_no_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_survey, "_PORTION_S", 0.0)
    monkeypatch.setattr(client_survey, "_PAUSE_S", 0.0)
    bench = Bench()
    for number in range(SESSIONS):
        bench.server.registry.open(f"c{number}", False, 3600).detach(bench.now)
    survey, loop = survey_of(bench)
    found = await survey.refresh()
    assert found is not None
    assert (sum(found.queue.counts), sum(found.window.counts)) == (SESSIONS, 0)
    assert loop.turns >= SESSIONS // client_survey.VISITS


async def test_a_caller_that_asks_too_soon_gets_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    survey, _ = survey_of(bench)
    now_s = time.monotonic()
    clock = [now_s]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    async def walk_that_takes_a_second(*_: object) -> float:
        return 1.0

    monkeypatch.setattr(client_survey, "run_in_portions", walk_that_takes_a_second)
    first = await survey.refresh()
    clock[0] = now_s + 0.9 / SHARE
    assert await survey.refresh() is first
    clock[0] = now_s + 1.1 / SHARE
    assert await survey.refresh() is not first


async def test_a_walk_that_takes_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_survey, "WAIT_S_MAX", 0.01)
    goes_on = asyncio.Event()

    async def walk(*_: object) -> float:
        await goes_on.wait()
        return 0.0

    monkeypatch.setattr(client_survey, "run_in_portions", walk)
    survey, _ = survey_of(Bench())
    assert await survey.refresh() is None
    goes_on.set()
    assert await survey.refresh() is not None
