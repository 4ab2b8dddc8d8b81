"""A standby step by step: it reads the log into its view, and claims when the primary is silent.

::

      opening ─▶ comparing ── the view is of this log ─▶ following ── claim in its place ─▶ claimed
                                                          ▲     │
                                                          ╰─────╯ entries, nothing, damage, a claim
                                                                  that was refused or got no answer

``step`` does one thing and returns; nothing here waits or has a thread: a simulation decides when
each step of each member happens. A claim that got no answer may be in the log: then this member
reads it as it reads any other, and claims the next term.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from penstock.cluster.log import LogUnavailable, ReplicatedLog
from penstock.cluster.reading import (
    READ_S,
    ViewAhead,
    read_on,
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
DAMAGED_S: Final = 2.0
"""Pause in seconds after the leader gave a wrong entry: another one is elected meanwhile."""

AHEAD_S: Final = 30.0
"""Time in seconds for which the log must be said to lack what the view has until it is believed. A
server of the log that was stopped or cut off while it led goes on as the leader when it is back,
for ten seconds and more, and says where the log ended when it left."""


class Progress(Enum):
    """The outcome of a step."""

    READ = "entries were applied, there may be more"
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
        log: the log, not opened yet; the caller closes it.
        view: the view; nothing else writes to its database meanwhile.
        standby: decides when to claim.
        claim: the body of this member's claims, but for the epoch, which is filled in.
        new_writer: returns a writer whose log is not opened yet, for one claim.
        now_s: the monotonic clock.

    Attributes:
        note: its present problem, in one sentence; empty without one.
        writer: the writer of the term that was claimed; None before.
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
        self._is_there = False  # whether the log is known to have the next entry
        self._not_before_s = 0.0
        self._ahead_since_s = 0.0  # since when the log is said to lack what the view has; 0: not

    @property
    def is_following(self) -> bool:
        """Return whether it has reached the log, and its view is one of it."""
        return self._phase is _Phase.FOLLOWING

    def step(self, rank: int) -> Progress:
        """Open the log, compare the view with it, apply new entries or claim the next term; return
        the progress.

        Args:
            rank: how many other standbys come before this one in the order of names.

        Raises:
            StoreError: the view is of another log, or cannot be written, or a later Penstock wrote
                the log.
            EntriesTrimmed: the log has lost what the view needs next: it must be seeded.
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
            read = self._read()
        except LogUnavailable as error:
            self.note = f"the cluster's log cannot be reached: {error}"
            if self.is_following and self._standby.should_claim(self._view.end, rank):
                return self._try_claim()  # the replica that is asked may be gone with the primary
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
        """Compare the view with the log, and wait for a sign of the primary from now on."""
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
            leases = 0.0 if view.committed().epoch else NEW_LOG_LEASES
        self._standby.restart_wait(self._now_s(), view.end.term, leases)

    def _read(self) -> bool:
        view = self._view
        if not read_on(view, self._log, self._is_there):
            return False
        self._is_there = False
        ends_with_claim = view.end.number == 0
        claim = view.claim if ends_with_claim else None
        self._standby.note_records(self._now_s(), view.end.term, claim)
        return True

    def _try_claim(self) -> Progress:
        """Claim the next term behind the last entry that was read."""
        view = self._view
        claim = Claim(
            self._claim.node,
            view.committed().epoch,
            self._claim.address,
            self._claim.stream_address,
            self._claim.version,
            self._claim.process,
        )
        try:
            writer = self._new_writer()
        except ConfigError as error:  # a file of the login or of TLS, at this moment
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
                return Progress.UNREACHABLE  # nothing was sent: another try needs no other lease
            self._standby.restart_wait(self._now_s(), view.end.term)
            self._is_there = isinstance(error, Fenced)
            if not self._is_there:  # perhaps the log ends before the view by now
                self._phase = _Phase.COMPARING
            logger.info("claimed nothing: %s", Sentence(str(error)))
            return Progress.NOTHING
        self.writer = writer
        self.note = ""
        return Progress.CLAIMED
