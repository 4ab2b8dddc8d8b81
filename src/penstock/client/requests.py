"""Requests and their responses (MQTT 5 §4.10).

::

      request ─▶ PUBLISH with response topic and correlation data ─▶ … whoever answers …
                                                                             │
      the one who waits ◀── by correlation data ◀── PUBLISH to our topic ◀───╯

One response topic serves a client; it subscribes to it with its first request.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import final

from penstock.client.core import Core
from penstock.client.message import Message
from penstock.engine.arrivals import Arrival
from penstock.errors import NotConnected
from penstock.protocol import reasons


@final
class Requests:
    """Those of one client that wait for their response.

    Args:
        core: the client's.
    """

    def __init__(self, core: Core) -> None:
        self.topic = f"penstock/responses/{core.client_id}/{secrets.token_hex(6)}"
        self.is_subscribed = False
        self._core = core
        self._waiting: dict[bytes, asyncio.Future[Message]] = {}
        core.take_reply = self._take
        core.end_replies = self._end

    def expect(self) -> tuple[bytes, asyncio.Future[Message]]:
        """One more; its correlation data, and where its response will be."""
        correlation = secrets.token_bytes(12)
        response: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = response
        response.add_done_callback(lambda _: self._waiting.pop(correlation, None))
        return correlation, response

    def _take(self, arrival: Arrival) -> bool:
        """Whether it is a response; it is acknowledged then."""
        if arrival.topic != self.topic:
            return False
        message = Message(arrival, _nothing)
        message.hand_over()
        properties = arrival.publish.properties
        correlation = None if properties is None else properties.correlation_data
        response = None if correlation is None else self._waiting.get(correlation)
        if response is not None and not response.done():
            response.set_result(message)
        connection = self._core.dialler.connection
        if connection is not None and arrival.publish.qos > 0:
            connection.settle(arrival, reasons.SUCCESS, self._core.driver.now())
            self._core.driver.end_turn_soon()
        return True

    def _end(self, why: str) -> None:
        """There will be no response any more."""
        for response in self._waiting.values():
            if not response.done():
                response.set_exception(NotConnected(why))
                response.exception()  # who still publishes the request hears of that instead


def _nothing(message: Message, code: int) -> None:
    """A response is acknowledged already."""
    del message, code
