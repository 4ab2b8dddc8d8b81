"""Responses to requests that this client has published (MQTT 5 §4.10).

::

      PUBLISH with response topic and correlation data ─▶ … a responder …
                                                                 │
      the waiting task ◀── by correlation data ◀── PUBLISH to the response topic

A client has one response topic, and subscribes to it before its first request.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, final
from weakref import WeakValueDictionary

from penstock.client.checks import copy_properties
from penstock.client.client_engine import ClientEngine
from penstock.client.message import Message
from penstock.engine.api import ReceivedMessage
from penstock.errors import NotConnected
from penstock.protocol import reasons
from penstock.protocol.properties import Properties

PREFIX: Final = "penstock/responses/"

Response: TypeAlias = asyncio.Future[Message]


@final
class Responses:
    """The pending responses of one client, by correlation data.

    Args:
        subscribe: subscribes the client to a topic filter with QoS 2.
        engine: the engine of the client.
    """

    def __init__(self, subscribe: Callable[[str], Awaitable[object]], engine: ClientEngine) -> None:
        self._topic = f"{PREFIX}{engine.client_id}/{secrets.token_hex(6)}"
        self._subscribing = asyncio.Lock()
        self._is_subscribed = False
        self._subscribe = subscribe
        self._engine = engine
        self._futures: WeakValueDictionary[bytes, Response] = WeakValueDictionary()
        engine.take_response = self._take_response
        engine.fail_responses = self._fail_all

    async def expect_response(self, properties: Properties | None) -> tuple[Properties, Response]:
        """Return PUBLISH properties that request a response, and the future of the response.

        The caller must keep a reference to the future; without one the response is dropped.

        Args:
            properties: further properties of the request, which are copied; None for none.

        Raises:
            SubscribeFailed: the server refused the subscription to the response topic.
            LocalProtocolError: the properties cannot be encoded.
        """
        async with self._subscribing:
            if not self._is_subscribed:
                await self._subscribe(self._topic)
                self._is_subscribed = True
        request_properties = copy_properties(properties)
        request_properties.response_topic = self._topic
        request_properties.correlation_data = correlation = secrets.token_bytes(12)
        response: Response = asyncio.get_running_loop().create_future()
        self._futures[correlation] = response
        response.add_done_callback(lambda _: self._futures.pop(correlation, None))
        return request_properties, response

    def _take_response(self, arrival: ReceivedMessage) -> bool:
        """Pass a response to its waiting task, and acknowledge it; return False if it is none."""
        if arrival.topic != self._topic:
            return False
        message = Message(arrival)
        message.hand_over(None)  # no settler: this method acknowledges it
        properties = arrival.publish.properties
        correlation = None if properties is None else properties.correlation_data
        response = None if correlation is None else self._futures.get(correlation)
        if response is not None and not response.done():
            response.set_result(message)
        connection = self._engine.dialler.connection
        if connection is not None and arrival.publish.qos > 0:
            connection.settle(arrival, reasons.SUCCESS, self._engine.driver.now())
            self._engine.driver.end_turn_soon()
        return True

    def _fail_all(self, why: str) -> None:
        """Fail all pending responses with ``NotConnected``."""
        for response in list(self._futures.values()):
            if not response.done():
                response.set_exception(NotConnected(why))
                response.exception()  # mark it as retrieved: perhaps no task awaits it yet
