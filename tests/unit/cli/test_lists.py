"""Lists on a terminal: what fits, and what is one row."""

from __future__ import annotations

import pytest

from penstock.cli.events import group_drops
from penstock.cli.screen import columns_that_fit
from penstock.stream.event_rows import EventRow

NAMES = ["client", "user", "address", "MQTT", "listener", "since", "window", "queue"]
ROW = ["press-7", "anonymous", "127.0.0.1:40312", "5", "main", "2026-11-29 12:00:00", "3/8", "0"]


@pytest.mark.parametrize(("width", "shown"), [(200, 8), (84, 8), (80, 7), (60, 5), (10, 2)])
def test_columns_that_do_not_fit_are_left_out(width: int, shown: int) -> None:
    """Eight columns in 80 characters were folded to a few characters each."""
    assert columns_that_fit(NAMES, [ROW], width) == shown


def drop(at_s: int, client: str, reason: str = "queue full") -> EventRow:
    fields = {"client": client, "reason": reason, "messages": 2, "topic": f"t/{at_s}"}
    return EventRow("dropped", at_s * 1_000_000, client, fields)


def test_drops_of_a_client_for_one_reason_are_one_row() -> None:
    """A client that reads too slowly filled the list with thousands of them."""
    away = EventRow("disconnected", 5_000_000, "a", {"client": "a"})
    events = [drop(1, "a"), drop(2, "b"), drop(3, "a"), drop(4, "a"), away, drop(6, "a")]
    events.append(drop(7, "a", "packet too large"))
    rows = [
        (row.kind, row.at_us // 1_000_000, row.client, row.fields.get("messages", 0))
        for row in group_drops(events)
    ]
    assert rows == [
        ("dropped", 2, "b", 2),
        ("dropped", 4, "a", 6),
        ("disconnected", 5, "a", 0),
        ("dropped", 6, "a", 2),
        ("dropped", 7, "a", 2),
    ]
    (grouped,) = group_drops([drop(1, "a"), drop(3, "a")])
    assert grouped.fields["since"] == "1970-01-01 00:00:01"
    assert grouped.fields["topic"] == "t/3"
