"""A standby step by step: it reads the log into its view, and claims when the primary is silent.

::

      opening ─▶ comparing ── the view is of this log ─▶ following ── claim accepted ─▶ claimed
                                                          ▲     │
                                                          ╰─────╯ entries, no entries, damage, or a
                                                                  claim refused or without an answer

``step`` does one thing and returns; nothing here waits or has a thread, so a simulation can decide
when each member takes a step. A claim without an answer may be in the log; then this member reads
its claim like any other record, and claims the next term.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from penstock.cluster.log import LogUnavailable, ReplicatedLog
from penstock.cluster.reading import (
    READ_S,
    ViewAhead,
    apply_next_entries,
    refuse_another_log,
    refuse_view_ahead,
)
from penstock.cluster.record import Claim, encode_claim
from penstock.cluster.role import NEW_LOG_LEASES, Standby
from penstock.cluster.view import LogDamaged, View
from penstock.cluster.writer import Fenced, LogWriter
from penstock.errors import ConfigError, StoreError
from penstock.telemetry.logs import Sentence, get_logger

logger = get_logger(__name__)

OPEN_S: Final = 5.0
READ_S_MIN: Final = 0.2
"""Time in seconds that a read has at least, also when a claim is due."""

DAMAGED_S: Final = 2.0
"""Pause in seconds after the log's leader returned a wrong entry, until another leader is
elected."""

AHEAD_S: Final = 30.0
"""Seconds for which the log must end before the view's position until the view is refused as ahead
of it. A server of the log that was stopped or cut off while it led acts as the leader for ten
seconds or more after it is back, and reports the end that the log had when it left."""


class Progress(Enum):
    """The outcome of a step."""

    READ = "entries were applied, and there may be more"
    NOTHING = "there was nothing to do"
    UNREACHABLE = "the log does not answer"
    CLAIMED = "this member is the primary"


class _Phase(Enum):
    OPENING = 0
    COMPARING = 1
    FOLLOWING = 2


class Follower:
    """Follows the log with one view.

    Args:
        log: the log, not open yet; the caller closes it.
        view: the view; nothing else may write to its database meanwhile.
        standby: decides when to claim.
        claim: the body of this member's claims; its epoch is filled in here.
        new_writer: returns a writer for one claim, with a log that is not open yet.
        now_s: returns the monotonic time in seconds.

    Attributes:
        note: the present problem as a sentence; empty for none.
        writer: the writer of the claimed term; None before the claim.
    """

    def __init__(
        self,
        log: ReplicatedLog,
        view: View,
        standby: Standby,
        claim: Claim,
        new_writer: Callable[[], LogWriter],
        now_s: Callable[[], float],
    ) -> None:
        self.note = ""
        self.writer: LogWriter | None = None
        self._log = log
        self._view = view
        self._standby = standby
        self._claim = claim
        self._new_writer = new_writer
        self._now_s = now_s
        self._phase = _Phase.OPENING
        self._has_next = False  # whether the log is known to have the next entry
        self._not_before_s = 0.0
        self._ahead_since_s = 0.0  # since when the log reports an end before the view; 0: not now

    @property
    def is_following(self) -> bool:
        """Return whether the log was reached and the view belongs to it."""
        return self._phase is _Phase.FOLLOWING

    def step(self, rank: int) -> Progress:
        """Open the log, compare the view with it, apply new entries or claim the next term; return
        the progress.

        Args:
            rank: number of other standbys that come before this one in the order of names.

        Raises:
            StoreError: the view is of another log or cannot be written, or a later version of
                Penstock wrote the log.
            EntriesTrimmed: the entries that the view needs next were trimmed; it must be seeded.
        """
        if self._now_s() < self._not_before_s:
            return Progress.NOTHING
        try:
            if self._phase is _Phase.OPENING:
                self._log.open(OPEN_S)
                self._phase = _Phase.COMPARING
            if self._phase is _Phase.COMPARING:
                self._compare()
                self._phase = _Phase.FOLLOWING
            read = self._read(rank)
        except LogUnavailable as error:
            self.note = f"the cluster's log cannot be reached: {error}"
            if self.is_following and self._standby.should_claim(self._view.end, rank):
                return self._try_claim()  # the replica may be lost together with the primary
            return Progress.UNREACHABLE
        except LogDamaged as damage:
            self.note = str(damage)
            self._not_before_s = self._now_s() + DAMAGED_S
            return Progress.NOTHING
        self.note = ""
        if read:
            return Progress.READ
        if not self._standby.should_claim(self._view.end, rank):
            return Progress.NOTHING
        return self._try_claim()

    def _compare(self) -> None:
        """Refuse a view that is ahead of the log or of another log; start the wait for a lease."""
        view, log = self._view, self._log
        bounds = log.bounds(READ_S)
        try:
            refuse_view_ahead(view, bounds.last)
            if view.position.sequence > 0:
                refuse_another_log(view, log.entry_at(view.position.sequence, READ_S))
        except ViewAhead as error:
            since_s = self._ahead_since_s = self._ahead_since_s or self._now_s()
            if self._now_s() - since_s < AHEAD_S:
                raise LogUnavailable(
                    f"{error} Another answer may come from another leader"
                ) from error
            raise
        self._ahead_since_s = 0.0
        leases = 1.0
        if bounds.last == 0:
            leases = 0.0 if view.current_watermark().epoch else NEW_LOG_LEASES
        self._standby.restart_wait(self._now_s(), view.end.term, leases)

    def _read(self, rank: int) -> bool:
        """Apply the next entries; return whether there were any.

        Replicas have no longer than until a claim is due: one that is lost with the primary does
        not answer, and must not delay the claim. But a claim would be refused while this member
        has not read the next entry that the log is known to have.
        """
        view, now_s = self._view, self._now_s()
        read_s = READ_S
        if not self._has_next:
            left_s = self._standby.claim_due_s(now_s, rank) - now_s
            read_s = min(READ_S, max(READ_S_MIN, left_s))
        if not apply_next_entries(view, self._log, self._has_next, read_s):
            return False
        self._has_next = False
        ends_with_claim = view.end.number == 0
        claim = view.claim if ends_with_claim else None
        self._standby.note_records(self._now_s(), view.end.term, claim)
        return True

    def _try_claim(self) -> Progress:
        """Claim the next term behind the last entry that was read; return the progress."""
        view = self._view
        claim = Claim(
            self._claim.node,
            view.current_watermark().epoch,
            self._claim.address,
            self._claim.stream_address,
            self._claim.version,
            self._claim.process,
        )
        try:
            writer = self._new_writer()
        except ConfigError as error:  # a file of the login or of TLS cannot be used now
            self._standby.restart_wait(self._now_s(), view.end.term)
            logger.warning("claimed nothing: %s", Sentence(str(error)))
            return Progress.NOTHING
        is_open = False
        try:
            writer.log.open(READ_S)
            is_open = True
            writer.claim(view.end, encode_claim(claim))
        except StoreError as error:
            writer.log.close()
            if not is_open and isinstance(error, LogUnavailable):
                self.note = f"the cluster's log cannot be reached: {error}"
                return Progress.UNREACHABLE  # nothing was sent: retry without waiting for a lease
            self._has_next = isinstance(error, Fenced)
            if self._has_next:
                self._standby.catch_up(self._now_s(), view.end.term)
            else:  # the log may end before the view by now
                self._standby.restart_wait(self._now_s(), view.end.term)
                self._phase = _Phase.COMPARING
            logger.info("claimed nothing: %s", Sentence(str(error)))
            return Progress.NOTHING
        self.writer = writer
        self.note = ""
        return Progress.CLAIMED
