"""The steady clock, on a machine whose clocks do what the test says."""

from __future__ import annotations

from typing import Final, final

import pytest

from penstock.engine.values.clock import Now
from penstock.engine.values.steady_clock import (
    LEADS_MAX,
    UNSYNCHRONIZED_US_MAX,
    ClockRecord,
    ClockSample,
    Leads,
    SteadyClock,
)

START_US: Final = 1_800_000_000_000_000
SECOND_US: Final = 1_000_000
HOUR_S: Final = 3600
MONTH_S: Final = 30 * 24 * HOUR_S


@final
class Machine:
    """A machine with a broker that looks at its clocks every second."""

    def __init__(self) -> None:
        self.wall_us = START_US
        self.boot_us = 5 * SECOND_US
        self.boot_id = "first"
        self.is_synchronized = True
        self.end = 0  # of the log
        self.jumps: list[float] = []
        self.record: ClockRecord | None = None
        self.clock = self._start()

    def _start(self) -> SteadyClock:
        return SteadyClock(self.record, self.reading(), self.end)

    def reading(self) -> ClockSample:
        return ClockSample(self.wall_us, self.boot_us, self.boot_id, self.is_synchronized)

    def now(self) -> Now:
        return self.clock.now(self.boot_us / SECOND_US, self.boot_us)

    def set_s(self, seconds: float) -> None:
        """Somebody sets the wall clock forward, or back."""
        self.wall_us += int(seconds * SECOND_US)

    def sleep(self, seconds: float) -> None:
        """Time passes, and nobody looks."""
        self.wall_us += int(seconds * SECOND_US)
        self.boot_us += int(seconds * SECOND_US)

    def pass_s(self, seconds: int) -> None:
        """Time passes."""
        for _ in range(seconds):
            self.sleep(1)
            jumped_us = self.clock.check(self.reading(), self.end)
            if jumped_us:
                self.jumps.append(jumped_us / SECOND_US)

    def stop(self) -> None:
        """The broker ends."""
        self.record = self.clock.record(self.reading())

    def start(self) -> None:
        """The broker begins again."""
        self.clock = self._start()

    def boot(self, down_s: float, clock_s: float, boot_id: str = "second") -> None:
        """The machine was off for a while; its wall clock went on by ``clock_s`` meanwhile."""
        assert down_s >= 0
        self.wall_us += int(clock_s * SECOND_US)
        self.boot_us = 3 * SECOND_US
        self.boot_id = boot_id


def test_a_new_clock_is_the_wall_clock() -> None:
    machine = Machine()
    machine.pass_s(100)
    assert machine.now().steady_us == machine.now().wall_us == START_US + 100 * SECOND_US


@pytest.mark.parametrize("step_s", [-2 * HOUR_S, 2 * HOUR_S, MONTH_S, -MONTH_S, 0.5])
def test_a_jump_changes_dates_and_nothing_else(step_s: float) -> None:
    machine = Machine()
    machine.pass_s(5)
    machine.set_s(step_s)
    machine.pass_s(60)
    now = machine.now()
    assert now.steady_us == START_US + 65 * SECOND_US
    assert now.wall_us == machine.wall_us
    assert machine.jumps == [step_s]


@pytest.mark.parametrize("step_s", [-2 * HOUR_S, MONTH_S])
def test_a_glitch_changes_nothing(step_s: float) -> None:
    machine = Machine()
    machine.set_s(step_s)
    machine.pass_s(9)
    machine.set_s(-step_s)
    machine.pass_s(60)
    now = machine.now()
    assert now.wall_us == now.steady_us == machine.wall_us
    assert machine.jumps == []


def test_dates_do_not_go_back_but_by_a_jump() -> None:
    machine = Machine()
    before_us = 0
    for step_s in (0.05, -0.09, HOUR_S, -0.04, -HOUR_S, 0.09, -0.09, HOUR_S):
        machine.set_s(step_s)
        for _ in range(15):
            jumps = len(machine.jumps)
            machine.pass_s(1)
            after_us = machine.now().wall_us
            assert after_us > before_us or len(machine.jumps) > jumps
            before_us = after_us


def test_small_steps_are_followed_once_they_are_large_together() -> None:
    machine = Machine()
    for _ in range(20):
        machine.set_s(0.01)
        machine.pass_s(20)
    assert abs(machine.now().wall_us - machine.wall_us) <= SECOND_US // 10
    assert len(machine.jumps) == 1


def test_a_clock_that_never_rests_is_not_followed() -> None:
    machine = Machine()
    for number in range(50):
        machine.set_s(HOUR_S if number % 2 == 0 else -HOUR_S)
        machine.pass_s(3)
    assert machine.jumps == []


def test_a_clock_that_runs_away_is_followed_once_it_rests() -> None:
    machine = Machine()
    for _ in range(20):
        machine.set_s(HOUR_S)
        machine.pass_s(3)
    assert machine.jumps == []
    machine.pass_s(10)
    assert machine.jumps == [20 * HOUR_S]


def test_a_restart_within_a_boot_goes_by_its_clock() -> None:
    """Whatever the wall clock does meanwhile."""
    machine = Machine()
    machine.pass_s(10)
    machine.stop()
    machine.sleep(600)
    machine.set_s(-2 * HOUR_S)
    machine.start()
    assert machine.now().steady_us == START_US + 610 * SECOND_US
    assert machine.now().wall_us == machine.wall_us
    assert machine.clock.start_jump_us == -2 * HOUR_S * SECOND_US
    assert not machine.clock.was_unknown


