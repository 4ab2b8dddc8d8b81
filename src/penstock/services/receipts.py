"""Receipts: messages that tell publishers, on request, that their own messages are in a table.

::

      PUBLISH  response topic R, correlation data C, user property penstock-receipt: readings
         ⋮                                 (PUBACK does not wait for the following steps)
      the table readings has committed the message
         ⋮
      PUBLISH to R, QoS 1, C, penstock-receipt: readings, penstock-offset, penstock-epoch,
              penstock-mark, penstock-landed-at

A receipt is a response as in MQTT 5 §4.10, and the broker is the responder. The broker publishes it
only where the client itself may publish: the user who used the client's session last, or an
anonymous client if the session is gone, must have the permission for the response topic. Where a
login method may give clients rules of their own, a client that has no session any more, or has not
been back since a start, gets none, unless the password file has its user.

Each receipt is published at least once, because the table's position is stored afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, final

from penstock.control.landed_requests import (
    EPOCH,
    LANDED_AT,
    MARK,
    OFFSET,
    RECEIPT,
    asks_for_receipt,
)
from penstock.engine.api import Server
from penstock.engine.values.message import Message
from penstock.engine.values.topics import is_system_topic
from penstock.errors import RemoteProtocolError, StoreUnavailable
from penstock.protocol.kinds import PUBLISH
from penstock.protocol.properties import Properties, decode_properties, encode_properties
from penstock.runtime.driver import Driver
from penstock.store.port import Store
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

SLICE_MESSAGES: Final = 50
"""Receipts that are published before clients are served again."""

COMMIT_S_MAX: Final = 8.0
"""Time in seconds that the commit of receipts may take; after it the report of their table fails,
and is repeated."""


class ReceiptCounts(NamedTuple):
    """The numbers of receipts that were published and refused."""

    published: int
    refused: int


@final
class Receipts:
    """Publishes receipts.

    Args:
        server: the engine, which routes receipts and has the permissions of clients.
        driver: the driver, which has the clock and reports when receipts are durable.
        store: the store with the messages that asked for a receipt.
    """

    def __init__(self, server: Server, driver: Driver, store: Store) -> None:
        self._server = server
        self._driver = driver
        self._store = store

    async def publish(self, table: str, asking: Sequence[int]) -> ReceiptCounts:
        """Publish the receipts for messages in ``table``; return when they are durable.

        Args:
            table: the name of the table.
            asking: the offsets of the messages.

        Raises:
            StoreUnavailable: the receipts are not durable in time; they may become durable later.
        """
        if not asking:
            return ReceiptCounts(0, 0)
        failure = self._server.context.store_failure
        if failure:
            raise StoreUnavailable(failure)
        loop = asyncio.get_running_loop()
        messages, marks = await loop.run_in_executor(None, self._read, asking)
        published = 0
        for begin in range(0, len(asking), SLICE_MESSAGES):
            for offset in asking[begin : begin + SLICE_MESSAGES]:
                message = messages.get(offset)  # gone: retention was faster than the table
                published += message is not None and self._publish(table, message, marks[offset])
            self._driver.end_turn_soon()
            await asyncio.sleep(0)
        try:
            await asyncio.wait_for(self._driver.wait_durable(), COMMIT_S_MAX)
        except TimeoutError:
            raise StoreUnavailable("the store does not take receipts at the moment") from None
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
        return ReceiptCounts(published, refused)

    def _read(self, asking: Sequence[int]) -> tuple[dict[int, Message], dict[int, str]]:
        """Return the messages that are still there, and the mark behind each."""
        messages = self._store.read(asking)
        return messages, {offset: str(self._store.mark_at(offset + 1)) for offset in messages}

    def _publish(self, table: str, message: Message, mark: str) -> bool:
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
                (EPOCH, self._store.epoch),
                (MARK, mark),
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
        if session is not None and session.has_permissions_set:
            permissions = session.permissions
        else:
            username = None if session is None else session.username
            permissions = self._server.authorize.permissions_of_absent(username, client_id)
        return permissions is None or permissions.may_publish(topic)
