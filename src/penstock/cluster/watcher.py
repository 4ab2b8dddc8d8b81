"""Watches the log for a primary, step by step: notices the claim of another member, and trims.

An idle primary appends nothing, so no refused append would reveal another member's claim: the
watcher reads the end of the log. Nothing here waits or has a thread.
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
"""Seconds from one trim to the next."""

OPEN_S: Final = 2.0
"""Time limit to open the log, in seconds."""


@final
class Watcher:
    """Watches the log for one writer.

    Args:
        log: the log, not open yet; the caller closes it.
        writer: the writer of the primary, whose state is read only.
        entries_max: number of entries that the log keeps for views that are behind.
        now_s: returns the monotonic time in seconds.
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
        self._last_written = -1
        self._trimmed_s = now_s()

    def step(self, synced: Sequence[int], fresh: Sequence[int]) -> str:
        """Read the end of the log if the writer was idle since the last step, and trim the log when
        that is due.

        Args:
            synced: the sequence up to which the view of each known member is synced.
            fresh: the same for this member and those heard within ``FRESH_S``.

        Returns:
            The reason why the writer must be fenced; empty if it must not.

        Raises:
            LogUnavailable: the log does not answer.
            LogRefused: the log is not set up so that it can be trusted.
        """
        if not self._is_open:
            self._log.open(OPEN_S)
            self._is_open = True
        written = self._writer.position.sequence
        if written == self._last_written:
            why = self._look_at_end(written)
            if why:
                return why
        self._last_written = written
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
