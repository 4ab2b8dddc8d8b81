"""The durable form of a session's queue: numbered deliveries, stored in segments.

::

      dequeued      segment   segment    queued since the last commit
      ─────────────┬─[4 ·· 9]─[10 · 12]─ 13 14 15 ─┐
                  head                             next

Every stored delivery has a sequence number; the numbers ascend in each lane (priority). Deliveries
below ``head`` are in the window, or finished. The deliveries that were queued since the last commit
and still wait are stored as a segment; a segment is removed from the store when the head has passed
it. If deliveries were removed from the middle of a segment, its other deliveries are stored again,
with the same numbers. The upper bits of a sequence number are the number of its lane, so that the
numbers of two lanes never overlap.

A stored delivery may be sent before a commit records that it was sent. While the client
acknowledges, each commit records a sequence number of the first lane below which queued deliveries
may be sent; once that is on disk, a QoS 1 message is sent as soon as the window has room::

      dequeued       in the store: may have been sent    not on disk
      ─────────────┬─────────────────────────────────┬─────────────────┐
                  head          waits               sent below        next

After a crash such a message is still in the queue. It is sent again with the packet identifier that
follows from its sequence number (``packet_ids``), and with DUP, because it may be a repeat. Two
kinds of delivery must wait for a commit: one whose packet identifier is in use in the window, and
one behind a dropped delivery, until the drop is stored. Otherwise a crash would restore the dropped
delivery, and it would be sent out of order [MQTT-4.6.0-6].
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final, final

from mypy_extensions import mypyc_attr

from penstock.engine.session.queue import MessageQueue
from penstock.engine.values.message import Delivery
from penstock.engine.values.packed_run import PackedRun
from penstock.engine.values.priorities import PRIORITY_SHIFT
from penstock.engine.values.records import LaneEntry, SessionState

_SENDABLE_MAX: Final = 1024  # deliveries sent before their commit; all have DUP after a crash
_PASSED_MAX: Final = 1024  # removed segments that are still in the array


@mypyc_attr(acyclic=True)
@final
class StoredLane:
    """The sequence numbers and segments of one lane.

    Args:
        number: the number of the lane: a priority, 0..255, and a slot (``queue``).
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.next_sequence = (number << PRIORITY_SHIFT) + 1
        self.head = self.next_sequence
        self.sent_below = 0  # deliveries below it may have been sent before a restart
        self._sendable_below = 0  # deliveries below it may be sent now
        self._sealed_below = 0  # deliveries below it may be sent once ``_sealed_in`` is durable
        self._sealed_in = 0  # the number of a batch
        self._drop_stored_in = 0  # the number of the last batch that stores a drop
        self._new_deliveries: list[Delivery] = []  # queued since the last snapshot
        self._firsts: array[int] | None = None  # first sequences of the stored segments
        self._at = 0  # index in ``_firsts``: the segments before are removed from the store
        self._last = 0  # sequence of the last stored delivery
        self._removed_sequences: list[int] | None = None  # from the middle, not stored yet
        self._replaced_segments: list[int] | None = None  # first sequences, to be removed

    def next_sequence_number(self) -> int:
        """Return the sequence number for a new delivery, and advance it."""
        sequence = self.next_sequence
        self.next_sequence = sequence + 1
        return sequence

    def next_sendable(self) -> tuple[int, int]:
        """Return start and end of the range of sequences that may additionally be sent once the
        next batch is durable."""
        begin = max(self.head, self._sealed_below)
        return begin, min(self.next_sequence, self.head + _SENDABLE_MAX)

    def seal(self, batch: int, durable: int, is_connected: bool, free_below: int) -> int:
        """Set the sequence below which queued deliveries may be sent once this batch is durable.

        The sequence grows with each batch while the client is connected and acknowledges. While it
        is not connected, no delivery may be sent before its commit.

        Args:
            batch: the number of the batch.
            durable: the number of the latest durable batch.
            is_connected: whether the client is connected, so that deliveries may be sent.
            free_below: the packet identifiers of queued deliveries below this sequence are free;
                0 if the client acknowledged nothing since the batch before: then no further ones
                may be sent, so that messages that it did not get have no DUP after a crash.

        Returns:
            The sequence to store, below which deliveries may have been sent after a crash; 0 if
            there are none.
        """
        if self._sealed_in <= durable:
            self._sendable_below = self._sealed_below
        self._sealed_in = batch
        if not is_connected:
            self._sealed_below = self._sendable_below = 0
        elif free_below > 0:
            end = min(self.next_sequence, self.head + _SENDABLE_MAX)
            self._sealed_below = max(self._sealed_below, min(end, free_below))
        sent_below = max(self._sealed_below, self.sent_below)
        return sent_below if sent_below > self.head else 0

    def may_send_any(self) -> bool:
        """Return whether a queued delivery may be sent before its commit, now or once a commit is
        durable."""
        return self.head < max(self._sealed_below, self._sendable_below)

    def sendable_end(self) -> int:
        """Return the sequence below which deliveries may be sent, or were sent before a crash."""
        sendable_below = max(self._sealed_below, self._sendable_below)
        return max(sendable_below, self.sent_below)

    def may_send(self, sequence: int, durable: int) -> bool:
        """Return whether the delivery with this sequence may be sent before the commit that records
        that it was sent."""
        if self._sealed_in <= durable:
            self._sendable_below = self._sealed_below
        return sequence < self._sendable_below and self._drop_stored_in <= durable

    def note_enqueued(self, delivery: Delivery) -> None:
        """Note that ``delivery`` was queued."""
        self._new_deliveries.append(delivery)

    def note_dequeued(self, sequence: int) -> None:
        """Move the head past this sequence: its delivery left the queue. Do nothing for 0."""
        if sequence >= self.head:
            self.head = sequence + 1

    def wait_for_drop(self, batch: int) -> None:
        """Let no delivery be sent before its commit until ``batch`` is durable, which stores a
        drop."""
        self._drop_stored_in = batch

    def note_removed(self, sequence: int) -> None:
        """Note that the delivery with this sequence was removed from the middle of the lane."""
        if self._removed_sequences is None:
            self._removed_sequences = []
        self._removed_sequences.append(sequence)

    def take_segments(self, segments: list[PackedRun], queue: MessageQueue) -> None:
        """Append the segments that this commit stores to ``segments``.

        They have the deliveries that were queued since the last call and still wait, and the other
        deliveries of stored segments from whose middle a delivery was removed.
        """
        taken: set[int] = set()
        if self._removed_sequences is not None:
            taken = set(self._removed_sequences)
            self._removed_sequences = None
            self._replace(taken, segments, queue)
        enqueued = self._new_deliveries
        if not enqueued:
            return
        self._new_deliveries = []
        head = self.head
        waiting = [
            item for item in enqueued if item.sequence >= head and item.sequence not in taken
        ]
        if waiting:
            self._stored_firsts().extend(_pack(waiting, segments))
            self._last = waiting[-1].sequence

    def _stored_firsts(self) -> array[int]:
        """Return the first sequences of the stored segments; the first call makes the array."""
        if self._firsts is None:
            self._firsts = array("q")
        return self._firsts

    def _replace(self, taken: set[int], segments: list[PackedRun], queue: MessageQueue) -> None:
        if self._replaced_segments is None:
            self._replaced_segments = []
        firsts = self._stored_firsts()
        done = self._last + 1  # segments from this sequence on are replaced already
        for sequence in sorted(taken, reverse=True):
            if not self.head <= sequence < done:
                continue
            at = bisect_right(firsts, sequence) - 1
            done = firsts[at]
            is_last = at == len(firsts) - 1
            end = self._last + 1 if is_last else firsts[at + 1]
            rest = queue.deliveries_between(max(done, self.head), end)
            self._replaced_segments.append(done)
            firsts[at : at + 1] = array("q", _pack(rest, segments))
            if is_last:
                self._last = rest[-1].sequence if rest else done - 1

    def take_finished(self, finished: list[int]) -> None:
        """Append the first sequences of segments to remove from the store to ``finished``."""
        if self._replaced_segments is not None:
            finished.extend(self._replaced_segments)
            self._replaced_segments = None
        firsts = self._firsts
        if firsts is None:
            return
        while self._at < len(firsts):
            at_last = self._at == len(firsts) - 1
            end = self._last + 1 if at_last else firsts[self._at + 1]
            if end > self.head:
                break
            finished.append(firsts[self._at])
            self._at += 1
        if self._at == len(firsts) or self._at > _PASSED_MAX + len(firsts) // 2:
            del firsts[: self._at]
            self._at = 0

    def restore_segment(self, first: int, end: int) -> None:
        """Restore a stored segment; ``end`` is the sequence after the last delivery of the lane."""
        self._stored_firsts().append(first)
        self._last = end - 1


