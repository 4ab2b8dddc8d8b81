"""What every format of a table promises: each batch once, each offset once. No Spark."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from penstock.errors import ConfigError
from penstock.spark.plain_types import read_rows
from penstock.spark.storage.local import LocalLocation
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.delta_actions import files_of
from penstock.spark.tables.iceberg import IcebergTable
from penstock.spark.tables.landed_table import (
    Landed,
    LandedTable,
    Outcome,
    PlannedBatch,
    QueryBatch,
    Span,
    TableCommitFailed,
)
from tests.support.landed_tables import (
    EPOCH,
    LINES,
    SCHEMA,
    SELECTION,
    WIDER,
    Open,
    land,
    landed_end,
    landed_start,
    offsets,
    read,
    rows,
    written,
)
from tests.support.places import local_path, path_of


@pytest.fixture
def table(open_table: Open) -> LandedTable:
    return open_table()


def test_a_batch_is_there_once_however_often_it_comes(kind: str, open_table: Open) -> None:
    table = open_table()
    assert table.landed(SELECTION) is None
    assert table.contents() is None
    assert land(table, 0, 6) is Outcome.LANDED
    again = open_table()
    assert land(again, 0, 6) is Outcome.OVERTAKEN
    assert land(again, 6, 9) is Outcome.LANDED
    assert again.landed(SELECTION) == Landed(0, 9)
    assert offsets(kind, table) == list(range(9))


@pytest.mark.parametrize(("seen", "end"), [(0, 15), (5, 15), (11, 15)])
def test_a_batch_lands_only_on_top_of_the_end_that_it_was_planned_from(
    kind: str, open_table: Open, seen: int, end: int
) -> None:
    """Also one that would leave a hole, as after an older copy of the table was put back."""
    land(open_table(), 0, 10)
    assert land(open_table(), seen, end) is Outcome.OVERTAKEN
    assert land(open_table(), 10, end) is Outcome.LANDED
    assert offsets(kind, open_table()) == list(range(15))


def test_a_micro_batch_of_a_query_with_state_lands_once_though_the_end_does_not_move(
    kind: str, open_table: Open
) -> None:
    """Windows that end by time have rows without a message."""
    table = open_table()

    def batch(number: int, seen: int, start: int, end: int) -> Outcome:
        query = QueryBatch("query-1", number)
        return table.commit(
            PlannedBatch(SELECTION, seen, 9, query=query), written(table, rows(start, end))
        )

    assert table.last_batch("query-1") is None
    assert batch(3, 0, 0, 3) is Outcome.LANDED
    assert batch(4, 9, 3, 6) is Outcome.LANDED
    for number in (3, 4):
        assert batch(number, 9, 3, 6) is Outcome.REPLAYED
    assert open_table().last_batch("query-1") == 4
    assert offsets(kind, table) == list(range(6))


@pytest.mark.parametrize("exists", [False, True])
def test_of_writers_that_race_one_lands(kind: str, open_table: Open, *, exists: bool) -> None:
    if exists:
        land(open_table(), 0, 3)

    def race(_: int) -> Outcome:
        return land(open_table(), 3 if exists else 0, 10)

    with ThreadPoolExecutor(3) as pool:
        outcomes = sorted(outcome.name for outcome in pool.map(race, range(3)))
    assert outcomes == ["LANDED", "OVERTAKEN", "OVERTAKEN"]
    assert offsets(kind, open_table()) == list(range(10))


def test_the_beginning_of_landing_is_stored_before_there_are_rows_and_once(
    open_table: Open,
) -> None:
    """`latest` is another offset each time that it is asked for."""
    table = open_table()
    assert table.commit(PlannedBatch(SELECTION, 0, 7, 7), []) is Outcome.LANDED
    assert open_table().commit(PlannedBatch(SELECTION, 0, 12, 12), []) is Outcome.OVERTAKEN
    assert open_table().landed(SELECTION) == Landed(7, 7)
    other = replace(SELECTION, epoch="20270101T000000-00000002")
    assert table.commit(PlannedBatch(other, 0, 0, 0), []) is Outcome.LANDED, "of another log"
    assert table.commit(PlannedBatch(other, 0, 5, 5), []) is Outcome.OVERTAKEN, "though it is at 0"
    assert table.landed(other) == Landed(0, 0)


def test_a_batch_without_rows_is_noted(kind: str, open_table: Open) -> None:
    """All its messages were dead letters."""
    assert open_table().commit(PlannedBatch(SELECTION, 0, 7), []) is Outcome.LANDED
    table = open_table()
    assert landed_end(table) == 7
    contents = table.contents()
    assert contents is not None
    assert (contents.rows, contents.files) == (0, 0)
    assert table.recent_files(timedelta(days=1)) == []
    assert land(table, 7, 9) is Outcome.LANDED
    assert offsets(kind, table) == [7, 8]


def test_a_table_of_other_messages_or_partitions_is_refused(open_table: Open) -> None:
    table = open_table()
    table.prepare(SELECTION)  # there is none yet
    land(table, 0, 3)
    open_table().prepare(SELECTION)
    with pytest.raises(ConfigError, match=r"holds MQTT messages of .*, topics plant/\+/temp; land"):
        open_table().prepare(replace(SELECTION, topics=("#",)))
    with pytest.raises(ConfigError, match="is partitioned by date, line, and date is declared"):
        open_table(SCHEMA, ("date",)).prepare(SELECTION)


def test_a_declared_column_is_added_and_one_no_longer_declared_stays_null(
    kind: str, open_table: Open
) -> None:
    land(open_table(), 0, 3)
    wider = open_table(WIDER)
    wider.prepare(SELECTION)
    files = written(wider, rows(3, 6, unit="degC"))
    assert wider.commit(PlannedBatch(SELECTION, 3, 6), files) is Outcome.LANDED
    narrow = open_table(SCHEMA)
    narrow.prepare(SELECTION)
    land(narrow, 6, 9)
    if kind == "parquet":  # the files have what they have; the reader is told to put them together
        source = f"read_parquet('{path_of(narrow)}/**/*.parquet', union_by_name = true)"
        found = duckdb.execute(f'select unit from {source} order by "offset"')
        units = [unit for (unit,) in found.fetchall()]
    else:
        units = [row["unit"] for row in read(kind, narrow)]
    assert units == [None] * 3 + ["degC"] * 3 + [None] * 3


def test_a_column_of_another_type_is_refused_in_one_sentence(open_table: Open) -> None:
    land(open_table(), 0, 3)
    changed = SCHEMA.set(4, pa.field("celsius", pa.string()))
    with pytest.raises(ConfigError, match="has the column celsius of type double, and string is"):
        open_table(changed).prepare(SELECTION)


def test_a_table_without_rows_takes_another_declaration(kind: str, open_table: Open) -> None:
    """It was made when its job began; that it had begun stays."""
    table = open_table()
    table.commit(PlannedBatch(SELECTION, 0, 7, 7), [])
    changed = SCHEMA.set(4, pa.field("celsius", pa.string()))
    other = open_table(changed, ("line",))
    other.prepare(SELECTION, add=False)
    other.prepare(SELECTION)
    assert other.landed(SELECTION) == Landed(7, 7)
    found = rows(7, 9).set_column(4, changed.field("celsius"), pa.array(["warm", "cold"]))
    assert other.commit(PlannedBatch(SELECTION, 7, 9), written(other, found)) is Outcome.LANDED
    assert [row["celsius"] for row in read(kind, other)] == ["warm", "cold"]
    with pytest.raises(ConfigError, match="is partitioned by line"):
        open_table(SCHEMA).prepare(SELECTION)


@pytest.mark.parametrize(
    ("narrow", "wide", "values"),
    [
        (pa.int32(), pa.int64(), [7, 2**40]),
        (pa.float32(), pa.float64(), [0.5, 1e300]),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), [Decimal("1.50"), Decimal("1234567.25")]),
    ],
    ids=str,
)
def test_a_column_gets_a_wider_type_where_the_format_lets_it(
    kind: str, open_table: Open, narrow: pa.DataType, wide: pa.DataType, values: list[object]
) -> None:
    """Read, put together and replaced: every row has the wider type."""

    def of(numeric: pa.DataType, start: int, value: object) -> tuple[LandedTable, pa.Table]:
        field = pa.field("celsius", numeric)
        column = pa.array([value] * 3, numeric)
        return open_table(SCHEMA.set(4, field)), rows(start, start + 3).set_column(4, field, column)

    table, found = of(narrow, 0, values[0])
    table.commit(PlannedBatch(SELECTION, 0, 3), written(table, found))
    wider, found = of(wide, 3, values[1])
    if kind != "iceberg":
        with pytest.raises(
            ConfigError, match=re.escape(f"of type {narrow}, and {wide} is declared")
        ):
            wider.prepare(SELECTION)
        return
    wider.prepare(SELECTION, add=False)
    present = table.columns()
    assert present is not None
    assert present.field("celsius").type == narrow
    wider.prepare(SELECTION)
    wider.commit(PlannedBatch(SELECTION, 3, 6), written(wider, found))
    expected = [values[0]] * 3 + [values[1]] * 3
    assert [row["celsius"] for row in read(kind, wider)] == expected
    with pytest.raises(ConfigError, match="give the new one another name"):
        table.prepare(SELECTION)
    files = wider.live_files()
    assert files is not None
    partitions = {file.partition for file in files}
    groups = [[one.path for one in files if one.partition == each] for each in partitions]
    assert wider.compact(groups, 1)
    assert [row["celsius"] for row in read(kind, wider)] == expected
    wider.replace(Span(EPOCH, 1, 4), [])
    assert [row["celsius"] for row in read(kind, wider)] == [values[0], *[values[1]] * 2]


def test_a_column_that_partitions_are_made_of_keeps_its_type(open_table: Open) -> None:
    narrow = SCHEMA.set(4, pa.field("celsius", pa.int32()))
    table = open_table(narrow, ("celsius",))
    found = rows(0, 1).set_column(4, narrow.field("celsius"), pa.array([20], pa.int32()))
    table.commit(PlannedBatch(SELECTION, 0, 1), written(table, found))
    wide = SCHEMA.set(4, pa.field("celsius", pa.int64()))
    with pytest.raises(ConfigError, match="of type int32, and int64 is declared"):
        open_table(wide, ("celsius",)).prepare(SELECTION)


def test_a_column_that_differs_by_case_is_refused_in_one_sentence(open_table: Open) -> None:
    land(open_table(), 0, 3)
    changed = SCHEMA.set(4, pa.field("Celsius", pa.float64()))
    with pytest.raises(ConfigError, match="the column celsius, and Celsius is declared: Spark"):
        open_table(changed).prepare(SELECTION)


def test_a_range_is_replaced_in_one_step_and_nothing_else_is(kind: str, open_table: Open) -> None:
    table = open_table()
    land(table, 0, 10)
    land(table, 10, 20)
    span = Span(EPOCH, 8, 13)
    for _ in range(2):  # it can be done again
        table.replace(span, written(table, rows(8, 12, celsius=99.0)))
    found = read(kind, table)
    assert [row["offset"] for row in found] == [*range(12), *range(13, 20)]
    assert [row["offset"] for row in found if row["celsius"] == 99.0] == [8, 9, 10, 11]
    assert [row["line"] for row in found[:3]] == list(LINES)
    assert landed_end(table) == 20


@pytest.mark.parametrize("times", [1, 1000])
def test_a_replacement_does_not_undo_what_lands_beside_it(
    kind: str, open_table: Open, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A job that lands all the time: it is tried again, and given up only if it never goes."""
    table, other = open_table(), open_table()
    monkeypatch.setattr(sys.modules[type(table).__module__], "COMMIT_ATTEMPTS_MAX", 3)
    land(table, 0, 10)
    refresh = type(table)._refresh  # type: ignore[attr-defined]
    landed: list[int] = []

    def then_another_lands(self: LandedTable) -> object:
        found = refresh(self)
        if self is table and len(landed) < times:
            number = len(landed) + 1
            landed.append(number)
            land(other, 10 * number, 10 * number + 2, seen=landed_end(other))
        return found

    monkeypatch.setattr(type(table), "_refresh", then_another_lands)
    if times == 1:
        table.replace(Span(EPOCH, 0, 5), [])
    else:
        with pytest.raises(TableCommitFailed, match="the offsets 0 to 4 were not replaced"):
            table.replace(Span(EPOCH, 0, 5), [])
    beside = [offset for n in landed for offset in (10 * n, 10 * n + 1)]
    assert offsets(kind, table) == [*range(5 if times == 1 else 0, 10), *beside]


