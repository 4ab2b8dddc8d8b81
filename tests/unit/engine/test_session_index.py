"""Sessions by number: a walk may begin anywhere, whatever came and went meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.session.session import Session
from penstock.engine.session.session_index import CHUNK_MAX, SessionIndex
from penstock.engine.values.limits import EngineLimits


def session(number: int) -> Session:
    return Session(f"c{number}", number, 0, EngineContext(0), EngineLimits(), Drops())


@given(st.integers(0, 3 * CHUNK_MAX), st.data())
def test_the_sessions_that_are_left_are_found_in_order(count: int, data: st.DataObject) -> None:
    order = SessionIndex()
    made = [SESSIONS[number] for number in range(count)]
    for one in made:
        order.add(one)
    gone = data.draw(st.sets(st.sampled_from(range(count)))) if count else set()
    if data.draw(st.booleans()):
        gone = set(range(count)) - gone
    for number in gone:
        order.remove(made[number])
    left = [one.number for one in made if one.number - 1 not in gone]
    seen: list[int] = []
    cursor = 0
    while found := order.sessions_after(cursor, 100):
        seen += [one.number for one in found]
        cursor = seen[-1]
    assert seen == left
    begin = data.draw(st.integers(0, count + 1))
    assert [one.number for one in order.sessions_after(begin, 5)] == [n for n in left if n > begin][
        :5
    ]


def test_a_walk_goes_on_where_its_last_session_was() -> None:
    order = SessionIndex()
    for one in SESSIONS[:10]:
        order.add(one)
    cursor = order.sessions_after(0, 4)[-1].number
    for one in SESSIONS[2:6]:
        order.remove(one)
    assert [one.number for one in order.sessions_after(cursor, 2)] == [7, 8]


@pytest.mark.parametrize("step", [1, -1])
def test_few_survivors_take_few_chunks(step: int) -> None:
    order = SessionIndex()
    for one in SESSIONS:
        order.add(one)
    for one in SESSIONS[::step]:
        if one.number % CHUNK_MAX:
            order.remove(one)
    assert len(order._chunks) == 1


SESSIONS = [session(number + 1) for number in range(3 * CHUNK_MAX)]
