"""A peer: one connection of a driver, between its wire and its engine connection."""

from __future__ import annotations

from typing import final

from penstock.engine.api import ClientConnection, ServerConnection
from penstock.engine.values.states import CLOSED
from penstock.transport.wire import Wire


class PeerOwner:
    """Takes the callbacks of peers, each of which passes on those of its wire (``Endpoint``)."""

    def data_received(self, peer: Peer, data: bytes) -> None:
        """Take bytes that arrived from a client."""
        raise NotImplementedError

    def pause_writing(self, peer: Peer) -> None:
        """Write less to a client: its write buffer is full."""
        raise NotImplementedError

    def resume_writing(self, peer: Peer) -> None:
        """Continue writing to a client: its write buffer has room again."""
        raise NotImplementedError

    def connection_lost(self, peer: Peer, reason: str) -> None:
        """Take the reason why a client's socket is closed."""
        raise NotImplementedError


@final
class Peer:
    """The endpoint of one wire, which passes its callbacks to the driver."""

    def __init__(
        self, owner: PeerOwner, wire: Wire, connection: ServerConnection | ClientConnection
    ) -> None:
        self.wire = wire
        self.connection = connection
        self.entry = 0  # number of its valid entry in ``Deadlines``
        self.is_timed = False  # a timer resumes reading
        self.is_paused = False  # reading is paused
        self.is_draining = False  # it hung up; its last bytes are being read
        self.is_backed_up = False  # its wire has unsent bytes
        self.is_lost = False  # the socket is closed; its packets may still wait for a verdict
        self.was_connected = False  # its connection was logged
        self.close_is_noted = False  # the reason of its end was logged
        self._owner = owner

    @property
    def is_closed(self) -> bool:
        """True if its socket is closed and its engine connection is closed."""
        return self.is_lost and self.connection.state == CLOSED

    def data_received(self, data: bytes) -> None:
        """Pass bytes from the client to the driver."""
        self._owner.data_received(self, data)

    def pause_writing(self) -> None:
        """Tell the driver that the write buffer is full."""
        self._owner.pause_writing(self)

    def resume_writing(self) -> None:
        """Tell the driver that the write buffer has room again."""
        self._owner.resume_writing(self)

    def connection_lost(self, reason: str) -> None:
        """Tell the driver why the socket is closed."""
        self._owner.connection_lost(self, reason)
