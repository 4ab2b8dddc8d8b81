"""A peer: one connection of a driver, between its wire and the engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from penstock.engine.client_connection import ClientConnection
from penstock.engine.connection import CLOSED
from penstock.engine.server_connection import ServerConnection
from penstock.transport.api import Wire

if TYPE_CHECKING:
    from penstock.runtime.driver import Driver


@final
class Peer:
    """One connection: a wire below, an engine connection above."""

    def __init__(
        self, driver: Driver, wire: Wire, connection: ServerConnection | ClientConnection
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
        self.left: asyncio.Future[None] | None = None  # done when the socket is gone
        self._driver = driver

    @property
    def is_over(self) -> bool:
        """Return whether nothing is left of it: its socket is gone, and its connection over."""
        return self.is_lost and self.connection.state == CLOSED

    def received(self, data: bytes) -> None:
        """Hand on bytes from the client."""
        self._driver.received(self, data)

    def congested(self) -> None:
        """Note that the client reads more slowly than it is written to."""
        self._driver.congested(self)

    def writable(self) -> None:
        """Note that the client caught up."""
        self._driver.writable(self)

    def lost(self, because: str) -> None:
        """Note that the socket is gone, and why."""
        self._driver.lost(self, because)
