"""Requests and their responses (MQTT 5 §4.10).

::

      request ─▶ PUBLISH with response topic and correlation data ─▶ … whoever answers …
                                                                             │
      the one who waits ◀── by correlation data ◀── PUBLISH to our topic ◀───╯

One response topic serves a client; it subscribes to it with its first request.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from typing import TYPE_CHECKING, final

from penstock.client.checks import Payload, copy_of
from penstock.client.core import Core
from penstock.client.message import Message
from penstock.engine.arrivals import Arrival
from penstock.errors import NotConnected, RequestFailed
from penstock.protocol import reasons
from penstock.protocol.properties import Properties

if TYPE_CHECKING:
    from penstock.client.client import Client


@final
class Requests:
    """Those of one client that wait for their response.

    Args:
        client: publishes them.
        core: of that.
    """

    def __init__(self, client: Client, core: Core) -> None:
        self._topic = f"penstock/responses/{core.client_id}/{secrets.token_hex(6)}"
        self._subscribing = asyncio.Lock()
        self._is_subscribed = False
        self._client = client
        self._core = core
        self._waiting: dict[bytes, asyncio.Future[Message]] = {}
        core.take_reply = self._take
        core.end_replies = self._end

    async def request(
        self,
        topic: str,
        payload: Payload,
        qos: int,
        timeout_s: float,
        properties: Properties | None,
    ) -> Message:
        """Publish a request, and wait for its response: see ``Client.request``."""
        response: asyncio.Future[Message] | None = None
        try:
            async with asyncio.timeout(timeout_s):
                async with self._subscribing:
                    if not self._is_subscribed:
                        await self._client.subscribe(self._topic, qos=2)
                        self._is_subscribed = True
                correlation, response = self._expect()
                asked = copy_of(properties)
                asked.response_topic = self._topic
                asked.correlation_data = correlation
                if asked.message_expiry_interval is None:  # nobody waits for it any longer
                    asked.message_expiry_interval = math.ceil(timeout_s)
                code = await self._client.publish(topic, payload, qos, False, asked)
                if code == reasons.NO_MATCHING_SUBSCRIBERS:
                    raise RequestFailed(f"nobody subscribes to {topic}", code)
                return await response
        except TimeoutError:
            raise RequestFailed(f"{topic}: no response within {timeout_s:g} s") from None
        finally:
            if response is not None:
                response.cancel()

    def _expect(self) -> tuple[bytes, asyncio.Future[Message]]:
        """One more; its correlation data, and where its response will be."""
        correlation = secrets.token_bytes(12)
        response: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = response
        response.add_done_callback(lambda _: self._waiting.pop(correlation, None))
        return correlation, response

    def _take(self, arrival: Arrival) -> bool:
        """Whether it is a response; it is acknowledged then."""
        if arrival.topic != self._topic:
            return False
        message = Message(arrival)
        message.hand_over(None)  # it is acknowledged here
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
