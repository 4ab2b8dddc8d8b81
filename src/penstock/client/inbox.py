"""Messages that came and wait for the program.

::

      arrived ─▶ waiting ─▶ taken ── acknowledged, refused ─▶ the connection
                    ▲          ╰── its processing failed ──╮
                    ╰──────── after a pause ◀──────────────╯  (it keeps its place there)

What waits is bounded twice: QoS 1 and 2 by our Receive Maximum, everything by ``messages_max``,
above which nothing more is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, final

from penstock.client.message import AGAIN, Message
from penstock.engine.arrivals import Arrival

_PAUSE_S_MAX: Final = 60.0


@final
class Inbox:
    """The messages of one client.

    Args:
        messages_max: how many may wait before nothing more is read.
        redeliver_s: the first pause before a message is handed over again, seconds.
        settle: acknowledges an arrival with a reason code.
        is_full: told when no more may be read, and when it may again.
    """

    def __init__(
        self,
        messages_max: int,
        redeliver_s: float,
        settle: Callable[[Arrival, int], None],
        is_full: Callable[[bool], None],
    ) -> None:
        self.is_closed = False
        self._waiting: deque[Message] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._messages_max = messages_max
        self._redeliver_s = redeliver_s
        self._settle_arrival = settle
        self._tell_full = is_full
        self.is_full = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, arrival: Arrival) -> None:
        """A message arrived."""
        self._waiting.append(Message(arrival, self._settle))
        if not self.is_full and len(self._waiting) >= self._messages_max:
            self.is_full = True
            self._tell_full(True)
        if self._takers:
            self._wake()

    def take(self) -> Message | None:
        """The next message, if one waits."""
        if not self._waiting:
            return None
        message = self._waiting.popleft()
        if self.is_full and 2 * len(self._waiting) <= self._messages_max:
            self.is_full = False
            self._tell_full(False)
        return message

    async def wait(self) -> bool:
        """Wait for a message; False when there will be none any more."""
        while not self._waiting:
            if self.is_closed:
                return False
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                if taker.done() and not taker.cancelled() and self._waiting:
                    self._wake()  # another one takes what this one was woken for
                raise
            finally:
                if taker in self._takers:
                    self._takers.remove(taker)
        return True

    def close(self) -> None:
        """There will be no more; who waits is told when all that wait are taken."""
        self.is_closed = True
        while self._takers:
            self._wake()

    def put_back(self, message: Message) -> None:
        """Hand ``message`` over again, before all others."""
        if self.is_closed or message.is_settled:
            return
        message.duplicate = True
        message.attempt += 1
        message.is_deferred = False
        self._waiting.appendleft(message)
        if self._takers:
            self._wake()

    def _wake(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return

    def _settle(self, message: Message, code: int) -> None:
        if code == AGAIN:
            if message.qos > 0 and not message.is_settled:
                pause_s = min(_PAUSE_S_MAX, self._redeliver_s * 2 ** min(message.attempt - 1, 20))
                asyncio.get_running_loop().call_later(pause_s, self.put_back, message)
            return
        arrival = message.arrival
        if arrival is not None:
            if message.qos > 0:
                self._settle_arrival(arrival, code)
            message.settled()


@final
class Messages:
    """The messages of a client, one after the other: ``async for message in client.messages():``.

    To ask for the next one acknowledges the one before, unless it was deferred or is being
    processed (``Message.defer``, ``Message.processing``). Several may run at a time; each message
    goes to one of them. It ends when the client is closed.
    """

    __slots__ = ("_inbox", "_previous")

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._previous: Message | None = None

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
        return message

    def _acknowledge_previous(self) -> None:
        previous = self._previous
        if previous is not None and not previous.is_deferred and not previous.is_settled:
            previous.acknowledge()

    async def aclose(self) -> None:
        """Take no more; what was handed over last and is not acknowledged is handed over again."""
        previous = self._previous
        self._previous = None
        if previous is not None and not previous.is_deferred:
            self._inbox.put_back(previous)