@mypyc_attr(acyclic=True)
@final
class StoredQueue:
    """The stored lanes of one session or group; ``first`` is lane 0, other lanes are created when
    they are first used."""

    def __init__(self) -> None:
        self.first = StoredLane(0)
        self._other_lanes_by_number: dict[int, StoredLane] | None = None  # by number

    def lane(self, number: int) -> StoredLane:
        """Return the lane with this number."""
        if number == 0:
            return self.first
        if self._other_lanes_by_number is None:
            self._other_lanes_by_number = {}
        lane = self._other_lanes_by_number.get(number)
        if lane is None:
            lane = StoredLane(number)
            self._other_lanes_by_number[number] = lane
        return lane

    def note_dequeued(self, sequence: int) -> None:
        """Move the head of the lane past this sequence, above 0: its delivery left the queue."""
        self.lane(sequence >> PRIORITY_SHIFT).note_dequeued(sequence)

    def note_removed(self, sequence: int) -> None:
        """Note that the delivery with this sequence, above 0, was removed from the middle of a
        lane."""
        self.lane(sequence >> PRIORITY_SHIFT).note_removed(sequence)

    def take_segments(self, queue: MessageQueue) -> list[PackedRun]:
        """Return the segments of ``queue`` to store in this commit."""
        segments: list[PackedRun] = []
        self.first.take_segments(segments, queue)
        for lane in self._other_lanes():
            lane.take_segments(segments, queue)
        return segments

    def take_finished(self) -> list[int]:
        """Return the first sequences of segments to remove from the store."""
        finished: list[int] = []
        self.first.take_finished(finished)
        for lane in self._other_lanes():
            lane.take_finished(finished)
        return finished

    def restore(self, progress: SessionState, runs: list[PackedRun], segments: list[int]) -> None:
        """Restore the heads, next sequences and segments of all lanes.

        Args:
            progress: the latest record.
            runs: the queued deliveries, by ascending sequence.
            segments: first sequences of the stored segments, ascending.
        """
        self.first.head = progress.queue_head
        self.first.next_sequence = progress.next_sequence
        self.first.sent_below = progress.sent_below
        for number, head, next_sequence in progress.lanes:
            lane = self.lane(number)
            lane.head = head
            lane.next_sequence = next_sequence
        for run in runs:  # damage may have restored an older progress, with a lower next sequence
            lane = self.lane(run.first >> PRIORITY_SHIFT)
            lane.next_sequence = max(lane.next_sequence, run.end)
        ends = {run.first >> PRIORITY_SHIFT: run.end for run in runs}
        for begin in segments:
            number = begin >> PRIORITY_SHIFT
            self.lane(number).restore_segment(begin, ends.get(number, begin + 1))

    def entries(self) -> list[LaneEntry]:
        """Return the durable form of the lanes other than the first."""
        return [(lane.number, lane.head, lane.next_sequence) for lane in self._other_lanes()]

    def _other_lanes(self) -> list[StoredLane]:
        return (
            []
            if self._other_lanes_by_number is None
            else list(self._other_lanes_by_number.values())
        )


def _pack(waiting: list[Delivery], segments: list[PackedRun]) -> list[int]:
    """Append the deliveries ``waiting``, by ascending sequence, to ``segments`` as new segments;
    return the first sequences of these."""
    firsts: list[int] = []
    run: PackedRun | None = None
    for item in waiting:
        if run is None or not run.put(item):
            run = PackedRun(item.sequence)
            run.put(item)
            segments.append(run)
            firsts.append(run.first)
    return firsts
