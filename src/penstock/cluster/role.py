"""Decides when a standby claims: after a silence of the primary, or when the primary asks it to.

The log decides which member may write.

::

                 ╭───────── a sign of the primary ─────────╮
                 ▼                                         │
      start ─▶ standby ── a lease without a sign ─▶ claiming ── claim in its place ─▶ primary
                 ▲  ▲                                  │                               │
                 │  ╰── something else is there ───────╯             a record of another term
                 │                                                                     ▼
                 ╰──────────────────── opened anew ──────────────────────────────── fenced

A sign is a heartbeat of a primary, or a record. A member that was just started waits for a lease as
any other, and a new primary has ``CLAIM_LEASES`` leases for its first record or heartbeat, because
it first makes its engine. A log that nobody has written to has no primary that could be waited for:
a member that brings a store claims it at once, one with an empty view a little later.

Silence counts only as far as this member can hear: its own heartbeats come back to it and carry the
time at which they were sent, up to which it has heard all there was. Where they stay away for
``DEAF_LEASES`` leases, it was deaf, and waits for a whole lease from then on. So a standby that was
stopped for a while, or was cut off from the heartbeats, does not take its own deafness for the
silence of the primary.

Two standbys that wait for the same primary do not claim at once: each waits a little longer than
those before it in the order of names, so that mostly one claim is made; where two are, the log
takes one.
"""

from __future__ import annotations

from typing import Final, final

from penstock.cluster.beats import Beat
from penstock.cluster.record import Claim, Position

STAGGER: Final = 0.15
"""Part of a lease by which the next standby waits longer."""

RANKS_MAX: Final = 5

CLAIM_LEASES: Final = 4
"""Leases that a new primary has until its first record or heartbeat."""

DEAF_LEASES: Final = 0.5
"""Leases without a heartbeat of its own after which a member takes itself for deaf."""

NEW_LOG_LEASES: Final = 2 * STAGGER
"""Leases that a member with an empty view waits before it claims a log to which nobody has
written, so that a member with a store comes before it."""


@final
class Standby:
    """Decides when a standby claims.

    Args:
        node: name of this member.
        lease_s: time without a sign after which it claims, seconds.
        now_s: monotonic time, seconds.
        process: tells its own heartbeats from those of a machine of the same name.
    """

    def __init__(self, node: str, lease_s: float, now_s: float, process: str = "") -> None:
        self._node = node
        self._process = process
        self._lease_s = lease_s
        self._sign_s = now_s  # when a primary gave a sign of life, or until when it need not
        self._heard_s = now_s  # up to when everything was heard
        self._wait_leases = 1.0
        self._term = 0  # of the records that were read
        self._called: Beat | None = None  # by which it was asked to claim at once

    def heard(self, beat: Beat, now_s: float) -> None:
        """Take a heartbeat, of another member or its own."""
        if beat.node == self._node and beat.process == self._process:
            self._come_back(beat.sent_s, now_s)
        elif beat.term < self._term:
            return  # of a primary that does not know yet that it is none
        elif beat.hands_over_to == self._node:
            self._called = beat
        elif beat.brings_store and self._term == 0:
            self._sign_s = max(self._sign_s, now_s)  # it comes before a member with an empty view
        elif beat.role == "primary" and not beat.hands_over_to:
            self._sign_s = max(self._sign_s, now_s)

    def _come_back(self, sent_s: float, now_s: float) -> None:
        if not self._heard_s < sent_s <= now_s:
            return  # older than another one, or of an earlier start of this machine
        if sent_s - self._heard_s > DEAF_LEASES * self._lease_s:
            self._sign_s = max(self._sign_s, sent_s)
        self._heard_s = sent_s

    def note_records(self, now_s: float, term: int, claim: Claim | None) -> None:
        """Note that records came.

        Args:
            now_s: the time.
            term: the term of the last one.
            claim: the last one, if it is a claim; else None.
        """
        self._term = term
        self._wait_leases = 1.0
        if claim is None:
            self._sign_s = now_s
        elif claim.node != self._node:  # its own got no answer, or is of an earlier start
            self._sign_s = max(self._sign_s, now_s + (CLAIM_LEASES - 1) * self._lease_s)

    def restart_wait(self, now_s: float, term: int, leases: float = 1.0) -> None:
        """Begin to wait anew: this member was just started, or its claim failed.

        Args:
            now_s: the time.
            term: the term of the last record that it read.
            leases: leases without a sign of a primary after which it claims.
        """
        self._term = term
        self._sign_s = now_s
        self._wait_leases = leases
        self._called = None

    def should_claim(self, end: Position, rank: int) -> bool:
        """Return whether to claim now.

        Args:
            end: the last record that was read.
            rank: how many standbys that were heard come before it in the order of names.
        """
        called = self._called
        if called is not None and end.term == called.term and end.sequence >= called.applied:
            return True
        wait_s = self._lease_s * (self._wait_leases + STAGGER * min(rank, RANKS_MAX))
        return self._heard_s - self._sign_s >= wait_s
