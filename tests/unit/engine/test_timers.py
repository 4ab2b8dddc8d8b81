"""Timers: one for a target, the earliest that was asked for, in the order of their times."""

from typing import final

import pytest

from penstock.engine.batch.timers import Timers, TimerTarget
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import OUT_OF_DATE_MAX
from penstock.version import build_kind


def test_targets_are_woken_once_they_are_due() -> None:
    timers = Timers()
    targets = [TimerTarget() for _ in range(3)]
    for target, due_us in zip(targets, (30, 10, 10), strict=True):
        timers.wake_at(target, due_us)
    for now_us, left in ((9, [30, 10, 10]), (10, [30, 0, 0]), (1000, [0, 0, 0])):
        timers.wake_due(Now(0.0, now_us))
        assert [target.due_us for target in targets] == left


def test_the_steady_clock_decides() -> None:
    timers, target = Timers(), TimerTarget()
    timers.wake_at(target, 10)
    timers.wake_due(Now(0.0, 1000, lead_us=991))
    assert target.due_us == 10
    timers.wake_due(Now(0.0, 1000, lead_us=990))
    assert target.due_us == 0


def test_the_earliest_timer_of_a_target_counts_and_leaves_no_other_behind() -> None:
    timers, target = Timers(), TimerTarget()
    for due_us in (30, 10, 20):
        timers.wake_at(target, due_us)
    assert target.due_us == 10
    timers.wake_due(Now(0.0, 10))
    assert target.due_us == 0
    timers.wake_at(target, 40)
    timers.wake_due(Now(0.0, 30))
    assert target.due_us == 40


def test_timers_that_were_set_earlier_again_and_again_take_no_room() -> None:
    timers, target = Timers(), TimerTarget()
    for due_us in range(10_000, 0, -1):
        timers.wake_at(target, due_us)
        assert len(timers._heap) <= 2 + OUT_OF_DATE_MAX
    timers.wake_due(Now(0.0, 1))
    assert target.due_us == 0


@pytest.mark.skipif(build_kind() == "compiled", reason="compiled ports have no other bodies")
def test_targets_are_woken_in_order_and_may_ask_for_their_next_timer_meanwhile() -> None:
    @final
    class Target(TimerTarget):
        """Notes its name when it is woken, and asks again while it has times left."""

        def __init__(self, name: str, *again: int) -> None:
            self._name = name
            self._again = list(again)

        def wake(self, now: Now) -> None:
            del now
            assert self.due_us == 0
            woken.append(self._name)
            if self._again:
                timers.wake_at(self, self._again.pop(0))

    timers, woken = Timers(), list[str]()
    for target, due_us in ((Target("c"), 30), (Target("a", 5, 50), 10), (Target("b"), 10)):
        timers.wake_at(target, due_us)
    timers.wake_due(Now(0.0, 10))
    assert woken == ["a", "a", "b"]  # a timer that is due already is not left for later
    timers.wake_due(Now(0.0, 50))
    assert woken == ["a", "a", "b", "c", "a"]
