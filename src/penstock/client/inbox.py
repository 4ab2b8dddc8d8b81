"""Received messages that wait for the program.

::

      arrived ─▶ waiting ─▶ taken ── acknowledged, refused ─▶ the connection
                    ▲          ╰── its processing failed ──╮
                    ╰──────── after a pause ◀──────────────╯  (it keeps its place there)

The inbox is bounded: QoS 1 and 2 by our Receive Maximum, everything by ``messages_max`` and
``bytes_max``, above which nothing more is read. Only while the program itself waits for an answer
of the server, which lies behind unread bytes, reading goes on; QoS 0 is dropped then.

A program that never yields to the loop is handed all waiting messages in one turn of it. Each time
it gave as many acknowledgements as messages still wait, but no fewer than 32, those that may leave
are written, so that the server sends on while the program works on the rest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, final

from penstock.client.message import AGAIN, Message, Settler
from penstock.engine.clock import Now
from penstock.engine.connection.states import CONNECTED
from penstock.engine.dialling.client_connection import ClientConnection
from penstock.engine.dialling.unacknowledged import ReceivedMessage
from penstock.engine.fifo import Fifo
from penstock.engine.wire.link import Turn
from penstock.errors import PenstockError

_PAUSE_S_MAX: Final = 60.0
_TOGETHER_MIN: Final = 32  # acknowledgements before the first are written within a turn


@final
class Inbox(Settler):
    """The received messages of one client.

    Args:
        messages_max: how many may wait before nothing more is read.
        bytes_max: bytes of their topics and payloads before nothing more is read.
        redeliver_s: the first pause before a message is handed over again, seconds.
        turn: has the time of this turn of the loop, once it was asked for.
        now: returns the same time, and asks for it first if need be.
        changed: called when reading must stop (``is_full``), and when it may go on.
        write: called to have acknowledgements written before this turn of the loop ends.

    Attributes:
        connection: the latest connection that the server accepted; it takes the acknowledgements.
    """

    def __init__(
        self,
        messages_max: int,
        bytes_max: int,
        redeliver_s: float,
        turn: Turn,
        now: Callable[[], Now],
        changed: Callable[[], None],
        write: Callable[[], None],
    ) -> None:
        self.is_closed = False
        self._waiting: Fifo[Message] = Fifo()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self.failure: PenstockError | None = None  # why it is closed, unless ``close`` was called
        self._redeliver_s = redeliver_s
        self._turn = turn
        self._now = now
        self.connection: ClientConnection | None = None
        self._changed = changed
        self._write = write
        self._unwritten = 0  # acknowledgements since ``_write``; turns may have written some
        self.is_full = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, arrival: ReceivedMessage) -> None:
        """Add a received message."""
        message = Message(arrival)
        self._waiting.append(message)
        self._bytes += message.size_bytes
        if not self.is_full and (
            len(self._waiting) >= self._messages_max or self._bytes >= self._bytes_max
        ):
            self.is_full = True
            self._changed()
        if self._takers:
            self._wake()

    def take(self) -> Message | None:
        """Return the next message; None if none waits."""
        while len(self._waiting) > 0:
            message = self._waiting.pop()
            self._bytes -= message.size_bytes
            assert self._bytes >= 0, "the inbox counts what it has"
            if (
                self.is_full
                and 2 * len(self._waiting) <= self._messages_max
                and 2 * self._bytes <= self._bytes_max
            ):
                self.is_full = False
                self._changed()
            if message.hand_over(self):
                return message
        return None

    async def wait(self) -> bool:
        """Wait for a message; return False when none will come any more.

        Raises:
            PenstockError: none will come, because the client failed.
        """
        while len(self._waiting) == 0:
            if self.is_closed:
                if self.failure is not None:
                    raise type(self.failure)(*self.failure.args)
                return False
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                if taker.done() and not taker.cancelled() and len(self._waiting) > 0:
                    self._wake()  # pass the message on that this task was woken for
                raise
            finally:
                if taker in self._takers:
                    self._takers.remove(taker)
        return True

    def close(self) -> None:
        """Accept no more messages; ``wait`` returns False once all waiting messages are taken."""
        self.is_closed = True
        for message in self._waiting.items():
            message.detach()
        while self._takers:
            self._wake()

    def put_back(self, message: Message) -> None:
        """Hand ``message`` over again, before all others, unless it is settled by then."""
        if self.is_closed or message.is_settled:
            return
        message.is_deferred = False
        message.waits = True
        self._waiting.push_front(message)
        self._bytes += message.size_bytes
        if self._takers:
            self._wake()

    def _wake(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return

    def settle(self, message: Message, code: int) -> None:
        """Acknowledge or refuse ``message`` with this reason code; ``AGAIN`` hands it over
        again."""
        if code == AGAIN:
            if message.qos > 0 and not message.is_settled:
                pause_s = min(_PAUSE_S_MAX, self._redeliver_s * 2 ** min(message.attempt - 1, 20))
                asyncio.get_running_loop().call_later(pause_s, self.put_back, message)
            return
        arrival = message.arrival
        if arrival is not None:
            connection = self.connection
            if message.qos > 0 and connection is not None:
                connection.settle(arrival, code, self._turn.now or self._now())
                if connection.state == CONNECTED:  # and not attached again just now, by the driver
                    self._unwritten += 1
            message.settled()
            if self._unwritten >= _TOGETHER_MIN and self._unwritten >= len(self._waiting):
                self._unwritten = 0
                self._write()


@final
class Messages:
    """An asynchronous iterator over received messages: ``async for message in client.messages():``.

    Asking for the next message acknowledges the one before, unless it was deferred or is being
    processed (``Message.defer``, ``Message.processing``). Several may run at a time; each message
    goes to one of them. It ends when the client is closed. When a loop is left, the message handed
    over last, if it was not acknowledged, is handed over again, to the next loop.
    """

    __slots__ = ("_attempt", "_inbox", "_previous")

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._previous: Message | None = None
        self._attempt = 0  # the attempt of ``_previous`` that was handed over here

    def __del__(self) -> None:
        self._put_back_previous()

    def __aiter__(self) -> Messages:
        return self

    async def __anext__(self) -> Message:
        self._acknowledge_previous()
        inbox = self._inbox
        message = inbox.take()
        while message is None:
            if not await inbox.wait():
                raise StopAsyncIteration
            message = inbox.take()
        self._previous = message
        self._attempt = message.attempt
        return message

    def _unsettled_previous(self) -> Message | None:
        """Return the message handed over last, if it is still to be acknowledged here."""
        previous = self._previous
        self._previous = None
        if previous is None or previous.is_deferred or previous.is_settled or previous.waits:
            return None
        return previous if previous.attempt == self._attempt else None

    def _acknowledge_previous(self) -> None:
        previous = self._unsettled_previous()
        if previous is not None:
            previous.acknowledge()

    def _put_back_previous(self) -> None:
        previous = self._unsettled_previous()
        if previous is not None and previous.qos > 0:
            self._inbox.put_back(previous)

    async def aclose(self) -> None:
        """Take no more messages; the last one, if not acknowledged, is handed over again."""
        self._put_back_previous()
