"""The rhythm of a replay."""

from __future__ import annotations

import pytest

from penstock.cli.replaying import Pace


def test_messages_leave_as_they_came_or_faster() -> None:
    pace = Pace(10.0)
    assert pace.wait_s(5_000_000, 100.0) == 0.0
    assert pace.wait_s(15_000_000, 100.25) == pytest.approx(0.75)
    assert pace.wait_s(15_000_000, 103.0) == 0.0  # late: no pause, and the rest is in time again
    assert pace.wait_s(55_000_000, 103.0) == pytest.approx(2.0)
    assert pace.wait_s(4_000_000, 103.0) == 0.0  # the broker's clock was set back
    assert pace.duration_s(0, 60_000_000) == 6.0


def test_as_fast_as_possible_has_no_pauses() -> None:
    pace = Pace(None)
    assert [pace.wait_s(at_us, 0.0) for at_us in (0, 10**12)] == [0.0, 0.0]
    assert pace.duration_s(0, 10**12) == 0.0
