"""Publishers that wait for room in one queue, or in one group: who goes on when there is some.

::

      refused ─▶ joins ── a place was given up: told ─▶ next turn: is it full for anything?
                  ▲                                         │ no: the first that waits
                  │                                         ▼
                  │  refused elsewhere now: joins there ◀─ asks again ─ refused ─▶ stays, next
                  │                                         │ not refused
                  ╰──── behind the others ── refused ────◀ goes on, and then the next

One place lets one publisher go on, however many wait for it, and who waits elsewhere hears
nothing of it.
"""

from __future__ import annotations

from penstock.engine.clock import Now
from penstock.engine.link import Resumable, Turn


class Waiting:
    """Who waits, mostly in one line."""

    def __init__(self) -> None:
        self.lines: list[RoomLine] = []

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


class RoomLine(Resumable):
    """Those who wait for one thing, in their order.

    Args:
        turn: where this is resumed.
    """

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.looked_at = 0  # those who were asked again
        self._turn = turn
        self._waiting: dict[Waiting, None] = {}
        self._another_reason = False

    @property
    def length(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def is_full(self) -> bool:
        """Whether nobody could go on, however little it is: then nobody is asked."""
        return False

    def changed(self) -> None:
        """Somebody came or left."""

    def join(self, waiting: Waiting) -> None:
        """``waiting`` is refused here; see ``Waiting.wait_in``."""
        if waiting not in self._waiting:
            self._waiting[waiting] = None
            self.changed()

    def leave(self, waiting: Waiting) -> None:
        """``waiting`` waits here no more."""
        if waiting in self._waiting:
            del self._waiting[waiting]
            self.changed()

    def tell(self) -> None:
        """There may be room."""
        if self._waiting:
            self._turn.resume_later(self)

    def tell_all(self) -> None:
        """Whether there is room or not: who is refused here, or by what, is another question."""
        if self._waiting:
            self._another_reason = True
            self._turn.resume_later(self)

    def resume(self, now: Now) -> None:
        """Let them go on, as far as there is room."""
        another_reason = self._another_reason
        self._another_reason = False
        if not another_reason and self.is_full():
            return
        for waiting in list(self._waiting):
            if not another_reason and self.is_full():
                return
            if waiting not in self._waiting:
                continue
            self.looked_at += 1
            if waiting.is_refused():
                continue
            waiting.wait_in([])
            user = waiting.user()
            if user is not None:
                user.resume(now)
                self._turn.went_on.append(user)
