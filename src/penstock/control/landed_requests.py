"""The requests of the stream service on behalf of tables: receipts (``control.client``).

A *table* has committed all messages of its selection up to an offset. The broker stores that
offset, and publishes receipts to publishers that asked; ``services.landed_tables`` does that.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.errors import ConfigError
from penstock.protocol.properties import Properties

RECEIPT: Final = "penstock-receipt"
"""User property of a PUBLISH that asks for a receipt, and of the receipt; its value is the name of
the table."""

ANY_TABLE: Final = "*"
"""The value of ``RECEIPT`` that asks for a receipt of every table into which the message lands."""

OFFSET: Final = "penstock-offset"
EPOCH: Final = "penstock-epoch"
LANDED_AT: Final = "penstock-landed-at"
MARK: Final = "penstock-mark"
"""Further user properties of a receipt: offset and epoch of the message, when the broker learned
that it has landed, and the history of the log up to the message (``store.mark``)."""

OFFSETS_MAX: Final = 500
"""Most receipts of one request, so that a request fits into ``REQUEST_BYTES_MAX``."""

NAME_LENGTH_MAX: Final = 200


class ReportProgress(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="landed", tag_field="do"
):
    """Report that a table has its messages up to ``end``; ``done`` is ``ReceiptPosition``.

    Without ``until`` the answer is the offset at which the first range begins. Each later report
    has a range of offsets, in ascending order, and the messages in it whose publishers asked for a
    receipt.

    Attributes:
        table: the table's name.
        stream: the stream whose messages land in it.
        topics: filters of the messages that land; empty: all messages of the stream.
        epoch: epoch of the log that the offsets belong to.
        since: offset at which a table that the broker does not know began to land.
        end: the offset after the last message that has landed.
        begin: first offset of the range that was searched for requests of receipts.
        until: the offset after that range, at most ``end``; None: nothing was searched yet.
        asking: offsets of messages in that range whose publishers asked for a receipt.
        owner: the owner of the token that asks; empty where the token may do everything.
        mark: the mark of ``end`` (``store.mark``); empty where the table has none.
    """

    table: str
    stream: str
    topics: tuple[str, ...]
    epoch: str
    since: int
    end: int
    begin: int = 0
    until: int | None = None
    asking: tuple[int, ...] = ()
    owner: str = ""
    mark: str = ""


class ReceiptPosition(msgspec.Struct, frozen=True):
    """The position of a table: receipts were published for all its messages before ``offset``."""

    offset: int


class ListTables(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="tables", tag_field="do"
):
    """List all tables that the broker knows, or those of one owner; ``done`` is a list of
    ``TableState``."""

    owner: str = ""


class ForgetTable(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="forget", tag_field="do"
):
    """Forget a table; ``done`` says whether the broker knew it."""

    table: str
    owner: str = ""


class TableState(msgspec.Struct, frozen=True):
    """The position of a table, and its receipts.

    Attributes:
        table: the table's name.
        stream: the stream whose messages land in it.
        topics: filters of the messages that land; empty: all messages of the stream.
        offset: all messages before this offset have landed, and their receipts were published.
        lag_messages: number of messages in the log from that offset on.
        lag_s: age of the message at that offset, in seconds; None if it has left the log.
        landed_at_us: time of the job's last report, microseconds since the Unix epoch.
        receipts: number of receipts published since the broker knows the table.
        refused: number of receipts that could not be published.
    """

    table: str
    stream: str
    topics: tuple[str, ...]
    offset: int
    lag_messages: int
    lag_s: float | None
    landed_at_us: int
    receipts: int
    refused: int


LandedRequest = ReportProgress | ListTables | ForgetTable


def asks_for_receipt(properties: Properties, table: str) -> bool:
    """Return whether a message with these properties asks for a receipt of ``table``."""
    return properties.response_topic is not None and any(
        name == RECEIPT and value in (table, ANY_TABLE)
        for name, value in properties.user_properties or ()
    )


def check_table(table: str) -> str:
    """Return ``table`` if it is a valid name of a table.

    Raises:
        ConfigError: ``table`` is no valid name.
    """
    if not 1 <= len(table) <= NAME_LENGTH_MAX or not table.isprintable() or table == ANY_TABLE:
        raise ConfigError(
            f"the name of a table must be 1 to {NAME_LENGTH_MAX} printable characters, and not *,"
            f" not {table!r}"
        )
    return table
