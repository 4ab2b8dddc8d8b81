"""What one connection may do in a turn of the loop before the others have theirs.

The engine reads no clock, so work is counted in units that cost about the same, and whoever does
some adds it to ``spent``::

      packet ················· 10      message to a session, filter of a walk ····· 1
      64 bytes received ······· 1      identifier, user property, 8 queues asked ·· 1
      filter of a SUBSCRIBE ·· 20      level of a retained topic ·················· 4

Who has its turn takes the difference. How much one may spend in a turn follows from two things that
are told::

      used up     how many connections had to stop in the turn before: they share what there is
      took        how long one of them, or all that went on together, took for its share: longer
                  than ``SLICE_S`` halves what there is, shorter lets it grow back slowly

So a turn is bounded in time on any machine, interpreted or compiled, whatever the packets are and
however many clients send them. A client that sends little never uses up its share, and so is never
told to wait.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

PACKETS_PER_TURN_MAX: Final = 1000
WORK_OF_A_PACKET: Final = 10  # in messages handed to sessions: what handling one costs beside
BYTES_OF_A_UNIT: Final = 64  # received: copied, decoded, kept
WORK_PER_TURN_MAX: Final = PACKETS_PER_TURN_MAX * WORK_OF_A_PACKET

SLICE_S: Final = 0.02  # a turn's work should take no longer
WORK_PER_TURN_MIN: Final = WORK_PER_TURN_MAX // 10  # of all together, on a slow machine
SHARE_MIN: Final = 10 * WORK_OF_A_PACKET  # of one connection, however many there are


@final
class Share:
    """The work that one connection may do in this turn: ``work_max``, in units."""

    def __init__(self) -> None:
        self.spent: i64 = 0  # by all, ever
        self.work_max = WORK_PER_TURN_MAX
        self.together = WORK_PER_TURN_MAX  # what those who use up their shares have in all
        self.used_up = 0  # shares, in this turn

    def next_turn(self) -> None:
        """Begin a turn: those that used up their shares go on, and divide the work there is."""
        self.work_max = max(SHARE_MIN, self.together // max(1, self.used_up))
        self.used_up = 0

    def took(self, seconds: float) -> None:
        """A share was used up, or several together were, and it took so long."""
        if seconds > SLICE_S:
            self.together = max(WORK_PER_TURN_MIN, self.together // 2)
        elif self.together < WORK_PER_TURN_MAX:
            self.together = min(WORK_PER_TURN_MAX, self.together + WORK_PER_TURN_MIN // 4)