def test_an_old_record_is_as_good_as_a_new_one_within_a_boot() -> None:
    machine = Machine()
    machine.stop()
    machine.pass_s(100)  # killed, without another record
    machine.sleep(100)
    machine.start()
    assert machine.now().steady_us == START_US + 200 * SECOND_US


def test_a_machine_that_was_off_goes_by_its_wall_clock() -> None:
    machine = Machine()
    machine.pass_s(10)
    machine.stop()
    machine.boot(down_s=HOUR_S, clock_s=HOUR_S)
    machine.start()
    assert machine.now().steady_us == machine.now().wall_us == machine.wall_us
    assert machine.now().steady_us == START_US + (HOUR_S + 10) * SECOND_US
    assert machine.clock.start_jump_us == 0


def test_a_machine_that_is_off_every_night_and_has_no_ntp_goes_by_its_wall_clock() -> None:
    """An expiry comes when it is due, however often the machine is off before."""
    machine = Machine()
    machine.is_synchronized = False
    for night in range(30):
        machine.pass_s(10)
        machine.stop()
        machine.boot(down_s=16 * HOUR_S, clock_s=16 * HOUR_S, boot_id=f"day {night}")
        machine.start()
    assert machine.now().steady_us == machine.now().wall_us == machine.wall_us
    assert machine.now().steady_us == START_US + 30 * (16 * HOUR_S + 10) * SECOND_US
    assert not machine.clock.was_limited


@pytest.mark.parametrize("is_synchronized", [True, False])
def test_a_clock_that_went_back_while_the_machine_was_off(is_synchronized: bool) -> None:
    """For how long it was off is not known then, and what was left counts on from the start."""
    machine = Machine()
    machine.stop()
    machine.is_synchronized = is_synchronized
    machine.boot(down_s=HOUR_S, clock_s=-2 * HOUR_S)
    machine.start()
    assert machine.clock.was_unknown
    assert machine.now().steady_us == START_US
    assert machine.now().wall_us == machine.wall_us


def test_a_boot_with_a_clock_that_stood_still_and_its_correction_by_a_month() -> None:
    """Nothing ends by the correction; what was left goes on to count from the start."""
    machine = Machine()
    machine.stop()
    machine.is_synchronized = False
    machine.boot(down_s=MONTH_S, clock_s=17)  # as the file system has it
    machine.start()
    assert machine.now().steady_us == START_US + 17 * SECOND_US
    machine.set_s(MONTH_S)
    machine.is_synchronized = True
    machine.pass_s(60)
    assert machine.now().steady_us == START_US + 77 * SECOND_US
    assert machine.now().wall_us == machine.wall_us


def test_a_boot_with_an_unsynchronized_clock_a_month_ahead_and_its_correction() -> None:
    """A week counts, and no more: such a clock may be wrong by years."""
    machine = Machine()
    machine.stop()
    machine.is_synchronized = False
    machine.boot(down_s=60, clock_s=MONTH_S)
    machine.start()
    assert machine.clock.was_limited
    assert machine.now().steady_us == START_US + UNSYNCHRONIZED_US_MAX
    assert machine.now().wall_us == machine.wall_us
    machine.set_s(60 - MONTH_S)
    machine.pass_s(60)
    assert machine.now().steady_us == START_US + UNSYNCHRONIZED_US_MAX + 60 * SECOND_US
    assert machine.now().wall_us == machine.wall_us


def test_a_synchronized_clock_counts_a_month() -> None:
    machine = Machine()
    machine.stop()
    machine.boot(down_s=MONTH_S, clock_s=MONTH_S)
    machine.start()
    assert machine.now().steady_us == START_US + MONTH_S * SECOND_US
    assert not machine.clock.was_limited


def test_a_system_without_boot_names_goes_by_its_wall_clock() -> None:
    machine = Machine()
    machine.boot_id = ""
    machine.clock = SteadyClock(None, machine.reading(), 0)
    machine.stop()
    machine.boot(down_s=HOUR_S, clock_s=HOUR_S)
    machine.boot_id = ""
    machine.start()
    assert machine.now().steady_us == START_US + HOUR_S * SECOND_US


def test_a_store_from_another_machine() -> None:
    """Its boot clock may be behind, under any name."""
    machine = Machine()
    machine.pass_s(100)
    machine.stop()
    machine.boot_us = 1
    machine.start()
    assert machine.now().steady_us == START_US + 100 * SECOND_US


def test_dates_in_the_log_are_known_on_the_steady_clock() -> None:
    machine = Machine()
    dates: list[tuple[int, int]] = []
    for step_s in (0, -2 * HOUR_S, MONTH_S, 0, -HOUR_S):
        machine.set_s(step_s)
        machine.pass_s(20)
        for _ in range(3):
            dates.append((machine.now().wall_us, machine.now().steady_us))
            machine.end += 1
            machine.pass_s(1)
    machine.stop()
    machine.start()
    leads = machine.clock.leads
    assert [date_us - leads.at(offset) for offset, (date_us, _) in enumerate(dates)] == [
        steady_us for _, steady_us in dates
    ]


def test_leads() -> None:
    leads = Leads([]).with_lead_from(10, 5).with_lead_from(20, 7)
    assert [leads.at(offset) for offset in (0, 9, 10, 19, 20, 1000)] == [5, 5, 5, 5, 7, 7]
    assert leads.with_lead_from(20, 8).entries == [(10, 5), (20, 8)]
    assert Leads([]).at(3) == 0


def test_leads_are_bounded() -> None:
    leads = Leads([])
    for offset in range(2 * LEADS_MAX):
        leads = leads.with_lead_from(offset, offset)
    assert len(leads.entries) == LEADS_MAX
    assert leads.at(2 * LEADS_MAX) == 2 * LEADS_MAX - 1
