"""Compares a server's copy of the log with the chain of checksums, from the front to the view.

::

      first … next ─────────────▶ position of the view       a batch each step, then a pause
        │ each record has the checksum of the one before          │
        ╰─ a gap, or another record: the copy is wrong             ╰─ its checksum is the view's

A server finds damage in its files when it reads them, which may be when it is the leader. So each
member reads the copy of its own server, over and over, and knows before.
"""

from __future__ import annotations

from typing import Final, final

from penstock.cluster.log import EntriesTrimmed, Entry, ReplicatedLog
from penstock.cluster.record import (
    GENESIS,
    Position,
    RecordDamaged,
    RecordNewer,
    checksum_of,
    decode_record,
)

ENTRIES_AT_ONCE: Final = 500
READ_S: Final = 2.0
"""Time limit of one call to the log, in seconds."""

PAUSE_S: Final = 20.0
"""Pause after a whole copy was compared, in seconds."""


@final
class CopyCheck:
    """Compares the copy of one server.

    Args:
        log: the log of this server alone, open.
        now_s: the present monotonic time, seconds.
    """

    def __init__(self, log: ReplicatedLog, now_s: float) -> None:
        self._log = log
        self._next = 1
        self._before: int | None = None  # checksum of the record before the next; None: unknown
        self._end = Position()
        self._begin_s = now_s

    def step(self, position: Position, now_s: float) -> str:
        """Compare a further batch, if one is due.

        Args:
            position: position of the member's view.
            now_s: the present monotonic time, seconds.

        Returns:
            How the copy differs from the log, as a clause; empty if no difference was found.

        Raises:
            LogUnavailable: the server does not answer.
        """
        if now_s < self._begin_s:
            return ""
        if not self._end.sequence:
            self._end = position
        if self._next > self._end.sequence:
            self._begin_again(now_s)
            return ""
        try:
            entries = self._log.read_copy(self._next, ENTRIES_AT_ONCE, READ_S)
        except EntriesTrimmed as trimmed:
            self._next, self._before = trimmed.first, None
            return ""
        wrong = self._difference(entries)
        if wrong:
            self._begin_again(now_s)
            self._begin_s = now_s
        return wrong

    def _begin_again(self, now_s: float) -> None:
        self._next, self._before, self._end = 1, None, Position()
        self._begin_s = now_s + PAUSE_S

    def _difference(self, entries: list[Entry]) -> str:
        """Return how ``entries`` differ from the log; advance behind those that do not."""
        for entry in entries:
            if entry.sequence != self._next:
                first = self._log.bounds(READ_S).first
                if first < entry.sequence:
                    return f"entry {max(first, self._next):,} is missing in its copy"
                self._before = None  # trimmed a moment ago
            try:
                record = decode_record(entry.data)
                before = record.previous_checksum
                if record.kind == GENESIS:  # it follows no record
                    before = self._before or 0
            except RecordDamaged:
                return f"entry {entry.sequence:,} of its copy is another than was appended"
            except RecordNewer:
                before = self._before or 0
            if self._before is not None and before != self._before:
                return f"entry {entry.sequence:,} of its copy does not follow the one before"
            self._before = checksum_of(entry.data)
            is_end = entry.sequence == self._end.sequence
            if is_end and self._before != self._end.checksum:
                return f"entry {entry.sequence:,} of its copy is not the one that the view has"
            self._next = entry.sequence + 1
        return ""
