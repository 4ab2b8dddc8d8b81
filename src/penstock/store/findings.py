"""Findings: the counts and problems that an examination of a store reports."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

from penstock.store.archive import Archive
from penstock.store.identity import Loss
from penstock.store.ranges import Ranges

PROBLEMS_MAX: Final = 100
"""Problems told one by one; further ones are only counted."""


@dataclass(slots=True)
class Examination:
    """The result of an examination.

    Attributes:
        format: the number of the store's format; empty where it cannot be read.
        problems: sentences, none where all is well.
        notes: sentences about what is no damage and should be known all the same.
        loss: acknowledged messages that are missing at the end.
        spans: the offsets that are in the log.
        lost: offsets that should be in the log and are not.
        log_is_whole: whether it is certain that the log has lost nothing.
        given_up: offsets that earlier repairs have given up.
        archives: the archives of all streams, without the messages that are lost of them.
        archives_made: number of archives that there ever were.
        archives_lost: offsets between which they should hold messages, and cannot be read.
        removed: messages that waited for a client, or were in flight, and whose bodies are lost:
            how many, by client identifier.
        sessions_lost: numbers of sessions of which only parts are left.
        incomplete: column families of which not all can be read as it was.
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
    lost: Ranges = field(default_factory=list)
    log_is_whole: bool = False
    given_up: Ranges = field(default_factory=list)
    archives: list[Archive] = field(default_factory=list)
    archives_made: int = 0
    archives_lost: Ranges = field(default_factory=list)
    removed: dict[str, int] = field(default_factory=dict)
    sessions_lost: set[int] = field(default_factory=set)
    incomplete: set[str] = field(default_factory=set)

    def add_problem(self, problem: str) -> None:
        """Add a sentence to ``problems``."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)
        else:
            self.problems_unlisted += 1

    def holds(self, offset: int) -> bool:
        """Return whether the message is in the log."""
        at = bisect_right(self.spans, (offset, 2**64)) - 1
        return at >= 0 and offset < self.spans[at][1]

    def add_chunk(self, begin: int, end: int, size_bytes: int) -> None:
        """Count a chunk of the log that can be read."""
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
        """The offset before which the log lost nothing that earlier repairs had not given up."""
        return min(self.end, self.lost[0][0]) if self.lost else self.end
