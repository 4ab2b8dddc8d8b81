"""Declared tables in the configuration: one sentence for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.load import load_settings
from penstock.config.settings import Settings
from penstock.errors import ConfigError

TABLE = """
[[tables.declared]]
name = "readings"
topics = "plant/{line}/temp"
"""


def load(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    return load_settings(file, {}, {})


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
        (TABLE + 'evolve = "add"\n', "table 'readings' evolves with registry.subject: name it"),
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


@pytest.mark.parametrize(
    "place", ["s3://lake/tables", "s3a://lake", "abfss://c@a.dfs.core.windows.net/t", "hdfs:/t"]
)
@pytest.mark.parametrize("setting", ["tables.dir", "path", "durability.data_dir"])
def test_a_place_that_is_no_directory_here_is_refused(
    tmp_path: Path, place: str, setting: str
) -> None:
    """It was a directory named `s3:` once, below the one at hand."""
    text = f'{setting} = "{place}"\n'
    text = TABLE + text if setting == "path" else text + TABLE
    with pytest.raises(ConfigError, match="must be a directory of a file system of this machine"):
        load(tmp_path, text)


def test_a_directory_may_be_a_file_url(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('tables.dir = "file:///lake/a%20b"\ndurability.data_dir = "file:/data"\n')
    settings = load_settings(file, {}, {})
    assert settings.tables.dir == "/lake/a b"
    assert settings.durability.data_dir == Path("/data")


def test_a_declaration_needs_a_name_and_topics_only(tmp_path: Path) -> None:
    [table] = load(tmp_path, TABLE).tables.declared
    assert (table.name, table.topics, table.format) == ("readings", "plant/{line}/temp", "delta")
