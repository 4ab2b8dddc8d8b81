"""A standby step by step: it reads the log into its view, and claims when the primary is silent.

::

      opening ─▶ comparing ── the view is of this log ─▶ following ── claim accepted ─▶ claimed
                                                          ▲     │
                                                          ╰─────╯ entries, no entries, damage, or a
                                                                  claim refused or without an answer

``step`` does one thing and returns; nothing here waits or has a thread, so a simulation can decide
when each member takes a step. A claim without an answer may be in the log; then this member reads
its claim like any other record, and claims the next term.

A view that the log does not match waits in *comparing*: the log's servers may get their data back,
or an operator begins a new history, and the view is replaced. A store with which an operator begins
one is not compared: its member appends a genesis at the log's end, if the log has not gone on since
the operator said so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import Final

from penstock.cluster.beginning import (
    HeardBeats,
    Objection,
    OwnView,
    has_ended,
    objection,
    successor_of,
)
from penstock.cluster.log import LogMissing, LogUnavailable, ReplicatedLog
from penstock.cluster.reading import (
    READ_S,
    UNREACHABLE,
    ViewAhead,
    apply_next_entries,
    refuse_another_log,
    refuse_view_ahead,
)
from penstock.cluster.record import (
    CLAIM,
    GENESIS,
    NO_CHECKSUM,
    Claim,
    Position,
    RecordDamaged,
    RecordNewer,
    decode_claim,
    decode_record,
    encode_claim,
)
from penstock.cluster.role import Standby
from penstock.cluster.view import LogDamaged, Superseded, View
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
"""Seconds for which the log must end before the view's position until it counts as lost. A server
of the log that was stopped or cut off while it led acts as the leader for ten seconds or more after
it is back, and reports the end that the log had when it left."""

OBJECTION_S: Final = 0.1
"""Pause in seconds after a claim that was due and not allowed."""


class Overtaken(StoreError):
    """Raised when the log has gone on since an operator let a view begin a new history: what was
    acknowledged meanwhile would be given up, and the operator was not told of it.

    Args:
        log_end: the last sequence of the log when the operator was told.
        last: its last sequence now.
    """

    def __init__(self, log_end: int, last: int) -> None:
        super().__init__(
            f"the store is to begin a new history of the cluster, but the log has gone on since"
            f" 'penstock cluster recover' was told so, from entry {log_end:,} to {last:,}: run it"
            " again, it says what is given up now; or give the new history up: 'penstock cluster"
            " reseed' lets this member take a copy of the store that the log belongs to"
        )


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
        heard: returns the last heartbeats of the other members.
        others: names of the other members of the cluster; None if they are not known.

    Attributes:
        note: the present problem as a sentence; empty for none.
        writer: the writer of the claimed term; None before the claim.
        is_other_log: whether the log has other entries than the view.
    """

    def __init__(
        self,
        log: ReplicatedLog,
        view: View,
        standby: Standby,
        claim: Claim,
        new_writer: Callable[[], LogWriter],
        now_s: Callable[[], float],
        heard: Callable[[], HeardBeats],
        others: Collection[str] | None,
    ) -> None:
        self.note = ""
        self.writer: LogWriter | None = None
        self.is_other_log = False
        self._log = log
        self._view = view
        self._standby = standby
        self._claim_body = claim
        self._new_writer = new_writer
        self._now_s = now_s
        self._heard = heard
        self._others = others
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
            ForeignView: the log's history began with another store.
            StoreError: the view cannot be written, or a later version of Penstock wrote the log.
            EntriesTrimmed: the entries that the view needs next were trimmed; it must be seeded.
            Superseded: an operator began a new history; the view must be seeded.
            Overtaken: the log has gone on since an operator let the view begin a new history.
        """
        if self._now_s() < self._not_before_s:
            return Progress.NOTHING
        was_leader_asked = self._has_next
        try:
            if self._phase is _Phase.OPENING:
                self._log.open(OPEN_S)
                self._phase = _Phase.COMPARING
            if self._view.word is not None:
                return self._claim(GENESIS)
            if self._phase is _Phase.COMPARING:
                self._compare()
                self._phase = _Phase.FOLLOWING
            read = self._read(rank)
        except LogUnavailable as error:
            self.note = f"{UNREACHABLE}{error}"
            if isinstance(error, LogMissing) and self.is_following:
                self._phase = _Phase.COMPARING  # with the one that is created next
            if self.is_following and self._standby.should_claim(self._view.end, rank):
                why = self._object()
                if why is None:
                    return self._claim(CLAIM)  # the replica may be lost together with the primary
                self._has_next = self._has_next or why.is_ahead
            return Progress.UNREACHABLE
        except ViewAhead as error:
            self._wait_for_another_answer(error)
            return Progress.UNREACHABLE
        except LogDamaged as damage:
            self.note = str(damage)
            self._not_before_s = self._now_s() + DAMAGED_S
            self._phase = _Phase.COMPARING  # perhaps it is another log than a moment ago
            return Progress.NOTHING
        self.note = ""
        if read:
            return Progress.READ
        if self._has_ended():
            self._phase = _Phase.COMPARING  # with the log of the new history
            return Progress.NOTHING
        if not self._standby.should_claim(self._view.end, rank):
            return Progress.NOTHING
        why = self._object()
        if why is None:
            return self._claim(CLAIM)
        if why.is_ahead and not was_leader_asked:
            self._has_next = True  # unless the log lost it: the leader is asked
        else:
            self.note = why.why
            self._not_before_s = self._now_s() + OBJECTION_S
        return Progress.NOTHING

    def _has_ended(self) -> bool:
        """Return whether a member is heard whose store succeeds the history of the view."""
        epoch, beats = self._view.epoch, self._heard().lately.values()
        return bool(epoch) and any(has_ended(epoch, beat) for beat in beats)

    def _object(self) -> Objection | None:
        """Return why this member may not claim; None if it may."""
        own = OwnView(self._view.epoch, self._view.end.sequence)
        return objection(own, self._others, self._heard())

    def _compare(self) -> None:
        """Compare the view with the log; start the wait for a lease.

        Raises:
            ViewAhead: the view is ahead of the log, or of another log.
        """
        view, log = self._view, self._log
        bounds = log.bounds(READ_S)
        refuse_view_ahead(view, bounds.last)
        if view.position.sequence > 0:
            refuse_another_log(view, log)
        self._ahead_since_s = 0.0
        self.is_other_log = False
        leases = 0.0 if bounds.last == 0 else 1.0
        self._standby.restart_wait(self._now_s(), view.end.term, leases)

    def _wait_for_another_answer(self, error: ViewAhead) -> None:
        """Let the next steps compare again: another leader of the log may answer otherwise.

        Raises:
            Superseded: a member is heard whose store contains the view.
        """
        view, now_s = self._view, self._now_s()
        self.is_other_log = error.is_other
        if not view.epoch:
            view.start_over()
            return
        lately = list(self._heard().lately.values())
        successor = successor_of(view.epoch, view.position.sequence, lately)
        if successor is not None:
            raise Superseded(
                f"an operator began a new history of the cluster with a store that contains this"
                f" view, and {successor.node} has it",
                successor.term,
            )
        self._ahead_since_s = self._ahead_since_s or now_s
        self.note = str(error)
        if now_s - self._ahead_since_s < AHEAD_S:
            self.note = f"the log's leader may have been away, and is asked again: {error}"
        self._not_before_s = now_s + OBJECTION_S

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

    def _claim(self, kind: int) -> Progress:
        """Claim the next term behind the last entry that was read, or with ``GENESIS`` behind the
        last of the log; return the progress."""
        view, own = self._view, self._claim_body
        claim = Claim(
            own.node, view.epoch, own.address, own.stream_address, own.version, own.process
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
            at = self._end_of_log(writer.log) if kind == GENESIS else view.end
            writer.claim(at, encode_claim(claim), kind)
        except Overtaken:
            writer.log.close()
            raise
        except StoreError as error:
            writer.log.close()
            if not is_open and isinstance(error, LogUnavailable):
                self.note = f"{UNREACHABLE}{error}"
                return Progress.UNREACHABLE  # nothing was sent: retry without waiting for a lease
            logger.info("claimed nothing: %s", Sentence(str(error)))
            if kind == GENESIS:
                return Progress.UNREACHABLE  # the log has grown, or has no majority
            self._has_next = isinstance(error, Fenced)
            if self._has_next:
                self._standby.catch_up(self._now_s(), view.end.term)
            else:  # the log may end before the view by now
                self._standby.restart_wait(self._now_s(), view.end.term)
                self._phase = _Phase.COMPARING
            return Progress.NOTHING
        self.writer = writer
        self.note = ""
        return Progress.CLAIMED

    def _end_of_log(self, log: ReplicatedLog) -> Position:
        """Return the place of a genesis: behind the last entry, in a term that nobody had, and
        without a record before it.

        Raises:
            Overtaken: the log has gone on since the operator's word.
        """
        last = log.bounds(READ_S).last
        entry = log.entry_at(last, READ_S) if last else None
        terms = [beat.term for beat in self._heard().known.values()]
        term = max([0, *terms, *(former.term for former in self._view.former)])
        is_own = False
        try:
            if entry is not None:
                record = decode_record(entry.data)
                term = max(term, record.term)
                is_own = record.kind == GENESIS and decode_claim(record.body).epoch == (
                    self._view.epoch
                )
        except RecordNewer as newer:
            term = max(term, newer.term)
        except RecordDamaged as damage:
            logger.warning("the log ends with a wrong entry: %s", damage)
        word = self._view.word
        if word is not None and word.log_end is not None and last > word.log_end and not is_own:
            raise Overtaken(word.log_end, last)
        return Position(last, term, 0, NO_CHECKSUM)
