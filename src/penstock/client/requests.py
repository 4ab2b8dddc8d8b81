"""Requests: published, and answered by whoever subscribes to them (MQTT 5 §4.10)."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from penstock.client.checks import Payload
from penstock.client.message import Message
from penstock.client.responses import Response, Responses
from penstock.errors import RequestFailed
from penstock.protocol import reasons
from penstock.protocol.properties import Properties

if TYPE_CHECKING:
    from penstock.client.client import Client


async def request(
    client: Client,
    responses: Responses,
    topic: str,
    payload: Payload,
    qos: int,
    timeout_s: float,
    properties: Properties | None,
) -> Message:
    """Publish a request, and wait for its response: see ``Client.request``."""
    response: Response | None = None
    try:
        async with asyncio.timeout(timeout_s):
            asked, response = await responses.ask(properties)
            if asked.message_expiry_interval is None:  # nobody waits for it any longer
                asked.message_expiry_interval = math.ceil(timeout_s)
            code = await client.publish(topic, payload, qos, False, asked)
            if code == reasons.NO_MATCHING_SUBSCRIBERS:
                raise RequestFailed(f"nobody subscribes to {topic}", code)
            return await response
    except TimeoutError:
        raise RequestFailed(f"{topic}: no response within {timeout_s:g} s") from None
    finally:
        if response is not None:
            response.cancel()
