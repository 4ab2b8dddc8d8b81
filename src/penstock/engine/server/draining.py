"""A broker that is being emptied: new clients are refused, connected ones are sent to another
server.

::

      SERVING ── drain ─▶ DRAINING ── no clients left ▶ DRAINED       new clients are refused
         ▲                   │                             │          in both
         ╰──── end of it ────┴─────────────────────────────╯

An MQTT 5 client gets a DISCONNECT with the reason (0x9C use another server, 0x9D server moved) and,
where one is configured, the name of the other server (v5 §4.11); older clients are closed. Sessions
stay on this broker. The walk over the sessions is made in portions, and starts again as long as it
finds a connected client. Bridges of this broker stay connected.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.clock import Now
from penstock.engine.connection.connection import Connection
from penstock.engine.session.session_index import SessionIndex

VISITS_PER_TICK_MAX: Final = 5000

BECAUSE: Final = "this server is being emptied"


@final
class Draining:
    """The emptying of one broker: its pace, its reason code, and its counts so far.

    Args:
        reason_code: ``USE_ANOTHER_SERVER`` or ``SERVER_MOVED``.
        server_reference: the other server's name; empty if none is configured.
        per_s: clients sent away a second, above 0.
        now: when it begins.
    """

    def __init__(self, reason_code: int, server_reference: str, per_s: float, now: Now) -> None:
        self.reason_code = reason_code
        self.server_reference = server_reference
        self.per_s = per_s
        self.sent_away = 0
        self.refused = 0
        self.drained = False  # whether the last walk found no connected client
        self._counted_s = now.monotonic_s
        self._due = 1.0
        self._cursor = 0
        self._found = False

    def tick(self, connections: dict[str, Connection], order: SessionIndex, now: Now) -> None:
        """Disconnect as many clients as ``per_s`` allows since the last call."""
        waited_s = now.monotonic_s - self._counted_s
        self._counted_s = now.monotonic_s
        self._due = min(self._due + waited_s * self.per_s, max(1.0, self.per_s))
        if self._due < 1.0 or self.drained:
            return
        for session in order.after(self._cursor, VISITS_PER_TICK_MAX):
            self._cursor = session.number
            connection = connections.get(session.client_id)
            if connection is None:  # the session is disconnected, or a bridge of ours
                continue
            self._found = True
            self.sent_away += 1
            connection.close(self.reason_code, BECAUSE, now, self.server_reference)
            self._due -= 1.0
            if self._due < 1.0:
                return
        if not order.after(self._cursor, 1):
            self.drained = not self._found
            self._found = False
            self._cursor = 0
