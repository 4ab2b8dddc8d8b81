"""The clocks of this machine, read for the steady clock (``engine.values.steady_clock``)."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Final, final

from penstock.engine.values.clock import MICROSECONDS, Now
from penstock.engine.values.steady_clock import (
    UNSYNCHRONIZED_US_MAX,
    ClockRecord,
    ClockSample,
    SteadyClock,
)
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

RECORD_S: Final = 60.0
"""Time in seconds between two records of the clock in the store; each costs one small write."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_TIMEX_BYTES: Final = 1024  # more than a struct timex has anywhere
_TIME_ERROR: Final = 5  # adjtimex(2): the clock is not synchronized
_UNSET_BEFORE_US: Final = 1_704_067_200 * MICROSECONDS  # 2024-01-01: older than this program


@final
class MachineClock:
    """The steady clock of this process.

    Args:
        record: the clock's state in the store; None for a new clock.
        next_offset: the offset of the next message in the log.
    """

    def __init__(self, record: ClockRecord | None = None, next_offset: int = 0) -> None:
        self._boot_id = _boot_id()
        sample = self._read(is_synchronized())
        self._steady = SteadyClock(record, sample, next_offset)
        self._recorded_s = time.monotonic()
        if is_unset(sample.wall_us):
            logger.warning(
                "the clock of this machine is not set: it says %s. Messages are dated by it until"
                " it is corrected; timeouts and expiry do not depend on it",
                time.strftime("%Y-%m-%d", time.gmtime(sample.wall_us // MICROSECONDS)),
            )
        if self._steady.was_unknown:
            logger.warning(
                "the machine was restarted, and its clock went back: the time that the broker was"
                " down is not known, and does not count for expiry"
            )
        if self._steady.was_limited:
            logger.warning(
                "the machine was restarted, and its clock is not synchronized: of the time that"
                " the broker was down by this clock, %d days count for expiry",
                UNSYNCHRONIZED_US_MAX // (86_400 * MICROSECONDS),
            )
        if self._steady.start_jump_us:
            _log_jump("while the broker was down", self._steady.start_jump_us)

    def now(self) -> Now:
        """Return the present time of all three clocks."""
        return self._steady.now(time.monotonic(), _boot_us())

    def check_jump(self, next_offset: int) -> bool:
        """Compare the steady clock with the wall clock, and log a jump of the wall clock.

        Args:
            next_offset: the offset of the next message in the log.

        Returns:
            True if ``record`` must be stored now: the wall clock jumped, or the last record is
            older than ``RECORD_S``.
        """
        jumped_us = self._steady.check(self._read(), next_offset)
        if jumped_us:
            _log_jump("", jumped_us)
            return True
        return time.monotonic() - self._recorded_s >= RECORD_S

    def record(self) -> ClockRecord:
        """Return the state of the clock, to be stored now."""
        self._recorded_s = time.monotonic()
        return self._steady.record(self._read())

    def _read(self, is_synchronized: bool = True) -> ClockSample:
        """Read the clocks; ``is_synchronized`` is only used at a start."""
        return ClockSample(time.time_ns() // 1000, _boot_us(), self._boot_id, is_synchronized)


def is_unset(wall_us: int) -> bool:
    """Return whether a wall clock cannot be right: its time, ``wall_us`` microseconds since the
    Unix epoch, is before 2024."""
    return wall_us < _UNSET_BEFORE_US


def _log_jump(when: str, jumped_us: int) -> None:
    logger.warning(
        "the wall clock jumped %s by %.1f s%s: new messages are dated by it, and nothing expires"
        " sooner or later",
        "forward" if jumped_us > 0 else "back",
        abs(jumped_us) / MICROSECONDS,
        f" {when}" if when else "",
    )


def _boot_us() -> int:
    """Return the microseconds since the machine was started, with the time that it slept if the
    system counts that."""
    return time.clock_gettime_ns(_BOOT_CLOCK) // 1000


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:  # no Linux
        return ""


def is_synchronized() -> bool:
    """Return whether the system says that the wall clock is synchronized (adjtimex(2))."""
    try:
        state = int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)))
    except (AttributeError, OSError):  # no Linux
        return True
    return 0 <= state != _TIME_ERROR


_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
