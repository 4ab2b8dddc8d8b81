"""Where a query began: kept beside its checkpoint, wherever Spark is told that this is."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.spark.initial_offsets import _uri, load_or_pin_position, read_pinned_position
from penstock.spark.offsets import LogPosition


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_the_first_answer_stays(tmp_path: Path, form: str) -> None:
    location = form.format(tmp_path / "a checkpoint")
    first, later = LogPosition("e", 7), LogPosition("e", 9)
    assert load_or_pin_position(location, "log", lambda: first) == first
    assert load_or_pin_position(location, "log", lambda: later) == first
    assert read_pinned_position(tmp_path / "a checkpoint") == first


@pytest.mark.parametrize(
    ("location", "uri"),
    [
        ("s3a://bucket/checkpoint", "s3://bucket/checkpoint"),
        ("gs://bucket/checkpoint", "gs://bucket/checkpoint"),
        ("hdfs://name:8020/checkpoint", "hdfs://name:8020/checkpoint"),
        ("hdfs:/checkpoint", "hdfs:///checkpoint"),
        ("file:/checkpoint", None),
        ("file:///checkpoint", None),
        ("/check:/point", None),
        ("checkpoint", None),
    ],
)
def test_a_location_is_where_spark_has_it(location: str, uri: str | None) -> None:
    assert _uri(location) == uri


def test_an_unknown_scheme_is_no_directory_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="option checkpointLocation: 'dbfs:/a' cannot be used"):
        load_or_pin_position("dbfs:/a", "log", lambda: LogPosition("e", 7))
    assert list(tmp_path.iterdir()) == []
