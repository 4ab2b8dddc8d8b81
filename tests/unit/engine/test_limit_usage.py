"""The use of one limit by one client: how often it was reached, and for how long."""

from penstock.engine.values.limit_usage import NOT_AT_LIMIT, WINDOW, LimitUsage


def test_the_times_at_a_limit_are_added_up() -> None:
    usage = LimitUsage("c", WINDOW)
    assert usage.mark_reached(10.0)
    assert usage.lasts_s(12.0) == usage.total_s(12.0) == 2.0
    usage.mark_left(13.0)
    assert (usage.lasts_s(20.0), usage.total_s(20.0), usage.since_s) == (0.0, 3.0, NOT_AT_LIMIT)
    assert usage.mark_reached(20.0)
    assert (usage.lasts_s(24.0), usage.total_s(24.0), usage.times) == (4.0, 7.0, 2)


def test_a_limit_that_is_reached_already_is_not_reached_again() -> None:
    usage = LimitUsage("c", WINDOW)
    assert usage.mark_reached(0.0)  # the clock's zero is arbitrary, and a time like any other
    assert not usage.mark_reached(5.0)
    assert (usage.times, usage.lasts_s(6.0)) == (1, 6.0)


def test_a_limit_that_is_left_already_is_not_left_again() -> None:
    usage = LimitUsage("c", WINDOW)
    usage.mark_left(1.0)
    usage.mark_reached(2.0)
    usage.mark_left(3.0)
    usage.mark_left(9.0)
    assert usage.total_s(9.0) == 1.0