@pytest.mark.parametrize("late", ["nothing", "rows"])
@pytest.mark.parametrize("others", ["nothing", "nothing, rows", "rows", "rows, nothing"])
def test_a_late_commit_does_not_move_back_the_end(
    kind: str, open_table: Open, monkeypatch: pytest.MonkeyPatch, late: str, others: str
) -> None:
    """Another job lands between its look at the table and its commit. One without rows was no
    conflict for Iceberg's catalog: rows behind its end landed twice."""
    table, other = open_table(), open_table()
    land(table, 0, 10)
    refresh = type(table)._refresh  # type: ignore[attr-defined]
    left = others.split(", ")

    def then_others_land(self: LandedTable) -> object:
        found = refresh(self)
        while self is table and left:
            is_empty, end = left.pop(0) == "nothing", landed_end(other)
            batch = PlannedBatch(SELECTION, end, end + 20)
            files = [] if is_empty else written(other, rows(end, end + 20))
            assert other.commit(batch, files) is Outcome.LANDED
        return found

    files = [] if late == "nothing" else written(table, rows(10, 15))
    monkeypatch.setattr(type(table), "_refresh", then_others_land)
    assert table.commit(PlannedBatch(SELECTION, 10, 15), files) is Outcome.OVERTAKEN
    assert landed_end(open_table()) == (30 if "," not in others else 50)
    found = offsets(kind, table)
    assert found == sorted(set(found))


