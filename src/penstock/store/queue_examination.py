"""Examines the progress and the message queues of sessions.

A queue, a window and the messages that wait for PUBREL refer to bodies in the log by offset. An
entry whose body is lost is dropped, and counted for its client. No sequence of a queue may be used
twice: a session whose progress is lost, or older than its queue or window, continues behind the
highest sequence found.

Pages of a window may be missing, or removed ones may have come back. To detect that, a window is
compared with two values in the session's progress: the number of its messages and the sum of the
squares of their packet identifiers. The packet identifiers of received messages are checked in the
same way.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import final

from penstock.engine.values.packed_run import PackedRun
from penstock.engine.values.priorities import PRIORITY_SHIFT
from penstock.engine.values.records import (
    AWAIT_PUBCOMP,
    SessionState,
    ids_in,
    packet_id_checksum,
    pages_of,
)
from penstock.store import records
from penstock.store.chunk import decode_key, encode_key
from penstock.store.copying import Copy
from penstock.store.findings import Examination
from penstock.store.pages import add_page, page_values

_Lane = tuple[int, int]  # session number, lane number


@final
class QueueExaminer:
    """Examines the column families ``progress`` and ``queue`` of a store.

    Args:
        findings: the findings are added to it.
        clients: the client identifiers of the sessions, by session number.
        copy: receives the good and corrected values; None to copy nothing.
        read_family: reads a column family by name, passes each key and value to a function, and
            returns the number of values.
    """

    def __init__(
        self,
        findings: Examination,
        clients: dict[int, str],
        copy: Copy | None,
        read_family: Callable[[str, Callable[[bytes, bytes], None]], int],
    ) -> None:
        self._findings = findings
        self._clients = clients
        self._copy = copy
        self._read_family = read_family
        self._progress: dict[int, SessionState] = {}  # by session number
        self._pages: dict[int, SessionState] = {}  # by session number, only with pages
        self._without_progress: set[int] = set()  # numbers of sessions that have only pages
        self._lane_heads: dict[_Lane, int] = {}  # sequence of the first queued message
        self._lane_next: dict[_Lane, int] = {}  # sequence of the next message
        # by client and place: count, first and last offset of messages missing in the log
        self._missing_messages: dict[tuple[str, str], tuple[int, int, int]] = {}
        # by lane, where the stored progress is older than the queue: its first and end sequence
        self._newer_queues: dict[_Lane, tuple[int, int]] = {}
        # by lane, where it is older than the window: the sequence after the last in flight
        self._newer_windows: dict[_Lane, int] = {}

    def examine(self) -> None:
        """Examine the progress and windows of all sessions, then their queues; copy good values."""
        self._read_family("progress", self._take_progress)
        for number in sorted(self._progress.keys() | self._pages.keys()):
            self._examine_session(number)
        self._read_family("queue", self._take_segment)
        self._report_missing()
        self._repair_progress()
        if self._copy is not None:
            for progress in self._progress.values():
                if progress.number in self._clients:
                    self._put(progress, self._copy)

    def _take_progress(self, key: bytes, value: bytes) -> None:
        number = decode_key(key[:8])
        if len(key) == 8:
            self._progress[number] = records.decode_progress(number, value)
        else:
            add_page(self._pages.setdefault(number, _empty(number)), key, value)

    def _examine_session(self, number: int) -> None:
        """Merge the progress of a session with its pages, and check the result."""
        progress = self._progress.get(number)
        if progress is None:
            progress = self._progress[number] = _empty(number)
            if number in self._clients:
                self._without_progress.add(number)
        beside = self._pages.pop(number, _empty(number))
        progress.pages = sorted(beside.pages, key=lambda page: page.number)
        progress.inbound = sorted(beside.inbound)
        self._lane_heads[number, 0] = progress.queue_head
        self._lane_next[number, 0] = progress.next_sequence
        for lane, head, following in progress.lanes:
            self._lane_heads[number, lane] = head
            self._lane_next[number, lane] = following
        self._findings.in_flight += len(progress.in_flight())
        if number not in self._clients:
            self._findings.lost_session_numbers.add(number)
            self._findings.add_problem(f"the progress of session {number} belongs to no session")
            return
        self._drop_stale_entries(progress)
        self._check_length(progress)
        self._drop_lost_messages(progress)
        self._check_inbound(progress)
        for entry in progress.in_flight():
            where = number, entry[2] >> PRIORITY_SHIFT
            if entry[2] >= self._lane_heads.get(where, 0):  # a message in flight has left the queue
                self._newer_windows[where] = max(self._newer_windows.get(where, 0), entry[2] + 1)

    def _drop_stale_entries(self, progress: SessionState) -> None:
        """Drop window entries whose packet identifier occurs again in a later entry: such an entry
        is in an outdated page."""
        taken: set[int] = set()
        stale = 0
        for page in reversed(progress.pages):
            remaining = [entry for entry in page.entries if entry[0] not in taken]
            stale += len(page.entries) - len(remaining)
            taken.update(entry[0] for entry in remaining)
            page.entries = remaining
        if stale:
            client_id = self._clients[progress.number]
            self._findings.add_problem(
                f"the in-flight window of {client_id!r} has {stale:,} messages with packet"
                " identifiers of later ones"
            )

    def _check_length(self, progress: SessionState) -> None:
        """Report a window whose number or identifiers of messages differ from the progress."""
        packet_ids = [entry[0] for entry in progress.in_flight()]
        missing = progress.window_len - len(packet_ids)
        recorded = progress.window_len, progress.window_checksum
        if progress.window_len < 0 or recorded == (len(packet_ids), packet_id_checksum(packet_ids)):
            return
        name = repr(self._clients[progress.number])
        if missing > 0:
            self._findings.add_problem(
                f"{missing:,} messages that were in flight to {name} are missing: they are lost, or"
                " were acknowledged after its progress was written"
            )
        elif missing == 0:
            self._findings.add_problem(
                f"the in-flight window of {name} has other messages than its progress says: some"
                " are lost, or were acknowledged after its progress was written, and some may"
                " reach it again"
            )
        else:
            self._findings.add_problem(
                f"the in-flight window of {name} has {-missing:,} messages more than its progress"
                " says: some may reach it again"
            )

    def _check_inbound(self, progress: SessionState) -> None:
        """Report inbound packet identifiers that differ from the progress, and drop them.

        Publishing a message twice is better than taking a new message for a repeat, acknowledging
        it and losing it. Identifiers of messages that wait for PUBREL are also in the progress
        itself, and stay.
        """
        packet_ids = ids_in(progress.inbound)
        recorded = progress.inbound_len, progress.inbound_checksum
        if progress.inbound_len < 0 or recorded == (
            len(packet_ids),
            packet_id_checksum(packet_ids),
        ):
            return
        self._findings.add_problem(
            f"the packet identifiers of QoS 2 messages received from"
            f" {self._clients[progress.number]!r} are not those in its progress"
            f" ({len(packet_ids):,} where it has {progress.inbound_len:,}): they are dropped, and"
            " messages that it sends again may be published twice"
        )
        progress.inbound = pages_of([entry[0] for entry in progress.unreleased])

    def _drop_lost_messages(self, progress: SessionState) -> None:
        """Drop messages that are missing from the log from the window and from the received
        messages that wait for PUBREL."""
        number = progress.number
        for page in progress.pages:
            page.entries = [
                entry
                for entry in page.entries
                if entry[1] == AWAIT_PUBCOMP  # its body is not needed any more
                or self._is_in_log(number, entry[3], "the in-flight window")
            ]
        progress.unreleased = [
            entry
            for entry in progress.unreleased
            if self._is_in_log(number, entry[1], "what waits for PUBREL")
        ]

    def _take_segment(self, key: bytes, value: bytes) -> None:
        number = decode_key(key[:8])
        run = records.decode_segment(value)
        lane = run.first >> PRIORITY_SHIFT
        head = self._lane_heads.get((number, lane), 0)
        passed = max(0, min(len(run), head - run.first))  # they have left the queue
        self._findings.queued += len(run) - passed
        if number in self._clients:
            self._note_bounds((number, lane), run)
        elif len(run) > passed:
            self._findings.lost_session_numbers.add(number)
            self._findings.add_problem(
                f"{len(run) - passed} queued messages belong to no session ({number})"
            )
        is_whole = self._all_in_log(run.offsets[passed:])
        parts = [] if is_whole else self._without_lost(number, run, passed)
        if self._copy is None or number not in self._clients:
            return
        if is_whole:
            self._copy.put("queue", key, value)
        for part in parts:
            self._copy.put(
                "queue", encode_key(number) + encode_key(part.first), records.encode_segment(part)
            )

    def _note_bounds(self, lane: _Lane, run: PackedRun) -> None:
        if lane in self._newer_queues:
            first, end = self._newer_queues[lane]
            self._newer_queues[lane] = (min(first, run.first), max(end, run.end))
        elif run.end > self._lane_next.get(lane, 0):
            self._newer_queues[lane] = (run.first, run.end)

    def _all_in_log(self, offsets: array[int]) -> bool:
        """Return whether the log has all ``offsets``; fast where the log has no hole."""
        if not offsets:
            return True
        spans = self._findings.spans
        if len(spans) == 1:
            return spans[0][0] <= min(offsets) and max(offsets) < spans[0][1]
        return all(self._findings.has_offset(offset) for offset in offsets)

    def _without_lost(self, number: int, run: PackedRun, passed: int) -> list[PackedRun]:
        """Return ``run`` from position ``passed`` on, without messages whose bodies are lost."""
        parts: list[PackedRun] = []
        for position in range(passed, len(run)):
            offset = run.offsets[position]
            if not self._is_in_log(number, offset, "the message queue"):
                continue
            sequence, size = run.first + position, run.sizes[position]
            kind = run.table[run.kinds[position]]
            if not parts or not parts[-1].add(sequence, offset, size, kind):
                parts.append(PackedRun(sequence))
                parts[-1].add(sequence, offset, size, kind)
        return parts

    def _is_in_log(self, number: int, offset: int, where: str) -> bool:
        if self._findings.has_offset(offset):
            return True
        client_id = self._clients.get(number)
        name = f"session {number}" if client_id is None else repr(client_id)
        count, first, last = self._missing_messages.get((name, where), (0, offset, offset))
        self._missing_messages[name, where] = (count + 1, min(first, offset), max(last, offset))
        if client_id is not None:
            self._findings.removed_messages[client_id] = (
                self._findings.removed_messages.get(client_id, 0) + 1
            )
        return False

    def _report_missing(self) -> None:
        for (name, where), (count, first, last) in self._missing_messages.items():
            which = f"offset {first}, which is"
            if count > 1:
                which = f"{count:,} messages with offsets from {first} to {last}, which are"
            self._findings.add_problem(f"{where} of {name} refers to {which} not in the log")

    def _repair_progress(self) -> None:
        """Correct progress that is older than its queue or window, and create it where it is
        lost."""
        lanes = sorted(self._newer_queues.keys() | self._newer_windows.keys())
        for number in sorted(self._without_progress | {number for number, _ in lanes}):
            self._findings.add_problem(
                f"the progress of {self._clients[number]!r} is lost, or older than its queue: some"
                " messages may reach it again"
            )
        for number, lane in lanes:
            if number not in self._progress:
                self._progress[number] = _empty(number)
            self._repair_lane(self._progress[number], lane)

    def _repair_lane(self, progress: SessionState, number: int) -> None:
        where = progress.number, number
        lanes = {lane: (head, following) for lane, head, following in progress.lanes}
        lanes[0] = (progress.queue_head, progress.next_sequence)
        sent = self._newer_windows.get(where, 0)
        first, end = self._newer_queues.get(where, (sent, sent))
        head, following = lanes.get(number, (first, end))
        lanes[number] = (max(head, sent), max(following, end, sent))
        progress.queue_head, progress.next_sequence = lanes.pop(0)
        progress.lanes = [(lane, head, end) for lane, (head, end) in sorted(lanes.items())]

    def _put(self, progress: SessionState, copy: Copy) -> None:
        packet_ids = ids_in(progress.inbound)
        sent_ids = [entry[0] for entry in progress.in_flight()]
        progress.window_len = len(sent_ids)
        progress.window_checksum = packet_id_checksum(sent_ids)
        progress.inbound_len = len(packet_ids)
        progress.inbound_checksum = packet_id_checksum(packet_ids)
        copy.put("progress", encode_key(progress.number), records.encode_progress(progress))
        for key, value in page_values(progress):
            if value is not None:
                copy.put("progress", key, value)


def _empty(number: int) -> SessionState:
    """Return the progress of a session without queue, window or received messages."""
    return SessionState(number, 1, 1, [], [], [], [], [], [])
