"""Findings: the counts and problems that an examination of a store reports."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

from penstock.store.archive import Archive
from penstock.store.identity import Loss
from penstock.store.mark import Run
from penstock.store.ranges import Ranges

PROBLEMS_MAX: Final = 100
"""Problems that are listed one by one; further ones are only counted."""


@dataclass(slots=True)
class Examination:
    """The result of an examination.

    Attributes:
        epoch: the log's epoch; empty where it cannot be read.
        format: the number of the store's format; empty where it cannot be read.
        lineage: former epochs, oldest first, each with the offset up to which the log is the same.
        created_at_us: time at which the store was created, µs since the Unix epoch; 0 if unknown.
        commits: number of commits.
        begin: first offset of the log.
        end: offset after the last message of the log.
        messages: number of messages in the log.
        chunks: number of chunks in the log.
        log_size_bytes: size of these chunks.
        sessions: number of sessions.
        subscriptions: number of subscriptions.
        queued: number of messages in the queues of sessions.
        in_flight: number of messages in the in-flight windows of sessions.
        retained: number of retained messages.
        wills: number of wills.
        loss: acknowledged messages and commits that are missing at the end; None if none is.
        problems: one sentence for each problem; empty for a sound store.
        problems_unlisted: number of further problems, beyond ``PROBLEMS_MAX``.
        notes: sentences about facts that are no damage and that the operator should know.
        spans: ranges of offsets that are in the log.
        lost_ranges: ranges of offsets that should be in the log and are not.
        log_is_whole: whether it is certain that the log has lost nothing.
        given_up: ranges of offsets that earlier repairs have given up.
        runs: the runs of the log, oldest first.
        seams: offsets at which the chain breaks, as earlier repairs found.
        broken_links: further offsets at which it breaks.
        archives: records of the archives of all streams, as far as they can be read.
        last_archive_number: the highest archive number ever assigned.
        lost_archive_ranges: ranges of offsets whose messages are missing from archives.
        removed_messages: by client identifier, how many queued or in-flight messages lost their
            bodies.
        lost_session_numbers: numbers of sessions whose session record is lost.
        incomplete_families: names of column families with values that are lost or may be outdated.
    """

    epoch: str = ""
    format: str = ""
    lineage: list[tuple[str, int]] = field(default_factory=list)
    created_at_us: int = 0
    commits: int = 0
    begin: int = 0
    end: int = 0
    messages: int = 0
    chunks: int = 0
    log_size_bytes: int = 0
    sessions: int = 0
    subscriptions: int = 0
    queued: int = 0
    in_flight: int = 0
    retained: int = 0
    wills: int = 0
    loss: Loss | None = None
    problems: list[str] = field(default_factory=list)
    problems_unlisted: int = 0
    notes: list[str] = field(default_factory=list)
    spans: Ranges = field(default_factory=list)
    lost_ranges: Ranges = field(default_factory=list)
    log_is_whole: bool = False
    given_up: Ranges = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    seams: list[int] = field(default_factory=list)
    broken_links: list[int] = field(default_factory=list)
    archives: list[Archive] = field(default_factory=list)
    last_archive_number: int = 0
    lost_archive_ranges: Ranges = field(default_factory=list)
    removed_messages: dict[str, int] = field(default_factory=dict)
    lost_session_numbers: set[int] = field(default_factory=set)
    incomplete_families: set[str] = field(default_factory=set)

    def add_problem(self, problem: str) -> None:
        """Add a sentence to ``problems``, or only count it when there are too many."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)
        else:
            self.problems_unlisted += 1

    def has_offset(self, offset: int) -> bool:
        """Return whether the log has the message at ``offset``."""
        at = bisect_right(self.spans, (offset, 2**64)) - 1
        return at >= 0 and offset < self.spans[at][1]

    def add_chunk(self, begin: int, end: int, size_bytes: int) -> None:
        """Count a readable chunk of the log, with the offsets from ``begin`` up to ``end``."""
        self.chunks += 1
        self.messages += end - begin
        self.log_size_bytes += size_bytes
        if self.spans and self.spans[-1][1] == begin:
            self.spans[-1] = (self.spans[-1][0], end)
        else:
            self.spans.append((begin, end))
        self.begin, self.end = self.spans[0][0], end

    @property
    def same_until(self) -> int:
        """The offset up to which the log has lost nothing since the last repair."""
        lost = [begin for begin, _ in self.lost_ranges[:1]]
        return min([self.end, *lost, *self.broken_links[:1]])
