"""Declared tables in the configuration: one sentence for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.load import load_settings
from penstock.config.settings import Settings
from penstock.config.table_places import births_dir, job_dir
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


@pytest.mark.parametrize("place", ["s3://lake/tables", "hdfs:/t"])
@pytest.mark.parametrize("setting", ["tables.jobs_dir", "durability.data_dir"])
def test_a_place_that_is_no_directory_here_is_refused(
    tmp_path: Path, place: str, setting: str
) -> None:
    """It was a directory named `s3:` once, below the one at hand."""
    with pytest.raises(ConfigError, match="must be a directory of a file system of this machine"):
        load(tmp_path, f'{setting} = "{place}"\n' + TABLE)


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("hdfs:/t", r"a path, or a URL such as s3://BUCKET/PATH"),
        ("s3:///t", r"a path, or a URL such as s3://BUCKET/PATH"),
        ("https://lake/t", r"a path, or a URL such as s3://BUCKET/PATH"),
        ("s3://KEY:SECRET@lake/t", r"a URL without keys and parameters"),
        ("s3://lake/t?region=eu", r"a URL without keys and parameters"),
    ],
)
@pytest.mark.parametrize("setting", ["tables.dir", "path"])
def test_tables_are_in_a_directory_or_an_object_store(
    tmp_path: Path, place: str, error: str, setting: str
) -> None:
    text = f'{setting} = "{place}"\n'
    text = TABLE + text if setting == "path" else text + TABLE
    with pytest.raises(ConfigError, match=error):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("s3://lake/tables/", "s3://lake/tables"),
        ("s3a://lake", "s3://lake"),
        ("gs://lake/t", "gs://lake/t"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
    ],
)
def test_a_place_in_an_object_store_has_one_form(tmp_path: Path, place: str, found: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(f'tables.dir = "{place}"\n')
    assert load_settings(file, {}, {}).tables.dir == found


def test_a_directory_may_be_a_file_url(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('tables.dir = "file:///lake/a%20b"\ndurability.data_dir = "file:/data"\n')
    settings = load_settings(file, {}, {})
    assert settings.tables.dir == "/lake/a b"
    assert settings.durability.data_dir == Path("/data")


def test_a_declaration_needs_a_name_and_topics_only(tmp_path: Path) -> None:
    [table] = load(tmp_path, TABLE).tables.declared
    assert (table.name, table.topics, table.format) == ("readings", "plant/{line}/temp", "delta")


@pytest.mark.parametrize(
    ("place", "jobs_dir", "found"),
    [
        ("/lake/readings", "", "/lake/readings/_checkpoint"),
        ("/lake/readings", "/jobs", "/jobs/meter"),
        ("s3://lake/readings", "/jobs", "/jobs/meter"),
        ("s3://lake/readings", "", f"{Path.cwd()}/table-jobs/meter"),
    ],
)
def test_a_job_has_a_directory_of_this_machine(place: str, jobs_dir: str, found: str) -> None:
    """By the name of the table: the last parts of two places may be the same."""
    assert job_dir(place, "meter", jobs_dir) == Path(found)
    births = births_dir(place, "meter", jobs_dir)
    assert births == (Path(place) if place.startswith("/") else Path(found))
