"""Places in the log as people write them, read at a time that the test decides."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from penstock.cli.log_positions import (
    AtOffset,
    AtTime,
    AtTimeOfDay,
    Clock,
    LogPosition,
    begin_us,
    end_us,
    from_us,
    local_text,
    parse_log_position,
    to_us,
)
from penstock.errors import ConfigError

BERLIN = ZoneInfo("Europe/Berlin")


def clock(now: str) -> Clock:
    return Clock(datetime.fromisoformat(now).replace(tzinfo=BERLIN), BERLIN)


NOON = clock("2026-11-26T12:00:00")


def begins(text: str, at: Clock = NOON) -> str:
    position = parse_log_position("--from", text, at)
    assert isinstance(position, AtTime | AtTimeOfDay)
    return from_us(begin_us(position, at)).astimezone(BERLIN).strftime("%m-%d %H:%M:%S")


def ends(text: str, begin: str | None, at: Clock = NOON) -> str:
    position = parse_log_position("--until", text, at)
    assert isinstance(position, AtTime | AtTimeOfDay)
    begins_us = (
        None if begin is None else to_us(datetime.fromisoformat(begin).replace(tzinfo=BERLIN))
    )
    return from_us(end_us(position, at, begins_us)).astimezone(BERLIN).strftime("%m-%d %H:%M:%S")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("1234", AtOffset(1234)),
        ("0", AtOffset(0)),
        ("20261126", AtOffset(20_261_126)),
        ("earliest", "earliest"),
        ("LATEST", "latest"),
    ],
)
def test_offsets_and_edges(text: str, position: LogPosition) -> None:
    assert parse_log_position("--from", text, NOON) == position


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("-10m", "11-26 11:50:00"),
        ("10m", "11-26 11:50:00"),
        ("-1.5h", "11-26 10:30:00"),
        ("-90s", "11-26 11:58:30"),
        ("-2d", "11-24 12:00:00"),
        ("now", "11-26 12:00:00"),
        ("08:10", "11-26 08:10:00"),
        ("12:00", "11-26 12:00:00"),
        ("12:01", "11-25 12:01:00"),
        ("08:10:30", "11-26 08:10:30"),
        ("today", "11-26 00:00:00"),
        ("today 08:10", "11-26 08:10:00"),
        ("Yesterday 23:50", "11-25 23:50:00"),
        ("2026-11-20", "11-20 00:00:00"),
        ("2026-11-20 08:10", "11-20 08:10:00"),
        ("2026-11-20T08:10:05+00:00", "11-20 09:10:05"),
        ("2026-07-01T08:00:00Z", "07-01 10:00:00"),
    ],
)
def test_a_begin_is_the_last_time_that_was_so(text: str, shown: str) -> None:
    assert begins(text) == shown


@pytest.mark.parametrize(
    ("begin", "text", "shown"),
    [
        ("2026-11-26T08:00", "08:10", "11-26 08:10:00"),
        ("2026-11-25T23:50", "00:10", "11-26 00:10:00"),
        ("2026-11-20T07:00", "08:10", "11-20 08:10:00"),  # the day of the message at an offset
        ("2026-11-20T08:10", "08:10", "11-21 08:10:00"),
        ("2026-11-26T11:50", "13:00", "11-26 13:00:00"),  # still to come: all there is
        (None, "13:00", "11-25 13:00:00"),
        (None, "11:00", "11-26 11:00:00"),
        ("2026-11-20T07:00", "2026-11-22", "11-22 00:00:00"),
    ],
)
def test_an_end_is_the_first_time_after_the_begin(begin: str | None, text: str, shown: str) -> None:
    assert ends(text, begin) == shown


def test_a_day_with_summer_time_has_its_own_hours() -> None:
    """At 3:00 on 25 October 2026 the clocks were set back to 2:00."""
    after = clock("2026-10-25T04:00:00")
    position = parse_log_position("--from", "00:30", after)
    assert isinstance(position, AtTimeOfDay)
    assert begin_us(position, after) == to_us(datetime(2026, 10, 24, 22, 30, tzinfo=UTC))
    age = parse_log_position("--from", "-4h", after)
    assert age == AtTime(to_us(datetime(2026, 10, 24, 23, 0, tzinfo=UTC)))


@pytest.mark.parametrize(
    "text",
    ["", "-10", "10x", "25:00", "tomorrow", "today x", "08:10Z", "-99999999d", "1969-01-01",
     "0001-01-01", "9" * 30, "٣", "2026-13-01"],
)  # fmt: skip
def test_a_text_that_is_no_place_is_a_mistake_that_says_what_is_one(text: str) -> None:
    with pytest.raises(ConfigError, match="--from must be"):
        parse_log_position("--from", text, NOON)


def test_a_time_is_shown_with_its_date_and_zone() -> None:
    assert local_text(to_us(datetime(2026, 11, 26, 7, 0, 0, 123_999, UTC)), NOON) == (
        "2026-11-26 08:00:00.123+0100"
    )
