"""The work that one connection may do in a turn of the loop before the others have their turn.

The engine reads no clock, so work is counted in units that cost about the same time, and the code
that does the work adds them to ``spent``::

      packet ················· 10      message to a session, filter of a walk ····· 1
      64 bytes received ······· 1      256 bytes of a message to a session ········ 1
      filter of a SUBSCRIBE ·· 20      level of a retained topic ·················· 4
                                       identifier, user property, 8 queues asked ·· 1

A connection measures its work by the difference. All connections that use up their shares divide
``work_of_all_max``. The share of one in a turn depends on three things::

      used up     how many connections had to stop in the turn before, and divide the work
      spent       the work of all in this turn: if many begin at once, beyond ``BURST`` times
                  ``work_of_all_max`` each has only the smallest share
      took        how long a turn took that used up a share: a turn longer than ``SLICE_S`` halves
                  ``work_of_all_max``, a shorter one lets it grow slowly

So a turn is bounded in time on any machine, interpreted or compiled, whatever the packets are and
however many clients send them. A client that sends little never uses up its share, and so never has
to wait.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

PACKETS_PER_TURN_MAX: Final = 1000
WORK_PER_PACKET: Final = 10  # beside the messages it hands to sessions, in units
BYTES_PER_UNIT: Final = 64  # received bytes of one unit: copied, decoded, kept
SENT_BYTES_PER_UNIT: Final = 256  # bytes written to one session of one unit
WORK_PER_TURN_MAX: Final = PACKETS_PER_TURN_MAX * WORK_PER_PACKET

SLICE_S: Final = 0.02  # a turn's work should take no longer than this
WORK_PER_TURN_MIN: Final = WORK_PER_TURN_MAX // 10  # of all connections together, on a slow machine
SHARE_MIN: Final = 10 * WORK_PER_PACKET  # of one connection, however many there are
HEAVY_BYTES: Final = 65_536  # bytes of one connection's messages in a batch: see ``store_health``
HEAVY_FOR_BATCHES: Final = 32  # after one: about half a second
BURST: Final = 5  # shares, for connections that begin in the same turn


@final
class WorkBudget:
    """The work that one connection may do in this turn: ``work_max``, in units."""

    def __init__(self) -> None:
        self.spent: i64 = 0  # by all connections, ever
        self.logged_bytes: i64 = 0  # bytes of messages appended to the log, by all, ever
        self.batch: i64 = 0  # how many batches have been sealed
        self.work_max = WORK_PER_TURN_MAX
        self.work_of_all_max = WORK_PER_TURN_MAX  # of all that use up their shares
        self.used_up = 0  # how many shares were used up in this turn
        self._spent_before: i64 = 0  # ``spent``, when this turn began

    def remaining(self) -> i64:
        """Return the units that a connection may spend whose part of this turn begins now."""
        of_all: i64 = BURST * self.work_of_all_max - (self.spent - self._spent_before)
        return max(SHARE_MIN, min(self.work_max, of_all))

    def next_turn(self) -> None:
        """Begin a turn: the connections that used up their shares continue, and divide the work."""
        self.work_max = max(SHARE_MIN, self.work_of_all_max // max(1, self.used_up))
        self.used_up = 0
        self._spent_before = self.spent

    def turn_took(self, seconds: float) -> None:
        """Adapt the work of a turn to the time that the last one took, in seconds."""
        self._spent_before = self.spent
        if self.used_up == 0:
            return
        if seconds > SLICE_S:
            self.work_of_all_max = max(WORK_PER_TURN_MIN, self.work_of_all_max // 2)
        elif self.work_of_all_max < WORK_PER_TURN_MAX:
            self.work_of_all_max = min(
                WORK_PER_TURN_MAX, self.work_of_all_max + WORK_PER_TURN_MIN // 4
            )
