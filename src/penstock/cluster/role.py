"""The role of a member: who may write is decided by the log, when to ask is decided here.

::

                 ╭───────── a sign of the primary ─────────╮
                 ▼                                         │
      start ─▶ standby ── a lease without a sign ─▶ claiming ── claim in its place ─▶ primary
                 ▲  ▲                                  │                               │
                 │  ╰── something else is there ───────╯             a record of another term
                 │                                                                     ▼
                 ╰──────────────────── opened anew ──────────────────────────────── fenced

A sign is a heartbeat of a primary, or a record. A member that was just started waits for a lease as
any other, and a new primary has ``CLAIM_LEASES`` leases to send its first heartbeat, because it
first makes its engine.

Silence counts only as far as this member can hear: its own heartbeats come back to it, and the last
that did tells up to when it has heard all there was. So a standby that was stopped for a while, or
is cut off from the heartbeats, does not take its own deafness for the silence of the primary.

Two standbys that wait for the same primary do not claim at once: each waits a little longer than
those before it in the order of names, so that mostly one claim is made; where two are, the log
takes one.
"""

from __future__ import annotations

from typing import Final, final

from penstock.cluster.beats import Beat

STAGGER: Final = 0.15
"""Part of a lease by which the next standby waits longer."""

RANKS_MAX: Final = 5

CLAIM_LEASES: Final = 4
"""Leases that a new primary has until its first heartbeat."""


@final
class Standby:
    """Decides when a standby claims.

    Args:
        node: name of this member.
        lease_s: time without a sign after which it claims, seconds.
        now_s: monotonic time, seconds.
    """

    def __init__(self, node: str, lease_s: float, now_s: float) -> None:
        self._node = node
        self._lease_s = lease_s
        self._sign_s = now_s  # when a primary gave a sign of life, or until when it need not
        self._heard_s = now_s  # up to when everything was heard
        self._called_at = -1  # the sequence behind which it is to claim at once

    def heard(self, beat: Beat, now_s: float) -> None:
        """Take a heartbeat, of another member or its own."""
        if beat.node == self._node:
            self._heard_s = now_s
        elif beat.hands_over_to == self._node:
            self._called_at = beat.applied
        elif beat.role == "primary" and not beat.hands_over_to:
            self._sign_s = max(self._sign_s, now_s)

    def read(self, now_s: float, has_claim: bool) -> None:
        """Note that records came, and whether a claim was among them."""
        grace_s = (CLAIM_LEASES - 1) * self._lease_s if has_claim else 0.0
        self._sign_s = max(self._sign_s, now_s + grace_s)

    def begin(self, now_s: float) -> None:
        """Wait for a lease from now on: it was just started, or a claim was refused."""
        self._sign_s = now_s
        self._called_at = -1

    def should_claim(self, applied: int, rank: int) -> bool:
        """Return whether to claim now.

        Args:
            applied: the last sequence in its view.
            rank: how many standbys that were heard come before it in the order of names.
        """
        if self._called_at >= 0 and applied >= self._called_at:
            return True
        wait_s = self._lease_s * (1 + STAGGER * min(rank, RANKS_MAX))
        return self._heard_s - self._sign_s >= wait_s
