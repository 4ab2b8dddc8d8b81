"""Watches over a primary step by step: learns from the log that it is none any more, and trims.

An idle primary appends nothing, so nothing would tell it of another one's claim: it looks at the
end of the log. Nothing here waits or has a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from penstock.cluster.beats import trim_before
from penstock.cluster.log import ReplicatedLog
from penstock.cluster.reading import READ_S
from penstock.cluster.record import RecordDamaged, RecordNewer, decode_record
from penstock.cluster.writer import LogWriter
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

TRIM_S: Final = 5.0
"""Time in seconds from one trim to the next."""

OPEN_S: Final = 2.0


@final
class Watcher:
    """Watches over one writer.

    Args:
        log: the log, not opened yet; the caller closes it.
        writer: the writer of the primary; it is only read.
        entries_max: entries that the log keeps for views that are behind.
        now_s: the monotonic clock.
    """

    def __init__(
        self,
        log: ReplicatedLog,
        writer: LogWriter,
        entries_max: int,
        now_s: Callable[[], float],
    ) -> None:
        self._log = log
        self._writer = writer
        self._entries_max = entries_max
        self._now_s = now_s
        self._is_open = False
        self._seen = -1
        self._trimmed_s = now_s()

    def step(self, synced: Sequence[int], fresh: Sequence[int]) -> str:
        """Look at the log; return the reason why the writer is fenced, empty while it is not.

        Args:
            synced: the sequence up to which the view of each known member is synced.
            fresh: the same of those that were heard lately, this member's own among them.

        Raises:
            LogUnavailable: the log does not answer.
            LogRefused: it is not set up as it must be.
        """
        if not self._is_open:
            self._log.open(OPEN_S)
            self._is_open = True
        written = self._writer.position.sequence
        if written == self._seen:
            why = self._look_at_end(written)
            if why:
                return why
        self._seen = written
        if self._now_s() - self._trimmed_s >= TRIM_S:
            self._trimmed_s = self._now_s()
            first, last = self._log.bounds(READ_S)
            before = trim_before(synced, fresh, first, last, self._entries_max)
            if before > first:
                self._log.trim(before, READ_S)
        return ""

    def _look_at_end(self, written: int) -> str:
        end = self._log.bounds(READ_S).last
        found = None if end <= written else self._log.entry_at(end, READ_S)
        if found is None:
            return ""
        try:
            term = decode_record(found.data).term
        except RecordDamaged as damage:
            logger.warning("the leader of the replicated log gave a wrong entry: %s", damage)
            return ""
        except RecordNewer as newer:
            term = newer.term
        if term <= self._writer.term:
            return ""
        return f"another member of the cluster is the primary, in term {term}"
