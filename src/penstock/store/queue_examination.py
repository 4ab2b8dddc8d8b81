"""Examining the progress and the message queues of sessions.

A queue, a window and what waits for PUBREL hold offsets, not bodies. Where a body is lost, the
entry leaves, and is counted for its client. The numbers of a queue must stay right: a session whose
progress is lost, or older than its queue, goes on behind the queue's last number.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import final

from penstock.engine.inflight import AWAIT_PUBCOMP
from penstock.engine.queue import PRIORITY_SHIFT
from penstock.engine.records import Progress
from penstock.engine.runs import Run
from penstock.store import records
from penstock.store.chunk import decode_key, encode_key
from penstock.store.copying import Copy
from penstock.store.findings import Examination
from penstock.store.view import View
from penstock.store.walk import Gap

_Lane = tuple[int, int]  # session number, and the lane's


@final
class QueueExaminer:
    """One examination.

    Args:
        view: what can be read of the store.
        found: gets what is found.
        clients: by session number, the identifiers of the sessions that are there.
        copy: gets what is good.
        values: reads a column family.
    """

    def __init__(
        self,
        view: View,
        found: Examination,
        clients: dict[int, str],
        copy: Copy | None,
        values: Callable[[str, Callable[[bytes, bytes], None]], int],
    ) -> None:
        self._view = view
        self._found = found
        self._clients = clients
        self._copy = copy
        self._values = values
        self._heads: dict[_Lane, int] = {}
        self._next: dict[_Lane, int] = {}
        self._is_amending = False  # true once all problems are reported
        # of a client and a place: messages that are not in the log, the first offset, and the last
        self._missing: dict[tuple[str, str], tuple[int, int, int]] = {}
        self._stored: dict[_Lane, tuple[int, int]] = {}  # first and end, where progress is behind

    def examine(self) -> None:
        """Read the progress of all sessions, and then their queues."""
        self._values("progress", self._take_progress)
        self._values("queue", self._take_segment)
        self._tell_missing()
        if self._stored:
            self._amend()

    def _take_progress(self, key: bytes, value: bytes) -> None:
        number = decode_key(key)
        progress = records.decode_progress(number, value)
        self._heads[number, 0] = progress.queue_head
        self._next[number, 0] = progress.next_sequence
        for lane, head, following in progress.lanes:
            self._heads[number, lane] = head
            self._next[number, lane] = following
        self._found.in_flight += len(progress.window)
        if number not in self._clients:
            self._found.sessions_lost.add(number)
            self._found.tell(f"the progress of session {number} belongs to no session")
            return
        is_changed = self._trim(progress)
        if self._copy is not None:
            self._copy.put(
                "progress", key, records.encode_progress(progress) if is_changed else value
            )

    def _trim(self, progress: Progress) -> bool:
        """Take out of the window and of what waits for PUBREL what is not in the log any more."""
        sizes = progress.window_sizes or [0] * len(progress.window)
        window = [
            (entry, size)
            for entry, size in zip(progress.window, sizes, strict=True)
            if entry[1] == AWAIT_PUBCOMP  # from there on only the packet identifier counts
            or self._is_there(progress.number, entry[3], "the in-flight window")
        ]
        held = [
            entry
            for entry in progress.held
            if self._is_there(progress.number, entry[1], "what waits for PUBREL")
        ]
        is_changed = len(window) < len(progress.window) or len(held) < len(progress.held)
        left = {entry[2] for entry, _ in window}
        gone = {entry[2] for entry in progress.window} - left
        progress.window = [entry for entry, _ in window]
        progress.window_sizes = [size for _, size in window] if progress.window_sizes else []
        progress.held = held
        progress.window_shared = [entry for entry in progress.window_shared if entry[0] not in gone]
        return is_changed

    def _take_segment(self, key: bytes, value: bytes) -> None:
        number = decode_key(key[:8])
        left: list[Run] = []
        is_changed = False
        for run in records.decode_segment(value):
            lane = run.first >> PRIORITY_SHIFT
            head = self._heads.get((number, lane), 0)
            passed = max(0, min(len(run), head - run.first))  # they have left the queue
            self._found.queued += len(run) - passed
            if number in self._clients:
                self._note_bounds((number, lane), run)
            elif len(run) > passed:
                self._found.sessions_lost.add(number)
                self._found.tell(
                    f"{len(run) - passed} queued messages belong to no session ({number})"
                )
            if self._are_there(run.offsets[passed:]):
                left.append(run)
            else:
                is_changed = True
                left.extend(self._whole_parts(number, run, passed))
        if self._copy is None or number not in self._clients:
            return
        if not is_changed:
            self._copy.put("queue", key, value)
            return
        for run in left:
            self._copy.put(
                "queue", encode_key(number) + encode_key(run.first), records.encode_segment(run)
            )

    def _note_bounds(self, lane: _Lane, run: Run) -> None:
        if lane in self._stored:
            first, end = self._stored[lane]
            self._stored[lane] = (min(first, run.first), max(end, run.end))
        elif run.end > self._next.get(lane, 0):
            self._stored[lane] = (run.first, run.end)

    def _are_there(self, offsets: array[int]) -> bool:
        """Return whether the log holds all of them; quick where it has no hole."""
        if not offsets:
            return True
        spans = self._found.spans
        if len(spans) == 1:
            return spans[0][0] <= min(offsets) and max(offsets) < spans[0][1]
        return all(self._found.holds(offset) for offset in offsets)

    def _whole_parts(self, number: int, run: Run, passed: int) -> list[Run]:
        """``run`` from position ``passed`` on, without those whose bodies are lost."""
        parts: list[Run] = []
        for position in range(passed, len(run)):
            offset = run.offsets[position]
            if not self._is_there(number, offset, "the message queue"):
                continue
            sequence, size = run.first + position, run.sizes[position]
            kind = run.table[run.kinds[position]]
            if not parts or not parts[-1].add(sequence, offset, size, kind):
                parts.append(Run(sequence))
                parts[-1].add(sequence, offset, size, kind)
        return parts

    def _is_there(self, number: int, offset: int, where: str) -> bool:
        if self._found.holds(offset):
            return True
        if self._is_amending:
            return False
        client_id = self._clients.get(number)
        name = f"session {number}" if client_id is None else repr(client_id)
        count, first, last = self._missing.get((name, where), (0, offset, offset))
        self._missing[name, where] = (count + 1, min(first, offset), max(last, offset))
        if client_id is not None:
            self._found.removed[client_id] = self._found.removed.get(client_id, 0) + 1
        return False

    def _tell_missing(self) -> None:
        for (name, where), (count, first, last) in self._missing.items():
            which = f"offset {first}, which is"
            if count > 1:
                which = f"{count:,} messages with offsets from {first} to {last}, which are"
            self._found.tell(f"{where} of {name} refers to {which} not in the log")

    def _amend(self) -> None:
        """Move the progress of sessions behind their queues, or make one where it is lost."""
        numbers = {number for number, _ in self._stored}
        for number in sorted(numbers):
            self._found.tell(
                f"the progress of {self._clients[number]!r} is lost, or older than its queue: some"
                " messages may reach it again"
            )
        if self._copy is None:
            return
        self._is_amending = True
        for item in self._view.walk("progress"):
            if isinstance(item, Gap) or decode_key(item[0]) not in numbers:
                continue
            number = decode_key(item[0])
            numbers.discard(number)
            self._put_amended(records.decode_progress(number, item[1]))
        for number in sorted(numbers):
            self._put_amended(Progress(number, 1, 1, [], [], [], [], [], [], []))

    def _put_amended(self, progress: Progress) -> None:
        assert self._copy is not None
        self._trim(progress)
        number = progress.number
        lanes = {lane: (head, following) for lane, head, following in progress.lanes}
        lanes[0] = (progress.queue_head, progress.next_sequence)
        for (owner, lane), (first, end) in self._stored.items():
            if owner == number:
                head, following = lanes.get(lane, (first, end))
                lanes[lane] = (head, max(end, following))
        progress.queue_head, progress.next_sequence = lanes.pop(0)
        progress.lanes = [(lane, head, end) for lane, (head, end) in sorted(lanes.items())]
        self._copy.put("progress", encode_key(number), records.encode_progress(progress))
