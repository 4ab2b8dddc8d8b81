"""Files of rows: whole or not there, and nothing in them that is not so."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.row_files import ArrowWriter, InfiniteTime, UnfinishedFile, csv_line, kind_of
from penstock.errors import ConfigError


def test_a_file_has_its_name_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    first = UnfinishedFile(path, force=False)
    first.file.write(b"half")
    assert not path.exists()
    first.discard()
    assert list(tmp_path.iterdir()) == []
    second = UnfinishedFile(path, force=False)
    second.file.write(b"all")
    second.finish()
    second.discard()
    assert [one.name for one in tmp_path.iterdir()] == ["out.csv"]
    with pytest.raises(ConfigError, match="give --force"):
        UnfinishedFile(path, force=False)
    UnfinishedFile(path, force=True).finish()
    assert path.read_bytes() == b""


def test_a_name_says_the_format() -> None:
    assert kind_of(Path("a.b/X.PARQUET")) == "parquet"
    assert kind_of(Path("x.jsonl")) == "json"
    for name in ("x", "x.xlsx", ".csv"):
        with pytest.raises(ConfigError, match="must end in"):
            kind_of(Path(name))


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(st.lists(TEXTS, min_size=1))
def test_csv_is_read_as_it_was_written(fields: list[str]) -> None:
    text = csv_line(fields).decode()
    assert list(csv.reader(io.StringIO(text, newline=""), strict=True)) == [fields]


def test_an_empty_text_is_not_a_null() -> None:
    assert csv_line(["", None, " a", "b\rc"]) == b'"",," a","b\rc"\r\n'


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_value_that_a_format_cannot_say_is_refused(kind: str) -> None:
    twice = pa.schema([("a", pa.int64()), ("a", pa.int64())])
    with pytest.raises(ConfigError, match="two columns are called 'a'"):
        ArrowWriter(io.BytesIO(), kind, twice)
    for column, end in (
        (pa.timestamp("us", "UTC"), 2**63 - 1),
        (pa.timestamp("us"), -(2**63 - 1)),
        (pa.date32(), 2**31 - 1),
    ):
        schema = pa.schema([("t", column)])
        numbers = pa.array([0, end, None], pa.int32() if column == pa.date32() else pa.int64())
        rows = ArrowWriter(io.BytesIO(), kind, schema)
        with pytest.raises(InfiniteTime, match="column t has an infinite time"):
            rows.write(pa.record_batch([numbers.cast(column)], schema=schema))


def test_text_that_a_spreadsheet_would_run_is_escaped_where_it_is_asked_for() -> None:
    fields = ["=1+1", "+a", "-12.5", "-x", "@SUM(A1)", "\tx", "a=b", "", None]
    assert csv_line(fields) == b'=1+1,+a,-12.5,-x,@SUM(A1),"\tx",a=b,"",\r\n'
    escaped = csv_line(fields, escape_formulas=True)
    assert escaped == b"'=1+1,'+a,-12.5,'-x,'@SUM(A1),'\tx,a=b,\"\",\r\n"
