"""A planned stop of a driver: its states, and how long each may last.

The invariant: what was taken over from a client is on disk and acknowledged, and nothing else is
taken over. So after a stop no client sends a message again that the log has, except one whose
acknowledgement the store or the client's own socket held up for longer than the limits below::

      RUNNING ─ stop ─▶ COMMITTING ─ all is durable ─▶ FLUSHING ─ sockets are empty ─▶ CLOSED
                             ╰─ s_max, or the store failed ─▲   ╰─ s_max ────────────────▲

========== ======= ======= =====================================================================
state      reads   commits what is done in it
========== ======= ======= =====================================================================
RUNNING    yes     yes     packets are handled
COMMITTING no      yes     all connections are closed in the engine, so that bytes that arrive are
                           discarded. The commit under way and then the open batch are written;
                           behind each go the acknowledgements of its messages, and behind the last
                           ones of a connection its DISCONNECT (``engine/wire/link.py``)
FLUSHING   no      no      connections that still wait get DISCONNECT alone. The sockets send what
                           was written to them; a peer that does not read loses the rest
CLOSED     no      no      the committer has ended, unless the store hangs
========== ======= ======= =====================================================================
"""

from __future__ import annotations

from typing import Final, NamedTuple


class StopState(NamedTuple):
    """One state of a driver.

    Attributes:
        name: for messages.
        commits: whether changes still become durable.
        s_max: seconds after which the next state follows in any case; 0 = without limit.
    """

    name: str
    commits: bool
    s_max: float


RUNNING: Final = StopState("running", commits=True, s_max=0.0)
COMMITTING: Final = StopState("committing", commits=True, s_max=10.0)
FLUSHING: Final = StopState("flushing", commits=False, s_max=5.0)
CLOSED: Final = StopState("closed", commits=False, s_max=0.0)

NEXT: Final = {RUNNING: COMMITTING, COMMITTING: FLUSHING, FLUSHING: CLOSED}

DRAIN_S_MAX: Final = 5.0
"""Seconds for which a connection that is closed without a stop waits for its last commit."""
