"""The transport port: the operations of a connection (``Wire``), and the callbacks of the object
that uses it (``Endpoint``)."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """The certificate of a client, verified by TLS against the listener's ``client_ca``, or the
    identity of its pre-shared key.

    Attributes:
        subject: the distinguished name in the form of RFC 4514, most specific part first:
            ``CN=meter-7,OU=plant,O=Example``.
        common_name: the subject's CN, empty if the subject has none, or several; or the identity of
            a pre-shared key, which has no subject.
    """

    subject: str
    common_name: str


class Wire(Protocol):
    """One connection of any kind: TCP, TLS, WebSocket or Unix."""

    peer: str
    """The peer's address, for logs; behind a load balancer the address in its PROXY header."""

    listener: str
    """The name of the listener that accepted the connection, or of the side that dialled it."""

    certificate: ClientCertificate | None
    """The client's certificate; None if the client presented none."""

    def write(self, data: bytes) -> None:
        """Send ``data``, or buffer it; do nothing once the wire is closed."""

    def unwritten_bytes(self) -> int:
        """Return the number of written bytes that the peer has not acknowledged yet."""

    def buffered_bytes(self) -> int:
        """Return the number of written bytes that are still buffered in this process."""

    def close(self, lingers: bool = False) -> None:
        """Close once all written bytes are sent, or the peer has not read them in time.

        With ``lingers`` the peer may still send: what arrives is discarded until the peer closes
        too, or is silent for a second. ``Endpoint.connection_lost`` is called at the end.
        """

    def pause_reading(self) -> None:
        """Stop reading until ``resume_reading``; the peer's sending stalls."""

    def resume_reading(self) -> None:
        """Start reading again."""

    def peer_state(self) -> int:
        """Return ``ESTABLISHED``, ``FINISHED`` or ``BROKEN`` (see ``hang_up``).

        While reading is paused, the event loop does not report that a peer hung up.
        """


class Endpoint(Protocol):
    """The object that uses a wire; the callbacks are those of ``asyncio.Protocol``."""

    def data_received(self, data: bytes) -> None:
        """Take bytes that arrived."""

    def pause_writing(self) -> None:
        """Write less until ``resume_writing``: the write buffer is full."""

    def resume_writing(self) -> None:
        """Continue writing: the write buffer has room again."""

    def connection_lost(self, reason: str) -> None:
        """Take the reason why the connection is closed; called once, also after ``close``."""


Accept = Callable[[Wire], Endpoint]
"""Return the endpoint of a new connection that speaks MQTT."""


def failure_text(error: BaseException) -> str:
    """Return the words of an error of a socket, without the number of the system."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno:
        return os.strerror(error.errno) if error.errno > 0 else error.strerror or str(error)
    return str(error) or type(error).__name__
