"""The two tasks of one publisher: sending messages, and settling them.

::

      has room ─▶ send … ─▶ no room ── woken: acknowledged, delivered, due ─▶ has room
      the oldest is answered ─▶ settle it and all behind it that are
"""

from __future__ import annotations

import asyncio
import contextlib
from time import monotonic_ns
from typing import final

from penstock.bench.outgoing import Outgoing
from penstock.client import Client
from penstock.errors import PublishFailed


@final
class Publisher:
    """Publishes through one client.

    Args:
        client: opened.
        topic: its topic.
        qos: 0 to 2.
        outgoing: counts what it sent, and says whether there is room.
    """

    def __init__(self, client: Client, topic: str, qos: int, outgoing: Outgoing) -> None:
        self._client = client
        self._topic = topic
        self._qos = qos
        self._outgoing = outgoing
        self._room: asyncio.Future[None] | None = None
        self._sent: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Wake the sending task: there is room."""
        self._outgoing.waits = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    async def send(self) -> None:
        """Send whenever there is room.

        Raises:
            PublishFailed: the client cannot send such a message with QoS 0.
        """
        client, topic, qos, outgoing = self._client, self._topic, self._qos, self._outgoing
        loop = asyncio.get_running_loop()
        while True:
            while outgoing.has_room:
                payload = outgoing.payload(monotonic_ns())
                if qos == 0:
                    await client.publish(topic, payload)
                else:
                    outgoing.follow(await client.send(topic, payload, qos))
            if self._sent is not None and not self._sent.done():
                self._sent.set_result(None)
            self._room = loop.create_future()
            outgoing.waits = True
            await self._room

    async def settle(self) -> None:
        """Settle all answered messages each time the oldest of them is answered."""
        outgoing = self._outgoing
        loop = asyncio.get_running_loop()
        while True:
            oldest = outgoing.oldest
            if oldest is None:
                self._sent = loop.create_future()
                await self._sent
                continue
            with contextlib.suppress(PublishFailed):  # its reason code says so
                await oldest
            outgoing.settle(monotonic_ns())
            if outgoing.waits and outgoing.has_room:
                self.wake()
