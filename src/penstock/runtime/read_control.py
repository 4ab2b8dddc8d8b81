"""Pauses and resumes reading of sockets as their connections require, and by the rate limits.

::

      READ ── too much waits, or it sends too fast ─▶ PAUSED ── there is room, or time ─▶ READ
        ╰──── it hung up ─▶ its unread bytes: one read a turn, until the end of the stream
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, final

from penstock.engine.api import EngineContext
from penstock.engine.values.clock import Now
from penstock.runtime.paused import PausedPeers
from penstock.runtime.peer import Peer
from penstock.telemetry.logs import RepeatLimiter, get_logger, warn_limited

logger = get_logger(__name__)

_RETRY_S: Final = 0.25


@final
class ReadControl:
    """Pauses and resumes reading of the connections of one driver.

    Args:
        context: the engine context, which has the room for input.
        end_turn_soon: called when a rate limit allows a connection to be read again.
    """

    def __init__(self, context: EngineContext, end_turn_soon: Callable[[], None]) -> None:
        self.paused = PausedPeers()
        self._context = context
        self._end_turn_soon = end_turn_soon
        self._loop = asyncio.get_running_loop()
        self._limiter = RepeatLimiter()

    def update(self, peer: Peer) -> None:
        """Pause or resume reading from a client as its connection requires now."""
        connection = peer.connection
        if peer.is_lost:
            return
        if connection.has_peer_closed:
            self._drain(peer)
            return
        if not connection.is_reading_paused:
            if peer.is_paused:
                peer.is_paused = False
                self.paused.remove(peer)
                peer.wire.resume_reading()
            return
        if not peer.is_paused:
            peer.is_paused = True
            self.paused.add(peer, time.monotonic())
            peer.wire.pause_reading()
        if connection.resume_at_s > 0.0 and not peer.is_timed:
            now_s = time.monotonic()
            peer.is_timed = True
            self._loop.call_later(
                max(0.0, connection.resume_at_s - now_s), self._resume_after_limit, peer
            )
            warn_limited(
                logger,
                self._limiter,
                now_s,
                f"rate {connection.client_id}",
                "client %s from %s sends more than limits.messages_per_s_max or"
                " limits.bytes_per_s_max allow; reading from it pauses",
                connection.client_id,
                peer.wire.peer,
            )

    def _drain(self, peer: Peer) -> None:
        """Read the unread bytes of a client that hung up: one read a turn of the event loop, until
        the end of the stream."""
        peer.wire.pause_reading()
        if not peer.is_draining:
            peer.is_draining = True
            self._loop.call_soon(self._read_once, peer)

    def _read_once(self, peer: Peer) -> None:
        if self._context.is_full() and not peer.is_closed:
            self._loop.call_later(_RETRY_S, self._read_once, peer)
            return
        assert peer.is_draining, "one read of a peer that hung up is under way at a time"
        peer.is_draining = False
        peer.wire.resume_reading()

    def _resume_after_limit(self, peer: Peer) -> None:
        assert peer.is_timed, "a peer has one timer"
        peer.is_timed = False
        self._context.resume_soon(peer.connection)
        self._end_turn_soon()

    def forget(self, peer: Peer) -> None:
        """Forget a peer whose socket is closed."""
        self.paused.remove(peer)

    def close_hung_up(self, now: Now) -> None:
        """Close paused connections whose client has hung up: see ``paused``."""
        for peer in self.paused.take_hung_up(now.monotonic_s):
            peer.connection.peer_hung_up(now)
            self.update(peer)
