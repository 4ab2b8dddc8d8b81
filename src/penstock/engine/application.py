"""Who uses a connection that was dialled: a bridge, or the client library.

::

      server ─▶ ClientConnection ── connected, arrived, answered, writable, ended ─▶ Application
                        ▲                                                                │
                        ╰────────────── settle, subscribe, unsubscribe, disconnect ◀─────╯
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from penstock.engine.arrivals import Arrival
from penstock.engine.clock import Now
from penstock.protocol.packets import Connack, Packet


@mypyc_attr(allow_interpreted_subclasses=True)
class Application:
    """What a connection tells whoever uses it."""

    def connected(self, connack: Connack, now: Now) -> None:
        """The server let us in. What is sent from here goes before what is sent again."""

    def arrived(self, arrival: Arrival, now: Now) -> None:
        """A message. With QoS 1 or 2 it waits for ``ClientConnection.settle``, now or later."""

    def answered(self, packet: Packet, now: Now) -> None:
        """SUBACK or UNSUBACK."""

    def authenticate(self, data: bytes | None) -> bytes | None:
        """The next step of the authentication method; None: it fails."""
        del data
        return None

    def writable(self, now: Now) -> None:
        """There may be room again, in the window or in the socket, for what is sent."""

    def ended(self, now: Now) -> None:
        """The connection is over: ``closed_because`` says why."""
