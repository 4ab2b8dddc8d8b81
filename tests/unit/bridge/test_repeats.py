"""A message that goes round is told once a window; a sensor that repeats its value is not."""

from penstock.bridge.repeats import REPEATS, WINDOW_S, RepeatDetector


def test_the_hundredth_equal_message_of_a_window_is_told_once() -> None:
    repeats = RepeatDetector()
    told = [repeats.note("a", b"1", 5.0) for _ in range(3 * REPEATS)]
    assert [place for place, one in enumerate(told) if one] == [REPEATS - 1]
    assert [repeats.note("a", b"1", 5.0 + WINDOW_S) for _ in range(REPEATS)].count(True) == 1


def test_a_value_that_comes_each_second_is_not_told() -> None:
    repeats = RepeatDetector()
    assert not any(repeats.note("a", b"21.5", float(second)) for second in range(10 * REPEATS))


def test_other_topics_and_payloads_are_other_messages() -> None:
    repeats = RepeatDetector()
    assert not any(repeats.note("a", b"%d" % number, 0.0) for number in range(REPEATS + 1))
    assert not any(repeats.note(f"a/{number}", b"1", 0.0) for number in range(REPEATS + 1))


def test_the_memory_is_bounded_and_the_first_messages_are_still_counted() -> None:
    repeats = RepeatDetector()
    repeats.note("ring", b"x", 0.0)
    for number in range(100_000):
        repeats.note("flood", b"%d" % number, 0.0)
    assert len(repeats._counts) <= 1000
    assert [repeats.note("ring", b"x", 0.0) for _ in range(REPEATS)].index(True) == REPEATS - 2
