"""Rankings of sessions: the highest by each measure, in portions, and bounded."""

import asyncio
from typing import Any, cast

import pytest

from penstock.control.admin_requests import SessionFilter
from penstock.control.ranking_requests import Measure, RankSessions, ShowFlow
from penstock.engine.values.limits import EngineLimits
from penstock.errors import ConfigError, StoreError
from penstock.operators.ranking import MEASURES
from penstock.protocol import reasons
from penstock.protocol.packets import Publish, Subscribe, Subscription
from penstock.runtime.driver import Driver
from penstock.services import rankings
from penstock.services.rankings import WAITING_MAX, Rankings
from tests.unit.engine.bench import Bench
from tests.unit.services.test_administration import Loop, turns_of_others

SESSIONS = 1000


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rankings, "_PORTION_S", 0.0)
    monkeypatch.setattr(rankings, "_PAUSE_S", 0.0)


def rankings_of(bench: Bench) -> Rankings:
    return Rankings(bench.server, cast(Driver, Loop(bench)))


def with_queues() -> Bench:
    """Two clients that acknowledge nothing, of ``a/#`` and of all, and who published for them."""
    bench = Bench(EngineLimits(max_inflight=2, max_mqueue_len=3))
    short = bench.join("short", durable=True)
    short.send(Subscribe(1, [Subscription("a/#", 1)]))
    long = bench.join("long", durable=True)
    long.send(Subscribe(1, [Subscription("#", 1)]))
    publisher = bench.join("publisher")
    for number in range(1, 4):
        publisher.send(Publish("a/b", b"x", 1, packet_id=number))
    for number in range(4, 8):
        publisher.send(Publish("b", b"x", 1, packet_id=number))
    bench.commit()
    return bench


async def ranked(bench: Bench, measure: Measure, **asked: Any) -> list[Any]:
    found = await rankings_of(bench).rank(RankSessions(measure, **asked))
    return cast(list[Any], found["entries"])


async def test_the_highest_come_first_by_each_measure() -> None:
    bench = with_queues()
    found = await ranked(bench, "queue")
    assert [(one["client_id"], one["queue"]) for one in found[:2]] == [("long", 3), ("short", 1)]
    assert [one["client_id"] for one in await ranked(bench, "dropped", limit=1)] == ["long"]
    assert {one["window"] for one in (await ranked(bench, "window"))[:2]} == {2}
    (first, *_) = await ranked(bench, "limited")
    assert first["client_id"] in ("short", "long")
    assert first["limited_by"][0]["limit"] == "window"
    only = await ranked(bench, "queue", filter=SessionFilter(client="sh*"))
    assert [one["client_id"] for one in only] == ["short"]


async def test_of_equal_ones_the_older_sessions_come_first() -> None:
    bench = Bench()
    for number in range(10):
        bench.join(f"c{number}")
    for measure in MEASURES:
        found = await ranked(bench, measure, limit=3)
        assert [one["client_id"] for one in found] == ["c0", "c1", "c2"]


async def test_others_have_their_turn_while_all_are_ranked_and_the_ended_are_left_out() -> None:
    bench = Bench()
    for number in range(SESSIONS):
        bench.server.registry.open(f"c{number}", False, 3600).detach(bench.now)
    doing = rankings_of(bench).rank(RankSessions("queue", limit=5))
    found, turns = await turns_of_others(doing)
    assert found["selected"] == SESSIONS
    assert turns >= SESSIONS // rankings.VISITS


async def test_one_at_a_time_and_not_too_many_wait() -> None:
    bench = Bench()
    for number in range(SESSIONS):
        bench.server.registry.open(f"c{number}", False, 3600).detach(bench.now)
    served = rankings_of(bench)
    asked = [asyncio.create_task(served.rank(RankSessions())) for _ in range(WAITING_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(StoreError, match="others wait for a ranking"):
        await served.rank(RankSessions())
    assert await served.show_flow(ShowFlow("c7")) is not None  # waits for none of them
    assert all(not one.done() for one in asked)
    assert {found["selected"] for found in await asyncio.gather(*asked)} == {SESSIONS}


async def test_a_stop_waits_for_no_ranking() -> None:
    bench = Bench()
    for number in range(SESSIONS):
        bench.server.registry.open(f"c{number}", False, 3600).detach(bench.now)
    served = rankings_of(bench)
    asked = [asyncio.create_task(served.rank(RankSessions())) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in asked)
    bench.server.shut_down(reasons.SERVER_SHUTTING_DOWN, "stopping", bench.now)
    for one in asked:
        with pytest.raises(StoreError, match="stopping"):
            await one


async def test_an_impossible_request_is_one_sentence() -> None:
    served = rankings_of(Bench())
    for asked in (
        RankSessions(limit=0),
        RankSessions(limit=1001),
        RankSessions(filter=SessionFilter(address="a/b")),
    ):
        with pytest.raises(ConfigError):
            await served.rank(asked)
    assert await served.show_flow(ShowFlow("nobody")) is None


async def test_window_and_queue_of_one_client_are_told_place_by_place() -> None:
    bench = with_queues()
    flow = cast(dict[str, Any], await rankings_of(bench).show_flow(ShowFlow("long")))
    assert flow["places"] == "aa"
    assert flow["queue_by_priority"] == {"0": 3}
    assert flow["drops"] == {"queue_full": 2}
    assert {limit["limit"] for limit in flow["limits"]} == {"window", "queue"}
