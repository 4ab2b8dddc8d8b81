"""A lane: the deliveries of one priority that wait in a queue, first in, first out.

::

      new ──▶ [ packed runs (offsets into the log) ]──▶[ head: deliveries ]──▶ window
                          ╰ between them: QoS 0, which no run holds

Only the head, ``HEAD_LEN_MAX`` deliveries, is kept as objects with their bodies; what
waits behind it and lies in the log is packed. What leaves from the middle, a QoS 0 delivery
that has to go for a new message, or what another member of a group takes over, is marked as
gone where it stands, so that this costs the same however long the lane is.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from penstock.engine.fifo import Fifo
from penstock.engine.kept import Kept
from penstock.engine.message import Delivery, Message
from penstock.engine.runs import Run

HEAD_LEN_MAX: Final = 1024
_UNPACKED_AT_ONCE: Final = 512
_GONE_MAX: Final = 64  # marked deliveries beside as many as there are others


@final
class Lane:
    """The deliveries of one priority.

    Args:
        number: its priority, 0 for topics without one, else 1..255, and its slot (``queue``).
        rank: lanes with a greater rank are emptied first.
        kept: what the queues of all sessions hold in memory.
    """

    def __init__(self, number: int, rank: int, kept: Kept) -> None:
        self.number = number
        self.rank = rank
        self.count = 0
        self._head: Fifo[Delivery] = Fifo()
        self._runs: deque[Run] = deque()
        self._is_packed = False  # whether there are any
        self._at = 0  # in the first run
        self._between: deque[tuple[int, Delivery]] = deque()  # before this sequence of a run
        self.qos0_count = 0  # QoS 0 deliveries that wait
        self._qos0: deque[Delivery] = deque()  # those, oldest first, and some that are gone
        self._kept = kept
        self._gone = 0  # marked and still in ``_head`` or ``_between``

    def push(self, delivery: Delivery) -> None:
        """Append ``delivery``."""
        self.count += 1
        if delivery.qos == 0:
            self.qos0_count += 1
            self._qos0.append(delivery)
            self._kept.add_qos0(delivery)
        if not self._is_packed and (len(self._head) < HEAD_LEN_MAX or delivery.sequence == 0):
            self._head.append(delivery)
        elif delivery.sequence == 0:
            self._between.append((self._runs[-1].end, delivery))
        else:
            self._kept.pack(1)
            if not self._is_packed or not self._runs[-1].put(delivery):
                run = Run(delivery.sequence)
                run.put(delivery)
                self._runs.append(run)
                self._is_packed = True

    def restore(self, run: Run, position: int) -> None:
        """Append what the store held of one run, from ``position`` on. Only while empty or after
        another run."""
        if not self._is_packed:
            self._at = position
        self._runs.append(run)
        self._is_packed = True
        self.count += len(run) - position
        self._kept.pack(len(run) - position)

    def head(self) -> Delivery | None:
        """The next delivery, left in place."""
        if self.count == 0:
            return None
        while True:
            if len(self._head) == 0:
                self._unpack()
            first = self._head.first()
            if not first.gone:
                return first
            self._head.pop()
            self._gone -= 1

    def pop(self) -> Delivery:
        """Take the next delivery. The lane must not be empty."""
        delivery = self.head()
        assert delivery is not None
        self._head.pop()
        self.count -= 1
        if delivery.qos == 0:
            self.first_qos0()
            self._qos0.popleft()
            self._leaves_qos0(delivery)
        return delivery

    def first_qos0(self) -> Delivery | None:
        """The oldest QoS 0 delivery, left in place."""
        while self._qos0:
            first = self._qos0[0]
            if not first.gone:
                return first
            self._qos0.popleft()
        return None

    def qos0_without_body(self, limit: int) -> list[int]:
        """Log offsets of the first QoS 0 deliveries whose body is not in memory."""
        offsets: list[int] = []
        for delivery in self._qos0:
            if delivery.gone:
                continue
            if len(offsets) >= limit or delivery.message is not None:
                break
            offsets.append(delivery.offset)
        return offsets

    def drop_qos0(self) -> Delivery | None:
        """Take the oldest QoS 0 delivery out, wherever it stands."""
        delivery = self.first_qos0()
        if delivery is None:
            return None
        self._qos0.popleft()
        self._leaves_middle(delivery)
        self._tidy()
        return delivery

    def lowest_offset(self, mixed: bool, stored: bool) -> int:
        """The lowest log offset in the lane, or -1; see ``MessageQueue.lowest_offset``."""
        lowest = -1
        for delivery in self._head.items():
            if delivery.offset >= 0 and _needs_log(delivery, stored):
                if lowest < 0 or delivery.offset < lowest:
                    lowest = delivery.offset
                if not mixed:
                    return lowest
        if mixed:
            for _, delivery in self._between:
                is_lower = lowest < 0 or delivery.offset < lowest
                if is_lower and delivery.offset >= 0 and _needs_log(delivery, stored):
                    lowest = delivery.offset
        at = self._at
        for run in self._runs:
            offset = min(run.offsets[at:]) if mixed else run.offsets[at]
            if lowest < 0 or offset < lowest:
                lowest = offset
            if not mixed:
                return lowest
            at = 0
        return lowest

    def unpacked(self, limit: int) -> list[Delivery]:
        """The next deliveries themselves, none of them packed any more."""
        while self._is_packed and len(self._head) < limit + self._gone:
            self._unpack()
        found: list[Delivery] = []
        for delivery in self._head.items():
            if len(found) >= limit:
                break
            if not delivery.gone:
                found.append(delivery)
        return found

    def remove(self, gone: set[Delivery]) -> list[Delivery]:
        """Take out those of ``gone``, of ``unpacked``, that are in here, and them out of ``gone``;
        they are returned."""
        removed: list[Delivery] = []
        for delivery in self._head.items():
            if not gone:
                break
            if delivery in gone:
                gone.remove(delivery)
                removed.append(delivery)
        for delivery in removed:
            self._leaves_middle(delivery)
        self._tidy()
        return removed

    def between(self, first: int, end: int) -> list[Delivery]:
        """What waits with sequences from ``first`` to below ``end``, left in place; copies of
        what is packed."""
        head = self._head.items()
        found = [item for item in head if first <= item.sequence < end and not item.gone]
        at = self._at
        for run in self._runs:
            if run.first >= end:
                break
            start = max(at, first - run.first)
            stop = min(len(run), end - run.first)
            found.extend([run.delivery(position) for position in range(start, stop)])
            at = 0
        return found

    def without_body(self, limit: int) -> list[int]:
        """Log offsets of the first deliveries whose body is not in memory, at most ``limit``."""
        offsets: list[int] = []
        for delivery in self._head.items():
            if delivery.gone:
                continue
            if len(offsets) >= limit or delivery.message is not None:
                break
            offsets.append(delivery.offset)
        return offsets

    def supply(self, bodies: dict[int, Message]) -> None:
        """Give the first deliveries, and the first of QoS 0, their bodies, by log offset, as far
        as they are known."""
        for delivery in self._head.items():
            if delivery.message is None and not delivery.gone:
                body = bodies.get(delivery.offset)
                if body is None:
                    break
                delivery.message = body
        for delivery in self._qos0:
            if delivery.gone:
                continue
            body = bodies.get(delivery.offset) if delivery.message is None else None
            if body is None:
                break
            delivery.message = body

    def rest_in_log(self) -> None:
        """Let go of the bodies the log has."""
        for delivery in self._head.items():
            delivery.rest_in_log()
        for _, delivery in self._between:
            delivery.rest_in_log()

    def show(self, found: list[Delivery], limit: int) -> None:
        """Add the next deliveries to ``found``, up to ``limit`` in it; QoS 0 first in a run."""
        for delivery in self._head.items():
            if not delivery.gone and len(found) < limit:
                found.append(delivery)
        for _, delivery in self._between:
            if not delivery.gone and len(found) < limit:
                found.append(delivery)
        at = self._at
        for run in self._runs:
            stop = min(len(run), at + limit - len(found))
            found.extend([run.delivery(position) for position in range(at, stop)])
            at = 0

    def ended(self) -> None:
        """Nobody asks for what waits any more."""
        for delivery in self._qos0:
            if not delivery.gone:
                self._kept.remove_qos0(delivery)
        packed = -self._at
        for run in self._runs:
            packed += len(run)
        self._kept.pack(-packed)

    def _leaves_middle(self, delivery: Delivery) -> None:
        delivery.gone = True
        self.count -= 1
        self._gone += 1
        if delivery.qos == 0:
            self._leaves_qos0(delivery)

    def _leaves_qos0(self, delivery: Delivery) -> None:
        self.qos0_count -= 1
        self._kept.remove_qos0(delivery)

    def _tidy(self) -> None:
        """Forget those marked as gone when they are many."""
        if self._gone > _GONE_MAX and self._gone > self.qos0_count:
            head = self._head.items()
            self._head.clear()
            for delivery in head:
                if not delivery.gone:
                    self._head.append(delivery)
            self._between = deque([pair for pair in self._between if not pair[1].gone])
            self._gone = 0
        if len(self._qos0) > 2 * self.qos0_count + _GONE_MAX:
            self._qos0 = deque([item for item in self._qos0 if not item.gone])

    def _unpack(self) -> None:
        """Move the next deliveries from the runs to the head."""
        head = self._head
        run = self._runs[0]
        stop = min(len(run), self._at + _UNPACKED_AT_ONCE)
        for position in range(self._at, stop):
            while self._between and self._between[0][0] <= run.first + position:
                head.append(self._between.popleft()[1])
            head.append(run.delivery(position))
        self._kept.pack(self._at - stop)
        self._at = stop
        if stop == len(run):
            self._runs.popleft()
            self._is_packed = len(self._runs) > 0
            self._at = 0
        if not self._is_packed:
            for _, delivery in self._between:
                head.append(delivery)
            self._between.clear()


def _needs_log(delivery: Delivery, stored: bool) -> bool:
    """Whether what is in the log is needed from there: by a session that is ``stored``, which lets
    go of bodies while its client is away; for want of the body; or by whoever takes it over, who
    gets no more than its offset."""
    if delivery.gone:
        return False
    return stored or delivery.message is None or delivery.shared is not None
