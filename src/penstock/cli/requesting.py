"""What `penstock rr` does: a request and its response (MQTT 5 §4.10).

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
class Asking:
    """Whom to ask, and what counts as a response.

    Attributes:
        client: not opened.
        topic: of the request.
        response_topic: where the response is expected.
        qos: of both.
        no_retained: a retained message is no response.
        properties: of the request; None before MQTT 5.
    """

    client: Client
    topic: str
    response_topic: str
    qos: int
    no_retained: bool
    properties: Properties | None

    def is_response(self, message: Message) -> bool:
        """Whether ``message`` has our correlation data, or none."""
        if message.retain and self.no_retained:
            return False
        asked, given = self.properties, message.properties
        correlation = None if given is None else given.correlation_data
        return correlation is None or asked is None or correlation == asked.correlation_data


async def ask(
    asking: Asking, request: bytes, printer: Printer, output: Output, timeout_s: float | None
) -> int:
    """Ask, and print the response; the exit code.

    Raises:
        RequestFailed: nobody subscribes to the topic.
    """
    client, qos = asking.client, asking.qos
    try:
        async with client, asyncio.timeout(timeout_s) as time:
            await client.subscribe(asking.response_topic, qos=qos)
            code = await client.publish(asking.topic, request, qos, False, asking.properties)
            if code == reasons.NO_MATCHING_SUBSCRIBERS:
                raise RequestFailed(f"nobody subscribes to {asking.topic!r}")
            async for message in client.messages():
                if asking.is_response(message):
                    async with message.processing():
                        await output.write(message.topic, printer(message))
                    break
    except TimeoutError:
        if not time.expired():
            raise
        return EXIT_TIMED_OUT
    return 0
