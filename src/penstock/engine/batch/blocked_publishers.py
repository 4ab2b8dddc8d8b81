"""Publishers that wait for room: what blocks each of them, and when its message is checked again.

A publisher is *blocked* by one thing: the queue of a session or of a group, or the store while it
cannot write. Each *blocker* has a line of the publishers that wait for it::

      refused ─▶ line of the blocker ── wake: there may be room ──▶ next turn: is the blocker still
                   ▲          ▲                                          │    full for this size?
                   │          │                                          │ no
                   │          ╰─ refused by the same ──────── the router checks the message
                   ╰── refused by another: its line, its old number ──╯  │ not refused
                                                                         ▼
                                                                     resumed

Publishers that were blocked first are checked first: a publisher has a number from when it is
blocked until it is resumed, and a line is in the order of these numbers. Room for one message lets
one publisher continue, and publishers in other lines are not checked.

The publishers of a line are checked in *rounds*. A turn checks some of the publishers whose blocker
was woken; the next turn continues with the next publisher. A wake during a round begins another
round after it, so that each publisher is checked.

Nothing signals that memory is free again: a line that waits for memory is woken with each tick.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Final, final

from penstock.engine.batch.timers import TimerTarget
from penstock.engine.values.clock import Now
from penstock.engine.waiting import Resumable, Waiting
from penstock.engine.wire.link import Link

CHECKS_PER_TURN_MAX: Final = 4_000  # sessions and members checked for all blocked publishers
_NO_SIZE: Final = 2**62
_WORK_PER_PUBLISHER: Final = (
    10  # in the same unit: the further cost of checking or resuming a publisher
)


class Blocker(TimerTarget):
    """The port of an object that may have no room for a message; the base always has room."""

    def refuses(self, size_bytes: int) -> bool:
        """Return whether there is no room now for a QoS 1 or 2 message of ``size_bytes``."""
        del size_bytes
        return False

    def has_memory(self) -> bool:
        """Return whether memory has room for one more message."""
        return True

    def watch_links(self) -> None:
        """Have the clients that could make room resumed when their links have room again."""


class BlockedPublisher:
    """The port of a client that publishes, and the blocker that it waits for.

    Args:
        link: the link of its connection, which is resumed when there is room.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.blocker: Blocker | None = None  # None: it is not blocked
        self.number = 0  # in line: publishers with lower numbers are checked first
        self.size_bytes = 0  # of the message that waits

    def find_blocker(self) -> Blocker | None:
        """Check the message again; return the blocker that refuses it now, or None."""
        return None