def test_a_replacement_of_nothing_adds(kind: str, open_table: Open) -> None:
    table = open_table()
    land(table, 0, 3)
    table.replace(Span(EPOCH, 1, 1), written(table, rows(3, 5)))
    assert offsets(kind, table) == list(range(5))


def test_rows_beside_a_replaced_range_keep_what_is_declared_no_longer(
    kind: str, open_table: Open
) -> None:
    wider = open_table(WIDER)
    wider.commit(PlannedBatch(SELECTION, 0, 6), written(wider, rows(0, 6, unit="degC")))
    narrow = open_table(SCHEMA)
    narrow.prepare(SELECTION)
    narrow.replace(Span(EPOCH, 0, 2), written(narrow, rows(0, 2)))
    if kind == "parquet":
        source = f"read_parquet('{path_of(narrow)}/**/*.parquet', union_by_name = true)"
        units = duckdb.execute(f'select unit from {source} order by "offset"').fetchall()
    else:
        units = [(row["unit"],) for row in read(kind, narrow)]
    assert units == [(None,)] * 2 + [("degC",)] * 4


def test_contents_say_what_is_there(table: LandedTable) -> None:
    land(table, 0, 30)
    contents = table.contents()
    assert contents is not None
    assert (contents.rows, contents.epoch) == (30, EPOCH)
    assert contents.description == "MQTT messages of stream messages, topics plant/+/temp"
    assert contents.files == len(list(path_of(table).glob("date=*/line=*/*.parquet")))
    assert datetime.now(UTC) - contents.changed_at < timedelta(minutes=5)


