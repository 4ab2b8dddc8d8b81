"""Receipts: a Penstock broker reports when a message is in a table (docs/spark.md).

::

      Receipt ── publish(…, receipt=) ─▶ requested ── PUBLISH from the broker ─▶ TableLocation
                                             ╰─────── the client is closed ────▶ NotConnected

The acknowledgement comes when the message is on the broker's disk; the receipt comes when the job
that writes the table has committed the message, which may be much later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, final

from penstock.client.responses import Response, Responses
from penstock.control.landed_requests import ANY_TABLE, EPOCH, LANDED_AT, MARK, OFFSET, RECEIPT
from penstock.errors import ClientError
from penstock.protocol.properties import Properties


@dataclass(frozen=True, slots=True)
class TableLocation:
    """The table that has a message, and the key of its row there.

    Attributes:
        table: name of the table.
        epoch: epoch of the broker's log; with ``offset`` the key of the row.
        offset: offset of the message in the broker's log.
        at: time at which the broker learned of the commit, UTC.
        mark: the history of the log up to the message, as text: epoch and offset may come to stand
            for another message if the broker's data directory is replaced by an older copy. Empty
            if the broker is an older version.
    """

    table: str
    epoch: str
    offset: int
    at: datetime
    mark: str = ""


@final
class Receipt:
    """A request that a broker report when one message is in a table; await it for the report.

    Args:
        table: name of the table; "*" for the first of all tables to have the message.
    """

    def __init__(self, table: str = ANY_TABLE) -> None:
        self.table = table
        self._response: Response | None = None

    @property
    def is_done(self) -> bool:
        """True if the report has arrived, or the client was closed before."""
        return self._response is not None and self._response.done()

    def __await__(self) -> Generator[Any, None, TableLocation]:
        """Wait without limit until the message is in the table; return its location.

        Cancelling the wait, as ``asyncio.timeout`` does, does not cancel the receipt, which may be
        awaited again.

        Raises:
            NotConnected: the client was closed.
            ClientError: the receipt was not passed to ``publish``.
        """
        if self._response is None:
            raise ClientError("a receipt must be passed to publish(…, receipt=…) first")
        message = yield from asyncio.shield(self._response).__await__()
        user_properties = dict((message.properties or Properties()).user_properties or ())
        return TableLocation(
            user_properties[RECEIPT],
            user_properties[EPOCH],
            int(user_properties[OFFSET]),
            datetime.fromisoformat(user_properties[LANDED_AT]),
            user_properties.get(MARK, ""),
        )

    async def ask(self, responses: Responses, properties: Properties | None) -> Properties:
        """Return a copy of PUBLISH properties with the request for this receipt.

        ``Client.publish`` calls it.

        Raises:
            ClientError: the receipt was used for another message.
            SubscribeFailed: the server refused the subscription to the response topic.
        """
        if self._response is not None:
            raise ClientError("a receipt is for one message; create a new one for the next")
        request_properties, self._response = await responses.expect_response(properties)
        request_properties.user_properties = [
            *(request_properties.user_properties or ()),
            (RECEIPT, self.table),
        ]
        return request_properties
