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
any other. Two standbys that wait for the same primary do not claim at once: each waits a little
longer than those before it in the order of names, so that mostly one claim is made; where two are,
the log takes one.
"""

from __future__ import annotations

from typing import Final, final

from penstock.cluster.beats import Beat

STAGGER: Final = 0.15
"""Part of a lease by which the next standby waits longer."""

RANKS_MAX: Final = 5


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
        self._sign_s = now_s
        self._asked_s = now_s
        self._called_at = -1  # the sequence behind which it is to claim at once

    def heard(self, beat: Beat, now_s: float) -> None:
        """Take another member's heartbeat."""
        if beat.hands_over_to == self._node:
            self._called_at = beat.applied
        elif beat.role == "primary" and not beat.hands_over_to:
            self._sign_s = max(self._sign_s, now_s)

    def read(self, now_s: float) -> None:
        """Note that records came."""
        self._sign_s = max(self._sign_s, now_s)

    def refused(self, now_s: float) -> None:
        """Note that a claim was refused, or is in doubt: wait for a lease again."""
        self._sign_s = now_s
        self._called_at = -1

    def should_claim(self, now_s: float, applied: int, rank: int) -> bool:
        """Return whether to claim now.

        It is to be asked often. After a time without being asked (this process was stopped, or
        waited for the log) there may be signs that were not taken yet, and the lease begins anew.

        Args:
            now_s: monotonic time, seconds.
            applied: the last sequence in its view.
            rank: how many standbys that were heard come before it in the order of names.
        """
        if now_s - self._asked_s > self._lease_s / 2:
            self._sign_s = max(self._sign_s, now_s)
        self._asked_s = now_s
        if self._called_at >= 0 and applied >= self._called_at:
            return True
        wait_s = self._lease_s * (1 + STAGGER * min(rank, RANKS_MAX))
        return now_s - self._sign_s >= wait_s