def test_recent_files_are_those_of_the_latest_rows(table: LandedTable) -> None:
    land(table, 0, 60)
    every = table.recent_files(timedelta.max)
    latest = table.recent_files(timedelta(hours=20))
    assert set(latest) < set(every)
    assert {local_path(one).parent.parent.name for one in latest} == {"date=2026-11-23"}
    assert all(one.exists() for one in every)


def test_files_of_lost_attempts_are_removed_by_age_and_nothing_else_is(
    kind: str, table: LandedTable
) -> None:
    land(table, 0, 6)
    old, young = (path_of(table) / written(table, rows(6, 7))[0].path for _ in range(2))
    two_days_ago = time.time() - 48 * 3600
    os.utime(old, (two_days_ago, two_days_ago))
    for remove in (False, True):
        names = table.remove_orphans(24, remove=remove)
        assert [Path(name).name for name in names] == [old.name]
    assert not old.exists()
    assert young.exists()
    assert offsets(kind, table) == list(range(6))


# -- Iceberg ----------------------------------------------------------------------------------


def test_each_file_that_the_catalog_points_to_is_synced_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def note(file: int) -> None:
        synced.append(os.fstat(file).st_ino)
        fsync(file)

    monkeypatch.setattr(os, "fsync", note)
    table = IcebergTable(tmp_path / "readings", SCHEMA, ("date",), tmp_path / "iceberg.db")
    land(table, 0, 3)
    written_files = [path for path in path_of(table).glob("metadata/*") if path.is_file()]
    assert len(written_files) >= 4, "two versions of the metadata, a manifest and its list"
    assert {path.stat().st_ino for path in written_files} <= set(synced)


