"""What is known of what one session holds for a group: how little of it takes room, and how far
it was looked through.

::

      front [ looked at, nobody took it: ``passed`` ] [ not looked at yet ] end
                                                   ╰ ``last``

A look goes on where the one before stopped, unless something at the front left or fits now.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.message import SMALLEST_MESSAGE_BYTES, Delivery

NOTHING: Final = 2**62  # larger than any room


@final
class Least:
    """The sizes of the smallest messages; 0 = not known.

    Args:
        in_log: of those that may lie in the log.
        in_memory: of those whose body is in memory, and that a connected member may receive.
    """

    def __init__(self, in_log: int = NOTHING, in_memory: int = NOTHING) -> None:
        self.in_log = in_log
        self.in_memory = in_memory

    def lower(self, other: Least) -> None:
        """Those of ``other`` are there too."""
        self.in_log = min(self.in_log, other.in_log)
        self.in_memory = min(self.in_memory, other.in_memory)

    def is_any(self) -> bool:
        """Whether there is any."""
        return min(self.in_log, self.in_memory) < NOTHING

    def is_known(self) -> bool:
        """Whether all was looked at."""
        return self.in_log > 0 and self.in_memory > 0


@final
class Holding:
    """What one session holds."""

    def __init__(self) -> None:
        self.least = Least()
        self.passed = 0  # so many at the front nobody took
        self._passed_least = Least()
        self._passed_with = Least(-1, -1)  # room
        self._last: Delivery | None = None  # of those
        self._late = Least()  # what came since

    def put(self, least: Least) -> None:
        """It holds more."""
        self.least.lower(least)
        self._late.lower(least)

    def begin(self) -> None:
        """A look begins at the front."""
        self.passed = 0
        self._passed_least = Least()
        self._last = None
        self._late = Least()

    def forget(self) -> None:
        """Nothing is known."""
        self.begin()
        self.least = Least(0, 0)

    def front_fits(self, in_log: int, in_memory: int) -> bool:
        """Whether there is room for something that was looked at, more than there was then."""
        least, then = self._passed_least, self._passed_with
        if least.in_log <= in_log > then.in_log:
            return True
        return least.in_memory <= in_memory > then.in_memory

    def is_at(self, waiting: list[Delivery]) -> bool:
        """Whether the front of ``waiting`` is still what was looked at."""
        passed = self.passed
        return passed == 0 or (len(waiting) >= passed and waiting[passed - 1] is self._last)

    def found(self, least: Least) -> None:
        """``least`` stays of what follows ``passed``."""
        self.least = Least(least.in_log, least.in_memory)
        self.least.lower(self._passed_least)

    def go_past(self, part: list[Delivery], in_log: int, in_memory: int) -> None:
        """Nobody took ``part``, that follows ``passed``, with so much room; how little it takes
        was ``found``."""
        if self.passed == 0:
            self._passed_with = Least(in_log, in_memory)
        self.passed += len(part)
        self._passed_least = Least(self.least.in_log, self.least.in_memory)
        self._last = part[-1]

    def stop(self) -> None:
        """The look is over, more may follow: however small, it is asked for."""
        self.least = Least(SMALLEST_MESSAGE_BYTES, SMALLEST_MESSAGE_BYTES)

    def end(self) -> None:
        """The look came to its end. What came meanwhile may stand at the front (priorities)."""
        if self.passed > 0:
            self.least.lower(self._late)
        self.begin()
