"""Whatever is in a sample, a table is inferred that lands it.

Every message of the sample is matched by exactly one table, and is a row of it or one of the dead
letters that the declaration announces. Documents that are all objects have none.
"""

from __future__ import annotations

import json
from datetime import UTC
from typing import Any

import cbor2
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.budget import budget
from tests.unit.decoding.inference.inferring import Messages, inferred

TEXTS = st.text(max_size=8) | st.sampled_from(
    [
        "2026-01-20T12:00:00Z",
        "2026-03-29",
        "20.01.2026",
        "1.5",
        "-7",
        "007",
        "NA",
        "on",
        "nan",
        "1_0",
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(1_600_000_000_000, 1_800_000_000_000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
KEYS = st.sampled_from(["v", "ts", "temp_c", "a b", "V", "topic", "n.m"]) | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5)
LEVELS = st.sampled_from(["a", "b", "7", "8", "temp", "{x}", "line", ""]) | st.text(
    st.characters(exclude_characters="+#/\0$", exclude_categories=["Cs"]), max_size=3
)
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)


def landed_by_offset(messages: Messages) -> tuple[dict[int, int], dict[int, str]]:
    """How many rows each message has, and the dead letters; each in one table only."""
    rows: dict[int, int] = {}
    dead: dict[int, str] = {}
    tables = inferred(messages)
    filters = [one.tried.table.definition().topics for one in tables]
    for landed in tables:
        of_table = {row["offset"] for row in landed.rows} | set(landed.dead)
        assert not of_table & (set(rows) | set(dead)), filters
        for row in landed.rows:
            rows[row["offset"]] = rows.get(row["offset"], 0) + 1
        dead |= landed.dead
    return rows, dead


@given(st.lists(st.tuples(TOPICS, OBJECTS), min_size=1, max_size=20))
@settings(deadline=None, max_examples=budget(60))
@example([("a", {"v": 2**64}), ("a", {"v": 0.5})])
@example([("a", {"v": True}), ("a", {"v": 1.0})])
def test_objects_are_as_many_rows(sampled: list[tuple[str, dict[str, Any]]]) -> None:
    messages = [(topic, json.dumps(value).encode()) for topic, value in sampled]
    rows, dead = landed_by_offset(messages)
    assert not dead
    assert rows == dict.fromkeys(range(len(messages)), 1)


@given(st.lists(st.tuples(TOPICS, VALUES), min_size=1, max_size=20))
@settings(deadline=None, max_examples=budget(60))
def test_documents_are_rows_or_empty_or_a_few_announced(
    sampled: list[tuple[str, Any]],
) -> None:
    messages = [(topic, json.dumps(value).encode()) for topic, value in sampled]
    rows, dead = landed_by_offset(messages)
    assert set(rows) | set(dead) == set(range(len(messages)))
    broken = [reason for reason in dead.values() if not reason.startswith("empty")]
    assert len(broken) <= 0.05 * len(messages)


@pytest.mark.parametrize("dumps", [cbor2.dumps, msgspec.msgpack.encode])
@given(st.data())
@settings(deadline=None, max_examples=budget(60))
def test_binary_documents_are_as_many_rows(dumps: Any, data: st.DataObject) -> None:
    numbers: st.SearchStrategy[Any] = (
        st.integers(-(2**63), 2**63 - 1) | st.floats() | st.binary(max_size=5) | TEXTS
    )
    if dumps is cbor2.dumps:
        moments = st.datetimes(timezones=st.just(UTC)) | st.dates() | st.uuids()
        numbers = (
            numbers
            | moments
            | st.decimals(-(10**30), 10**30, places=3)
            | st.integers(-(2**900), 2**900)
        )
    one = st.dictionaries(KEYS, numbers | st.lists(numbers, max_size=2), min_size=1, max_size=4)
    objects = data.draw(st.lists(one, min_size=1, max_size=10))
    rows, dead = landed_by_offset([("a/b", dumps(value)) for value in objects])
    assert not dead
    assert rows == dict.fromkeys(range(len(objects)), 1)


@given(st.lists(st.tuples(TOPICS, st.binary(max_size=12) | TEXTS.map(str.encode)), max_size=20))
@settings(deadline=None, max_examples=budget(60))
def test_any_bytes_are_a_row_or_an_announced_dead_letter_or_empty(messages: Messages) -> None:
    rows, dead = landed_by_offset(messages)
    for offset, (_, payload) in enumerate(messages):
        assert offset in rows or offset in dead or not payload