# -- Delta ------------------------------------------------------------------------------------


def test_a_directory_of_a_delta_table_is_named_safely_and_the_log_has_the_value(
    tmp_path: Path,
) -> None:
    table = DeltaMessageTable(tmp_path / "readings", SCHEMA, ("line",))
    files = written(table, rows(0, 3))
    assert sorted(Path(file.path).parent.name for file in files) == [
        "line=__HIVE_DEFAULT_PARTITION__", "line=a", "line=b_c___",
    ]  # fmt: skip
    assert {json.loads(file.partition)["line"] for file in files} == {"a", "b c/ü%", None}


def test_a_range_is_replaced_in_files_that_a_compaction_wrote(tmp_path: Path) -> None:
    """Such a file is in a directory with the partition's value in its name, as in a URL."""
    table = DeltaMessageTable(tmp_path / "readings", SCHEMA, ("line",))
    for n in range(2):
        land(table, 3 * n, 3 * n + 3)
    paths = [[file["path"] for file in files_of(DeltaTable(path_of(table)))]]
    assert table.compact(paths, 10)
    assert all(one.exists() for one in table.recent_files(timedelta.max))
    table.replace(Span(EPOCH, 0, 2), [])
    assert offsets("delta", table) == [2, 3, 4, 5]


# -- partitions ------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["line", "linie_ü"])
def test_any_text_that_names_a_directory_is_a_partition(
    kind: str, open_table: Open, column: str
) -> None:
    schema = SCHEMA.set(3, pa.field(column, pa.string()))
    table = open_table(schema, (column,))
    values = ["ü" * 33, "a=b&c", "..", "\0\n", "%20", "a b", "", None, "x" * 200]
    found = rows(0, len(values)).set_column(3, column, pa.array(values, pa.string()))
    assert table.commit(PlannedBatch(SELECTION, 0, 9), written(table, found)) is Outcome.LANDED
    assert offsets(kind, table) == list(range(9))
    table.replace(Span(EPOCH, 0, 1), [])
    expected = values[1:]
    if kind == "iceberg":  # its files have the column
        assert [row[column] for row in read(kind, table)] == expected
        return
    expected[expected.index("")] = None  # what Delta's protocol says, and Hive's directories
    assert [row[column] for row in read(kind, table)] == expected


def test_fault_4_a_range_is_replaced_in_files_that_delta_rs_wrote(tmp_path: Path) -> None:
    """Its DELETE writes the rows that stay anew, and their text is `string_view` then."""
    table = DeltaMessageTable(tmp_path / "readings", SCHEMA, ("date",))
    land(table, 0, 9)
    DeltaTable(path_of(table)).delete("line = 'a'")
    table.replace(Span(EPOCH, 0, 2), written(table, rows(1, 2, celsius=99.0)))
    assert offsets("delta", table) == [1, 2, 4, 5, 7, 8]
    assert landed_start(table) == 0


