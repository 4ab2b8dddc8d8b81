"""Tables that are declared side by side. No Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.cli.table_rows import print_rows, text_of
from penstock.config.settings import Settings
from penstock.errors import ConfigError
from penstock.spark.table_selection import select_tables


def chosen(*tables: dict[str, Any], tables_dir: Path) -> list[str]:
    declared = [{"topics": "a/+", **table} for table in tables]
    settings = Settings.model_validate({"tables": {"dir": str(tables_dir), "declared": declared}})
    return [table.definition.name for table in select_tables(settings, [])]


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ([{"name": "a"}, {"name": "a_dead_letters"}], "a and a_dead_letters would both write to"),
        ([{"name": "a"}, {"name": "b", "path": "DIR/a"}], "a and b would both write to .*/a: give"),
        ([{"name": "a"}, {"name": "b", "path": "DIR/a/b"}], "b would be inside that of a, in"),
        (
            [
                {"name": "a", "path": "DIR/x/t", "format": "iceberg"},
                {"name": "b", "path": "DIR/y/t", "format": "iceberg"},
            ],
            "a and b would both write to t in the Iceberg catalog",
        ),
    ],
)
def test_tables_that_would_write_into_each_other_are_refused(
    tables: list[dict[str, Any]], sentence: str, tmp_path: Path
) -> None:
    placed = [
        {name: value.replace("DIR", str(tmp_path)) for name, value in table.items()}
        for table in tables
    ]
    with pytest.raises(ConfigError, match=sentence):
        chosen(*placed, tables_dir=tmp_path)


def test_tables_with_places_of_their_own_are_not(tmp_path: Path) -> None:
    tables = [
        {"name": "a"},
        {"name": "aa"},
        {"name": "b", "path": str(tmp_path / "x" / "t")},
        {"name": "c", "path": str(tmp_path / "y" / "t")},
    ]
    assert chosen(*tables, tables_dir=tmp_path) == ["a", "aa", "b", "c"]


def test_a_value_that_a_dry_run_shows_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(pa.table({"x": ["a\x1b[2J\n"]}))
    assert capsys.readouterr().out.splitlines()[2].rstrip() == "a\\u001b[2J\\n"
    assert (text_of(None), text_of(1.5), text_of("ü")) == ("", "1.5", "ü")
