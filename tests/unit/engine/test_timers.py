"""Timers: one for a target, the earliest that was asked for, in the order of their times."""

from typing import final

from penstock.engine.batch.timers import Timers, TimerTarget
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import OUT_OF_DATE_MAX


@final
class Target(TimerTarget):
    """Notes its name when it is woken, and asks again while it has times left."""

    def __init__(self, name: str, woken: list[str], timers: Timers, *again: int) -> None:
        self._name = name
        self._woken = woken
        self._timers = timers
        self._again = list(again)

    def wake(self, now: Now) -> None:
        del now
        assert self.due_us == 0
        self._woken.append(self._name)
        if self._again:
            self._timers.wake_at(self, self._again.pop(0))


def test_targets_are_woken_in_order_once_they_are_due() -> None:
    timers, woken = Timers(), list[str]()
    for name, due_us in (("c", 30), ("a", 10), ("b", 10)):
        timers.wake_at(Target(name, woken, timers), due_us)
    timers.wake_due(Now(0.0, 9))
    assert woken == []
    timers.wake_due(Now(0.0, 10))
    assert woken == ["a", "b"]
    timers.wake_due(Now(0.0, 1000))
    assert woken == ["a", "b", "c"]


def test_the_steady_clock_decides() -> None:
    timers, woken = Timers(), list[str]()
    timers.wake_at(Target("a", woken, timers), 10)
    timers.wake_due(Now(0.0, 1000, lead_us=991))
    assert woken == []
    timers.wake_due(Now(0.0, 1000, lead_us=990))
    assert woken == ["a"]


def test_the_earliest_timer_of_a_target_counts_and_it_is_woken_once() -> None:
    timers, woken = Timers(), list[str]()
    target = Target("a", woken, timers)
    for due_us in (30, 10, 20):
        timers.wake_at(target, due_us)
    timers.wake_due(Now(0.0, 10))
    assert woken == ["a"]
    timers.wake_due(Now(0.0, 30))
    assert woken == ["a"]


def test_a_target_may_ask_for_its_next_timer_while_it_is_woken() -> None:
    timers, woken = Timers(), list[str]()
    timers.wake_at(Target("a", woken, timers, 5, 50), 10)
    timers.wake_due(Now(0.0, 10))
    assert woken == ["a", "a"]  # what is due already is not left for later
    timers.wake_due(Now(0.0, 50))
    assert woken == ["a", "a", "a"]


def test_timers_that_were_set_earlier_again_and_again_take_no_room() -> None:
    timers, woken = Timers(), list[str]()
    target = Target("a", woken, timers)
    for due_us in range(10_000, 0, -1):
        timers.wake_at(target, due_us)
        assert len(timers._heap) <= 2 + OUT_OF_DATE_MAX
    timers.wake_due(Now(0.0, 10_000))
    assert woken == ["a"]
