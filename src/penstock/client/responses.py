"""Responses to requests that this client has published (MQTT 5 §4.10).

::

      PUBLISH with response topic and correlation data ─▶ … a responder …
                                                                 │
      the waiting task ◀── by correlation data ◀── PUBLISH to our topic

One response topic serves a client; it subscribes to it when the first response is asked for.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, final
from weakref import WeakValueDictionary

from penstock.client.checks import copy_of
from penstock.client.client_engine import ClientEngine
from penstock.client.message import Message
from penstock.engine.dialling.unacknowledged import ReceivedMessage
from penstock.errors import NotConnected
from penstock.protocol import reasons
from penstock.protocol.properties import Properties

PREFIX: Final = "penstock/responses/"

Response: TypeAlias = asyncio.Future[Message]


@final
class Responses:
    """The responses that one client waits for.

    Args:
        subscribe: subscribes the client to a topic filter, with QoS 2.
        engine: the engine of the client.
    """

    def __init__(self, subscribe: Callable[[str], Awaitable[object]], engine: ClientEngine) -> None:
        self._topic = f"{PREFIX}{engine.client_id}/{secrets.token_hex(6)}"
        self._subscribing = asyncio.Lock()
        self._is_subscribed = False
        self._subscribe = subscribe
        self._engine = engine
        self._waiting: WeakValueDictionary[bytes, Response] = WeakValueDictionary()
        engine.take_reply = self._take
        engine.end_replies = self._end

    async def ask(self, properties: Properties | None) -> tuple[Properties, Response]:
        """Ask for a response: return a copy of these properties that does, and the response's
        future.

        The caller keeps the future; once it is gone, the response is forgotten.

        Raises:
            SubscribeFailed: the client may not subscribe to its response topic.
        """
        async with self._subscribing:
            if not self._is_subscribed:
                await self._subscribe(self._topic)
                self._is_subscribed = True
        asked = copy_of(properties)
        asked.response_topic = self._topic
        asked.correlation_data = correlation = secrets.token_bytes(12)
        response: Response = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = response
        response.add_done_callback(lambda _: self._waiting.pop(correlation, None))
        return asked, response

    def _take(self, arrival: ReceivedMessage) -> bool:
        """Take a message if it is a response, and acknowledge it; return whether it was."""
        if arrival.topic != self._topic:
            return False
        message = Message(arrival)
        message.hand_over(None)  # it is acknowledged here
        properties = arrival.publish.properties
        correlation = None if properties is None else properties.correlation_data
        response = None if correlation is None else self._waiting.get(correlation)
        if response is not None and not response.done():
            response.set_result(message)
        connection = self._engine.dialler.connection
        if connection is not None and arrival.publish.qos > 0:
            connection.settle(arrival, reasons.SUCCESS, self._engine.driver.now())
            self._engine.driver.end_turn_soon()
        return True

    def _end(self, why: str) -> None:
        """Fail all waiting requests: no response will come any more."""
        for response in list(self._waiting.values()):
            if not response.done():
                response.set_exception(NotConnected(why))
                response.exception()  # a request that is still being published raises that itself
