"""When a bridge dials again."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from penstock.transport.backoff import STABLE_S, Backoff


def backoff(first_s: float = 1.0, longest_s: float = 120.0, seed: int = 1) -> Backoff:
    return Backoff(first_s, longest_s, Random(seed))


@given(st.integers(0, 1000))
def test_pauses_double_up_to_the_longest_give_or_take_a_quarter(seed: int) -> None:
    pauses = backoff(seed=seed)
    for expected_s in (1, 2, 4, 8, 16, 32, 64, 120, 120):
        assert 0.75 * expected_s <= pauses.after_failure() <= 1.25 * expected_s


def test_pauses_differ() -> None:
    assert len({round(backoff(seed=seed).after_failure(), 6) for seed in range(50)}) > 40


def test_a_connection_that_stood_begins_anew_and_a_short_one_does_not() -> None:
    pauses = backoff()
    for _ in range(5):
        pauses.after_failure()
    pauses.note_duration(STABLE_S - 0.1)
    assert pauses.after_failure() > 20
    pauses.note_duration(STABLE_S)
    assert pauses.after_failure() < 2


def test_a_bridge_that_is_refused_waits_the_longest_at_once() -> None:
    pauses = backoff()
    assert pauses.jump_to_longest() >= 90
    assert pauses.after_failure() >= 90


def test_the_first_pause_is_no_longer_than_the_longest() -> None:
    assert backoff(10, 1).after_failure() <= 1.25
