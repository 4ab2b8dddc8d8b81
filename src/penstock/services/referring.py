"""Refers the clients of a standby to the primary: a ``Referral`` for each connection, its time
limit, and one bound on the memory of all.

::

      wire ─▶ ReferralConnection.received ─▶ Referral ─▶ CONNACK ─▶ the wire is closed
                   ╰── more than half_received_bytes_max of all CONNECTs wait: closed
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, final

from penstock.engine.limits import EngineLimits
from penstock.engine.server.referral import NO_CONNECT_YET, Referral
from penstock.telemetry.logs import RepeatLimiter, Sentence, get_logger, log_limited
from penstock.transport.api import Endpoint, Wire

logger = get_logger(__name__)

FULL: Final = "too many CONNECTs have arrived in part"


@final
class ReferralService:
    """The connections of one standby that are answered, and not relayed."""

    def __init__(self) -> None:
        self.referred = 0
        """CONNECTs that were answered with the primary's address, or that there is none, since the
        start."""
        self.refused = 0
        """Connections that ended without such an answer, since the start."""
        self.partial_connect_bytes = 0
        """Bytes of CONNECTs that have not arrived whole."""
        self._open: set[ReferralConnection] = set()
        self._loop = asyncio.get_running_loop()
        self._limiter = RepeatLimiter()
        self._closed = False

    @property
    def open(self) -> int:
        """Connections whose CONNECT is awaited now."""
        return len(self._open)

    def accept(self, wire: Wire, limits: EngineLimits, primary: Callable[[], str]) -> Endpoint:
        """Take a connection; return the object that answers it.

        Args:
            wire: the connection.
            limits: the limits of its listener.
            primary: returns HOST:PORT at which the clients of this listener reach the primary;
                empty where none is known.
        """
        referred = ReferralConnection(self, wire, limits, primary)
        self._open.add(referred)
        if self._closed:  # its handshake was under way
            self._loop.call_soon(wire.close)
        return referred

    def close(self) -> None:
        """Close all connections, also ones that are being opened: their clients may come again."""
        self._closed = True
        for referred in list(self._open):
            referred.wire.close()

    def ended(self, referred: ReferralConnection, because: str) -> None:
        """Count a connection that is over, and log it."""
        if referred not in self._open:
            return
        self._open.discard(referred)
        if referred.referral.is_referred:
            self.referred += 1
        else:
            self.refused += 1
        log_limited(
            logger,
            logging.INFO,
            self._limiter,
            self._loop.time(),
            because.partition(" (")[0],
            "listener %s: %s was not served by this standby: %s",
            referred.wire.listener,
            referred.wire.peer,
            Sentence(because),
        )


@final
class ReferralConnection:
    """One connection: a wire below, a ``Referral`` above.

    Args:
        owner: counts it.
        wire: the connection.
        limits: the limits of its listener.
        primary: returns the primary's address, or nothing.
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

    def received(self, data: bytes) -> None:
        """Take bytes of the client, and answer once its CONNECT is whole."""
        referral = self.referral
        partial_connect_bytes = referral.partial_connect_bytes
        referral.receive(data, self._primary())
        self._owner.partial_connect_bytes += referral.partial_connect_bytes - partial_connect_bytes
        if referral.is_over:
            self._end(referral.because)
        elif 0 < self._partial_connect_bytes_max < self._owner.partial_connect_bytes:
            self._end(FULL)

    def congested(self) -> None:
        """Do nothing: one small packet is written, and the wire is closed."""

    def writable(self) -> None:
        """Do nothing; see ``congested``."""

    def lost(self, because: str) -> None:
        """Forget the connection."""
        self._forget(because)

    def _timed_out(self) -> None:
        self._end(NO_CONNECT_YET)

    def _end(self, because: str) -> None:
        self._forget(because)
        if self.referral.answer:
            self.wire.write(self.referral.answer)
        self.wire.close()

    def _forget(self, because: str) -> None:
        self._timer.cancel()
        self._owner.partial_connect_bytes -= self.referral.partial_connect_bytes
        self.referral.give_up()
        self._owner.ended(self, because)
