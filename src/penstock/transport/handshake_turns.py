"""TLS handshakes take turns, so that many at once delay other connections by no more than one.

::

      accepted ─▶ whole ClientHello peeked ─▶ queue: one in each turn of the loop ─▶ handshake
                         ╰── not whole ──▶ waits without delaying others

A handshake costs a signature, which one packet with a ClientHello asks for, and the event loop does
the handshakes of all packets that have arrived before it serves other connections. So the loop gets
a connection only when its whole ClientHello is in the socket's buffer, and one at a time. Sources
take turns too: a source with many connections delays another source by one handshake only.

A client that sends nothing, or a part of a ClientHello, delays no other: the system wakes us when
the missing bytes have arrived (``SO_RCVLOWAT``).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Final, final

from penstock.transport.client_hello import HELLO_BYTES_MAX, bytes_needed


@final
class HandshakeTurns:
    """The queue of TLS handshakes of one listening socket."""

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._queue: dict[str, deque[asyncio.Future[None]]] = {}  # by source, the next one first
        self._is_busy = False  # a handshake has this turn of the event loop

    async def wait(self, connection: socket.socket, source: str) -> None:
        """Return when the handshake of a connection may begin; the wait can be cancelled.

        Args:
            connection: a non-blocking socket; its bytes are peeked, not read.
            source: the name of the source, by which connections take turns.

        Raises:
            ConnectionRefusedError: the ClientHello is refused; see ``client_hello.bytes_needed``.
            OSError: the connection is closed.
        """
        await self._whole_hello(connection)
        if not self._is_busy:
            assert not self._queue, "while a connection waits, another has its turn"
            self._is_busy = True
            self._loop.call_soon(self._next)
            return
        turn = self._loop.create_future()
        self._queue.setdefault(source, deque()).append(turn)
        await turn

    def _next(self) -> None:
        assert self._is_busy, "one handshake has its turn at a time"
        while self._queue:
            source, turns = next(iter(self._queue.items()))
            turn = turns.popleft()
            del self._queue[source]
            if turns:
                self._queue[source] = turns  # behind all others
            if not turn.done():
                turn.set_result(None)
                self._loop.call_soon(self._next)
                return
        self._is_busy = False  # a handshake has this turn of the event loop

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
