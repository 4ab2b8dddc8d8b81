"""Sequences as they arrive: what is missing, what came twice, what came late."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.tracker import GAPS_MAX, SequenceTracker


@given(st.lists(st.integers(0, 40), max_size=80), st.integers(0, 60))
def test_the_tracker_counts_as_a_set_of_all_sequences_would(sequences: list[int], end: int) -> None:
    tracker = SequenceTracker()
    seen: set[int] = set()
    late = 0
    for sequence in sequences:
        is_new = sequence not in seen
        late += is_new and bool(seen) and sequence < max(seen)
        seen.add(sequence)
        assert tracker.receive(sequence) is is_new
    assert tracker.received == len(seen)
    assert tracker.duplicated == len(sequences) - len(seen)
    assert tracker.out_of_order == late
    assert tracker.next_sequence == (max(seen) + 1 if seen else 0)
    assert tracker.missing(end) == len(set(range(end)) - seen)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 2, 1, 3], [3, 2, 1, 0]])
def test_a_complete_sequence_misses_nothing(order: list[int]) -> None:
    tracker = SequenceTracker()
    assert all(tracker.receive(sequence) for sequence in order)
    assert tracker.missing(4) == 0
    assert tracker.missing(6) == 2


def test_gaps_are_bounded_and_those_forgotten_stay_lost() -> None:
    tracker = SequenceTracker()
    for sequence in range(1, 2 * (GAPS_MAX + 2), 2):  # every other one: two gaps too many
        tracker.receive(sequence)
    assert tracker.missing(tracker.next_sequence) == GAPS_MAX + 2
    assert not tracker.receive(0), "its gap is forgotten"
    assert tracker.receive(tracker.next_sequence - 2), "that one is not"
    assert tracker.missing(tracker.next_sequence) == GAPS_MAX + 1
