"""Heartbeats: what is known of the others, and what may be trimmed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.beats import (
    FORGET_S,
    FRESH_S,
    MEMBERS_MAX,
    Beat,
    Members,
    RoleName,
    decode_beat,
    encode_beat,
    trim_before,
)

sequences = st.integers(0, 1000)


def beat(node: str, **known: object) -> Beat:
    fields: dict[str, object] = {"role": "standby", "term": 1, "applied": 10, "synced": 9}
    return msgspec.convert({"node": node, **fields, **known}, Beat)


def test_a_heartbeat_is_read_as_it_was_written() -> None:
    sent = beat("a", role="primary", address="h:1", note="a problem", sent_s=12.5)
    assert decode_beat(encode_beat(sent)) == sent


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"\xff",
        b'{"node":1}',
        b'{"node":"a","role":"?"}',
        b'{"node":"\xff","role":"standby","term":1,"applied":1,"synced":1}',
        b'{"node":"a","role":"standby","term":-1,"applied":1,"synced":1}',
        b'{"node":"a","role":"standby","term":1,"applied":1' + b"0" * 30 + b',"synced":1}',
        b'{"later":' + b"[" * 100_000,
    ],
)
def test_bytes_that_are_no_heartbeat_are_ignored(data: bytes) -> None:
    assert decode_beat(data) is None


def test_a_heartbeat_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    data = encode_beat(beat("a"))
    assert decode_beat(data[:-1] + b',"later":true}') == beat("a")


def test_own_heartbeats_are_ignored() -> None:
    members = Members("a", 0.0)
    assert not members.record(beat("a"), 1.0)
    assert members.record(beat("b"), 1.0)
    assert list(members.recent_beats(1.0)) == ["b"]


def test_an_older_heartbeat_that_comes_later_moves_nobody_back() -> None:
    members = Members("a", 0.0)
    members.record(beat("b", term=2, applied=20), 1.0)
    members.record(beat("b", term=1, applied=30, note="late"), 2.0)
    known = members.recent_beats(2.0)["b"]
    assert (known.beat.term, known.beat.applied, known.beat.note) == (2, 20, "late")
    assert known.at_s == 2.0


def test_the_primary_is_that_of_the_newest_term() -> None:
    members = Members("a", 0.0)
    assert members.primary(0.0, 10) is None
    members.record(beat("b", role="primary", term=2), 1.0)
    members.record(beat("c", role="primary", term=3), 1.0)
    members.record(beat("d", role="standby", term=4), 1.0)
    found = members.primary(2.0, 10)
    assert found is not None
    assert found.node == "c"
    assert members.primary(20.0, 10) is None


def test_members_are_limited_and_forgotten() -> None:
    members = Members("a", 0.0)
    for number in range(MEMBERS_MAX + 5):
        members.record(beat(f"n{number}"), 1.0)
    assert len(members.recent_beats(1.0)) == MEMBERS_MAX
    assert not members.record(beat("late"), 2.0)
    members.forget_silent(1.0 + FORGET_S)
    assert not members.record(beat("late"), 2.0 + FORGET_S)
    members.forget_silent(2.0 + FORGET_S)
    assert members.record(beat("late"), 3.0 + FORGET_S)


def test_there_may_be_a_member_that_was_not_heard_yet() -> None:
    members = Members("a", 100.0)
    members.record(beat("b", synced=7), 101.0)
    assert members.synced_sequences(5, 102.0) == ([5, 7, 0], [5, 7])
    members.record(beat("b", synced=8), 99.0 + FORGET_S)
    assert members.synced_sequences(5, 99.0 + FORGET_S)[0] == [5, 8, 0]
    assert members.synced_sequences(5, 100.0 + FORGET_S)[0] == [5, 8]


def test_a_silent_member_is_known_and_not_fresh() -> None:
    members = Members("a", 0.0)
    members.record(beat("b", synced=7), FORGET_S)
    assert members.synced_sequences(5, FORGET_S + FRESH_S + 1) == ([5, 7], [5])


# -- what may be trimmed ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("synced", "fresh", "before"),
    [
        ([], [], 1),
        ([50], [50], 1),  # a second view does not exist
        ([50, 40], [50, 40], 41),
        ([50, 40, 10], [50, 40, 10], 11),  # the third one needs the rest
        ([50, 40, 0], [50, 40], 1),  # it may need all
        ([100, 100], [100, 100], 101),
    ],
)
def test_entries_that_all_have_synced_may_go(
    synced: list[int], fresh: list[int], before: int
) -> None:
    assert trim_before(synced, fresh, 1, 100, 1000) == before


@pytest.mark.parametrize(
    ("synced", "fresh", "before"),
    [
        ([990, 980, 10], [990, 980, 10], 901),
        ([990, 850, 10], [990, 850, 10], 851),  # two views must have it
        ([990, 980, 10], [990, 10], 11),  # the second is silent: it may be lost
        ([990, 980, 0], [990], 1),
    ],
)
def test_for_one_far_behind_the_log_keeps_so_many(
    synced: list[int], fresh: list[int], before: int
) -> None:
    assert trim_before(synced, fresh, 1, 1000, 100) == before


@given(
    st.lists(sequences, max_size=5),
    st.data(),
    sequences,
    sequences,
    st.integers(1, 100),
)
def test_a_trim_leaves_what_two_views_lack(
    synced: list[int], data: st.DataObject, first: int, length: int, entries_max: int
) -> None:
    fresh = data.draw(st.lists(st.sampled_from(synced), unique=True)) if synced else []
    last = first + length
    before = trim_before(synced, fresh, first, last, entries_max)
    assert first <= before <= max(first, last + 1)
    if before > first:
        assert sum(one >= before - 1 for one in synced) >= 2
        for one in synced:
            assert one >= before - 1 or last - before + 1 >= entries_max


@pytest.mark.parametrize(("role", "before"), [("standby", 101), ("waiting", 1), ("fenced", 1)])
def test_a_view_that_was_not_compared_with_the_log_has_nothing_of_it(
    role: RoleName, before: int
) -> None:
    """It may be of a log that is lost, and far ahead of this one: nothing is trimmed for it."""
    members = Members("a", 0.0, forget_s=60.0)
    members.record(beat("b", role=role, applied=5000, synced=5000), 100.0)
    synced, fresh = members.synced_sequences(100, 100.0)
    assert trim_before(synced, fresh, first=1, last=120, entries_max=1000) == before
