"""The transport port: the operations of a socket of any kind, and its reports to its user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A client's certificate, which the listener's ``client_ca`` signed, as TLS proved.

    Attributes:
        subject: the distinguished name in the form of RFC 4514, most specific part first:
            ``CN=meter-7,OU=plant,O=Example``.
        common_name: the subject's CN; empty where it has none.
    """

    subject: str
    common_name: str


class Wire(Protocol):
    """One connection's socket, as its user sees it."""

    peer: str
    """The other side's address, for logs; behind a load balancer the one it tells."""

    listener: str
    """Name of the listener that accepted it."""

    certificate: ClientCertificate | None
    """The client's certificate; None where it showed none."""

    def write(self, data: bytes) -> None:
        """Send ``data``, or buffer it; nothing happens once the wire is closed."""

    def unwritten_bytes(self) -> int:
        """Return how many bytes were written that the peer has not acknowledged yet."""

    def buffered_bytes(self) -> int:
        """Return how many of them are still in this process."""

    def close(self) -> None:
        """Close when all written bytes are sent, or the peer has not read them in time."""

    def pause_reading(self) -> None:
        """Read nothing until ``resume_reading``: the peer's sending stalls."""

    def resume_reading(self) -> None:
        """Read again."""

    def peer_state(self) -> int:
        """Return ``ESTABLISHED``, ``FINISHED`` or ``BROKEN`` (see ``hang_up``).

        While reading is paused the loop does not report that a peer hung up.
        """


class Endpoint(Protocol):
    """The user of a wire."""

    def received(self, data: bytes) -> None:
        """Take bytes that arrived."""

    def congested(self) -> None:
        """Write less until ``writable``: the write buffer is full."""

    def writable(self) -> None:
        """Go on writing: the write buffer has room again."""

    def lost(self, because: str) -> None:
        """Note that the wire is gone, and why; called once, also after ``close``."""


Accept = Callable[[Wire], Endpoint]
"""Called for every new connection that speaks MQTT; returns its user."""
