"""The requests of the stream service on behalf of tables: receipts (``control.client``).

A *table* has committed all messages of its selection up to an offset. The broker remembers that,
and publishes receipts to publishers that asked; ``services.landed_tables`` does that.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.errors import ConfigError
from penstock.protocol.properties import Properties

RECEIPT: Final = "penstock-receipt"
"""User property of a PUBLISH that asks for a receipt, and of the receipt: the table's name."""

ANY_TABLE: Final = "*"
"""The value of that property for a receipt of whatever table the message gets into."""

OFFSET: Final = "penstock-offset"
EPOCH: Final = "penstock-epoch"
LANDED_AT: Final = "penstock-landed-at"
"""More user properties of a receipt: which message it is, and when the broker was told."""

OFFSETS_MAX: Final = 500
"""Receipts of one request, so that it fits into ``REQUEST_BYTES_MAX``."""

NAME_LENGTH_MAX: Final = 200


class ReportProgress(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="landed", tag_field="do"
):
    """Report that a table has its messages up to ``end``; ``done`` is ``ReceiptPosition``.

    Without ``until`` the answer is the offset at which the first range begins. Each later report
    has a range, in their order, and the messages in it whose publishers asked for a receipt.

    Attributes:
        table: its name.
        stream: the stream that it lands.
        topics: it lands only messages that match one of these filters; empty: all.
        epoch: epoch of the log that the offsets belong to.
        since: offset at which a table that the broker does not know began to land.
        end: the offset after the last message that it has.
        begin: first offset of the range that was searched.
        until: the offset after it, at most ``end``; None: nothing was searched yet.
        asking: offsets of messages in it whose publishers asked for a receipt.
        owner: the owner of the token that asks; empty where the token may do everything.
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


class ReceiptPosition(msgspec.Struct, frozen=True):
    """The position of a table: receipts were published for its messages before ``offset``."""

    offset: int


class ListTables(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="tables", tag_field="do"
):
    """List every table that is known, or every one of an owner's; ``done`` is a list of
    ``TableState``."""

    owner: str = ""


class ForgetTable(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="forget", tag_field="do"
):
    """Forget a table; ``done`` says whether it was known."""

    table: str
    owner: str = ""


class TableState(msgspec.Struct, frozen=True):
    """The position of a table, and its receipts.

    Attributes:
        table: its name.
        stream: the stream that it lands.
        topics: it lands only messages that match one of these filters; empty: all.
        offset: it has all messages before this offset, and their receipts were published.
        lag_messages: number of messages in the log from there on.
        lag_s: time that the oldest of them has waited, in seconds; None where it is gone.
        landed_at_us: time of its last report, microseconds since the Unix epoch.
        receipts: number of receipts published, since the table is known.
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
    """Return ``table`` if it may be the name of one.

    Raises:
        ConfigError: it may not.
    """
    if not 1 <= len(table) <= NAME_LENGTH_MAX or not table.isprintable() or table == ANY_TABLE:
        raise ConfigError(
            f"the name of a table must be 1 to {NAME_LENGTH_MAX} printable characters, and not *,"
            f" not {table!r}"
        )
    return table
