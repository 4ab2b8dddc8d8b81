"""A lane: the deliveries of one priority that wait in a queue, first in, first out.

::

      new ──▶ [ tail: packed runs (offsets into the log) ]──▶[ head: deliveries ]──▶ window

Only the head, ``HEAD_LEN_MAX`` deliveries, is kept as objects with their bodies; what waits behind
it and lies in the log is packed (``packed_tail``). What leaves from the middle, a QoS 0 delivery
that has to go for a new message, or what a member of a group takes behind others, is marked as gone
where it stands, so that this costs the same however long the lane is.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.packed_run import PackedRun
from penstock.engine.fifo import Fifo
from penstock.engine.limits import FETCHED_BYTES_MAX
from penstock.engine.memory.accounts import Account
from penstock.engine.message import NOT_IN_LOG, Delivery, Message
from penstock.engine.session.packed_tail import PackedTail

HEAD_LEN_MAX: Final = 1024
HEAD_LEN_MAX_AWAY: Final = 8  # while the client is away; below it a run would cost more
_GONE_MAX: Final = 64  # marked deliveries, beside the root of how many wait


@final
class Lane:
    """The deliveries of one priority.

    Args:
        number: its priority, 0 for topics without one, else 1..255, and its slot (``queue``).
        rank: lanes with a greater rank are emptied first.
        account: the account of its user's queues.
        wakes: its client is connected.
    """

    def __init__(self, number: int, rank: int, account: Account, wakes: bool = True) -> None:
        self.number = number
        self.rank = rank
        self.count = 0
        self.entry_offset = -2  # of its head, as its rank knows it (``lanes_by_offset``)
        self._head: Fifo[Delivery] = Fifo()
        self._tail: PackedTail | None = None  # behind the head
        self.qos0_count = 0  # QoS 0 deliveries that wait
        self._qos0: Fifo[Delivery] | None = None  # those, oldest first, and some that are gone
        self._account = account
        self._gone = 0  # marked and still in the head or the tail
        self._head_len_max = HEAD_LEN_MAX if wakes else HEAD_LEN_MAX_AWAY

    def push(self, delivery: Delivery) -> None:
        """Append ``delivery``."""
        self.count += 1
        if delivery.qos == 0:
            self.qos0_count += 1
            if self._qos0 is None:
                self._qos0 = Fifo()
            self._qos0.append(delivery)
            self._account.add_qos0(delivery)
        tail = self._tail
        if tail is None:
            if len(self._head) < self._head_len_max or delivery.sequence == 0:
                self._head.append(delivery)
                if delivery.qos > 0:
                    self._account.add_waiting(delivery)
                else:
                    self._count_in(delivery)
                return
            tail = self._tail = PackedTail()
        if tail.push(delivery):
            self._account.pack(1)
        else:
            self._count_in(delivery)

    def restore(self, run: PackedRun, position: int) -> None:
        """Append what the store held of one run, from ``position`` on. Only while empty or after
        another run."""
        if self._tail is None:
            self._tail = PackedTail()
        self._tail.restore(run, position)
        self.count += len(run) - position
        self._account.pack(len(run) - position)

    def head(self) -> Delivery | None:
        """Return the next delivery, left in place."""
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
            assert self._qos0 is not None
            self._qos0.pop()
            self._leaves_qos0(delivery)
        else:
            self._account.remove_waiting(delivery)
        return delivery

    def first_qos0(self) -> Delivery | None:
        """Return the oldest QoS 0 delivery, left in place."""
        line = self._qos0
        while line is not None and len(line) > 0:
            first = line.first()
            if not first.gone:
                return first
            line.pop()
        return None

    def qos0_without_body(self, limit: int) -> list[int]:
        """Return the log offsets of the first QoS 0 deliveries whose body is not in memory.

        At most ``limit``, and ``FETCHED_BYTES_MAX`` bytes, but at least one.
        """
        return [] if self._qos0 is None else _without_body(self._qos0, limit)

    def drop_qos0(self) -> Delivery | None:
        """Take the oldest QoS 0 delivery out, wherever it stands."""
        delivery = self.first_qos0()
        if delivery is None:
            return None
        assert self._qos0 is not None
        self._qos0.pop()
        self._count_out(delivery)
        self._tidy()
        return delivery

    def lowest_offset(self, mixed: bool, stored: bool) -> int:
        """Return the lowest log offset in the lane, or -1; see ``MessageQueue.lowest_offset``."""
        lowest = -1
        for delivery in self._head.items():
            if delivery.offset >= 0 and delivery.needs_log(stored):
                if lowest < 0 or delivery.offset < lowest:
                    lowest = delivery.offset
                if not mixed:
                    return lowest
        if self._tail is not None:
            behind = self._tail.lowest_offset(mixed, stored)
            if lowest < 0 or 0 <= behind < lowest:
                lowest = behind
        return lowest

    def look(self, position: int) -> Delivery | None:
        """Return the delivery so far behind the head, which may be gone; None at the end."""
        while position >= len(self._head) and self._tail is not None:
            self._unpack()
        return self._head.at(position) if position < len(self._head) else None

    def take_out(self, delivery: Delivery) -> None:
        """Take ``delivery``, of those that were looked at, out of the middle."""
        self._count_out(delivery)
        self._tidy()

    def attach_body(self, delivery: Delivery, body: Message) -> None:
        """``delivery``, which waits here, has its body from now on."""
        self._comes(delivery, body)

    def between(self, first: int, end: int) -> list[Delivery]:
        """Return what waits with sequences from ``first`` to below ``end``, left in place; copies
        of what is packed."""
        head = self._head.items()
        found = [item for item in head if first <= item.sequence < end and not item.gone]
        if self._tail is not None:
            found.extend(self._tail.between(first, end))
        return found

    def without_body(self, limit: int) -> list[int]:
        """Return the log offsets of the first deliveries whose body is not in memory.

        At most ``limit``, and ``FETCHED_BYTES_MAX`` bytes, but at least one.
        """
        return _without_body(self._head, limit)

    def supply(self, bodies: dict[int, Message]) -> None:
        """Give the first deliveries, and the first of QoS 0, their bodies, by log offset, as far
        as they are known."""
        head = self._head
        for position in range(len(head)):
            delivery = head.at(position)
            if delivery.message is None and not delivery.gone:
                body = bodies.get(delivery.offset)
                if body is None:
                    break
                self._comes(delivery, body)
        line = self._qos0
        if line is None:
            return
        for position in range(len(line)):
            delivery = line.at(position)
            if delivery.gone:
                continue
            body = bodies.get(delivery.offset) if delivery.message is None else None
            if body is None:
                break
            self._comes(delivery, body)

    def evict_to_log(self) -> None:
        """Let go of the bodies the log has."""
        for delivery in self._unpacked_items():
            if delivery.offset >= 0 and not delivery.gone:
                self._account.remove_body(delivery)
            delivery.evict_to_log()

    def keep_bodies(self) -> None:
        """Keep what waits in memory from now on, also if it is in the log."""
        for delivery in self._unpacked_items():
            if delivery.gone or delivery.offset < 0 or delivery.message is None:
                continue  # what only the log has stays there
            if delivery.qos > 0:
                delivery.offset = NOT_IN_LOG
            else:
                self._account.remove_qos0(delivery)
                self._account.remove_body(delivery)
                delivery.offset = NOT_IN_LOG
                self._account.add_qos0(delivery)

    def sleep(self) -> None:
        """Pack what lies in the log, but for the first: the client is away."""
        self._head_len_max = HEAD_LEN_MAX_AWAY
        waiting = self._head.items()
        if self._tail is not None or len(waiting) <= HEAD_LEN_MAX_AWAY:
            return
        self._head.clear()
        for delivery in waiting:
            tail = self._tail
            if delivery.gone:
                self._gone -= 1
            elif tail is not None and tail.push(delivery):
                self._packed(delivery)
            elif tail is None and len(self._head) >= HEAD_LEN_MAX_AWAY and delivery.sequence > 0:
                tail = self._tail = PackedTail()
                tail.push(delivery)
                self._packed(delivery)
            elif tail is None:
                self._head.append(delivery)

    def _packed(self, delivery: Delivery) -> None:
        self._account.remove_waiting(delivery)
        self._account.pack(1)

    def wake(self) -> None:
        """Let the head be as long as for a connected client: the client is back."""
        self._head_len_max = HEAD_LEN_MAX

    def show(self, found: list[Delivery], limit: int) -> None:
        """Add the next deliveries to ``found``, up to ``limit`` in it; QoS 0 first in a run."""
        for delivery in self._head.items():
            if not delivery.gone and len(found) < limit:
                found.append(delivery)
        if self._tail is not None:
            self._tail.show(found, limit)

    def ended(self) -> None:
        """Note that nobody asks for what waits any more."""
        waiting = [] if self._qos0 is None else self._qos0.items()
        for delivery in waiting:
            if not delivery.gone:
                self._account.remove_qos0(delivery)
        for delivery in self._unpacked_items():
            if delivery.gone:
                continue
            if delivery.qos > 0:
                self._account.remove_waiting(delivery)
            elif delivery.offset >= 0:
                self._account.remove_body(delivery)
        if self._tail is not None:
            self._account.pack(-self._tail.packed())

    def _unpacked_items(self) -> list[Delivery]:
        """Return what is not packed; some of it may be gone."""
        found = self._head.items()
        return found if self._tail is None else found + self._tail.unpacked()

    def _count_in(self, delivery: Delivery) -> None:
        """Add an unpacked delivery to the account; of QoS 0 its body, if it is in the log too."""
        if delivery.qos > 0:
            self._account.add_waiting(delivery)
        elif delivery.offset >= 0:
            self._account.add_body(delivery)

    def _comes(self, delivery: Delivery, body: Message) -> None:
        delivery.message = body
        if delivery.qos > 0 or delivery.offset >= 0:
            self._account.add_body(delivery)

    def _count_out(self, delivery: Delivery) -> None:
        delivery.gone = True
        self.count -= 1
        self._gone += 1
        if delivery.qos == 0:
            self._leaves_qos0(delivery)
        else:
            self._account.remove_waiting(delivery)

    def _leaves_qos0(self, delivery: Delivery) -> None:
        self.qos0_count -= 1
        self._account.remove_qos0(delivery)
        if delivery.offset >= 0:
            self._account.remove_body(delivery)

    def _tidy(self) -> None:
        """Forget those marked as gone when they are many.

        That costs as much as waits, and walking past them as many as there are: so the root of it.
        """
        gone = self._gone
        if gone > _GONE_MAX and gone * gone > len(self._head) + self.qos0_count:
            head = self._head.items()
            self._head.clear()
            for delivery in head:
                if not delivery.gone:
                    self._head.append(delivery)
            if self._tail is not None:
                self._tail.forget_gone()
            self._gone = 0
        line = self._qos0
        if line is not None and len(line) > 2 * self.qos0_count + _GONE_MAX:
            waiting = line.items()
            line.clear()
            for delivery in waiting:
                if not delivery.gone:
                    line.append(delivery)

    def _unpack(self) -> None:
        """Move the next deliveries from the tail to the head."""
        tail = self._tail
        assert tail is not None
        packed_from = len(self._head)
        self._account.pack(-tail.unpack(self._head, max(1, self._head_len_max // 2)))
        for position in range(packed_from, len(self._head)):
            delivery = self._head.at(position)
            if delivery.sequence > 0:  # the others were not packed
                self._account.add_waiting(delivery)
        if tail.is_empty:
            self._tail = None


def _without_body(line: Fifo[Delivery], limit: int) -> list[int]:
    """Return the log offsets of the first deliveries in ``line``, up to the first with a body."""
    offsets: list[int] = []
    size_bytes = 0
    for position in range(len(line)):
        delivery = line.at(position)
        if delivery.gone:
            continue
        size_bytes += delivery.size_bytes
        if len(offsets) >= limit or delivery.message is not None:
            break
        if offsets and size_bytes > FETCHED_BYTES_MAX:
            break
        offsets.append(delivery.offset)
    return offsets
