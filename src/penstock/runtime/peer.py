"""A peer: one connection of a driver, between its wire and the engine."""

from __future__ import annotations

import asyncio
from typing import final

from penstock.engine.connection.states import CLOSED
from penstock.engine.dialling.client_connection import ClientConnection
from penstock.engine.server.server_connection import ServerConnection
from penstock.transport.api import Wire


class PeerOwner:
    """Receives the events of peers: each peer passes on the reports of its wire."""

    def received(self, peer: Peer, data: bytes) -> None:
        """Take bytes from a client."""
        raise NotImplementedError

    def congested(self, peer: Peer) -> None:
        """Note that a client does not read as fast as it is written to."""
        raise NotImplementedError

    def writable(self, peer: Peer) -> None:
        """Note that a client that was congested has read."""
        raise NotImplementedError

    def lost(self, peer: Peer, because: str) -> None:
        """Note that a client's socket is gone, and why."""
        raise NotImplementedError


@final
class Peer:
    """One connection: a wire below, an engine connection above."""

    def __init__(
        self, owner: PeerOwner, wire: Wire, connection: ServerConnection | ClientConnection
    ) -> None:
        self.wire = wire
        self.connection = connection
        self.entry = 0  # among the driver's deadlines
        self.is_timed = False  # a timer will resume its reading
        self.is_paused = False  # it is not read
        self.is_draining = False  # it hung up, and its next read is under way
        self.is_backed_up = False  # its wire has unsent bytes, which are measured
        self.is_lost = False  # its socket is gone; its packets may still wait for the verdict on it
        self.was_connected = False  # its client was let in, and the log says so
        self.close_is_noted = False  # the log says why it ended
        self.socket_gone: asyncio.Future[None] | None = None  # done when the socket is gone
        self._owner = owner

    @property
    def is_closed(self) -> bool:
        """Return whether its socket is gone and its connection is closed."""
        return self.is_lost and self.connection.state == CLOSED

    def received(self, data: bytes) -> None:
        """Hand on bytes from the client."""
        self._owner.received(self, data)

    def congested(self) -> None:
        """Note that the client reads more slowly than it is written to."""
        self._owner.congested(self)

    def writable(self) -> None:
        """Note that the client caught up."""
        self._owner.writable(self)

    def lost(self, because: str) -> None:
        """Note that the socket is gone, and why."""
        self._owner.lost(self, because)
