"""The callbacks of a connection that was dialled: a bridge or the client library implements them.

::

      server ─▶ ClientConnection ── on_connected, on_message, on_answer, … ─▶ ClientCallbacks
                        ▲                                                          │
                        ╰─────────── settle, subscribe, unsubscribe, disconnect ◀──╯
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from penstock.engine.dialling.unacknowledged import ReceivedMessage
from penstock.engine.values.clock import Now
from penstock.protocol.packets import Connack, Packet


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientCallbacks:
    """The callbacks of one dialled connection."""

    def on_connected(self, connack: Connack, now: Now) -> None:
        """Handle the CONNACK that accepted the CONNECT.

        Packets that are sent in this call precede the packets that the session sends again.
        """

    def on_message(self, arrival: ReceivedMessage, now: Now) -> None:
        """Handle a message; at QoS 1 and 2 call ``ClientConnection.settle`` for it, now or
        later."""

    def on_answer(self, packet: Packet, now: Now) -> None:
        """Handle a SUBACK or UNSUBACK."""

    def authenticate(self, data: bytes | None) -> bytes | None:
        """Return the client's data for the next step of the authentication method; None if the
        server's ``data`` is wrong."""
        del data
        return None

    def on_writable(self, now: Now) -> None:
        """Send waiting messages: the window or the socket may have room again."""

    def on_end(self, now: Now) -> None:
        """Handle the end of the connection; its ``close_reason`` has the reason."""
