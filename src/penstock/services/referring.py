"""Refers the clients of a standby to the primary: a ``Referral`` for each connection, its time
limit, and one limit on the memory of all connections.

::

      wire ─▶ ReferralConnection.data_received ─▶ Referral ─▶ CONNACK ─▶ the wire is closed
                   ╰── all partial CONNECTs exceed half_received_bytes_max: closed
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, final

from penstock.engine.values.limits import EngineLimits
from penstock.services.referral import NO_CONNECT_YET, Referral
from penstock.telemetry.logs import RepeatLimiter, Sentence, get_logger, log_limited
from penstock.transport.wire import Endpoint, Wire

logger = get_logger(__name__)

TOO_MANY_PARTIAL: Final = "too many CONNECTs have arrived in part"


@final
class ReferralService:
    """The connections of one standby that get a CONNACK with the primary's address, and are not
    relayed."""

    def __init__(self) -> None:
        self.referred = 0
        """Number of CONNECTs that were answered, with the primary's address if it was known, since
        the start."""
        self.refused = 0
        """Number of connections that ended without such an answer, since the start."""
        self.partial_connect_bytes = 0
        """Bytes of CONNECTs that have arrived in part."""
        self._connections: set[ReferralConnection] = set()
        self._loop = asyncio.get_running_loop()
        self._limiter = RepeatLimiter()
        self._is_closed = False

    @property
    def open_count(self) -> int:
        """The number of connections whose CONNECT has not arrived whole."""
        return len(self._connections)

    def accept(self, wire: Wire, limits: EngineLimits, primary: Callable[[], str]) -> Endpoint:
        """Take a connection; return the endpoint that answers its CONNECT.

        Args:
            wire: the connection.
            limits: the limits of its listener.
            primary: returns HOST:PORT at which the clients of this listener reach the primary;
                empty if no primary is known.
        """
        connection = ReferralConnection(self, wire, limits, primary)
        self._connections.add(connection)
        if self._is_closed:  # its handshake was under way
            self._loop.call_soon(wire.close)
        return connection

    def close(self) -> None:
        """Close all connections, also those that are still being opened; clients may reconnect."""
        self._is_closed = True
        for connection in list(self._connections):
            connection.wire.close()

    def end_connection(self, connection: ReferralConnection, reason: str) -> None:
        """Count and log a connection that has ended; further calls do nothing."""
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        if connection.referral.is_referred:
            self.referred += 1
        else:
            self.refused += 1
        log_limited(
            logger,
            logging.INFO,
            self._limiter,
            self._loop.time(),
            reason.partition(" (")[0],
            "listener %s: %s was not served by this standby: %s",
            connection.wire.listener,
            connection.wire.peer,
            Sentence(reason),
        )


@final
class ReferralConnection:
    """The endpoint of one connection, which passes bytes between a wire and a ``Referral``.

    Args:
        owner: the service that counts the connection.
        wire: the connection.
        limits: the limits of its listener.
        primary: returns the primary's address HOST:PORT; empty if no primary is known.
    """

    def __init__(
        self, owner: ReferralService, wire: Wire, limits: EngineLimits, primary: Callable[[], str]
    ) -> None:
        self.wire = wire
        loop = asyncio.get_running_loop()
        self.referral = Referral(limits, loop.time())
        self._owner = owner
        self._primary = primary
        self._partial_connect_bytes_max = limits.half_received_bytes_max
        self._timer = loop.call_at(self.referral.deadline_s, self._timed_out)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client; answer and close once its CONNECT is whole."""
        referral = self.referral
        partial_connect_bytes = referral.partial_connect_bytes
        referral.receive(data, self._primary())
        self._owner.partial_connect_bytes += referral.partial_connect_bytes - partial_connect_bytes
        if referral.is_over:
            self._end(referral.because)
        elif 0 < self._partial_connect_bytes_max < self._owner.partial_connect_bytes:
            self._end(TOO_MANY_PARTIAL)

    def pause_writing(self) -> None:
        """Do nothing: one small packet is written, and the wire is closed."""

    def resume_writing(self) -> None:
        """Do nothing; see ``pause_writing``."""

    def connection_lost(self, reason: str) -> None:
        """Count the connection as ended."""
        self._forget(reason)

    def _timed_out(self) -> None:
        self._end(NO_CONNECT_YET)

    def _end(self, reason: str) -> None:
        self._forget(reason)
        if self.referral.answer:
            self.wire.write(self.referral.answer)
        self.wire.close()

    def _forget(self, reason: str) -> None:
        self._timer.cancel()
        self._owner.partial_connect_bytes -= self.referral.partial_connect_bytes
        self.referral.give_up()
        self._owner.end_connection(self, reason)
