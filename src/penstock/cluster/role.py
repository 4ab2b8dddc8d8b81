"""Decides when a standby claims: after a silence of the primary, or when the primary hands over.

The log decides which member may write::

                 ╭──────── a sign of the primary ──────────╮
                 ▼                                         │
      start ─▶ standby ── a lease without a sign ─▶ claiming ── claim appended ─▶ primary
                 ▲  ▲                                  │                             │
                 │  ╰──── the append was refused ──────╯           a record of another term
                 │                                                                   ▼
                 ╰──────────────────── opened again ────────────────────────────── fenced

A sign is a heartbeat of a primary, or a record. A member that was just started waits for a lease
like any other. A new primary has ``CLAIM_LEASES`` leases for its first record or heartbeat, because
it builds its engine first. A log without any record has no primary to wait for. Whether a member
may begin it is another question (``beginning.py``).

Silence counts only while this member can receive heartbeats: its own return to it, with the time at
which they were sent. If none returns for ``DEAF_LEASES`` leases, the member was deaf, and it waits
for a whole lease after the next one. So a standby that was stopped for a while, or was cut off from
the heartbeats, does not mistake its own deafness for silence of the primary.

A claim is refused if the log has records that the member has not read. It reads them in a short
wait, ``RETRY_LEASES``, and claims again unless there was a sign. Records that are read in this wait
are a sign only if they are of a new primary: the former one may have appended them before it was
lost. If the former one lives, and only its heartbeats get lost, it may be deposed. A member that is
deaf for a part of the short wait waits for a whole lease.

Standbys that wait for the same primary do not claim at once: each waits a little longer than those
before it in the order of names, so mostly one claim is made; if two are made, the log accepts one.
"""

from __future__ import annotations

from typing import Final, final

from penstock.cluster.beats import Beat
from penstock.cluster.record import Claim, Position

STAGGER: Final = 0.15
"""Share of a lease by which each further standby waits longer."""

RANKS_MAX: Final = 5
"""Number of standbys for which the wait grows; further ones wait as long as the last of these."""

CLAIM_LEASES: Final = 4
"""Number of leases that a new primary has for its first record or heartbeat."""

DEAF_LEASES: Final = 0.5
"""Number of leases without a heartbeat of its own after which a member counts as deaf."""

RETRY_LEASES: Final = 2 * STAGGER
"""Number of leases that a member whose claim was refused reads on before it claims again."""

CATCH_UP_DEAF_LEASES: Final = 0.25
"""Number of leases without a heartbeat of its own after which a member counts as deaf in that wait:
two of its heartbeats were lost or late."""


@final
class Standby:
    """Decides when a standby claims.

    Args:
        node: name of this member.
        lease_s: seconds without a sign of a primary after which it claims.
        now_s: the present monotonic time, seconds.
        process: the ``process`` of this member's heartbeats.
    """

    def __init__(self, node: str, lease_s: float, now_s: float, process: str = "") -> None:
        self._node = node
        self._process = process
        self._lease_s = lease_s
        self._catch_up_s = RETRY_LEASES * lease_s
        self._sign_s = now_s  # when the wait began: at the last sign of a primary, or later
        self._heard_s = now_s  # the time up to which heartbeats were surely received
        self._wait_leases = 1.0
        self._term = 0  # term of the last record read
        self._catches_up_until_s = 0.0  # end of the short wait; 0: there is none
        self._handover: Beat | None = None  # the heartbeat that asks this member to claim at once

    def record_beat(self, beat: Beat, now_s: float) -> None:
        """Record a heartbeat of another member, or one of this member's that has returned."""
        if beat.node == self._node and beat.process == self._process:
            self._record_own_beat(beat.sent_s, now_s)
        elif beat.term < self._term:
            return  # sent by a deposed primary that has not noticed
        elif beat.hands_over_to == self._node:
            self._handover = beat
        elif beat.role == "primary" and not beat.hands_over_to:
            self._sign_s = max(self._sign_s, now_s)
            self._wait_leases = 1.0

    def _record_own_beat(self, sent_s: float, now_s: float) -> None:
        if not self._heard_s < sent_s <= now_s:
            return  # an older heartbeat than the last, or of an earlier start of this member
        until_s = self._catches_up_until_s
        unheard_since_s = max(self._heard_s, until_s - self._catch_up_s)
        if (
            self._heard_s < until_s
            and sent_s - unheard_since_s > CATCH_UP_DEAF_LEASES * self._lease_s
        ):
            self._wait_leases = 1.0
        if sent_s - self._heard_s > DEAF_LEASES * self._lease_s:
            self._sign_s = max(self._sign_s, sent_s)
        self._heard_s = sent_s

    def note_records(self, now_s: float, term: int, claim: Claim | None) -> None:
        """Record that this member has read records of the log.

        Args:
            now_s: the present time.
            term: term of the last record.
            claim: the last record if it is a claim, else None.
        """
        is_former, self._term = term == self._term, term
        if is_former and now_s < self._catches_up_until_s:
            return  # perhaps appended before the primary was lost
        self._catches_up_until_s = 0.0
        self._wait_leases = 1.0
        if claim is None:
            self._sign_s = now_s
        elif claim.node != self._node:  # an own claim had no answer, or is of an earlier start
            self._sign_s = max(self._sign_s, now_s + (CLAIM_LEASES - 1) * self._lease_s)

    def restart_wait(self, now_s: float, term: int, leases: float = 1.0) -> None:
        """Start the wait for a primary's sign again, after a start or a failed claim.

        Args:
            now_s: the present time.
            term: term of the last record read.
            leases: number of leases without a sign of a primary after which this member claims.
        """
        self._term = term
        self._sign_s = now_s
        self._wait_leases = leases
        self._catches_up_until_s = 0.0
        self._handover = None

    def catch_up(self, now_s: float, term: int) -> None:
        """Start a short wait, in which the records are read because of which the log has refused a
        claim. If the primary lives, its heartbeats come meanwhile.

        Args:
            now_s: the present time.
            term: term of the last record read.
        """
        self.restart_wait(now_s, term, RETRY_LEASES)
        self._catches_up_until_s = now_s + self._catch_up_s

    def claim_due_s(self, now_s: float, rank: int) -> float:
        """Return the monotonic time at which this member claims if no sign comes before, and it is
        not asked to claim at once, seconds. While it is deaf, that is a lease after it hears again.

        Args:
            now_s: the present time.
            rank: as for ``should_claim``.
        """
        if now_s - self._heard_s > DEAF_LEASES * self._lease_s:
            return now_s + self._wait_s(rank)
        return self._sign_s + self._wait_s(rank)

    def _wait_s(self, rank: int) -> float:
        return self._lease_s * (self._wait_leases + STAGGER * min(rank, RANKS_MAX))

    def should_claim(self, end: Position, rank: int) -> bool:
        """Return whether this member should claim now.

        Args:
            end: position of the last record read.
            rank: number of standbys heard lately that come before this member in the order of
                names.
        """
        handover = self._handover
        if handover is not None and end.term == handover.term and end.sequence >= handover.applied:
            return True
        return self._heard_s - self._sign_s >= self._wait_s(rank)
