"""A lane: the deliveries of one priority that wait in a queue, first in, first out.

::

      new ──▶ [ tail: packed runs (offsets into the log) ]──▶[ head: deliveries ]──▶ window

Only the head, at most ``HEAD_LEN_MAX`` deliveries, has objects with bodies; deliveries behind it
that are in the log are packed (``packed_tail``). A delivery that is removed from the middle, to
make room or because a member of a group took it, is only marked as gone, so that its removal takes
the same time in a long lane.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.memory.pool import Pool
from penstock.engine.session.packed_tail import PackedTail
from penstock.engine.values.fifo import Fifo
from penstock.engine.values.limits import FETCHED_BYTES_MAX
from penstock.engine.values.message import NOT_IN_LOG, Delivery, Message
from penstock.engine.values.packed_run import PackedRun

HEAD_LEN_MAX: Final = 1024
HEAD_LEN_MAX_OFFLINE: Final = 8  # while the client is offline; so few take less than a packed run
_REMOVED_MAX: Final = 64  # deliveries marked as gone before the lane is compacted


@final
class Lane:
    """The deliveries of one priority.

    Args:
        number: its priority, 0 for topics without one, else 1..255, and its slot (``queue``).
        rank: deliveries of lanes with a greater rank are sent first.
        account: the memory account in which the deliveries count.
        is_connected: whether the client is connected.
    """

    def __init__(self, number: int, rank: int, account: Pool, is_connected: bool = True) -> None:
        self.number = number
        self.rank = rank
        self.count = 0
        self.entry_offset = -2  # the offset of its head in the heap of ``lanes_by_offset``
        self._head: Fifo[Delivery] = Fifo()
        self._tail: PackedTail | None = None  # the deliveries behind the head
        self.qos0_count = 0  # waiting QoS 0 deliveries
        self._qos0_line: Fifo[Delivery] | None = None  # oldest first, some marked as gone
        self._account = account
        self._removed_count = 0  # deliveries marked as gone that are still in the head or the tail
        self._head_len_max = HEAD_LEN_MAX if is_connected else HEAD_LEN_MAX_OFFLINE

    def push(self, delivery: Delivery) -> None:
        """Append ``delivery``."""
        self.count += 1
        if delivery.qos == 0:
            self.qos0_count += 1
            if self._qos0_line is None:
                self._qos0_line = Fifo()
            self._qos0_line.append(delivery)
            self._account.add_qos0(delivery)
        tail = self._tail
        if tail is None:
            if len(self._head) < self._head_len_max or delivery.sequence == 0:
                self._head.append(delivery)
                if delivery.qos > 0:
                    self._account.add_waiting(delivery)
                else:
                    self._add_to_account(delivery)
                return
            tail = self._tail = PackedTail()
        if tail.push(delivery):
            self._account.count_packed(1)
        else:
            self._add_to_account(delivery)

    def restore(self, run: PackedRun, position: int) -> None:
        """Append the deliveries of a stored run from ``position`` on.

        The lane must be empty, or end with another stored run.
        """
        if self._tail is None:
            self._tail = PackedTail()
        self._tail.restore(run, position)
        self.count += len(run) - position
        self._account.count_packed(len(run) - position)

    def head(self) -> Delivery | None:
        """Return the first delivery, and leave it in place; None if the lane is empty."""
        if self.count == 0:
            return None
        while True:
            if len(self._head) == 0:
                self._unpack()
            first = self._head.first()
            if not first.is_removed:
                return first
            self._head.pop()
            self._removed_count -= 1

    def pop(self) -> Delivery:
        """Remove and return the first delivery. The lane must not be empty."""
        delivery = self.head()
        assert delivery is not None
        self._head.pop()
        self.count -= 1
        if delivery.qos == 0:
            self.first_qos0()
            assert self._qos0_line is not None
            self._qos0_line.pop()
            self._uncount_qos0(delivery)
        else:
            self._account.remove_waiting(delivery)
        return delivery

    def first_qos0(self) -> Delivery | None:
        """Return the oldest QoS 0 delivery, and leave it in place; None if there is none."""
        line = self._qos0_line
        while line is not None and len(line) > 0:
            first = line.first()
            if not first.is_removed:
                return first
            line.pop()
        return None

    def qos0_offsets_without_body(self, limit: int) -> list[int]:
        """Return the log offsets of the first QoS 0 deliveries, up to the first with a body.

        Return at most ``limit``, with at most ``FETCHED_BYTES_MAX`` bytes, but at least one if the
        first has no body.
        """
        return [] if self._qos0_line is None else _without_body(self._qos0_line, limit)

    def drop_qos0(self) -> Delivery | None:
        """Remove the oldest QoS 0 delivery from any position and return it; None if there is
        none."""
        delivery = self.first_qos0()
        if delivery is None:
            return None
        assert self._qos0_line is not None
        self._qos0_line.pop()
        self._mark_removed(delivery)
        self._compact()
        return delivery

    def lowest_offset(self, is_unordered: bool, is_stored: bool) -> int:
        """Return the lowest log offset in the lane, or -1; see ``MessageQueue.lowest_offset``."""
        lowest = -1
        for delivery in self._head.items():
            if delivery.offset >= 0 and delivery.needs_log(is_stored):
                if lowest < 0 or delivery.offset < lowest:
                    lowest = delivery.offset
                if not is_unordered:
                    return lowest
        if self._tail is not None:
            behind = self._tail.lowest_offset(is_unordered, is_stored)
            if lowest < 0 or 0 <= behind < lowest:
                lowest = behind
        return lowest

    def peek(self, position: int) -> Delivery | None:
        """Return the delivery at ``position``, 0 = the first, or None behind the last.

        It is left in place, and may be marked as gone.
        """
        while position >= len(self._head) and self._tail is not None:
            self._unpack()
        return self._head.at(position) if position < len(self._head) else None

    def remove(self, delivery: Delivery) -> None:
        """Remove ``delivery``, which ``peek`` returned, from the middle of the lane."""
        self._mark_removed(delivery)
        self._compact()

    def attach_body(self, delivery: Delivery, body: Message) -> None:
        """Set the body of ``delivery``, which is in this lane."""
        self._set_body(delivery, body)

    def deliveries_between(self, first: int, end: int) -> list[Delivery]:
        """Return the deliveries with sequences from ``first`` to below ``end``, left in place.

        Packed deliveries are returned as copies.
        """
        head = self._head.items()
        found = [item for item in head if first <= item.sequence < end and not item.is_removed]
        if self._tail is not None:
            found.extend(self._tail.deliveries_between(first, end))
        return found

    def offsets_without_body(self, limit: int) -> list[int]:
        """Return the log offsets of the first deliveries, up to the first with a body.

        Return at most ``limit``, with at most ``FETCHED_BYTES_MAX`` bytes, but at least one if the
        first has no body.
        """
        return _without_body(self._head, limit)

    def supply(self, bodies: dict[int, Message]) -> None:
        """Set ``bodies``, by log offset, of the first deliveries, and of the first QoS 0
        deliveries."""
        head = self._head
        for position in range(len(head)):
            delivery = head.at(position)
            if delivery.message is None and not delivery.is_removed:
                body = bodies.get(delivery.offset)
                if body is None:
                    break
                self._set_body(delivery, body)
        line = self._qos0_line
        if line is None:
            return
        for position in range(len(line)):
            delivery = line.at(position)
            if delivery.is_removed:
                continue
            body = bodies.get(delivery.offset) if delivery.message is None else None
            if body is None:
                break
            self._set_body(delivery, body)

    def evict_to_log(self) -> None:
        """Release the bodies that the log has."""
        for delivery in self._unpacked_items():
            if delivery.offset >= 0 and not delivery.is_removed:
                self._account.remove_body(delivery)
            delivery.evict_to_log()

    def keep_bodies(self) -> None:
        """Clear the log offsets of deliveries with a body, so that these bodies stay in memory."""
        for delivery in self._unpacked_items():
            if delivery.is_removed or delivery.offset < 0 or delivery.message is None:
                continue  # a body that is not in memory stays in the log
            if delivery.qos > 0:
                delivery.offset = NOT_IN_LOG
            else:
                self._account.remove_qos0(delivery)
                self._account.remove_body(delivery)
                delivery.offset = NOT_IN_LOG
                self._account.add_qos0(delivery)

    def client_disconnected(self) -> None:
        """Pack the deliveries that are in the log, except the first few: the client is offline."""
        self._head_len_max = HEAD_LEN_MAX_OFFLINE
        waiting = self._head.items()
        if self._tail is not None or len(waiting) <= HEAD_LEN_MAX_OFFLINE:
            return
        self._head.clear()
        for delivery in waiting:
            tail = self._tail
            if delivery.is_removed:
                self._removed_count -= 1
            elif tail is not None and tail.push(delivery):
                self._count_packed(delivery)
            elif tail is None and len(self._head) >= HEAD_LEN_MAX_OFFLINE and delivery.sequence > 0:
                tail = self._tail = PackedTail()
                tail.push(delivery)
                self._count_packed(delivery)
            elif tail is None:
                self._head.append(delivery)

    def _count_packed(self, delivery: Delivery) -> None:
        self._account.remove_waiting(delivery)
        self._account.count_packed(1)

    def client_connected(self) -> None:
        """Let the head grow to ``HEAD_LEN_MAX``: the client is connected."""
        self._head_len_max = HEAD_LEN_MAX

    def append_waiting(self, found: list[Delivery], limit: int) -> None:
        """Append the next deliveries to ``found``, until ``found`` has ``limit``.

        Behind the head, deliveries that are not packed come before packed ones.
        """
        for delivery in self._head.items():
            if not delivery.is_removed and len(found) < limit:
                found.append(delivery)
        if self._tail is not None:
            self._tail.append_waiting(found, limit)

    def leave_account(self) -> None:
        """Subtract all deliveries from the account: the queue ended."""
        waiting = [] if self._qos0_line is None else self._qos0_line.items()
        for delivery in waiting:
            if not delivery.is_removed:
                self._account.remove_qos0(delivery)
        for delivery in self._unpacked_items():
            if delivery.is_removed:
                continue
            if delivery.qos > 0:
                self._account.remove_waiting(delivery)
            elif delivery.offset >= 0:
                self._account.remove_body(delivery)
        if self._tail is not None:
            self._account.count_packed(-self._tail.packed_count())

    def _unpacked_items(self) -> list[Delivery]:
        """Return the deliveries that are not packed; some may be marked as gone."""
        found = self._head.items()
        return found if self._tail is None else found + self._tail.unpacked_deliveries()

    def _add_to_account(self, delivery: Delivery) -> None:
        """Add an unpacked delivery to the account; at QoS 0 only a body that is in the log too."""
        if delivery.qos > 0:
            self._account.add_waiting(delivery)
        elif delivery.offset >= 0:
            self._account.add_body(delivery)

    def _set_body(self, delivery: Delivery, body: Message) -> None:
        delivery.message = body
        if delivery.qos > 0 or delivery.offset >= 0:
            self._account.add_body(delivery)

    def _mark_removed(self, delivery: Delivery) -> None:
        delivery.is_removed = True
        self.count -= 1
        self._removed_count += 1
        if delivery.qos == 0:
            self._uncount_qos0(delivery)
        else:
            self._account.remove_waiting(delivery)

    def _uncount_qos0(self, delivery: Delivery) -> None:
        self.qos0_count -= 1
        self._account.remove_qos0(delivery)
        if delivery.offset >= 0:
            self._account.remove_body(delivery)

    def _compact(self) -> None:
        """Remove the deliveries marked as gone from the lists, if there are many.

        The removal takes time in proportion to the length of the lane, and to skip marked
        deliveries takes time in proportion to their number; a threshold at the square root of the
        length balances the two.
        """
        gone = self._removed_count
        if gone > _REMOVED_MAX and gone * gone > len(self._head) + self.qos0_count:
            head = self._head.items()
            self._head.clear()
            for delivery in head:
                if not delivery.is_removed:
                    self._head.append(delivery)
            if self._tail is not None:
                self._tail.delete_removed()
            self._removed_count = 0
        line = self._qos0_line
        if line is not None and len(line) > 2 * self.qos0_count + _REMOVED_MAX:
            waiting = line.items()
            line.clear()
            for delivery in waiting:
                if not delivery.is_removed:
                    line.append(delivery)

    def _unpack(self) -> None:
        """Move the next deliveries from the tail to the head."""
        tail = self._tail
        assert tail is not None
        packed_from = len(self._head)
        self._account.count_packed(-tail.unpack(self._head, max(1, self._head_len_max // 2)))
        for position in range(packed_from, len(self._head)):
            delivery = self._head.at(position)
            if delivery.sequence > 0:  # one without was never packed, and counts already
                self._account.add_waiting(delivery)
        if tail.is_empty:
            self._tail = None


def _without_body(line: Fifo[Delivery], limit: int) -> list[int]:
    """Return the log offsets of the first deliveries in ``line``, up to the first with a body.

    Return at most ``limit``, with at most ``FETCHED_BYTES_MAX`` bytes, or a single larger one.
    """
    offsets: list[int] = []
    size_bytes = 0
    for position in range(len(line)):
        delivery = line.at(position)
        if delivery.is_removed:
            continue
        size_bytes += delivery.size_bytes
        if len(offsets) >= limit or delivery.message is not None:
            break
        if offsets and size_bytes > FETCHED_BYTES_MAX:
            break
        offsets.append(delivery.offset)
    return offsets
