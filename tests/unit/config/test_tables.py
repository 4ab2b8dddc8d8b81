"""Declared tables in the configuration: one sentence for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.load import load_settings
from penstock.errors import ConfigError

TABLE = """
[[tables.declared]]
name = "readings"
topics = "plant/{line}/temp"
"""


def load(tmp_path: Path, text: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    load_settings(file, {}, {})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (TABLE + TABLE, "tables.declared names 'readings' twice"),
        (TABLE + 'format = "orc"\n', 'but must be "delta" or "iceberg" or "parquet"'),
        (TABLE + "repeats = {}\n", "repeats needs either column or user_property"),
        (
            TABLE + 'metadata = []\nrepeats = { column = "id" }\n',
            "table 'readings' looks for repeats, and so needs received_at",
        ),
        (TABLE.replace("{line}", "a{line}"), "has a single brace in 'a{line}'"),
        (TABLE + 'partition = "date"\n', "is not a setting; did you mean partition_by"),
    ],
)
def test_a_mistake_in_a_declaration_is_one_sentence(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, text)
    assert sentence in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_a_declaration_needs_a_name_and_topics_only(tmp_path: Path) -> None:
    load(tmp_path, TABLE)
