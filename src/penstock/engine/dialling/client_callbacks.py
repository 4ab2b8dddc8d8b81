"""The callbacks of a connection that was dialled: a bridge or the client library implements them.

::

      server ─▶ ClientConnection ── connected, arrived, answered, writable, ended ─▶ ClientCallbacks
                        ▲                                                                │
                        ╰────────────── settle, subscribe, unsubscribe, disconnect ◀─────╯
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from penstock.engine.clock import Now
from penstock.engine.dialling.unacknowledged import ReceivedMessage
from penstock.protocol.packets import Connack, Packet


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientCallbacks:
    """The callbacks of one dialled connection."""

    def connected(self, connack: Connack, now: Now) -> None:
        """Note that the server accepted our CONNECT.

        Packets sent here are sent before those of the session that are sent again.
        """

    def arrived(self, arrival: ReceivedMessage, now: Now) -> None:
        """Take a message; at QoS 1 and 2 call ``ClientConnection.settle`` for it, now or later."""

    def answered(self, packet: Packet, now: Now) -> None:
        """Take a SUBACK or UNSUBACK."""

    def authenticate(self, data: bytes | None) -> bytes | None:
        """Return the data for the next step of the authentication method; None if it failed."""
        del data
        return None

    def writable(self, now: Now) -> None:
        """Send waiting messages: the window or the socket may have room again."""

    def ended(self, now: Now) -> None:
        """Note that the connection ended; its ``close_reason`` says why."""
