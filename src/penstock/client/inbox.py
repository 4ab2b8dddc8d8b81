"""Received messages that wait for the program.

::

      received ─▶ queued ─▶ handed over ── acknowledged, refused ─▶ the connection
                    ▲             ╰── its processing failed ──╮
                    ╰──── first in the queue, after a pause ◀─╯

The inbox is bounded: QoS 1 and 2 messages by the client's Receive Maximum, all messages by
``messages_max`` and ``bytes_max``, above which the socket is not read. The exception is a program
that waits for an answer of the server, which lies behind unread messages: reading continues then,
and QoS 0 messages are dropped.

A program that never yields to the loop takes all queued messages in one turn of the loop. Its
acknowledgements are written whenever they are as many as the messages still queued, and at least
32, so that the server sends more while the program processes the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, final

from penstock.client.message import AGAIN, Message, Settler
from penstock.engine.api import ClientConnection, ReceivedMessage
from penstock.engine.values.clock import Now
from penstock.engine.values.fifo import Fifo
from penstock.engine.values.states import CONNECTED
from penstock.errors import PenstockError

_PAUSE_S_MAX: Final = 60.0
_UNWRITTEN_MIN: Final = 32  # acknowledgements that are written together within a turn


@final
class Inbox(Settler):
    """The received messages of one client.

    Args:
        messages_max: queued messages at which the inbox is full.
        bytes_max: bytes of topics and payloads at which the inbox is full.
        redeliver_s: the first pause before a message is handed over again, seconds.
        now: returns the time of the present turn, and reads the clock if necessary.
        on_full_change: called when ``is_full`` has changed.
        write_acknowledgements: writes acknowledgements before the present turn of the loop ends.

    Attributes:
        connection: the latest connection that the server accepted; it takes the acknowledgements.
    """

    def __init__(
        self,
        messages_max: int,
        bytes_max: int,
        redeliver_s: float,
        now: Callable[[], Now],
        on_full_change: Callable[[], None],
        write_acknowledgements: Callable[[], None],
    ) -> None:
        self.is_closed = False
        self._queue: Fifo[Message] = Fifo()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self.failure: PenstockError | None = (
            None  # raised by ``wait`` after the close; None for none
        )
        self._redeliver_s = redeliver_s
        self._now = now
        self.connection: ClientConnection | None = None
        self._on_full_change = on_full_change
        self._write_acknowledgements = write_acknowledgements
        self._unwritten = 0  # acknowledgements since the last write at most
        self.is_full = False

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, arrival: ReceivedMessage) -> None:
        """Queue a received message."""
        message = Message(arrival)
        self._queue.append(message)
        self._bytes += message.size_bytes
        if not self.is_full and (
            len(self._queue) >= self._messages_max or self._bytes >= self._bytes_max
        ):
            self.is_full = True
            self._on_full_change()
        if self._waiters:
            self._wake()

    def take(self) -> Message | None:
        """Hand over and return the next message; None if the inbox is empty."""
        while len(self._queue) > 0:
            message = self._queue.pop()
            self._bytes -= message.size_bytes
            assert self._bytes >= 0, "the inbox counts what it has"
            if (
                self.is_full
                and 2 * len(self._queue) <= self._messages_max
                and 2 * self._bytes <= self._bytes_max
            ):
                self.is_full = False
                self._on_full_change()
            if message.hand_over(self):
                return message
        return None

    async def wait(self) -> bool:
        """Wait until a message is queued; return False if the inbox is closed and empty.

        Raises:
            PenstockError: the inbox is closed and empty because the client failed.
        """
        while len(self._queue) == 0:
            if self.is_closed:
                if self.failure is not None:
                    raise type(self.failure)(*self.failure.args)
                return False
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled() and len(self._queue) > 0:
                    self._wake()  # this waiter was woken for a message: wake another
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        return True

    def close(self) -> None:
        """Close the inbox: ``wait`` returns False once all queued messages are handed over."""
        self.is_closed = True
        for message in self._queue.items():
            message.detach()
        while self._waiters:
            self._wake()

    def requeue(self, message: Message) -> None:
        """Queue ``message`` again, before all others, unless it is settled or the inbox closed."""
        if self.is_closed or message.is_settled:
            return
        message.is_deferred = False
        message.is_queued = True
        self._queue.push_front(message)
        self._bytes += message.size_bytes
        if self._waiters:
            self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def settle(self, message: Message, code: int) -> None:
        """Acknowledge or refuse ``message`` with a reason code; requeue it later for ``AGAIN``."""
        if code == AGAIN:
            if message.qos > 0 and not message.is_settled:
                pause_s = min(_PAUSE_S_MAX, self._redeliver_s * 2 ** min(message.attempt - 1, 20))
                asyncio.get_running_loop().call_later(pause_s, self.requeue, message)
            return
        arrival = message.arrival
        if arrival is not None:
            connection = self.connection
            if message.qos > 0 and connection is not None:
                connection.settle(arrival, code, self._now())
                if connection.state == CONNECTED:  # not if the driver attaches it only now
                    self._unwritten += 1
            message.settled()
            if self._unwritten >= _UNWRITTEN_MIN and self._unwritten >= len(self._queue):
                self._unwritten = 0
                self._write_acknowledgements()


@final
class Messages:
    """An asynchronous iterator over received messages: ``async for message in client.messages():``.

    Each iteration acknowledges the previous message, unless it was deferred or is being processed
    (``Message.defer``, ``Message.processing``). Several iterators may run at a time; each message
    goes to one of them. The iterator ends when the client is closed. When a loop is left, the last
    message, if not acknowledged, is queued again and goes to the next loop.
    """

    __slots__ = ("_attempt", "_inbox", "_previous")

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._previous: Message | None = None
        self._attempt = 0  # the ``attempt`` of ``_previous`` when it was taken

    def __del__(self) -> None:
        self._requeue_previous()

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
        """Return the last message if this iterator still has to settle it; forget it."""
        previous = self._previous
        self._previous = None
        if previous is None or previous.is_deferred or previous.is_settled or previous.is_queued:
            return None
        return previous if previous.attempt == self._attempt else None

    def _acknowledge_previous(self) -> None:
        previous = self._unsettled_previous()
        if previous is not None:
            previous.acknowledge()

    def _requeue_previous(self) -> None:
        previous = self._unsettled_previous()
        if previous is not None and previous.qos > 0:
            self._inbox.requeue(previous)

    async def aclose(self) -> None:
        """End the iteration; queue the last message again if it was not acknowledged."""
        self._requeue_previous()
