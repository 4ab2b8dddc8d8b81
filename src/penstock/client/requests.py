"""Publishes a request, and waits for the response of a subscriber (MQTT 5 §4.10)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from penstock.client.checks import Payload
from penstock.client.message import Message
from penstock.client.responses import Response, Responses
from penstock.errors import RequestFailed
from penstock.protocol import reasons
from penstock.protocol.properties import Properties


async def request(
    publish: Callable[[str, Payload, int, bool, Properties], Awaitable[int]],
    responses: Responses,
    topic: str,
    payload: Payload,
    qos: int,
    timeout_s: float,
    properties: Properties | None,
) -> Message:
    """Publish a request with ``publish``, and return its response; see ``Client.request``."""
    response: Response | None = None
    try:
        async with asyncio.timeout(timeout_s):
            request_properties, response = await responses.expect_response(properties)
            if request_properties.message_expiry_interval is None:
                request_properties.message_expiry_interval = math.ceil(timeout_s)
            code = await publish(topic, payload, qos, False, request_properties)
            if code == reasons.NO_MATCHING_SUBSCRIBERS:
                raise RequestFailed(f"nobody subscribes to {topic}", code)
            return await response
    except TimeoutError:
        raise RequestFailed(f"{topic}: no response within {timeout_s:g} s") from None
    finally:
        if response is not None:
            response.cancel()
