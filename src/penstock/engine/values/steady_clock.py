"""The steady clock: microseconds of elapsed time, also while the broker is down.

A wall clock is corrected: it is set back or forward, or it is not set until the network is up. Such
a correction must not change durations (expiry of sessions and messages, will delay, age in the
log). So the broker counts elapsed time itself, and stores times of this steady clock::

      date of a message = steady time + lead          lead: how far the wall clock is ahead of it

                     wall clock and date differ by more than 0.1 s
      in agreement ───────────────────────────────────────▶ different, since a time, by an amount
          ▲   ▲                                                │        │
          │   ╰──── they agree again: it was a glitch ─────────╯        │ the same difference
          ╰──────────────────── the lead is changed: a jump ◀───────────╯ for ten seconds

    at a start      elapsed since the record that the store has
    ─────────────   ────────────────────────────────────────────────────────────
    no record       unknown: the steady clock begins with the wall clock, lead 0
    the same boot   by the boot clock, exactly; it also runs while the machine sleeps
    another boot    by the wall clock, because the machine was off: all of it where the system says
                    that this clock is synchronized, else ``UNSYNCHRONIZED_US_MAX`` at most;
                    unknown, and taken as 0, if the wall clock went back

Why a clock that nobody synchronizes is believed: most such clocks are right to some seconds a day,
and a broker that did not count the time for which its machine was off would deliver messages long
after their expiry, and keep sessions by that much longer with each night. Those that are wrong are
mostly behind (no battery) or hours ahead (local time taken for UTC). The bound is for the few that
are years ahead: they may not end sessions that still had more than a week.

Invariants:

1. The steady clock is never set back and never jumps; a start adds the time for which the broker
   was down. A jump of the wall clock changes the lead and nothing else.
2. Nothing expires early within one boot, nor by a wall clock that is right. By one that is not
   synchronized and ahead of the time, an expiry comes earlier by as much as the clock is ahead, and
   by ``UNSYNCHRONIZED_US_MAX`` at most, for each boot. An expiry comes late, after another boot, by
   what was not counted of the time for which the machine was off (MQTT 5 §3.1.2.11.2 allows that).
3. Between two changes of the lead dates do not go back. Each change of the lead is stored with the
   offset of the log's next message, so that the steady time of a message in the log follows from
   its date and its offset (``Leads``).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, final

from penstock.engine.values.clock import MICROSECONDS, Now

TOLERANCE_US: Final = 100_000
"""Microseconds by which the wall clock may differ from the dates of messages."""

PATIENCE_US: Final = 10_000_000
"""Microseconds for which a new difference must last before dates follow it."""

UNSYNCHRONIZED_US_MAX: Final = 7 * 86_400 * MICROSECONDS
"""The most microseconds that a start in another boot counts by a wall clock that is not
synchronized: a week."""

LEADS_MAX: Final = 256
"""The number of changes of the lead that are stored; older ones are forgotten."""


@final
class ClockSample:
    """One sample of the machine's clocks.

    Args:
        wall_us: the wall clock, microseconds since the Unix epoch.
        boot_us: microseconds since the machine was booted, sleep included.
        boot_id: identifier of that boot; empty if the system has none.
        is_synchronized: whether the system says that the wall clock is synchronized.
    """

    def __init__(self, wall_us: int, boot_us: int, boot_id: str, is_synchronized: bool) -> None:
        self.wall_us = wall_us
        self.boot_us = boot_us
        self.boot_id = boot_id
        self.is_synchronized = is_synchronized


@final
class Leads:
    """The leads of dates over the steady clock, by log offset.

    Args:
        entries: (first offset, lead in microseconds), offsets ascending.
    """

    def __init__(self, entries: list[tuple[int, int]]) -> None:
        self.entries = entries

    def at(self, offset: int) -> int:
        """Return the lead with which the message at ``offset`` was dated, in microseconds."""
        entries = self.entries
        if not entries:
            return 0
        place = bisect_right(entries, (offset, 2**63))
        return entries[max(0, place - 1)][1]

    def with_lead_from(self, offset: int, lead_us: int) -> Leads:
        """Return a copy in which messages from ``offset`` on have the lead ``lead_us``."""
        entries = [entry for entry in self.entries if entry[0] < offset]
        entries.append((offset, lead_us))
        return Leads(entries[-LEADS_MAX:])


@final
class ClockRecord:
    """The record of the steady clock in the store: all clocks at one moment.

    Args:
        steady_us: the steady clock, microseconds.
        wall_us: the wall clock, microseconds since the Unix epoch.
        boot_us: microseconds since the boot ``boot_id``.
        boot_id: identifier of the boot, see ``ClockSample``.
        leads: the changes of the lead until that moment.
    """

    def __init__(
        self, steady_us: int, wall_us: int, boot_us: int, boot_id: str, leads: Leads
    ) -> None:
        self.steady_us = steady_us
        self.wall_us = wall_us
        self.boot_us = boot_us
        self.boot_id = boot_id
        self.leads = leads


@final
class SteadyClock:
    """The steady clock of one broker, or of a client program.

    Args:
        record: the record in the store; None for a new clock.
        sample: the machine's clocks at the start.
        next_offset: the offset that the next message in the log gets.
    """

    def __init__(self, record: ClockRecord | None, sample: ClockSample, next_offset: int) -> None:
        self.start_jump_us = 0  # the change of the lead at this start
        self.was_unknown = False  # whether the time since the record is not known, and taken as 0
        self.was_limited = False  # whether ``UNSYNCHRONIZED_US_MAX`` was counted, and not all
        self._boot_us = sample.boot_us
        self._new_difference_us = 0  # a new difference that has not lasted for ``PATIENCE_US`` yet
        self._different_since_us = -1  # when it began, on the boot clock; -1 = there is none
        if record is None:
            self._steady_us = sample.wall_us
            self.lead_us = 0
            self.leads = Leads([(next_offset, 0)])
            return
        self._steady_us = record.steady_us + self._elapsed_us(record, sample)
        self.leads = record.leads
        self.lead_us = record.leads.at(next_offset)
        difference_us = sample.wall_us - self._steady_us - self.lead_us
        if abs(difference_us) > TOLERANCE_US:
            self._jump(difference_us, next_offset)
            self.start_jump_us = difference_us

    def _elapsed_us(self, record: ClockRecord, sample: ClockSample) -> int:
        is_same_boot = sample.boot_id != "" and record.boot_id == sample.boot_id
        if is_same_boot and record.boot_us <= sample.boot_us:
            return sample.boot_us - record.boot_us
        elapsed_us = sample.wall_us - record.wall_us
        if elapsed_us < 0:
            self.was_unknown = True
            return 0
        if not sample.is_synchronized and elapsed_us > UNSYNCHRONIZED_US_MAX:
            self.was_limited = True
            return UNSYNCHRONIZED_US_MAX
        return elapsed_us

    def now(self, monotonic_s: float, boot_us: int) -> Now:
        """Return the time that belongs to these readings of the monotonic and the boot clock."""
        steady_us = self._steady_us + max(0, boot_us - self._boot_us)
        return Now(monotonic_s, steady_us + self.lead_us, self.lead_us)

    def check(self, sample: ClockSample, next_offset: int) -> int:
        """Compare dates with the wall clock; the shell calls it four times a second.

        Returns:
            The microseconds by which dates jump from ``next_offset`` on; 0 if they do not.
        """
        steady_us = self._steady_us + max(0, sample.boot_us - self._boot_us)
        difference_us = sample.wall_us - steady_us - self.lead_us
        if abs(difference_us) <= TOLERANCE_US:
            self._different_since_us = -1
            return 0
        if (
            self._different_since_us < 0
            or abs(difference_us - self._new_difference_us) > TOLERANCE_US
        ):
            self._new_difference_us = difference_us
            self._different_since_us = sample.boot_us
            return 0
        if sample.boot_us - self._different_since_us < PATIENCE_US:
            return 0
        self._jump(difference_us, next_offset)
        return difference_us

    def record(self, sample: ClockSample) -> ClockRecord:
        """Return the record to store, with the clocks at ``sample``."""
        steady_us = self._steady_us + max(0, sample.boot_us - self._boot_us)
        return ClockRecord(steady_us, sample.wall_us, sample.boot_us, sample.boot_id, self.leads)

    def _jump(self, difference_us: int, next_offset: int) -> None:
        self.lead_us += difference_us
        self.leads = self.leads.with_lead_from(next_offset, self.lead_us)
        self._different_since_us = -1
