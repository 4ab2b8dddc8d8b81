"""Draining of a broker: new clients are refused, connected clients are sent to another server.

::

      SERVING ── drain ─▶ DRAINING ── no clients left ▶ DRAINED       DRAINING and DRAINED refuse
         ▲                   │                             │          new clients
         ╰──── end_drain ────┴─────────────────────────────╯

An MQTT 5 client gets a DISCONNECT with the reason (0x9C use another server, 0x9D server moved) and
the name of the other server, if one is configured (v5 §4.11); the connections of older clients are
closed. Sessions stay on this broker. A walk visits the sessions in portions, and is repeated as
long as it finds a connected client. Bridges of this broker stay connected.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.connection.connection import Connection
from penstock.engine.session.session_index import SessionIndex
from penstock.engine.values.clock import Now

VISITS_PER_TICK_MAX: Final = 5000

DRAIN_REASON: Final = "this server is being emptied"


@final
class Draining:
    """The draining of one broker: its rate, its reason code, and its counts so far.

    Args:
        reason_code: ``USE_ANOTHER_SERVER`` or ``SERVER_MOVED``.
        server_reference: the other server's name; empty if none is configured.
        per_s: clients disconnected a second, above 0.
        now: when it begins.
    """

    def __init__(self, reason_code: int, server_reference: str, per_s: float, now: Now) -> None:
        self.reason_code = reason_code
        self.server_reference = server_reference
        self.per_s = per_s
        self.clients_sent_away = 0  # clients disconnected so far
        self.refused = 0  # CONNECTs refused so far
        self.is_drained = False  # whether the last walk found no connected client
        self._counted_s = now.monotonic_s  # when ``_due`` was updated
        self._due = 1.0  # clients that may be disconnected now
        self._cursor = 0  # number of the last visited session
        self._found_client = False  # whether this walk found a connected client

    def tick(self, connections: dict[str, Connection], order: SessionIndex, now: Now) -> None:
        """Disconnect as many clients as ``per_s`` allows since the last call."""
        waited_s = now.monotonic_s - self._counted_s
        self._counted_s = now.monotonic_s
        self._due = min(self._due + waited_s * self.per_s, max(1.0, self.per_s))
        if self._due < 1.0 or self.is_drained:
            return
        for session in order.sessions_after(self._cursor, VISITS_PER_TICK_MAX):
            self._cursor = session.number
            connection = connections.get(session.client_id)
            if connection is None:  # the session is offline, or of a bridge of this broker
                continue
            self._found_client = True
            self.clients_sent_away += 1
            connection.close(self.reason_code, DRAIN_REASON, now, self.server_reference)
            self._due -= 1.0
            if self._due < 1.0:
                return
        if not order.sessions_after(self._cursor, 1):
            self.is_drained = not self._found_client
            self._found_client = False
            self._cursor = 0
