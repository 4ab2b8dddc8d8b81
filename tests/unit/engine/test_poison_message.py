"""Which message is set aside, because connections end at it."""

from __future__ import annotations

from penstock.engine.session.poison_message import PoisonMessageDetector
from penstock.engine.values.message import Delivery, Message


def delivery(offset: int) -> Delivery:
    """One that is in flight."""
    return Delivery(Message("a", b"", 1, False, "c", 0), offset, 1)


def test_the_third_connection_in_a_row_that_ends_at_a_message_sets_it_aside() -> None:
    poison_detector = PoisonMessageDetector(3)
    suspect = delivery(1)
    assert [poison_detector.note_end(suspect) for _ in range(3)] == [False, False, True]
    assert [poison_detector.note_end(suspect) for _ in range(2)] == [False, False]


def test_another_message_begins_anew() -> None:
    poison_detector = PoisonMessageDetector(2)
    first, second = delivery(1), delivery(2)
    assert not poison_detector.note_end(first)
    assert not poison_detector.note_end(second)
    assert not poison_detector.note_end(first)
    assert poison_detector.note_end(first)


def test_a_connection_on_which_nothing_was_sent_says_nothing() -> None:
    poison_detector = PoisonMessageDetector(2)
    suspect = delivery(1)
    assert not poison_detector.note_end(suspect)
    assert not poison_detector.note_end(None)
    assert poison_detector.note_end(suspect)


def test_the_last_trial_is_of_the_message_alone_until_something_is_acknowledged() -> None:
    poison_detector = PoisonMessageDetector(3)
    suspect = delivery(1)
    assert poison_detector.begin_connection(32) == 32
    poison_detector.note_end(suspect)
    assert poison_detector.begin_connection(32) == 32
    poison_detector.note_end(suspect)
    assert poison_detector.begin_connection(32) == 1
    assert poison_detector.widen(1) == 32
    assert poison_detector.widen(32) == 32


def test_one_end_may_be_enough() -> None:
    poison_detector = PoisonMessageDetector(1)
    assert poison_detector.begin_connection(32) == 32
    assert poison_detector.note_end(delivery(1))
