"""Judges the server of the log beside a member, by one look at it after the other. Pure.

A server that lives may be of no use: it lost records and leads on, it runs without the log, or it
makes no progress. So a member looks at its own server regularly, compares its copy of the log with
what the member's view has applied, and judges::

      whole ◀── it has all that the view had at the look before
        │
        ├─ entries are missing or changed, in two looks ──────────────────────────▶ damaged: refill
        │
        ╰─ behind, silent or without the log, and no progress
              ├─ for RESTART_S ─▶ restart, once ── for REFILL_S more ─────────────▶ lost: refill
              ╰─ it crashed CRASHES_MAX times over its data ──────────────────────▶ lost: refill

Time counts only while the other servers keep the log going; without a majority no server can catch
up. It counts for ``LOOK_S_MAX`` a look at most, so a machine that was paused is not judged by it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, NamedTuple, final

LOOK_S_MAX: Final = 4.0
"""Longest time, in seconds, that counts between two looks."""

CONFIRMING_LOOKS: Final = 2
"""Number of looks in turn that must find damage."""

RESTART_S: Final = 20.0
"""Seconds without progress after which a server is restarted."""

REFILL_S: Final = 30.0
"""Seconds without progress after its restart from which a server's data count as lost."""

CRASHES_MAX: Final = 3
"""Number of ends by itself, since it was whole, after which a server's data count as lost."""

Health = Literal["unknown", "whole", "spare", "behind", "silent", "damaged", "lost"]
"""Health of a server: "spare" is to keep no copy of the log, because other servers keep all of
them, "behind" lacks entries at the end, "silent" does not answer, "damaged" lacks entries elsewhere
or has others, "lost" makes no progress even after a restart."""


class Remedy(Enum):
    """The remedy for a server."""

    NONE = "nothing is to be done"
    RESTART = "it is to be started again"
    REFILL = "its data are to be set aside, and filled anew from the others"


class ServerLook(NamedTuple):
    """The state of a server as one look found it.

    Attributes:
        is_told: whether the login may ask for the state; without it nothing is known.
        answers: whether the server answers.
        has_log: whether it has a copy of the log.
        is_spare: whether the leader counts it among the servers without a copy.
        first: first sequence of its copy.
        last: last sequence of its copy.
        missing: number of entries missing in the middle of its copy.
        first_elsewhere: the largest first sequence of the other servers' copies; 0 if unknown.
        changed: how an entry of its copy differs from the appended one, as a clause; empty if none
            was found.
        log_goes_on: whether the log has a leader that hears a majority.
        crashes: number of times that it ended by itself since the member's start, over its data.
    """

    is_told: bool = True
    answers: bool = False
    has_log: bool = False
    is_spare: bool = False
    first: int = 0
    last: int = 0
    missing: int = 0
    first_elsewhere: int = 0
    changed: str = ""
    log_goes_on: bool = False
    crashes: int = 0


class Judgement(NamedTuple):
    """The health of a server, the reason as a clause (empty for a whole one), and the remedy."""

    health: Health
    why: str = ""
    remedy: Remedy = Remedy.NONE


@final
class ServerJudge:
    """Judges one server.

    Args:
        now_s: the present monotonic time, seconds.
    """

    def __init__(self, now_s: float) -> None:
        self._looked_s = now_s
        self._end = 0  # of the view, at the look before
        self._last = 0  # of the server's copy, at the look before
        self._damaged_looks = 0
        self._still_s = 0.0
        self._is_restarted = False
        self._crashes = 0  # when it was whole

    def judge(self, look: ServerLook, end: int, now_s: float) -> Judgement:
        """Return the judgement after a further look.

        Args:
            look: the look.
            end: last sequence that the member's view has applied.
            now_s: the present monotonic time, seconds.
        """
        passed_s = min(now_s - self._looked_s, LOOK_S_MAX)
        self._looked_s = now_s
        former_end, self._end = self._end, end
        former_last, self._last = self._last, look.last
        if not look.is_told:
            return Judgement("unknown")
        if look.is_spare:
            self._still_s = 0.0
            return Judgement("spare")
        damage = _damage_in(look)
        self._damaged_looks = self._damaged_looks + 1 if damage else 0
        if self._damaged_looks >= CONFIRMING_LOOKS:
            return Judgement("damaged", damage, Remedy.REFILL)
        if not damage and look.answers and look.has_log and look.last >= former_end:
            self._still_s = 0.0
            self._is_restarted = False
            self._crashes = look.crashes
            return Judgement("whole")
        health: Health = "behind" if look.answers else "silent"
        crashes = look.crashes - self._crashes
        if crashes >= CRASHES_MAX and not look.answers:
            why = f"it ended {crashes} times over its data"
            return Judgement("lost", why, Remedy.REFILL if look.log_goes_on else Remedy.NONE)
        why = damage or _lack_of(look, end)
        if look.last > former_last:
            self._still_s = 0.0
        elif look.log_goes_on:
            self._still_s += passed_s
        if not self._is_restarted and self._still_s >= RESTART_S:
            return Judgement(health, why, Remedy.RESTART)
        if self._is_restarted and self._still_s >= REFILL_S:
            return Judgement("lost", f"{why}, and makes no progress", Remedy.REFILL)
        return Judgement(health, why)

    def note_restart(self) -> None:
        """Record that the server was restarted: the time without progress begins anew."""
        self._still_s = 0.0
        self._is_restarted = True

    def note_refill(self, crashes: int) -> None:
        """Record that the server began anew with empty data, after so many crashes."""
        self._still_s = 0.0
        self._last = 0
        self._damaged_looks = 0
        self._is_restarted = False
        self._crashes = crashes


def _damage_in(look: ServerLook) -> str:
    """Return the damage that a look shows, as a clause; empty if it shows none."""
    if not look.answers or not look.has_log:
        return ""
    if look.changed:
        return look.changed
    if look.missing:
        return f"{look.missing:,} entries are missing in the middle of its copy"
    if 0 < look.first_elsewhere < look.first:
        return f"its copy begins at {look.first:,}, and that of others at {look.first_elsewhere:,}"
    return ""


def _lack_of(look: ServerLook, end: int) -> str:
    if not look.answers:
        return "it does not answer"
    if not look.has_log:
        return "it answers, and has no copy of the log"
    return f"its copy ends at {look.last:,}, and the log at {end:,} or behind"
