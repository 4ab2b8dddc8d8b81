"""A lane: the deliveries of one priority that wait in a queue, first in, first out.

::

      new ──▶ [ tail: packed runs (offsets into the log) ]──▶[ head: deliveries ]──▶ window

Only the head, at most ``HEAD_LEN_MAX`` deliveries, has objects with bodies; deliveries behind it
that are in the log are packed (``PackedTail``). A delivery that is removed from the middle, to
make room or because a member of a group took it, is only marked as gone, so that its removal takes
the same time in a long lane.

A queue may have 128 lanes of one rank (``group_queue``), and needs the oldest head for each
message; a heap finds it without a search of all lanes (``LanesByOffset``)::

      lane 0        ·· 9  4 ─╮
      slot 1's lane ·· 8  2 ─┼─▶ heap of heads: 2 (slot 1), 4 (lane 0), 7 (slot 2) ─▶ first
      slot 2's lane ·· ·  7 ─╯
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Final, final

from mypy_extensions import mypyc_attr

from penstock.engine.memory.pool import Pool
from penstock.engine.values.fifo import Fifo
from penstock.engine.values.limits import FETCHED_BYTES_MAX, OUT_OF_DATE_MAX
from penstock.engine.values.message import NOT_IN_LOG, Delivery, Message
from penstock.engine.values.packed_run import PackedRun

HEAD_LEN_MAX: Final = 1024
HEAD_LEN_MAX_OFFLINE: Final = 8  # while the client is offline; so few take less than a packed run
_REMOVED_MAX: Final = 64  # deliveries marked as gone before the lane is compacted
_NO_ENTRY: Final = -2  # instead of the offset of a head in the heap of ``LanesByOffset``


@final
class PackedTail:
    """The deliveries behind the head of a lane; a lane without any has no tail.

    ::

          new ──▶ [ run · run · run ]──▶ moved to the head in portions
                      ╰ between runs: deliveries that are not packed, of QoS 0 or not in the log

    The body of a packed delivery is in the log only, see ``packed_run``.
    """

    def __init__(self) -> None:
        self._runs: deque[PackedRun] = deque()
        self._at = 0  # position in the first run
        self._between: deque[tuple[int, Delivery]] = deque()  # (sequence that follows, delivery)

    @property
    def is_empty(self) -> bool:
        """Return whether the tail has no runs; then it has no deliveries at all."""
        return len(self._runs) == 0

    def packed_count(self) -> int:
        """Return how many deliveries are packed in runs."""
        return sum([len(run) for run in self._runs]) - self._at

    def push(self, delivery: Delivery) -> bool:
        """Append ``delivery``; return whether it was packed.

        The first delivery of a tail must have a sequence number.
        """
        runs = self._runs
        if delivery.sequence == 0:
            self._between.append((runs[-1].end, delivery))
            return False
        if not runs or not runs[-1].put(delivery):
            assert not runs or delivery.sequence >= runs[-1].end, "sequences ascend in a lane"
            run = PackedRun(delivery.sequence)
            run.put(delivery)
            runs.append(run)
        return True

    def restore(self, run: PackedRun, position: int) -> None:
        """Append a run of the store; the deliveries of the first run before ``position`` are left
        out."""
        if not self._runs:
            self._at = position
        self._runs.append(run)

    def unpack(self, head: Fifo[Delivery], count_max: int) -> int:
        """Move the next deliveries to ``head``, at most ``count_max`` packed ones; return how many
        packed ones were moved."""
        between = self._between
        run = self._runs[0]
        start = self._at
        stop = min(len(run), start + count_max)
        for position in range(start, stop):
            while between and between[0][0] <= run.first + position:
                head.append(between.popleft()[1])
            head.append(run.delivery(position))
        self._at = stop
        if stop == len(run):
            self._runs.popleft()
            self._at = 0
        if not self._runs:
            for _, delivery in between:
                head.append(delivery)
            between.clear()
        return stop - start

    def lowest_offset(self, is_unordered: bool, is_stored: bool) -> int:
        """Return the lowest log offset that is needed, or -1; see
        ``MessageQueue.lowest_offset``."""
        if not is_unordered:
            return self._runs[0].offsets[self._at]
        lowest = -1
        for _, delivery in self._between:
            is_lower = lowest < 0 or delivery.offset < lowest
            if is_lower and delivery.offset >= 0 and delivery.needs_log(is_stored):
                lowest = delivery.offset
        at = self._at
        for run in self._runs:
            offset = min(run.offsets[at:])
            if lowest < 0 or offset < lowest:
                lowest = offset
            at = 0
        return lowest

    def deliveries_between(self, first: int, end: int) -> list[Delivery]:
        """Return copies of the packed deliveries with sequences from ``first`` to below ``end``."""
        found: list[Delivery] = []
        at = self._at
        for run in self._runs:
            if run.first >= end:
                break
            start = max(at, first - run.first)
            stop = min(len(run), end - run.first)
            found.extend([run.delivery(position) for position in range(start, stop)])
            at = 0
        return found

    def unpacked_deliveries(self) -> list[Delivery]:
        """Return the deliveries that are not packed, left in place; some may be marked as gone."""
        return [delivery for _, delivery in self._between]

    def delete_removed(self) -> None:
        """Remove the deliveries that are marked as gone."""
        self._between = deque([pair for pair in self._between if not pair[1].is_removed])

    def append_waiting(self, found: list[Delivery], limit: int) -> None:
        """Append the next deliveries to ``found``, until ``found`` has ``limit``; deliveries that
        are not packed come first."""
        for _, delivery in self._between:
            if not delivery.is_removed and len(found) < limit:
                found.append(delivery)
        at = self._at
        for run in self._runs:
            stop = min(len(run), at + limit - len(found))
            found.extend([run.delivery(position) for position in range(at, stop)])
            at = 0


@mypyc_attr(acyclic=True)
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
        self.entry_offset = _NO_ENTRY  # the offset of its head in the heap of ``LanesByOffset``
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


@final
class LanesByOffset:
    """The lanes of one rank, whose deliveries are sent in the order of their log offsets.

    Out-of-date entries of the heap are skipped when they come to the top, and removed when there
    are too many.

    Args:
        rank: the rank of the lanes; deliveries of a greater rank are sent first.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.lanes: dict[int, Lane] = {}  # by number
        self._with_qos0: dict[int, Lane] = {}  # lanes with QoS 0 deliveries
        self._heap: list[tuple[int, int]] = []  # (offset of a head, number of its lane)
        self._is_unsorted = False  # lanes were added or restored: their heads are not in the heap

    def add(self, lane: Lane) -> None:
        """Add ``lane``; its head is sorted in when ``first`` is called next."""
        lane.rank = self.rank
        lane.entry_offset = _NO_ENTRY
        self.lanes[lane.number] = lane
        self._is_unsorted = True

    def remove(self, lane: Lane) -> None:
        """Remove ``lane``, which must be empty."""
        self.lanes.pop(lane.number, None)

    def mark_unsorted(self) -> None:
        """Sort all lanes when ``first`` is called next: a lane got deliveries from the store."""
        self._is_unsorted = True

    def update(self, lane: Lane) -> None:
        """Sort ``lane`` in again: a delivery was added to it or removed."""
        if self._is_unsorted:
            return
        if lane.qos0_count > 0:
            self._with_qos0[lane.number] = lane
        elif self._with_qos0:
            self._with_qos0.pop(lane.number, None)
        head = lane.head()
        if head is not None and head.offset != lane.entry_offset:
            lane.entry_offset = head.offset
            heappush(self._heap, (head.offset, lane.number))
            if len(self._heap) > 2 * len(self.lanes) + OUT_OF_DATE_MAX:
                self._sort()

    def first(self) -> Lane | None:
        """Return the lane whose head has the lowest log offset; None if all lanes are empty."""
        if self._is_unsorted:
            self._sort()
        heap = self._heap
        while heap:
            offset, number = heap[0]
            lane = self.lanes.get(number)
            if lane is not None and lane.entry_offset == offset:
                head = lane.head()
                if head is not None and head.offset == offset:
                    return lane
                lane.entry_offset = _NO_ENTRY
            heappop(heap)
            if lane is not None:
                self.update(lane)
        return None

    def first_with_qos0(self) -> Lane | None:
        """Return a lane with QoS 0 deliveries, the same one while it has any; None if no lane has
        any."""
        if self._is_unsorted:
            self._sort()
        for lane in self._with_qos0.values():
            return lane
        return None

    def _sort(self) -> None:
        """Build the heap from the heads of all lanes."""
        self._is_unsorted = False
        self._heap = []
        self._with_qos0 = {}
        for lane in self.lanes.values():
            lane.entry_offset = _NO_ENTRY
            if lane.qos0_count > 0:
                self._with_qos0[lane.number] = lane
            head = lane.head()
            if head is not None:
                lane.entry_offset = head.offset
                self._heap.append((head.offset, lane.number))
        heapify(self._heap)


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
