"""A reading of the clocks."""

from penstock.engine.values.clock import Now


def test_steady_time_is_what_the_wall_clock_shows_without_its_lead() -> None:
    """So a wall clock that was set an hour ahead, and says so, moves no timer."""
    hour_us = 3_600_000_000
    before, after = Now(7.0, 10_000_000, 0), Now(7.0, 10_000_000 + hour_us, hour_us)
    assert before.steady_us == after.steady_us == 10_000_000
    assert repr(after) == f"Now(7.0, {10_000_000 + hour_us}, {hour_us})"
