"""Publishers that wait for room: the queue or store that blocks each, and when it is asked again.

A publisher is *blocked* by one thing: the queue of a session or of a group, or the store while it
cannot write. Each *blocker* has a line of the publishers that wait for it::

      refused ─▶ line of the blocker ── wake: there may be room ──▶ next turn: is it still full
                   ▲          ▲                                          │        for this size?
                   │          │                                          │ no
                   │          ╰─ refused by the same ───────────── asks the router
                   ╰── refused by another: its line, the same place ──╯  │ not refused
                                                                         ▼
                                                                     resumed

Publishers that were blocked first are asked first: a publisher has a *place*, a number, from when
it is blocked until it is resumed, and a line is in the order of the places. Room for one message
lets one publisher continue, and publishers in other lines are not asked.

The publishers of a line are asked in *rounds*. A turn asks a portion of those whose blocker was
woken; the next turn continues where it stopped. A wake during a round begins another round behind
it, so that each publisher is asked.

Nothing signals that memory is free again: a line that waits for memory is woken with each tick.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Final, final

from penstock.engine.batch.timers import Timed
from penstock.engine.clock import Now
from penstock.engine.wire.link import Link, Resumable, Turn

ASKING_PER_TURN_MAX: Final = 4_000  # sessions and members looked at for all blocked publishers
_NO_SIZE: Final = 2**62
_WORK_PER_PUBLISHER: Final = (
    10  # in the same unit: the further cost to ask or to resume a publisher
)


class Blocker(Timed):
    """The port of an object that may have no room for a message; this one always has room."""

    def refuses(self, size_bytes: int) -> bool:
        """Return whether there is no room now for a QoS 1 or 2 message of ``size_bytes``."""
        del size_bytes
        return False

    def has_memory(self) -> bool:
        """Return whether memory has a place for one more message."""
        return True

    def watch_links(self) -> None:
        """Arrange that clients that could make room are resumed when they read again."""


class BlockedPublisher:
    """The port of a client that publishes, and the blocker that it waits for.

    Args:
        link: the link of its connection, whose user is resumed when there is room.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.blocker: Blocker | None = None  # None: it is not blocked
        self.place = 0  # publishers with lower places are asked before it
        self.size_bytes = 0  # of the message that waits

    def refused_by(self) -> Blocker | None:
        """Ask the router again; return the blocker that refuses the message now, or None."""
        return None


