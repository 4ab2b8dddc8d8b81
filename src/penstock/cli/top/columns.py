"""The table of clients: its columns, and the texts of a ranked session in them.

Texts of clients are escaped and truncated here, for the screen and for `--batch`. The columns in,
out and unsent are bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.cli.top.figures import short_duration, short_number
from penstock.control.ranking_requests import Measure, RankedSession
from penstock.telemetry.logs import printable

LIMIT_WORDS: Final = {
    "window": "window full",
    "write_buffer": "does not read",
    "queue": "queue full",
    "inbound": "quota used up",
    "rate_limit": "over its rate",
    "full_queues": "others are full",
}

MEASURES: Final[tuple[Measure, ...]] = ("limited", "rate", "queue", "window", "unsent", "dropped")
MEASURE_WORDS: Final[dict[Measure, str]] = {
    "limited": "how long at a limit",
    "rate": "bytes a second",
    "queue": "queued messages",
    "window": "messages in flight",
    "unsent": "unsent bytes",
    "dropped": "dropped messages",
}

CLIENT_WIDTH_MIN: Final = 12


class Column(NamedTuple):
    """A column of the table.

    Attributes:
        heading: its heading.
        width: its width in characters; 0: the space that the other columns leave.
        cell: returns the text of a session in the column.
        measure: the measure that the column shows; None: none.
    """

    heading: str
    width: int
    cell: Callable[[RankedSession], str]
    measure: Measure | None = None


def limited_by_text(session: RankedSession) -> str:
    """Return the limit that a client has been at for the longest time, and the number of further
    limits."""
    if not session.limited_by:
        return "" if session.connected else "away"
    first = session.limited_by[0]
    lasts = f" {short_duration(first.lasts_s)}" if first.lasts_s else ""
    more = f" +{len(session.limited_by) - 1}" if len(session.limited_by) > 1 else ""
    return f"{LIMIT_WORDS.get(first.limit, first.limit)}{lasts}{more}"


def _client(session: RankedSession) -> str:
    return printable(session.client_id) + (" (bridge)" if session.bridge else "")


def _queue(session: RankedSession) -> str:
    queue_max = short_number(session.queue_max) if session.queue_max else "∞"
    return f"{short_number(session.queue)}/{queue_max}"


COLUMNS: Final = (
    Column("client", 0, _client),
    Column("limited by", 19, limited_by_text, "limited"),
    Column("in/s", 6, lambda one: short_number(one.received_bytes_per_s), "rate"),
    Column("out/s", 6, lambda one: short_number(one.sent_bytes_per_s), "rate"),
    Column(
        "window",
        7,
        lambda one: f"{short_number(one.window)}/{short_number(one.window_size)}",
        "window",
    ),
    Column("queue", 9, _queue, "queue"),
    Column("unsent", 6, lambda one: short_number(one.unsent_bytes), "unsent"),
    Column("drops", 5, lambda one: short_number(one.dropped), "dropped"),
)

_FIXED_WIDTH: Final = sum(column.width + 1 for column in COLUMNS if column.width)


def column_widths(width: int) -> list[int]:
    """Return the widths of the columns in a line of ``width`` characters, with a blank between
    columns."""
    client_width = max(CLIENT_WIDTH_MIN, width - _FIXED_WIDTH)
    return [column.width or client_width for column in COLUMNS]


def fit_text(text: str, width: int, *, right: bool) -> str:
    """Return ``text`` in exactly ``width`` characters, padded, or truncated with an ellipsis."""
    if len(text) > width:
        text = text[: width - 1] + "…"
    return text.rjust(width) if right else text.ljust(width)


def cell_texts(session: RankedSession, width: int) -> list[str]:
    """Return the cells of a session, each as wide as its column."""
    return [
        fit_text(column.cell(session), column_width, right=number > 1)
        for number, (column, column_width) in enumerate(
            zip(COLUMNS, column_widths(width), strict=True)
        )
    ]


def heading_texts(measure: Measure, width: int) -> list[str]:
    """Return the headings, with a mark at the measure of the ranking."""
    return [
        fit_text(
            f"{column.heading}{'▼' if column.measure == measure else ''}",
            column_width,
            right=number > 1,
        )
        for number, (column, column_width) in enumerate(
            zip(COLUMNS, column_widths(width), strict=True)
        )
    ]
