"""Keeps the log's leader off the machine of the primary, and tells who it is.

A machine that is lost with both costs two elections, one after the other: that of the log, 4 to 9 s
in JetStream, and that of the primary. With the log led elsewhere it costs the second alone.

::

      this machine's server leads, and another is up to date ─▶ the other is made the leader
      another server leads; none leads; none is up to date   ─▶ nothing is done

The writer is told the name of the leader: another server would only pass its appends on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from penstock.cluster.log import LogState, ReplicatedLog
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

LOOK_S: Final = 5.0
"""Seconds between two checks which server leads."""

MOVED_S: Final = 30.0
"""Least time between two moves of the leader, in seconds: each move stops appends for a moment."""

HEARD_S_MAX: Final = 2.5
"""Seconds of silence after which a server is not made the leader."""

CALL_S: Final = 2.0
"""Time limit of one call to the log, in seconds."""


def servers_elsewhere(state: LogState, own: str) -> list[str]:
    """Return the servers of other machines that could lead, the one heard most recently first.

    Args:
        state: the log's state.
        own: name of the server of this machine.

    Returns:
        Names of servers; an empty list if this machine's server does not lead, or no other server
        is up to date.
    """
    if state.leader != own or not state.has_quorum:
        return []
    others = [
        node
        for node in state.nodes
        if node.name != own
        and node.is_current
        and node.seen_s is not None
        and node.seen_s <= HEARD_S_MAX
    ]
    return [node.name for node in sorted(others, key=lambda node: node.seen_s or 0.0)]


@final
class LeaderMover:
    """Checks regularly which server leads, and moves the leader.

    Args:
        own: name of the server of this machine.
        now_s: the monotonic clock.
        tell: called with the name of the leader at each look; None: nobody is told.
    """

    def __init__(
        self, own: str, now_s: Callable[[], float], tell: Callable[[str], None] | None = None
    ) -> None:
        self._own = own
        self._now_s = now_s
        self._tell = tell
        self._look_at_s = self._move_at_s = now_s()

    def step(self, log: ReplicatedLog) -> bool:
        """Check which server leads if that is due; return whether the leader was asked to move.

        Raises:
            LogUnavailable: the log does not answer.
        """
        now_s = self._now_s()
        if now_s < self._look_at_s:
            return False
        self._look_at_s = now_s + LOOK_S
        state = log.state(CALL_S)
        if self._tell is not None and state.has_quorum:
            self._tell(state.leader)
        servers = servers_elsewhere(state, self._own)
        if not servers or now_s < self._move_at_s:
            return False
        self._move_at_s = now_s + MOVED_S
        logger.info("%s leads the log, beside the primary: %s shall lead", self._own, servers[0])
        log.move_leader(servers, CALL_S)
        return True
