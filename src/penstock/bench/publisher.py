"""The two tasks of one publisher: sending messages, and settling them.

::

      has room ─▶ send … ─▶ no room ── woken: acknowledged, delivered, due ─▶ has room
      the oldest message is answered ─▶ settle it and the answered ones behind it
"""

from __future__ import annotations

import asyncio
import contextlib
from time import monotonic_ns
from typing import final

from penstock.bench.publisher_state import PublisherState
from penstock.client import Client
from penstock.errors import PublishFailed


@final
class Publisher:
    """Publishes the messages of one publisher through its client.

    Args:
        client: a connected client.
        topic: the topic of all messages.
        qos: the QoS of all messages, 0 to 2.
        state: counts the messages, and says whether there is room for one more.
    """

    def __init__(self, client: Client, topic: str, qos: int, state: PublisherState) -> None:
        self._client = client
        self._topic = topic
        self._qos = qos
        self._state = state
        self._room_made: asyncio.Future[None] | None = None
        self._message_sent: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Wake the sending task, because there is room."""
        self._state.is_waiting = False
        if self._room_made is not None and not self._room_made.done():
            self._room_made.set_result(None)

    async def send(self) -> None:
        """Send messages whenever there is room, until the task is cancelled.

        Raises:
            PublishFailed: the client cannot send such a message with QoS 0.
        """
        client, topic, qos, state = self._client, self._topic, self._qos, self._state
        loop = asyncio.get_running_loop()
        while True:
            while state.has_room:
                payload = state.next_payload(monotonic_ns())
                if qos == 0:
                    await client.publish(topic, payload)
                else:
                    state.track(await client.send(topic, payload, qos))
            if self._message_sent is not None and not self._message_sent.done():
                self._message_sent.set_result(None)
            self._room_made = loop.create_future()
            state.is_waiting = True
            await self._room_made

    async def settle(self) -> None:
        """Settle answered messages each time the oldest unsettled one is answered, until the task
        is cancelled."""
        state = self._state
        loop = asyncio.get_running_loop()
        while True:
            oldest = state.oldest_unsettled
            if oldest is None:
                self._message_sent = loop.create_future()
                await self._message_sent
                continue
            with contextlib.suppress(PublishFailed):  # counted by its reason code
                await oldest
            state.settle(monotonic_ns())
            if state.is_waiting and state.has_room:
                self.wake()
