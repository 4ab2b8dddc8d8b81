"""The writer of the replicated log: appends the records of a primary, one at a time.

::

      claim ─▶ writing ── append: at its sequence ─▶ writing
                  │ no answer in time, or another attempt is there ─▶ in doubt ── resume ─▶ writing
                  ╰ a record of another term is there ─▶ fenced: the end

A record without an answer is appended again at the same sequence, with the same bytes. The entry
found there decides: the same bytes (appended), another attempt of this term (in doubt), a record of
another term (fenced). While the writer is in doubt, it appends nothing until the view has applied
all records of the log and calls ``resume``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NoReturn

from penstock.cluster.log import AppendRefused, AppendUnknown, LogUnavailable, ReplicatedLog
from penstock.cluster.record import (
    CLAIM,
    COMMIT,
    FIRST_PART,
    HEAD_BYTES,
    LAST_PART,
    MIDDLE_PART,
    Position,
    RecordDamaged,
    RecordNewer,
    checksum_of,
    decode_record,
    encode_record,
)
from penstock.errors import CommitUnknown, StoreError

ATTEMPT_S: Final = 1.0
"""Time in seconds for which one attempt to append waits for its answer at least. Where appends take
longer, because the servers are far apart, it waits longer: ``ATTEMPT_TIMES`` as long as they take,
and twice as long after each attempt that had no answer in its time."""

ATTEMPT_TIMES: Final = 4

SMOOTHING: Final = 8
"""Number of appends over which the time of one is averaged."""

LATELY_S: Final = 10.0
"""Seconds for which the time of the last append says something of the next."""

PAUSE_S: Final = 0.02
"""Pause between two attempts, in seconds."""


class Fenced(StoreError):
    """Another member is the primary: this member may not write or acknowledge any more."""


class LogWriter:
    """Appends the records of one term.

    Args:
        log: the replicated log, used by this object only.
        append_s_max: seconds in which the log must accept a record.
        now_s: returns the monotonic time in seconds.
        pause: sleeps between two attempts, for a time in seconds.
        appended: called with the time that each append took, seconds; None for no callback.

    Attributes:
        position: position of the last record in the log, whichever member wrote it.
        term: the term of this writer's records; 0 before ``claim``.
        claimed: sequence of the claim; 0 before it.
        one_at_a_time: lock that a thread holds while it appends, or makes another call to the
            writer's log.
        is_in_doubt: whether ``resume`` must be called before the next append.
        append_s: time that the last appends took, in seconds; 0 before the first.
        failing_since_s: monotonic time since when the log has not taken a record; 0 while it does.
        failing_why: the reason why it did not; a clause.
        fenced_by: the reason why this writer may not append any more; empty while it may.
    """

    def __init__(
        self,
        log: ReplicatedLog,
        append_s_max: float,
        now_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        appended: Callable[[float], None] | None = None,
    ) -> None:
        self.log = log
        self.one_at_a_time = threading.RLock()
        self.position = Position()
        self.term = 0
        self.claimed = 0
        self.is_in_doubt = True
        self.append_s = 0.0
        self._appended_s = now_s()
        self.failing_since_s = 0.0
        self.failing_why = ""
        self.fenced_by = ""
        self._attempt_s = min(ATTEMPT_S, append_s_max)
        self._append_s_max = append_s_max
        self._number = 0
        self._is_claiming = False
        self._now_s = now_s
        self._pause = pause
        self._appended = appended

    def claim(self, at: Position, body: bytes, kind: int = CLAIM) -> Position:
        """Append a claim that begins the term after ``at.term``; return the claim's position.

        Args:
            at: position of the last record that this member has read.
            body: body of the claim's record.
            kind: ``CLAIM`` or ``GENESIS``.

        Raises:
            Fenced: the log has another record behind ``at``, which must be read first.
            LogUnavailable: the log did not accept the claim in time; it may be added all the same.
        """
        self.term = at.term + 1
        self._number = 0
        self.position = at
        self.is_in_doubt = False
        self.fenced_by = ""
        self._is_claiming = True
        self._append(kind, body)
        self._is_claiming = False
        self.claimed = self.position.sequence
        return self.position

    def lately_append_s(self, now_s: float) -> float:
        """Return the time that an append takes lately, in seconds; 0 if there was none for
        ``LATELY_S``.

        Args:
            now_s: the present monotonic time, seconds.
        """
        return self.append_s if now_s - self._appended_s <= LATELY_S else 0.0

    def append(self, body: bytes) -> Position:
        """Append a commit, in several entries if it is large; return the position of the last.

        Raises:
            Fenced: another member is the primary.
            CommitUnknown: it is unknown whether the log has all of the commit; ``resume`` must be
                called next.
        """
        if self.fenced_by:
            raise Fenced(self.fenced_by)
        if self.is_in_doubt:
            raise CommitUnknown("an earlier record of the replicated log is in doubt")
        piece_bytes = self.log.entry_bytes_max - HEAD_BYTES
        try:
            if len(body) <= piece_bytes:
                self._append(COMMIT, body)
            else:
                self._append_parts(memoryview(body), piece_bytes)
        except LogUnavailable as error:
            raise CommitUnknown(str(error)) from error
        return self.position

    def _append_parts(self, rest: memoryview, piece_bytes: int) -> None:
        kind = FIRST_PART
        while len(rest) > piece_bytes:
            self._append(kind, bytes(rest[:piece_bytes]))
            rest = rest[piece_bytes:]
            kind = MIDDLE_PART
        self._append(LAST_PART, bytes(rest))

    def resume(self, position: Position) -> None:
        """Continue behind ``position``, the last record that the view has read.

        Raises:
            Fenced: the view has a claim of another member.
        """
        if position.term != self.term:
            self._fence(position.term)
        self.position = position
        self._number = max(self._number, position.number + 1)
        self.is_in_doubt = False

    def _append(self, kind: int, body: bytes) -> None:
        data = encode_record(kind, self.term, self._number, self.position.checksum, body)
        number, sequence = self._number, self.position.sequence + 1
        self._number += 1
        began_s = self._now_s()
        ends_s = began_s + self._append_s_max
        while True:
            sent_s = self._now_s()
            attempt_s = min(self._attempt_s, max(ATTEMPT_S, ends_s - sent_s))
            try:
                self.log.append(data, sequence - 1, attempt_s)
                self._note_time(self._now_s() - sent_s)
                break
            except AppendRefused as refused:
                why = str(refused)
                if self._is_there(data, sequence):
                    break
            except LogUnavailable as error:
                why = str(error)
                if self._now_s() - sent_s >= attempt_s:
                    self._attempt_s = min(2 * self._attempt_s, self._append_s_max)
            self.failing_why = why
            self.failing_since_s = self.failing_since_s or began_s
            if self._now_s() >= ends_s:
                self.is_in_doubt = True
                raise AppendUnknown(f"the replicated log takes no records: {why}")
            self._pause(PAUSE_S)
        self.failing_since_s = 0.0
        if self._appended is not None:
            self._appended(self._now_s() - began_s)
        self.position = Position(sequence, self.term, number, checksum_of(data))

    def _note_time(self, took_s: float) -> None:
        """Count the time of an append that was answered; let attempts follow it."""
        self._appended_s = self._now_s()
        was_s = self.append_s or took_s
        self.append_s = was_s + (took_s - was_s) / SMOOTHING
        wait_s = max(ATTEMPT_S, ATTEMPT_TIMES * self.append_s)
        self._attempt_s = min(wait_s, self._append_s_max)

    def _is_there(self, data: bytes, sequence: int) -> bool:
        """Return whether the log has ``data`` at ``sequence``; False also if that is unknown.

        Raises:
            Fenced: a record of another term is there, or behind it.
            AppendUnknown: another record of this term is there.
        """
        try:
            found = self.log.entry_at(sequence, self._attempt_s)
            if found is None:
                end = self.log.bounds(self._attempt_s).last
                if end < sequence - 1:  # a deposed leader answered, or the log is lost
                    raise LogUnavailable(
                        f"the replicated log is said to end at {end}, before {sequence - 1}, which"
                        " it had acknowledged"
                    )
                if end >= sequence:  # trimmed since, or just appended
                    found = self.log.entry_at(end, self._attempt_s)
            if found is None:
                return False
            if found.data == data:
                return True
            there = decode_record(found.data)
        except (LogUnavailable, RecordDamaged):
            return False
        except RecordNewer as newer:
            self._fence(newer.term)
        if there.term != self.term or self._is_claiming:
            self._fence(there.term)
        self.is_in_doubt = True
        raise AppendUnknown("an earlier try is at the place of this record")

    def _fence(self, term: int) -> NoReturn:
        """Mark this writer as fenced by ``term``, and raise.

        Raises:
            Fenced: always.
        """
        self.is_in_doubt = True
        self.fenced_by = (
            f"another member of the cluster is the primary, in term {term}; this one was it in term"
            f" {self.term}"
        )
        raise Fenced(self.fenced_by)
