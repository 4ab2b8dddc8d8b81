"""Receipts: a message to a publisher that asked for it, once its own message is in a table.

::

      PUBLISH  response topic R, correlation data C, user property penstock-receipt: readings
         ⋮                                 (PUBACK does not wait for any of what follows)
      the table readings has committed the message
         ⋮
      PUBLISH to R, QoS 1, C, penstock-receipt: readings, penstock-offset, penstock-epoch,
              penstock-landed-at

It is a response as MQTT 5 §4.10 has it, and the broker is the responder. The broker publishes for a
client only where the client may publish itself: the response topic must be open to the user that
used its session last, or to an anonymous client where the session is gone.

Each is published at least once, because its record is written afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, final

from penstock.control.landed_requests import (
    EPOCH,
    LANDED_AT,
    OFFSET,
    RECEIPT,
    asks_for_receipt,
)
from penstock.engine.message import Message
from penstock.engine.server.server import Server
from penstock.engine.topics import is_system_topic
from penstock.errors import RemoteProtocolError, StoreFailed
from penstock.protocol.kinds import PUBLISH
from penstock.protocol.properties import Properties, decode_properties, encode_properties
from penstock.runtime.driver import Driver
from penstock.store.api import Store
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

SLICE_MESSAGES: Final = 50
"""Receipts published before clients have their turn."""

COMMIT_S_MAX: Final = 8.0
"""How long the commit of receipts may take before their table is asked to try again."""


class ReceiptsSent(NamedTuple):
    """The outcome of some requests for a receipt."""

    published: int
    refused: int


@final
class Receipts:
    """Publishes receipts.

    Args:
        server: routes them, and has the permissions of clients.
        driver: has the clock, and reports when they are durable.
        store: has the messages that asked for a receipt.
    """

    def __init__(self, server: Server, driver: Driver, store: Store) -> None:
        self._server = server
        self._driver = driver
        self._store = store

    async def publish(self, table: str, asking: Sequence[int]) -> ReceiptsSent:
        """Publish the receipts for the messages at these offsets, and wait until they are durable.

        Raises:
            StoreFailed: they are not durable in time, and may become so later.
        """
        if not asking:
            return ReceiptsSent(0, 0)
        failure = self._server.context.store.failure
        if failure:
            raise StoreFailed(failure)
        loop = asyncio.get_running_loop()
        messages = await loop.run_in_executor(None, self._store.read, asking)
        published = 0
        for begin in range(0, len(asking), SLICE_MESSAGES):
            for offset in asking[begin : begin + SLICE_MESSAGES]:
                message = messages.get(offset)  # gone: retention was faster than the table
                published += message is not None and self._publish(table, message)
            self._driver.end_turn_soon()
            await asyncio.sleep(0)
        try:
            await asyncio.wait_for(self._driver.wait_durable(), COMMIT_S_MAX)
        except TimeoutError:
            raise StoreFailed("the store does not take receipts at the moment") from None
        refused = len(asking) - published
        assert refused >= 0, "one receipt for each request, at most"
        if refused:
            logger.warning(
                "%d of %d receipts of table %s could not be sent: the message has left the log, or"
                " its publisher may not publish to the response topic",
                refused,
                len(asking),
                table,
            )
        return ReceiptsSent(published, refused)

    def _publish(self, table: str, message: Message) -> bool:
        try:
            requested = decode_properties(message.properties, 0, len(message.properties), PUBLISH)
        except RemoteProtocolError:
            return False
        topic = requested.response_topic
        if topic is None or not asks_for_receipt(requested, table):
            return False
        if not self._may_publish(message.client_id, topic):
            return False
        now = self._driver.now()
        landed_at = datetime.fromtimestamp(now.wall_us / 1_000_000, UTC)
        properties = Properties(
            correlation_data=requested.correlation_data,
            user_properties=[
                (RECEIPT, table),
                (OFFSET, str(message.offset)),
                (EPOCH, self._server.epoch),
                (LANDED_AT, landed_at.isoformat(timespec="microseconds")),
            ],
        )
        receipt = Message(
            topic,
            b"",
            1,
            False,
            "",
            now.wall_us,
            encode_properties(properties),
            lead_us=now.lead_us,
        )
        self._server.router.publish(receipt, None, now)
        return True

    def _may_publish(self, client_id: str, topic: str) -> bool:
        if is_system_topic(topic):
            return False
        session = self._server.registry.sessions.get(client_id)
        if session is not None and session.identified:
            permissions = session.permissions
        else:
            username = None if session is None else session.username
            permissions = self._server.authorize.permissions(username, client_id)
        return permissions is None or permissions.may_publish(topic)
