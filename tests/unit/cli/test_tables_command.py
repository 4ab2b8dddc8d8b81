"""`penstock tables`: mistakes that are told before Spark starts, and lists for programs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.cli.screen import print_table
from penstock.cli.stream_service import StreamCredentialOptions
from penstock.cli.table_rows import erased_line
from penstock.cli.tables import (
    CAUSES_MAX,
    REASON_CELLS_MAX,
    _failure_line,
    _print_causes,
    _select_tables,
    backfill,
)
from penstock.errors import ConfigError
from penstock.services.own_secrets import stream_token_file
from penstock.spark.failure_file import TableFailure
from penstock.spark.tables.erased import ErasedMessages


@pytest.mark.parametrize(
    ("start", "end"), [("10", "5"), ("7", "7"), ("2026-11-23T10:00", "2026-11-23T09:00")]
)
def test_a_backfill_that_ends_before_it_begins_is_told_at_once(start: str, end: str) -> None:
    with pytest.raises(ConfigError, match=f"--from {start} is not before --to {end}"):
        backfill(name="readings", start=start, end=end)


def test_names_are_not_broken_where_programs_read_them(capsys: pytest.CaptureFixture[str]) -> None:
    name = "temperatures_of_all_machines_of_the_plant"
    print_table(("group", "reads"), [(name, f"messages, plant/{'+/' * 40}temp")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[0] == name
    assert len(lines) == 2


def test_jobs_of_the_brokers_user_find_its_token(tmp_path: Path) -> None:
    """Beside users the stream service asks everyone for a token."""
    config = tmp_path / "penstock.toml"
    declared = '[[tables.declared]]\nname = "t"\ntopics = "a/#"\npath = "t"\n'
    config.write_text(f'[durability]\ndata_dir = "{tmp_path}"\n{declared}')
    assert _select_tables(config, None, None, StreamCredentialOptions())[1][1].token_file == ""
    own = stream_token_file(tmp_path)
    assert _select_tables(config, None, None, StreamCredentialOptions())[1][1].token_file == str(
        own
    )
    given = StreamCredentialOptions(token_file=tmp_path / "other")
    assert _select_tables(config, None, None, given)[1][1].token_file == str(tmp_path / "other")
    assert (
        _select_tables(config, None, "elsewhere:1", StreamCredentialOptions())[1][1].token_file
        == ""
    )


def test_dead_letters_are_counted_by_cause_and_the_rarest_causes_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Issue 24, fault 9: each byte position was a line, as long as the payload it quoted."""
    words = ["".join(pair) for pair in product("abcdef", repeat=2)]
    reasons = [f"invalid character (byte {n})" for n in range(500)]
    reasons += [f"column {word} is missing{' again' * 1000}" for word in words[: CAUSES_MAX + 4]]
    dead = pa.table(
        {"kind": ["broken"] * len(reasons), "reason": reasons, "offset": range(len(reasons))}
    )
    _print_causes(dead, full=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "  500 broken, such as: invalid character (byte 499) (offset 499)"
    assert len(lines) == CAUSES_MAX + 1
    assert lines[-1] == "  5 for 5 other causes; --full shows them"
    assert max(map(len, lines)) <= REASON_CELLS_MAX + 2
    _print_causes(dead, full=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == CAUSES_MAX + 5
    assert lines[-1].count("again") == 1000


def test_a_table_that_fails_says_so_in_its_status() -> None:
    at = datetime(2026, 11, 25, 18, 20, 11, tzinfo=UTC)
    failing = TableFailure("the disk is full", at, at + timedelta(hours=1), 4, gave_up=False)
    assert _failure_line(failing) == (
        "failing",
        "since 2026-11-25 18:20:11 UTC, 4 times, the last time: the disk is full",
    )
    gave_up = TableFailure("it holds other messages", at, at, 1, gave_up=True)
    assert _failure_line(gave_up) == (
        "gave up",
        "2026-11-25 18:20:11 UTC: it holds other messages",
    )


def test_a_backfill_tells_what_holes_may_be_and_how_to_land_them_again() -> None:
    """A job of 0.1.0 that came back to an older checkpoint left some."""
    holes = ErasedMessages(60, 41, 880, (("plant/a/7/temp", 60),), 1)
    left_out = erased_line(holes, is_restored=False)
    assert "60 messages of which the table had no row: offsets 41 to 880" in left_out
    assert "deleted since they landed, or a job of Penstock 0.1.0" in left_out
    assert "--restore-deleted lands them again" in left_out
    assert erased_line(holes, is_restored=True).endswith("They are there now")
