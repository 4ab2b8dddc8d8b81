"""One TCP connection to a name with several addresses, to the first that answers (RFC 8305).

::

      addresses, families in turn:   v6 ───────────────▶ no answer …
                                     ├ 250 ms ─▶ v4 ──▶ connected: the other attempts are cancelled
                                     ╰ refused: the next attempt begins at once

A host whose IPv6 address does not answer costs a quarter of a second, and not the whole timeout.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Final

from penstock.transport.name_lookup import SocketAddress, look_up

ATTEMPT_DELAY_S: Final = 0.25
"""Time from the start of one attempt to that of the next, in seconds (RFC 8305 section 5)."""


def interleave_families(addresses: list[SocketAddress]) -> list[SocketAddress]:
    """Return ``addresses`` with the families alternating, beginning with the family of the first
    address (RFC 8305 section 4)."""
    by_family: dict[int, deque[SocketAddress]] = {}
    for address in addresses:
        by_family.setdefault(address.family, deque()).append(address)
    found: list[SocketAddress] = []
    while any(by_family.values()):
        found += [waiting.popleft() for waiting in by_family.values() if waiting]
    return found


async def connect(host: str, port: int) -> socket.socket:
    """Look ``host`` up and return a connected non-blocking socket, which the caller closes.

    Raises:
        OSError: the name does not exist, or no address answers: the error of the first address.
        ValueError: ``host`` is no host name.
    """
    waiting = deque(interleave_families(await look_up(host, port)))
    attempts: list[asyncio.Task[socket.socket]] = []
    under_way: set[asyncio.Task[socket.socket]] = set()
    winner: socket.socket | None = None
    try:
        while waiting or under_way:
            if waiting:
                attempts.append(asyncio.ensure_future(_attempt(waiting.popleft())))
                under_way.add(attempts[-1])
            done, under_way = await asyncio.wait(
                under_way,
                timeout=ATTEMPT_DELAY_S if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for attempt in done:
                if attempt.exception() is None:
                    winner = attempt.result()
                    return winner
    finally:
        await _cancel(attempts, winner)
    raise _failure_of(attempts, host)


async def _attempt(place: SocketAddress) -> socket.socket:
    connecting = socket.socket(place.family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        connecting.setblocking(False)
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # not every loop does
        await asyncio.get_running_loop().sock_connect(connecting, place.address)
    except BaseException:
        connecting.close()
        raise
    return connecting


async def _cancel(
    attempts: list[asyncio.Task[socket.socket]], winner: socket.socket | None
) -> None:
    """Cancel attempts under way, and close all sockets except the winner's; if this call is
    cancelled, close the winner's too."""

    def close(ended: asyncio.Task[socket.socket]) -> None:
        if not ended.cancelled() and ended.exception() is None and ended.result() is not winner:
            ended.result().close()

    for attempt in attempts:
        if attempt.done():
            close(attempt)
        else:
            attempt.cancel()
            attempt.add_done_callback(close)
    try:
        await asyncio.gather(*attempts, return_exceptions=True)
    except asyncio.CancelledError:
        if winner is not None:
            winner.close()
        raise


def _failure_of(attempts: list[asyncio.Task[socket.socket]], host: str) -> BaseException:
    for attempt in attempts:
        error = attempt.exception()
        if error is not None:
            return error
    return OSError(f"{host} has no address")
