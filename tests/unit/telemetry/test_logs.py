"""Log lines: one per event, and few per cause."""

import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.telemetry.logs import (
    RepeatLimiter,
    Sentence,
    configure_logs,
    get_logger,
    warn_limited,
)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What is logged while a test runs."""
    root = logging.getLogger("penstock")
    before = (list(root.handlers), root.level, root.propagate)
    stream = io.StringIO()
    configure_logs("info", stream)
    yield stream
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


def test_a_line_has_time_level_part_and_text(lines: io.StringIO) -> None:
    logging.getLogger("penstock.runtime.driver").warning("dropped %d messages", 3)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING runtime\.driver: dropped 3 messages\n",
        lines.getvalue(),
    )


def test_a_message_cannot_forge_a_second_line(lines: io.StringIO) -> None:
    logging.getLogger("penstock.x").info("client %s", "a\n2026-11-21 ERROR forged")
    assert lines.getvalue().count("\n") == 1


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2J", "\\u001b[2J"),
        ("a\u2028b", "a\\u2028b"),
        ("\x85", "\\u0085"),
        ("\u202e", "\\u202e"),
        ("Grüße 温度", "Grüße 温度"),
    ],
)
def test_a_text_that_a_terminal_would_obey_is_escaped(
    lines: io.StringIO, hostile: str, shown: str
) -> None:
    logging.getLogger("penstock.x").info("client %s", hostile)
    assert lines.getvalue().endswith(f"client {shown}\n")


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("x" * 128, "x" * 128),
        ("\x1b" * 60_000, "\\u001b" * 128 + "…"),
        (Sentence("x" * 1024), "x" * 1024),
        (Sentence("x" * 60_000), "x" * 1024 + "…"),
        (ValueError("\x1b" + "x" * 60_000), "\\u001b" + "x" * 1023 + "…"),
        (Path("/" + "x" * 1000), "/" + "x" * 1000),
    ],
    ids=["a name", "a long name", "a sentence", "a long sentence", "an error", "a path"],
)
def test_an_argument_is_cut_and_escaped_for_every_handler(argument: object, shown: str) -> None:
    said = io.StringIO()
    logger = get_logger("penstock.y")
    handler = logging.StreamHandler(said)  # with no formatter of ours
    logger.addHandler(handler)
    try:
        logger.error("%s at %d", argument, 7)
    finally:
        logger.removeHandler(handler)
    assert said.getvalue() == f"{shown} at 7\n"


class _Broken:
    def __str__(self) -> str:
        raise ValueError("no words")


def test_an_argument_without_words_harms_nobody(lines: io.StringIO) -> None:
    get_logger("penstock.y").error("%s at %d", _Broken(), 7)
    assert lines.getvalue().endswith("y: _Broken at 7\n")


def test_less_severe_messages_are_left_out(lines: io.StringIO) -> None:
    logging.getLogger("penstock.x").debug("not shown")
    assert lines.getvalue() == ""


def test_configuring_twice_does_not_write_twice(lines: io.StringIO) -> None:
    configure_logs("error", lines)
    logging.getLogger("penstock.x").error("once")
    logging.getLogger("penstock.x").warning("not any more")
    assert lines.getvalue().count("\n") == 1


def test_a_traceback_follows_its_line(lines: io.StringIO) -> None:
    try:
        raise RuntimeError("broken \x1b[2J, password=s3cret")
    except RuntimeError:
        logging.getLogger("penstock.x").exception("the driver stopped")
    assert lines.getvalue().count("\n") > 2
    assert lines.getvalue().rstrip().endswith("Error: broken \\u001b[2J, password=********")
    assert "s3cret" not in lines.getvalue()


def test_the_first_of_a_kind_is_admitted_then_one_per_interval() -> None:
    limiter = RepeatLimiter(interval_s=10.0)
    assert limiter.admit("full", 0.0) == 0
    assert [limiter.admit("full", now_s) for now_s in (0.0, 5.0, 9.9)] == [None, None, None]
    assert limiter.admit("full", 10.0) == 3
    assert limiter.admit("full", 20.0) == 0


def test_kinds_do_not_hold_each_other_back() -> None:
    limiter = RepeatLimiter()
    assert limiter.admit("full", 0.0) == 0
    assert limiter.admit("expired", 0.0) == 0


def test_the_kind_not_seen_for_longest_is_forgotten() -> None:
    limiter = RepeatLimiter(keys_max=2)
    limiter.admit("a", 0.0)
    limiter.admit("b", 1.0)
    limiter.admit("a", 2.0)
    limiter.admit("c", 3.0)
    assert limiter.admit("a", 4.0) is None
    assert limiter.admit("b", 4.0) == 0


def test_a_limited_warning_says_how_many_were_held_back(lines: io.StringIO) -> None:
    logger, limiter = logging.getLogger("penstock.x"), RepeatLimiter(interval_s=10.0)
    for now_s in (0.0, 1.0, 2.0, 10.0):
        warn_limited(logger, limiter, now_s, "full", "dropped %s", "it")
    first, second = lines.getvalue().splitlines()
    assert first.endswith("dropped it")
    assert second.endswith("dropped it (and 2 more like this since the last line)")


def test_a_repeat_held_back_is_counted_in_things_and_not_in_lines() -> None:
    limiter = RepeatLimiter(interval_s=10.0)
    assert limiter.admit("drops", 0.0, 100) == 0
    assert limiter.admit("drops", 1.0, 250) is None
    assert limiter.admit("drops", 2.0) is None
    assert limiter.admit("drops", 11.0, 7) == 251
