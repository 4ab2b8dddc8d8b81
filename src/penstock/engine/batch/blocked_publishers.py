"""The lines of publishers that wait for room in one queue or group: when which of them may go on.

::

      refused ─▶ joins ── a place was given up: told ─▶ next turn: is it full for all of them?
                  ▲                                         │ no: the first that waits
                  │                                         ▼
                  │  refused elsewhere now: joins there ◀─ asks again ─ refused ─▶ stays, next
                  │                                         │ not refused
                  ╰──── behind the others ── refused ────◀ goes on, and then the next

A line is *told* when there may be room. One place lets one publisher go on, however many wait for
it, and publishers in other lines are not checked.

Where memory is lacking, nothing signals when others give it back: such a line is told in each tick.

However many lines are told, and however many wait there, a turn checks a portion of them; the next
turn goes on where it stopped. The publishers of a line are checked in *rounds*: when a line is told
during a round, another round follows it, so that each has its turn. A publisher that was refused
since any line was told last is still refused, whichever line it stands in, and is not checked.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from penstock.engine.batch.size_multiset import WaitingSizes
from penstock.engine.clock import Now
from penstock.engine.wire.link import Resumable, Turn

ASKING_PER_TURN_MAX: Final = 4_000  # sessions and members looked at for all publishers that wait
_WORK_OF_ONE: Final = 10  # in the same unit: the further cost to check or resume a publisher


class Waiting:
    """A blocked publisher, in mostly one line."""

    def __init__(self) -> None:
        self.lines: list[RoomLine] = []  # a few
        self.size_bytes = 0  # size of the message that waits
        self.looked_at = 0  # sessions and members that the last ``is_refused`` looked at
        self.refused_at = -1  # ``ToldLines.times`` when it was checked last

    def wait_in(self, lines: list[RoomLine]) -> None:
        """Wait in ``lines`` and leave all others; in a line where it waits already it keeps its
        place."""
        for line in self.lines:
            if line not in lines:
                line.leave(self)
        for line in lines:
            line.join(self)
        self.lines = lines

    def is_refused(self) -> bool:
        """Return whether its message would still be refused; if so, it waits where that is."""
        return False

    def user(self) -> Resumable | None:
        """Return what is to be resumed, or None if its connection is gone."""
        return None


class RoomLine:
    """The blocked publishers of one queue or group, in the order in which they came.

    Args:
        told: the list of lines that were told of room.
    """

    def __init__(self, told: ToldLines) -> None:
        self.looked_at = 0  # publishers that were checked again, ever
        self.stands = False  # it is in the list of lines that were told
        self._told_lines = told
        self._waiting: dict[Waiting, int] = {}  # to the size of its message
        self._sizes = WaitingSizes()
        self._told = False  # told of room since the round began
        self._told_all = False
        self._round: list[Waiting] = []
        self._position = 0  # index of the next in the round
        self._another_reason = False  # the round checks all: limits or permissions changed

    @property
    def length(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    @property
    def rests(self) -> bool:
        """Return whether all were checked since the line was told."""
        return not self._round and not self._told

    def is_full(self, size_bytes: int) -> bool:
        """Return whether no message of ``size_bytes`` or more would find room: then no publisher
        is checked."""
        del size_bytes
        return False

    def weight(self) -> int:
        """Return how many sessions ``is_full`` looks at."""
        return 1

    def changed(self) -> None:
        """Note that a publisher came or left. A subclass overrides it."""

    def join(self, waiting: Waiting) -> None:
        """Append ``waiting``, or update the size of its message; see ``Waiting.wait_in``."""
        before = self._waiting.get(waiting, -1)
        if before == waiting.size_bytes:
            return
        if before >= 0:
            self._sizes.remove(before)
        self._waiting[waiting] = waiting.size_bytes
        self._sizes.add(waiting.size_bytes)
        if before < 0:
            self.changed()

    def leave(self, waiting: Waiting) -> None:
        """Remove ``waiting``."""
        before = self._waiting.pop(waiting, -1)
        if before >= 0:
            self._sizes.remove(before)
            self.changed()

    def tell(self) -> None:
        """Check the line in the next turn: there may be room."""
        if self._waiting:
            self._told = True
            self._told_lines.put(self)

    def tell_all(self) -> None:
        """Limits or permissions changed: check every publisher of the line again, whether there is
        room or not."""
        if self._waiting:
            self._told_all = True
            self.tell()

    def tell_in_tick(self) -> None:
        """Check the line at the next tick: memory is lacking, and nothing signals when it is given
        back."""
        self._told_lines.tell_in_tick(self)

    def ask_some(self, work_max: int, went_on: list[Resumable], now: Now) -> int:
        """Check the next portion of the line, and resume publishers for which there is room;
        return the work."""
        if not self._round:
            self._another_reason = self._told_all
            self._told = self._told_all = False
        work = self.weight()
        if self._are_all_refused():
            self._round = []
            return work
        if not self._round:
            self._round = list(self._waiting)
            self._position = 0
        work_max = max(work_max, work + 1)  # one at least
        while work < work_max and self._position < len(self._round):
            waiting = self._round[self._position]
            self._position += 1
            work += 1
            size_bytes = self._waiting.get(waiting, -1)
            if size_bytes < 0 or waiting.refused_at == self._told_lines.times:
                continue
            if not self._another_reason:
                work += self.weight()
                if self.is_full(size_bytes):
                    continue
            self.looked_at += 1
            waiting.refused_at = self._told_lines.times
            is_refused = waiting.is_refused()
            work += _WORK_OF_ONE + waiting.looked_at
            if is_refused:
                continue
            waiting.wait_in([])
            user = waiting.user()
            if user is not None:
                user.resume(now)
                went_on.append(user)
                work += _WORK_OF_ONE + waiting.looked_at
            work += self.weight()
            if self._are_all_refused():
                self._round = []
                return work
        if self._position == len(self._round):
            self._round = []
        return work

    def _are_all_refused(self) -> bool:
        """Return whether there is no room for the smallest message, and no other reason to
        check."""
        if not self._waiting:
            return True
        return not self._another_reason and self.is_full(self._sizes.smallest())


@final
class ToldLines(Resumable):
    """The lines of one broker that were told of room and are still to be checked.

    Args:
        turn: resumes this in the next turn.
    """

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.times = 0  # how often any line was told
        self.work_max = ASKING_PER_TURN_MAX
        self._turn = turn
        self._lines: deque[RoomLine] = deque()
        self._in_tick: dict[RoomLine, None] = {}  # told at the next tick

    def put(self, line: RoomLine) -> None:
        """Add ``line``, which was told."""
        self.times += 1
        if not line.stands:
            line.stands = True
            self._lines.append(line)
        self._turn.resume_later(self)

    def tell_in_tick(self, line: RoomLine) -> None:
        """Have ``line`` told at the next tick."""
        self._in_tick[line] = None

    def tick(self) -> None:
        """Tell the lines that wait for a tick."""
        lines = self._in_tick
        self._in_tick = {}
        for line in lines:
            line.tell()

    def resume(self, now: Now) -> None:
        """Check the next portion, each line at most once."""
        lines = self._lines
        work = 0
        for _ in range(len(lines)):
            if work >= self.work_max:
                break
            line = lines.popleft()
            work += line.ask_some(self.work_max - work, self._turn.went_on, now)
            if line.rests:
                line.stands = False
            else:
                lines.append(line)
        if lines:
            self._turn.resume_later(self)
