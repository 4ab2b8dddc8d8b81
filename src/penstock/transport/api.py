"""The transport port: what a kind of socket does, and what it tells the one who uses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """What TLS proved of a client: its certificate is signed by the listener's ``client_ca``.

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
    """Name of the listener it came through."""

    certificate: ClientCertificate | None
    """Who the client is, by TLS; None where it showed no certificate."""

    def write(self, data: bytes) -> None:
        """Send ``data``, or buffer it; nothing happens once the wire is closed."""

    def unwritten_bytes(self) -> int:
        """How much of what was written the peer's side of the network has not taken yet."""

    def buffered_bytes(self) -> int:
        """How much of that is still in this process."""

    def close(self) -> None:
        """Close after what was written has left, or the peer has had its time to read it."""

    def pause_reading(self) -> None:
        """Read nothing until ``resume_reading``: the peer's sending stalls."""

    def resume_reading(self) -> None:
        """Read again."""

    def hang_up(self) -> int:
        """Whether the peer hung up, which nobody tells while reading is paused: see ``hang_up``."""


class Endpoint(Protocol):
    """The user of a wire."""

    def received(self, data: bytes) -> None:
        """Bytes arrived."""

    def congested(self) -> None:
        """The write buffer is full: write less until ``writable``."""

    def writable(self) -> None:
        """The write buffer has room again."""

    def lost(self, because: str) -> None:
        """The wire is gone; called once, also after ``close``."""


Accept = Callable[[Wire], Endpoint]
"""Called for every new connection that speaks MQTT; returns its user."""