@final
class BlockedPublishers(Resumable):
    """All blocked publishers of one broker.

    Args:
        waiting: resumes the check of woken lines in the next turn.
    """

    def __init__(self, waiting: Waiting) -> None:
        super().__init__()
        self.count = 0  # publishers that are blocked
        self.store = Blocker()  # blocks while the store cannot write
        self.work = 0  # sessions and members that were checked for publishers, since the start
        self.work_max = CHECKS_PER_TURN_MAX
        self.rechecks = 0  # messages that the router checked again, since the start
        self._waiting = waiting
        self._lines: dict[Blocker, _Line] = {}  # no line is empty
        self._woken_lines: deque[_Line] = deque()  # lines that were woken, or are in a round
        self._woken_in_tick: dict[Blocker, None] = {}  # without memory: woken in the next tick
        self._last_number = 0  # the last one that was assigned

    def count_blocked_by(self, blocker: Blocker) -> int:
        """Return the number of publishers that ``blocker`` blocks."""
        line = self._lines.get(blocker)
        return 0 if line is None else len(line.publishers)

    def block(self, publisher: BlockedPublisher, blocker: Blocker, size_bytes: int) -> None:
        """Add ``publisher`` to the line of ``blocker``, which refuses its message of
        ``size_bytes``.

        A publisher that is blocked already, also by another blocker, keeps its number; the size
        may be another one. Sizes do not order a line; the smallest one says when nobody in it can
        go on.
        """
        if publisher.blocker is None:
            self._last_number += 1
            publisher.number = self._last_number
        elif publisher.blocker is not blocker:
            self._remove_from_line(publisher, publisher.blocker)
        line = self._lines.get(blocker)
        if line is None:
            line = self._lines[blocker] = _Line(blocker)
        if publisher.blocker is not blocker:
            publisher.blocker = blocker
            line.insert(publisher)
            self.count += 1
        publisher.size_bytes = size_bytes
        line.smallest_bytes = min(line.smallest_bytes, size_bytes)
        line.smallest_in_round = min(line.smallest_in_round, size_bytes)
        blocker.watch_links()
        if not blocker.has_memory():
            self._woken_in_tick[blocker] = None

    def remove(self, publisher: BlockedPublisher) -> None:
        """Remove ``publisher`` from its line, if it is blocked."""
        if publisher.blocker is not None:
            self._remove_from_line(publisher, publisher.blocker)
            publisher.blocker = None

    def wake(self, blocker: Blocker, limits_changed: bool = False) -> None:
        """Check the publishers that ``blocker`` blocks in the next turn: there may be room.

        Args:
            blocker: the queue, group or store that may have room.
            limits_changed: whether limits, subscriptions or permissions changed, so that the router
                checks the message of each publisher, even if the blocker has no room.
        """
        line = self._lines.get(blocker)
        if line is None:
            return
        if line.is_idle:
            self._woken_lines.append(line)
        line.is_woken = True
        line.is_recheck = line.is_recheck or limits_changed
        self._waiting.until_turn(self)

    def tick(self) -> None:
        """Wake the lines that wait for memory."""
        blockers = self._woken_in_tick
        self._woken_in_tick = {}
        for blocker in blockers:
            self.wake(blocker)

    def resume(self, now: Now) -> None:
        """Check the next publishers of woken lines, each line at most once, up to ``work_max``."""
        end = self.work + self.work_max
        for _ in range(len(self._woken_lines)):
            if self.work >= end:
                break
            line = self._woken_lines.popleft()
            self._check_line(line, end, now)
            if not line.is_idle:
                self._woken_lines.append(line)
        if self._woken_lines:
            self._waiting.until_turn(self)

    def _check_line(self, line: _Line, end: int, now: Now) -> None:
        """Check the publishers of ``line`` until the round is over, or ``work`` is at ``end``."""
        line.begin_round()
        while line.next_index < len(line.publishers):
            if not line.checks_all and self._is_full(line.blocker, line.smallest_bytes):
                line.is_round_over = True
                return
            publisher = line.publishers[line.next_index]
            line.next_index += 1
            size_bytes = publisher.size_bytes
            if (
                line.checks_all
                or size_bytes == line.smallest_bytes
                or not self._is_full(line.blocker, size_bytes)
            ):
                self._check(publisher, now)
            if publisher.blocker is line.blocker:
                line.smallest_in_round = min(line.smallest_in_round, publisher.size_bytes)
            if self.work >= end and line.next_index < len(line.publishers):
                return
        line.smallest_bytes = line.smallest_in_round
        line.is_round_over = True

    def _is_full(self, blocker: Blocker, size_bytes: int) -> bool:
        self.work += 1
        if not blocker.refuses(size_bytes):
            return False
        if not blocker.has_memory():
            self._woken_in_tick[blocker] = None
        return True

    def _check(self, publisher: BlockedPublisher, now: Now) -> None:
        """Check the message of one publisher, which stays in line, changes the line, or is
        resumed."""
        self.rechecks += 1
        self.work += _WORK_PER_PUBLISHER
        blocker = publisher.find_blocker()
        if blocker is not None:
            self.block(publisher, blocker, publisher.size_bytes)
            return
        self.remove(publisher)
        connection = publisher.link.resumable
        if connection is not None:
            connection.resume(now)
            self._waiting.note_resumed(connection)
            self.work += _WORK_PER_PUBLISHER

    def _remove_from_line(self, publisher: BlockedPublisher, blocker: Blocker) -> None:
        line = self._lines[blocker]
        line.remove(publisher)
        self.count -= 1
        if not line.publishers:
            del self._lines[blocker]


@final
class _Line:
    """The publishers that one blocker blocks, in the order of their places, and the round.

    Args:
        blocker: the queue, group or store that blocks them.
    """

    def __init__(self, blocker: Blocker) -> None:
        self.blocker = blocker
        self.publishers: list[BlockedPublisher] = []
        self.smallest_bytes = _NO_SIZE  # no message that waits is smaller
        self.is_woken = False  # whether the line was woken since the round began
        self.is_recheck = False  # whether one of these wakes was for another reason than room
        self.is_round_over = True
        self.checks_all = False  # whether this round checks every message, with or without room
        self.next_index = 0  # index of the next publisher of the round
        self.smallest_in_round = _NO_SIZE  # of publishers checked or added since the round began

    @property
    def is_idle(self) -> bool:
        """Return whether all publishers were checked since the line was last woken."""
        return self.is_round_over and not self.is_woken

    def begin_round(self) -> None:
        """Begin a round, unless one is under way."""
        if self.is_round_over:
            self.is_round_over = False
            self.checks_all = self.is_recheck
            self.is_woken = self.is_recheck = False
            self.next_index = 0
            self.smallest_in_round = _NO_SIZE

    def insert(self, publisher: BlockedPublisher) -> None:
        """Insert ``publisher`` by its number."""
        index = self._index(publisher.number)
        self.publishers.insert(index, publisher)
        if index < self.next_index:
            self.next_index += 1

    def remove(self, publisher: BlockedPublisher) -> None:
        """Remove ``publisher``, which must be in the line."""
        index = self._index(publisher.number)
        assert self.publishers[index] is publisher
        del self.publishers[index]
        if index < self.next_index:
            self.next_index -= 1

    def _index(self, number: int) -> int:
        """Return the index of the first publisher whose number is ``number`` or greater."""
        return bisect_left(self.publishers, number, key=_number_of)


def _number_of(publisher: BlockedPublisher) -> int:
    return publisher.number
