"""The work of `penstock rr`: a request and its response (MQTT 5 §4.10).

::

      subscribe to the response topic ─▶ publish the request ─▶ the first response ─▶ printed
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from penstock.cli.exit_codes import EXIT_TIMED_OUT
from penstock.cli.output import Output
from penstock.cli.printing import Printer
from penstock.client import Client, Message
from penstock.errors import RequestFailed
from penstock.protocol import reasons
from penstock.protocol.properties import Properties


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and the conditions on its response.

    Attributes:
        client: the client, not opened yet.
        topic: topic of the request.
        response_topic: the topic on which the response is expected.
        qos: QoS of request and response.
        no_retained: whether a retained message is no response.
        properties: properties of the request; None before MQTT 5.
    """

    client: Client
    topic: str
    response_topic: str
    qos: int
    no_retained: bool
    properties: Properties | None

    def is_response(self, message: Message) -> bool:
        """Return whether ``message`` is the response: it has the correlation data of the request,
        or none."""
        if message.retain and self.no_retained:
            return False
        request, response = self.properties, message.properties
        correlation = None if response is None else response.correlation_data
        return correlation is None or request is None or correlation == request.correlation_data


async def send_request(
    exchange: Exchange, request: bytes, printer: Printer, output: Output, timeout_s: float | None
) -> int:
    """Send the request, and print the response; return the exit code.

    Raises:
        RequestFailed: no client subscribes to the topic of the request.
    """
    client, qos = exchange.client, exchange.qos
    try:
        async with asyncio.timeout(timeout_s) as time, client:
            await client.subscribe(exchange.response_topic, qos=qos)
            code = await client.publish(exchange.topic, request, qos, False, exchange.properties)
            if code == reasons.NO_MATCHING_SUBSCRIBERS:
                raise RequestFailed(f"no client subscribes to {exchange.topic!r}")
            async for message in client.messages():
                if exchange.is_response(message):
                    async with message.processing():
                        await output.write(message.topic, printer(message))
                    break
    except TimeoutError:
        if not time.expired():
            raise
        return EXIT_TIMED_OUT
    return 0
