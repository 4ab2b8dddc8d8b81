"""TLS handshakes take turns, so that many at once delay other connections by no more than one.

::

      accepted ─▶ ClientHello whole, unread ─▶ its turn: one in each turn of the loop ─▶ handshake
                         ╰── not whole ──▶ waits for itself alone

A handshake costs a signature, which a ClientHello asks for in one packet, and the event loop does
the handshakes of all packets that have arrived before it serves other connections. So a connection
is handed to it only when its ClientHello lies in the socket whole, and one at a time. Sources take
turns too: one with many connections delays another by one handshake, not by all of its own.

A client that sends nothing, or half of it, delays no other: the system wakes us when the rest has
come (``SO_RCVLOWAT``).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Final, final

from penstock.transport.client_hello import HELLO_BYTES_MAX, bytes_needed


@final
class HandshakeTurns:
    """The turns of TLS handshakes that came through one listening socket."""

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by source, the next one first
        self._is_taken = False

    async def wait(self, connection: socket.socket, source: str) -> None:
        """Return when it is the turn of a connection; it can be cancelled.

        Args:
            connection: not blocking; nothing is read from it.
            source: the name under which it takes turns.

        Raises:
            ConnectionRefusedError: its ClientHello has no end.
            OSError: the connection is gone.
        """
        await self._whole_hello(connection)
        if not self._is_taken:
            assert not self._waiting, "as long as one waits, the turn is taken"
            self._is_taken = True
            self._loop.call_soon(self._next)
            return
        turn = self._loop.create_future()
        self._waiting.setdefault(source, deque()).append(turn)
        await turn

    def _next(self) -> None:
        assert self._is_taken, "one handshake has its turn at a time"
        while self._waiting:
            source, turns = next(iter(self._waiting.items()))
            turn = turns.popleft()
            del self._waiting[source]
            if turns:
                self._waiting[source] = turns  # behind all others
            if not turn.done():
                turn.set_result(None)
                self._loop.call_soon(self._next)
                return
        self._is_taken = False

    async def _whole_hello(self, connection: socket.socket) -> None:
        needed = 1
        while True:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, needed)
            await self._readable(connection)
            arrived = connection.recv(HELLO_BYTES_MAX, socket.MSG_PEEK)
            if len(arrived) < needed:
                break  # its end, or the system is short of memory: the next read reports it
            needed = bytes_needed(arrived)
            if needed <= len(arrived):
                break
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)

    async def _readable(self, connection: socket.socket) -> None:
        readable = self._loop.create_future()
        self._loop.add_reader(connection, _set_result, readable)
        try:
            await readable
        finally:
            self._loop.remove_reader(connection)


def _set_result(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
