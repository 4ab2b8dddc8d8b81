"""Derived tables in the configuration: one sentence for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.derived import Aggregate
from penstock.config.load import load_settings
from penstock.config.settings import Settings
from penstock.errors import ConfigError

SOURCE = """
[[tables.declared]]
name = "readings"
topics = "plant/{line}/temp"
"""

WINDOWED = (
    SOURCE
    + """
[[tables.derived]]
name = "means"
kind = "windowed"
source = "readings"
window_s = 60
"""
)
LAST = WINDOWED.replace("windowed", "last_known").replace("window_s = 60", "")


def load(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    return load_settings(file, {}, {})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (WINDOWED.replace('"means"', '"readings"'), "tables.declared and tables.derived both name"),
        (WINDOWED + WINDOWED.removeprefix(SOURCE), "tables.derived names 'means' twice"),
        (
            WINDOWED.replace('source = "readings"', 'source = "reading"'),
            "has the source 'reading', which is no declared table; declared are readings",
        ),
        (WINDOWED.replace("window_s = 60", ""), "table 'means' is windowed, which needs window_s"),
        (WINDOWED + "gap_s = 5\n", "has no setting gap_s, that is for sessions"),
        (WINDOWED + "slide_s = 90\n", "rows between two windows would be in none"),
        (WINDOWED + 'keys = ["line", "line"]\n', "table 'means' has the key 'line' twice"),
        (WINDOWED + 'aggregates = { hottest = "top(celsius)" }\n', "such as mean(celsius)"),
        (WINDOWED + 'aggregates = { hottest = "max" }\n', "such as mean(celsius)"),
        (LAST + 'format = "parquet"\n', "which replaces rows: its format is delta"),
        (LAST + 'retained_only = true\nkeys = ["line"]\n', "with retained_only has the keys topic"),
        (WINDOWED + "retained_only = true\n", "has no setting retained_only"),
        (WINDOWED + "window = 60\n", "is not a setting; did you mean window_s"),
        (WINDOWED.replace("windowed", "hourly"), 'must be "windowed" or "last_known"'),
    ],
)
def test_a_mistake_in_a_derived_table_is_one_sentence(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, text)
    assert sentence in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_a_derived_table_counts_rows_by_topic_unless_told_otherwise(tmp_path: Path) -> None:
    (means,) = load(tmp_path, WINDOWED).tables.derived
    assert means.keys == ("topic",)
    assert means.aggregates == {"count": "count"}


def test_an_aggregate_is_a_function_of_a_column_or_the_count_of_rows() -> None:
    assert Aggregate.parse("count") == Aggregate("count")
    assert Aggregate.parse("mean(sensor.celsius)") == Aggregate("mean", "sensor.celsius")
