"""Receipts: a Penstock broker reports when a message is in a table (docs/spark.md).

::

      Receipt ── publish(…, receipt=) ─▶ asked for ── PUBLISH from the broker ─▶ TableLocation
                                             ╰─────── the client is closed ────▶ NotConnected

An acknowledgement comes at once and says that the message is on disk; the receipt comes when the
job that lands the table has committed it, which may be much later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, final

from penstock.client.responses import Response, Responses
from penstock.control.landed_requests import ANY_TABLE, EPOCH, LANDED_AT, OFFSET, RECEIPT
from penstock.errors import ClientError
from penstock.protocol.properties import Properties


@dataclass(frozen=True, slots=True)
class TableLocation:
    """The table that has a message, and the key of its row there.

    Attributes:
        table: name of the table.
        epoch: with ``offset``, identifies the row of the table.
        offset: position of the message in the broker's log.
        at: when the broker learned of it, UTC.
    """

    table: str
    epoch: str
    offset: int
    at: datetime


@final
class Receipt:
    """Asks a broker to report when one message is in a table; ``await`` it for the answer.

    Args:
        table: name of the table; "*": any that gets the message; the first one reports.
    """

    def __init__(self, table: str = ANY_TABLE) -> None:
        self.table = table
        self._response: Response | None = None

    @property
    def is_done(self) -> bool:
        """True if the answer has come, or never will."""
        return self._response is not None and self._response.done()

    def __await__(self) -> Generator[Any, None, TableLocation]:
        """Wait until the message is in the table, for as long as that takes.

        Cancelling the wait, as ``asyncio.timeout`` does, does not cancel the receipt: it may be
        awaited again.

        Raises:
            NotConnected: the client was closed.
            ClientError: it was not passed to ``publish``.
        """
        if self._response is None:
            raise ClientError("a receipt is asked for with publish(…, receipt=…)")
        message = yield from asyncio.shield(self._response).__await__()
        user_properties = dict((message.properties or Properties()).user_properties or ())
        return TableLocation(
            user_properties[RECEIPT],
            user_properties[EPOCH],
            int(user_properties[OFFSET]),
            datetime.fromisoformat(user_properties[LANDED_AT]),
        )

    async def ask(self, responses: Responses, properties: Properties | None) -> Properties:
        """Return a copy of these properties that asks for this receipt; for ``Client.publish``."""
        if self._response is not None:
            raise ClientError("a receipt is for one message; make another one for the next")
        asked, self._response = await responses.ask(properties)
        asked.user_properties = [*(asked.user_properties or ()), (RECEIPT, self.table)]
        return asked
