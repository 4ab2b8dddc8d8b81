"""The work that one connection may do in a turn of the event loop, so that no other waits long.

The engine reads no clock, so work is counted in units that cost about the same time, and the code
that does the work adds them to ``work_done``::

      packet ················· 10      message to a session, filter of a walk ····· 1
      64 bytes received ······· 1      256 bytes of a message to a session ········ 1
      filter of a SUBSCRIBE ·· 20      level of a retained topic ·················· 4
                                       identifier, user property, 8 queues checked · 1

A connection measures its work as the growth of ``work_done``. All connections that use up their
shares divide ``work_of_all_max``. The share of one connection in a turn depends on three things::

      exhausted shares   the connections that had to stop in the turn before, and divide the work
      work of the turn   the work of all in this turn: if many begin at once, beyond ``BURST`` times
                         ``work_of_all_max`` each has only the smallest share
      time of a turn     if a share was exhausted, a turn longer than ``SLICE_S`` halves
                         ``work_of_all_max``, and a shorter one lets it grow slowly

So a turn is bounded in time on any machine, interpreted or compiled, whatever the packets are and
however many clients send them. A client that sends little never uses up its share, and so never has
to wait.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

PACKETS_PER_TURN_MAX: Final = 1000
WORK_PER_PACKET: Final = 10  # units, without those of the messages that it hands to sessions
BYTES_PER_UNIT: Final = 64  # received bytes that cost one unit: they are copied and decoded
SENT_BYTES_PER_UNIT: Final = 256  # bytes of a message to one session that cost one unit
WORK_PER_TURN_MAX: Final = PACKETS_PER_TURN_MAX * WORK_PER_PACKET

SLICE_S: Final = 0.02  # the time that a turn's work should take at most
WORK_PER_TURN_MIN: Final = WORK_PER_TURN_MAX // 10  # of all connections together, on a slow machine
SHARE_MIN: Final = 10 * WORK_PER_PACKET  # of one connection, however many there are
HEAVY_BYTES: Final = 65_536  # a connection with more in a batch is heavy: see ``store_health``
HEAVY_FOR_BATCHES: Final = 32  # batches for which it stays heavy: about half a second
BURST: Final = 5  # whole shares that all connections of a turn may use before shares are smallest


@final
class WorkBudget:
    """The work that one connection may do in this turn: ``work_max``, in units."""

    def __init__(self) -> None:
        self.work_done: i64 = 0  # units of all connections since the start
        self.logged_bytes: i64 = 0  # bytes of messages appended to the log since the start
        self.batch: i64 = 0  # how many batches have been sealed
        self.work_max = WORK_PER_TURN_MAX
        self.work_of_all_max = WORK_PER_TURN_MAX  # of all that use up their shares
        self.exhausted_shares = 0  # how many shares were used up in this turn
        self._work_before: i64 = 0  # ``work_done``, when this turn began

    def remaining_units(self) -> i64:
        """Return the units that a connection may spend in this turn, if it begins now."""
        of_all: i64 = BURST * self.work_of_all_max - (self.work_done - self._work_before)
        return max(SHARE_MIN, min(self.work_max, of_all))

    def begin_turn(self) -> None:
        """Begin a turn: the connections that used up their shares continue, and divide the work."""
        self.work_max = max(SHARE_MIN, self.work_of_all_max // max(1, self.exhausted_shares))
        self.exhausted_shares = 0
        self._work_before = self.work_done

    def adapt_to_turn(self, seconds: float) -> None:
        """Adapt the work of later turns to the duration of the last one, in seconds."""
        self._work_before = self.work_done
        if self.exhausted_shares == 0:
            return
        if seconds > SLICE_S:
            self.work_of_all_max = max(WORK_PER_TURN_MIN, self.work_of_all_max // 2)
        elif self.work_of_all_max < WORK_PER_TURN_MAX:
            self.work_of_all_max = min(
                WORK_PER_TURN_MAX, self.work_of_all_max + WORK_PER_TURN_MIN // 4
            )