@final
class BlockedPublishers(Resumable):
    """All blocked publishers of one broker.

    Args:
        turn: resumes this in the next turn.
    """

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.count = 0  # publishers that are blocked
        self.store = Blocker()  # blocks while the store cannot write
        self.work = 0  # sessions and members that were looked at for publishers, ever
        self.work_max = ASKING_PER_TURN_MAX
        self.asked = 0  # how often the router was asked again, ever
        self._turn = turn
        self._lines: dict[Blocker, _Line] = {}  # none is empty
        self._woken: deque[_Line] = deque()  # to be asked, or in the middle of a round
        self._in_tick: dict[Blocker, None] = {}  # memory was lacking: woken at the next tick
        self._places = 0  # given so far

    def waiting_for(self, blocker: Blocker) -> int:
        """Return how many publishers ``blocker`` blocks."""
        line = self._lines.get(blocker)
        return 0 if line is None else len(line.publishers)

    def wait(self, publisher: BlockedPublisher, blocker: Blocker, size_bytes: int) -> None:
        """Block ``publisher``: ``blocker`` refuses its message of ``size_bytes``.

        A publisher that is blocked already keeps its place, even if it was by another blocker.
        """
        if publisher.blocker is None:
            self._places += 1
            publisher.place = self._places
        elif publisher.blocker is not blocker:
            self._take_out(publisher, publisher.blocker)
        line = self._lines.get(blocker)
        if line is None:
            line = self._lines[blocker] = _Line(blocker)
        if publisher.blocker is not blocker:
            publisher.blocker = blocker
            line.put(publisher)
            self.count += 1
        publisher.size_bytes = size_bytes
        line.smallest_bytes = min(line.smallest_bytes, size_bytes)
        line.smallest_in_round = min(line.smallest_in_round, size_bytes)
        blocker.watch_links()
        if not blocker.has_memory():
            self._in_tick[blocker] = None

    def remove(self, publisher: BlockedPublisher) -> None:
        """Remove ``publisher`` from its line, if it is blocked."""
        if publisher.blocker is not None:
            self._take_out(publisher, publisher.blocker)
            publisher.blocker = None

    def wake(self, blocker: Blocker, changed: bool = False) -> None:
        """Ask the publishers that ``blocker`` blocks in the next turn: there may be room.

        Args:
            blocker: the queue, group or store that may have room.
            changed: whether limits, subscriptions or permissions changed, so that the router is
                asked for each publisher even if there is no room.
        """
        line = self._lines.get(blocker)
        if line is None:
            return
        if line.is_idle:
            self._woken.append(line)
        line.woken = True
        line.changed = line.changed or changed
        self._turn.resume_later(self)

    def tick(self) -> None:
        """Wake the lines that wait for memory."""
        blockers = self._in_tick
        self._in_tick = {}
        for blocker in blockers:
            self.wake(blocker)

    def resume(self, now: Now) -> None:
        """Ask the next portion, each line at most once."""
        end = self.work + self.work_max
        for _ in range(len(self._woken)):
            if self.work >= end:
                break
            line = self._woken.popleft()
            self._ask_line(line, end, now)
            if not line.is_idle:
                self._woken.append(line)
        if self._woken:
            self._turn.resume_later(self)

    def _ask_line(self, line: _Line, end: int, now: Now) -> None:
        """Ask the publishers of ``line`` until the round is over, or ``work`` is at ``end``."""
        line.begin_round()
        while line.at < len(line.publishers):
            if not line.asks_all and self._is_full(line.blocker, line.smallest_bytes):
                line.round_over = True
                return
            publisher = line.publishers[line.at]
            line.at += 1
            size_bytes = publisher.size_bytes
            if (
                line.asks_all
                or size_bytes == line.smallest_bytes
                or not self._is_full(line.blocker, size_bytes)
            ):
                self._ask(publisher, now)
            if publisher.blocker is line.blocker:
                line.smallest_in_round = min(line.smallest_in_round, publisher.size_bytes)
            if self.work >= end and line.at < len(line.publishers):
                return
        line.smallest_bytes = line.smallest_in_round
        line.round_over = True

    def _is_full(self, blocker: Blocker, size_bytes: int) -> bool:
        self.work += 1
        if not blocker.refuses(size_bytes):
            return False
        if not blocker.has_memory():
            self._in_tick[blocker] = None
        return True

    def _ask(self, publisher: BlockedPublisher, now: Now) -> None:
        """Ask the router about one publisher: it stays in line, changes the line, or is resumed."""
        self.asked += 1
        self.work += _WORK_PER_PUBLISHER
        blocker = publisher.refused_by()
        if blocker is not None:
            self.wait(publisher, blocker, publisher.size_bytes)
            return
        self.remove(publisher)
        user = publisher.link.user
        if user is not None:
            user.resume(now)
            self._turn.resumed_for_room.append(user)
            self.work += _WORK_PER_PUBLISHER

    def _take_out(self, publisher: BlockedPublisher, blocker: Blocker) -> None:
        line = self._lines[blocker]
        line.take_out(publisher)
        self.count -= 1
        if not line.publishers:
            del self._lines[blocker]


@final
class _Line:
    """The publishers that one blocker blocks, by their places, and its round.

    Args:
        blocker: the queue, group or store that blocks them.
    """

    def __init__(self, blocker: Blocker) -> None:
        self.blocker = blocker
        self.publishers: list[BlockedPublisher] = []
        self.smallest_bytes = _NO_SIZE  # no message that waits is smaller
        self.woken = False  # since the round began
        self.changed = False  # likewise, for another reason than room
        self.round_over = True
        self.asks_all = False  # the round asks the router for each, whether there is room or not
        self.at = 0  # index of the next publisher of the round
        self.smallest_in_round = _NO_SIZE  # of publishers asked, or added, since the round began

    @property
    def is_idle(self) -> bool:
        """Return whether all publishers were asked since the line was woken last."""
        return self.round_over and not self.woken

    def begin_round(self) -> None:
        """Begin a round, unless one is under way."""
        if self.round_over:
            self.round_over = False
            self.asks_all = self.changed
            self.woken = self.changed = False
            self.at = 0
            self.smallest_in_round = _NO_SIZE

    def put(self, publisher: BlockedPublisher) -> None:
        """Insert ``publisher`` at its place."""
        index = self._index(publisher.place)
        self.publishers.insert(index, publisher)
        if index < self.at:
            self.at += 1

    def take_out(self, publisher: BlockedPublisher) -> None:
        """Remove ``publisher``, which must be there."""
        index = self._index(publisher.place)
        assert self.publishers[index] is publisher
        del self.publishers[index]
        if index < self.at:
            self.at -= 1

    def _index(self, place: int) -> int:
        """Return the index of the first publisher that is not before ``place``."""
        return bisect_left(self.publishers, place, key=_place_of)


def _place_of(publisher: BlockedPublisher) -> int:
    return publisher.place
