"""Publishers that wait for room in one queue, or in one group: who goes on when there is some.

::

      refused ─▶ joins ── a place was given up: told ─▶ next turn: is it full for all of them?
                  ▲                                         │ no: the first that waits
                  │                                         ▼
                  │  refused elsewhere now: joins there ◀─ asks again ─ refused ─▶ stays, next
                  │                                         │ not refused
                  ╰──── behind the others ── refused ────◀ goes on, and then the next

One place lets one publisher go on, however many wait for it, and who waits elsewhere hears
nothing of it.

Where memory is lacking, which others give back and tell nobody, a line is told in each tick.

However many lines are told, and however many wait there, a turn asks a portion of them; the next
turn goes on where it stopped. Those in a line are asked in *rounds*: what a line is told during a
round begins another behind it, so that everybody's turn comes. Whoever was refused since any line
was told the last time is still refused, whichever line it stands in, and not asked.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from penstock.engine.clock import Now
from penstock.engine.link import Resumable, Turn
from penstock.engine.waiting_sizes import WaitingSizes

ASKING_PER_TURN_MAX: Final = 4_000  # sessions and members looked at for all who wait
_WORK_OF_ONE: Final = 10  # likewise: what it costs beside to ask one, or to let it go on


class Waiting:
    """Who waits, mostly in one line."""

    def __init__(self) -> None:
        self.lines: list[RoomLine] = []  # a few
        self.size_bytes = 0  # of what it waits with
        self.looked_at = 0  # sessions and members, to tell whether it ``is_refused``
        self.refused_at = -1  # ``ToldLines.times`` when it was asked last

    def wait_in(self, lines: list[RoomLine]) -> None:
        """Wait in these, and nowhere else; where it waits already it keeps its place."""
        for line in self.lines:
            if line not in lines:
                line.leave(self)
        for line in lines:
            line.join(self)
        self.lines = lines

    def is_refused(self) -> bool:
        """Whether it would be refused if it went on now; if so, it waits where that is."""
        return False

    def user(self) -> Resumable | None:
        """Who goes on; None if it is gone."""
        return None


class RoomLine:
    """Those who wait for one thing, in their order.

    Args:
        told: where this stands when it was told.
    """

    def __init__(self, told: ToldLines) -> None:
        self.looked_at = 0  # those who were asked again
        self.stands = False  # among those that were told
        self._told_lines = told
        self._waiting: dict[Waiting, int] = {}  # and the size of what it waits with
        self._sizes = WaitingSizes()
        self._told = False  # since the round began
        self._told_all = False
        self._round: list[Waiting] = []
        self._position = 0  # of the next in it
        self._another_reason = False  # why there is this round

    @property
    def length(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def rests(self) -> bool:
        """Whether all were asked since it was told."""
        return not self._round and not self._told

    def is_full(self, size_bytes: int) -> bool:
        """Whether nobody could go on with so much or more: then nobody is asked."""
        del size_bytes
        return False

    def weight(self) -> int:
        """How many sessions ``is_full`` looks at."""
        return 1

    def changed(self) -> None:
        """Somebody came or left."""

    def join(self, waiting: Waiting) -> None:
        """``waiting`` is refused here; see ``Waiting.wait_in``."""
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
        """``waiting`` waits here no more."""
        before = self._waiting.pop(waiting, -1)
        if before >= 0:
            self._sizes.remove(before)
            self.changed()

    def tell(self) -> None:
        """There may be room."""
        if self._waiting:
            self._told = True
            self._told_lines.put(self)

    def tell_all(self) -> None:
        """Whether there is room or not: who is refused here, or by what, is another question."""
        if self._waiting:
            self._told_all = True
            self.tell()

    def tell_in_tick(self) -> None:
        """Ask again a little later: memory is lacking, and whoever gives some back tells nobody."""
        self._told_lines.tell_in_tick(self)

    def ask_some(self, work_max: int, went_on: list[Resumable], now: Now) -> int:
        """Let them go on, as far as there is room, and the next portion of them; its work."""
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
        """Whether there is no room for the smallest that waits, and no other reason to ask."""
        if not self._waiting:
            return True
        return not self._another_reason and self.is_full(self._sizes.smallest())


@final
class ToldLines(Resumable):
    """The lines of one broker that were told, and whom nobody has asked there yet.

    Args:
        turn: where this is resumed.
    """

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.times = 0  # that any line was told
        self.work_max = ASKING_PER_TURN_MAX
        self._turn = turn
        self._lines: deque[RoomLine] = deque()
        self._in_tick: dict[RoomLine, None] = {}  # are told then

    def put(self, line: RoomLine) -> None:
        """``line`` was told."""
        self.times += 1
        if not line.stands:
            line.stands = True
            self._lines.append(line)
        self._turn.resume_later(self)

    def tell_in_tick(self, line: RoomLine) -> None:
        """Tell ``line`` a little later."""
        self._in_tick[line] = None

    def tick(self) -> None:
        """A little later."""
        lines = self._in_tick
        self._in_tick = {}
        for line in lines:
            line.tell()

    def resume(self, now: Now) -> None:
        """Ask the next portion, each line at most once."""
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
