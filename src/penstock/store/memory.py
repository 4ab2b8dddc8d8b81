"""The memory store: fulfils the contract of ``Store`` until the process ends.

It stores a commit as Python objects. An acknowledgement only promises that the broker accepted the
message; CONNACK and the documentation say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Final, final

from penstock.engine.api import Commit
from penstock.engine.values.message import Message
from penstock.engine.values.packed_run import PackedRun, append_run
from penstock.engine.values.records import (
    InboundPage,
    ProducerRecord,
    RecoveredState,
    SessionRecord,
    SessionState,
    SubscriptionRecord,
    WillRecord,
    WindowPage,
)
from penstock.engine.values.steady_clock import ClockRecord
from penstock.errors import StoreError
from penstock.store.mark import NO_MARK, Mark, Verdict
from penstock.store.port import NOTHING_LEASED, LogExtent

_TRIM_MESSAGES_MAX: Final = 100_000  # messages examined in one call of ``trim_log``


@final
class MemoryStore:
    """Log and state of one broker in dictionaries.

    Args:
        epoch: name of this incarnation of the log.
    """

    acknowledged_when = "memory"
    writes_columns = False

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch
        self._log: dict[int, Message] = {}  # by offset, ascending
        self._log_bytes = 0
        self._log_lock = Lock()  # commit and trim_log run in two threads
        self._earliest = 0
        self._end = 0
        self._sessions: dict[str, SessionRecord] = {}
        self._subscriptions: dict[int, dict[str, SubscriptionRecord]] = {}
        self._progress: dict[int, SessionState] = {}
        self._pages: dict[int, dict[int, WindowPage]] = {}  # by session number and page number
        self._inbound: dict[int, dict[int, int]] = {}  # by session number and page number
        self._segments: dict[int, dict[int, PackedRun]] = {}
        self._retained: dict[str, Message] = {}
        self._wills: dict[str, WillRecord] = {}
        self._producers: dict[str, ProducerRecord] = {}
        self._clock: ClockRecord | None = None

    def recover(self, subscriptions: bool = True) -> RecoveredState:
        """Return everything that was committed; see ``Store.recover``."""
        recovered = RecoveredState(self.epoch, self._end)
        recovered.sessions = list(self._sessions.values())
        for by_filter in self._subscriptions.values() if subscriptions else ():
            recovered.subscriptions.extend(by_filter.values())
        for number, progress in self._progress.items():
            pages = self._pages[number]
            inbound = sorted(self._inbound[number].items())
            whole = _with_pages(progress, [pages[at] for at in sorted(pages)], inbound)
            recovered.progress[number] = whole
        for number, segments in self._segments.items():
            runs: list[PackedRun] = []
            for first in sorted(segments):
                append_run(runs, segments[first].copy())  # the session changes its runs
            recovered.queues[number] = runs
            recovered.segments[number] = sorted(segments)
        recovered.retained = list(self._retained.values())
        recovered.wills = dict(self._wills)
        recovered.producers = list(self._producers.values())
        recovered.clock = self._clock
        return recovered

    def prepare(self, commit: Commit) -> None:
        """Do nothing; see ``Store.prepare``."""

    def commit(self, commit: Commit) -> None:
        """Write ``commit`` in one atomic step; see ``Store.commit``."""
        assert not commit.messages or commit.base_offset == self._end, "the log has no holes"
        with self._log_lock:
            for message in commit.messages:
                self._log[message.offset] = message
                self._log_bytes += message.size_bytes()
            self._end = max(self._end, commit.next_offset)
        for client_id, number in commit.ended:
            known = self._sessions.get(client_id)
            if known is not None and known.number == number:
                del self._sessions[client_id]
            self._subscriptions.pop(number, None)
            self._progress.pop(number, None)
            self._pages.pop(number, None)
            self._inbound.pop(number, None)
            self._segments.pop(number, None)
        for session in commit.sessions:
            self._sessions[session.client_id] = session
        for subscription in commit.subscriptions:
            by_filter = self._subscriptions.setdefault(subscription.number, {})
            if subscription.subscription is None:
                by_filter.pop(subscription.topic_filter, None)
            else:
                by_filter[subscription.topic_filter] = subscription
        for progress in commit.progress:
            self._progress[progress.number] = progress
            pages = self._pages.setdefault(progress.number, {})
            for page in progress.pages:
                if page.entries:
                    pages[page.number] = page
                else:
                    pages.pop(page.number, None)
            inbound = self._inbound.setdefault(progress.number, {})
            for place, bits in progress.inbound:
                if bits:
                    inbound[place] = bits
                else:
                    inbound.pop(place, None)
            segments = self._segments.setdefault(progress.number, {})
            for first in progress.finished_segments:
                segments.pop(first, None)
            for segment in progress.segments:
                segments[segment.first] = segment
        for topic, retained in commit.retained:
            if retained is None:
                self._retained.pop(topic, None)
            else:
                self._retained[topic] = retained
        for client_id, will in commit.wills:
            if will is None:
                self._wills.pop(client_id, None)
            else:
                self._wills[client_id] = will
        self._clock = commit.clock or self._clock
        for key, record in commit.producers:
            if record is None:
                self._producers.pop(key, None)
            else:
                self._producers[key] = record

    def reopen(self) -> None:
        """Do nothing: a write to memory never fails."""

    def read(self, offsets: Iterable[int]) -> dict[int, Message]:
        """Return messages by offset; see ``Store.read``."""
        found: dict[int, Message] = {}
        for offset in offsets:
            message = self._log.get(offset)  # trim_log may run beside this
            if message is not None:
                found[offset] = message
        return found

    def trim_log(
        self,
        older_than_us: int,
        bytes_max: int,
        keep_from: int,
        leased_from: int = NOTHING_LEASED,
        leased_bytes_max: int = 0,
    ) -> int:
        """Remove old chunks; see ``Store.trim_log``."""
        for _ in range(_TRIM_MESSAGES_MAX):
            with self._log_lock:
                if self._earliest >= min(keep_from, self._end):
                    break
                message = self._log[self._earliest]
                if message.steady_us >= older_than_us and self._log_bytes <= bytes_max:
                    break
                if self._earliest >= leased_from and self._log_bytes <= leased_bytes_max:
                    break
                del self._log[self._earliest]
                self._log_bytes -= message.size_bytes()
                self._earliest += 1
        return self._earliest

    def trim_archives(self, now_us: int) -> None:
        """Do nothing: a memory store has no archives."""

    def mark_at(self, offset: int) -> Mark:
        """Return an empty mark: nothing can be put back in place of a process's memory."""
        del offset
        return NO_MARK

    def judge(self, epoch: str, offset: int, mark: Mark) -> Verdict:
        """Return whether a position belongs to the log; see ``Store.judge``."""
        del mark
        return Verdict(epoch == self.epoch and offset <= self._end)

    def fork(self, at: int) -> str:
        """Refuse: nothing can be put back in place of a process's memory.

        Raises:
            StoreError: always.
        """
        del at
        raise StoreError("the log is in memory, so there is one history of it")

    def log_extent(self) -> LogExtent:
        """Return the extent of the log; see ``Store.log_extent``."""
        return LogExtent(self._earliest, self._end, self._log_bytes)

    def close(self) -> None:
        """Do nothing: there are no files."""


def _with_pages(
    progress: SessionState, pages: list[WindowPage], inbound: list[InboundPage]
) -> SessionState:
    return SessionState(
        progress.number,
        progress.queue_head,
        progress.next_sequence,
        pages,
        inbound,
        [],
        [],
        progress.lanes,
        progress.unreleased,
        progress.sent_below,
        progress.window_len,
        progress.next_place,
        progress.window_checksum,
        progress.inbound_len,
        progress.inbound_checksum,
    )