def test_a_table_without_times_of_receipt_has_files_all_the_same(open_table: Open) -> None:
    table = open_table(SCHEMA.remove(2), ("date",))
    table.commit(
        PlannedBatch(SELECTION, 0, 3), written(table, rows(0, 3).drop_columns("received_at"))
    )
    assert len(table.recent_files(timedelta.max)) == 1


def test_a_file_of_which_nobody_told_what_is_in_it_is_looked_into(tmp_path: Path) -> None:
    """Statistics are optional in a Delta table [protocol, Per-file Statistics]."""
    table = DeltaMessageTable(tmp_path / "readings", SCHEMA, ("date",))
    files = [replace(file, stats="") for file in written(table, rows(0, 3))]
    assert table.commit(PlannedBatch(SELECTION, 0, 3), files) is Outcome.LANDED
    land(table, 3, 6)
    contents = table.contents()
    assert contents is not None
    assert contents.files == 2
    assert len(table.live_files() or []) == 1
    table.replace(Span(EPOCH, 1, 2), [])
    assert offsets("delta", table) == [0, 2, 3, 4, 5]


def test_text_is_text_whatever_arrow_calls_it(tmp_path: Path) -> None:
    texts = pa.array(["a", None, "b"])
    found = pa.table(
        {
            "large": texts.cast(pa.large_string()),
            "view": texts.cast(pa.string_view()),
            "dictionary": texts.dictionary_encode(),
            "bytes": pa.array([b"a", None, b"b"], pa.binary_view()),
            "nested": pa.array(
                [{"one": ["a"]}] * 3, pa.struct([("one", pa.large_list(pa.string_view()))])
            ),
        }
    )
    pq.write_table(found, tmp_path / "some.parquet")
    plain = read_rows(LocalLocation(tmp_path / "some.parquet"))
    assert [str(kind) for kind in plain.schema.types] == [
        "string", "string", "string", "binary", "struct<one: list<element: string>>",
    ]  # fmt: skip
    assert plain.to_pylist() == found.to_pylist()


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_a_table_knows_from_where_on_all_has_landed(open_table: Open) -> None:
    table = open_table()
    assert landed_start(table) is None
    assert table.commit(PlannedBatch(SELECTION, 0, 7, 5), []) is Outcome.LANDED, (
        "dead letters from offset 5 on"
    )
    land(table, 7, 9)
    assert landed_start(open_table()) == 5
    table.replace(Span(EPOCH, 3, 6), written(table, rows(3, 6)), SELECTION)
    assert landed_start(open_table()) == 3
    table.replace(Span(EPOCH, 7, 8), written(table, rows(7, 8)), SELECTION)
    assert (landed_start(open_table()), landed_end(table)) == (3, 9)


def test_a_time_long_ago_is_a_statistic_that_readers_can_read(tmp_path: Path) -> None:
    """The year 1 is what .NET sends for no time."""
    schema = SCHEMA.append(pa.field("at", pa.timestamp("us", tz="UTC")))
    table = DeltaMessageTable(tmp_path / "readings", schema, ())
    found = rows(0, 1).append_column(
        "at", pa.array([datetime(1, 1, 1, tzinfo=UTC)], schema.field("at").type)
    )
    (file,) = written(table, found)
    assert json.loads(file.stats)["minValues"]["at"] == "0001-01-01T00:00:00.000000Z"


def test_an_older_copy_that_has_grown_again_is_not_taken_for_what_the_job_knew(
    open_table: Open, tmp_path: Path
) -> None:
    """It has as many versions as before, by another job: what this one planned leaves a hole."""
    table = open_table()
    land(table, 0, 10)
    kept = tmp_path.with_name(f"{tmp_path.name}-kept")
    shutil.copytree(tmp_path, kept)
    land(table, 10, 20)
    land(table, 20, 30)
    assert landed_end(table) == 30
    shutil.rmtree(tmp_path)
    shutil.copytree(kept, tmp_path)
    other = open_table()
    land(other, 10, 15)
    land(other, 15, 18)
    assert landed_end(table) == 18
    assert land(table, 30, 40) is Outcome.OVERTAKEN
    assert land(table, 18, 20) is Outcome.LANDED
    assert landed_end(open_table()) == 20
