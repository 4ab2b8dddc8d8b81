"""A periodic timer exact to some microseconds: a timerfd of the Linux kernel, read like a socket.

An event loop's own timers have a resolution of whole milliseconds, too coarse to measure a latency
of 200 µs. ``os.timerfd_create`` exists from Python 3.13 on; before, the C library's
timerfd_create(2) is called.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable
from typing import Final, final

PERIOD_NS_MIN: Final = 200_000
"""The shortest period; messages due within one period are sent at the same tick."""

_NONBLOCKING: Final = os.O_NONBLOCK | os.O_CLOEXEC  # TFD_NONBLOCK | TFD_CLOEXEC
_NS_PER_S: Final = 1_000_000_000


@final
class PeriodicTimer:
    """Calls a function at once, and then periodically, until it is closed.

    Args:
        period_ns: time from one call to the next, at least ``PERIOD_NS_MIN``.
        callback: called in the running loop; once for several missed periods.

    Raises:
        OSError: the system gives no timer.
    """

    def __init__(self, period_ns: int, callback: Callable[[], None]) -> None:
        self._callback = callback
        library = ctypes.CDLL(None, use_errno=True)
        self._fd: int = library.timerfd_create(time.CLOCK_MONOTONIC, _NONBLOCKING)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        period = divmod(max(period_ns, PERIOD_NS_MIN), _NS_PER_S)
        settings = (ctypes.c_long * 4)(*period, 0, 1)  # struct itimerspec: interval, first
        library.timerfd_settime(self._fd, 0, ctypes.byref(settings), None)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._read)

    def _read(self) -> None:
        os.read(self._fd, 8)  # the number of periods that have passed
        self._callback()

    def close(self) -> None:
        """Stop the timer."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
