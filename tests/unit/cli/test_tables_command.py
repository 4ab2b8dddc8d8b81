"""`penstock tables`: mistakes that are told before Spark starts, and lists for programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker.own_secrets import stream_token_file
from penstock.cli.screen import print_table
from penstock.cli.stream_service import Access
from penstock.cli.tables import _chosen, backfill
from penstock.errors import ConfigError


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
    assert _chosen(config, None, None, Access())[1][1].token_file == ""
    own = stream_token_file(tmp_path)
    assert _chosen(config, None, None, Access())[1][1].token_file == str(own)
    given = Access(token_file=tmp_path / "other")
    assert _chosen(config, None, None, given)[1][1].token_file == str(tmp_path / "other")
    assert _chosen(config, None, "elsewhere:1", Access())[1][1].token_file == ""
