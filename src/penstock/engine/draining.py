"""A broker that is being emptied: nobody comes in, and so many a second are sent elsewhere.

::

      SERVING ── drain ─▶ DRAINING ── nobody is left ─▶ DRAINED       new clients are refused
         ▲                   │                             │          in both
         ╰──── end of it ────┴─────────────────────────────╯

A client of MQTT 5 is told why (0x9C use another server, 0x9D server moved) and, where there is a
name, which server to go to (v5 §4.11); older ones are closed. Sessions stay where they are.
It walks over the sessions in portions, and begins anew as long as it finds somebody. Bridges of
this broker stay.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.clock import Now
from penstock.engine.connection import Connection
from penstock.engine.session_order import SessionOrder

VISITS_PER_TICK_MAX: Final = 5000

BECAUSE: Final = "this server is being emptied"


@final
class Draining:
    """The emptying of one broker: its pace, its reason code, and its counts so far.

    Args:
        reason_code: ``USE_ANOTHER_SERVER`` or ``SERVER_MOVED``.
        server_reference: the other server's name; empty if nobody knows one.
        per_s: clients sent away a second, above 0.
        now: when it begins.
    """

    def __init__(self, reason_code: int, server_reference: str, per_s: float, now: Now) -> None:
        self.reason_code = reason_code
        self.server_reference = server_reference
        self.per_s = per_s
        self.sent_away = 0
        self.refused = 0
        self.drained = False  # the last walk found nobody
        self._counted_s = now.monotonic_s
        self._due = 1.0
        self._cursor = 0
        self._found = False

    def tick(self, connections: dict[str, Connection], order: SessionOrder, now: Now) -> None:
        """Send away as many as are due."""
        waited_s = now.monotonic_s - self._counted_s
        self._counted_s = now.monotonic_s
        self._due = min(self._due + waited_s * self.per_s, max(1.0, self.per_s))
        if self._due < 1.0 or self.drained:
            return
        for session in order.after(self._cursor, VISITS_PER_TICK_MAX):
            self._cursor = session.number
            connection = connections.get(session.client_id)
            if connection is None:  # it is away, or a bridge of ours
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
