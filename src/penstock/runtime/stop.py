"""A planned stop of a driver: its states, and how long each may last.

The invariants: what was taken over from a client is on disk and acknowledged, and nothing else is
taken over; and a client may complete the QoS 2 messages that the log has. So after a stop no client
sends a message again, or calls one failed, that the log has, except one whose acknowledgement the
store, the client or its socket held up for longer than the limits below::

      RUNNING ─ stop ─▶ FINISHING ─ all is released ─▶ COMMITTING ─ all is durable ─▶ FLUSHING
         │                  ╰─ s_max ────────────────────▲  ╰─ s_max, the store failed ─▲ │
         ╰─ the store failed ────────────────────────────╯                                │
                                              CLOSED ◀─ sockets are empty, s_max ─────────╯

========== ========= ======= ===================================================================
state      handles   commits what is done in it
========== ========= ======= ===================================================================
RUNNING    packets   yes     all
FINISHING  what      yes     packets that would begin something are dropped, those that complete
           completes         something are handled (``engine/values/states.py``): a client that
                             keeps no session, and gets no PUBCOMP, calls a message failed that is
                             in the log. It lasts until no client has a PUBREL left to send
COMMITTING nothing   yes     all connections are closed in the engine, so that bytes that arrive are
                             discarded. The commit under way and then the open batch are written;
                             behind each go the acknowledgements of its messages, and behind the
                             last ones of a connection its DISCONNECT (``engine/wire/link.py``)
FLUSHING   nothing   no      connections that still wait get DISCONNECT alone. The sockets send what
                             was written to them; a peer that does not read loses the rest
CLOSED     nothing   no      the committer has ended, unless the store hangs
========== ========= ======= ===================================================================
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
FINISHING: Final = StopState("finishing", commits=True, s_max=2.0)
COMMITTING: Final = StopState("committing", commits=True, s_max=10.0)
FLUSHING: Final = StopState("flushing", commits=False, s_max=5.0)
CLOSED: Final = StopState("closed", commits=False, s_max=0.0)

NEXT: Final = {
    RUNNING: FINISHING,
    FINISHING: COMMITTING,
    COMMITTING: FLUSHING,
    FLUSHING: CLOSED,
}

DRAIN_S_MAX: Final = 5.0
"""Seconds for which a connection that is closed without a stop waits for its last commit."""
