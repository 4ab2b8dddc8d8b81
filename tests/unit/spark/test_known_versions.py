"""What a job knows of a Delta table is that version and no other, whatever others do meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable

from penstock.errors import ConfigError
from penstock.spark.tables import delta, delta_log
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.delta_commits import WriteCommit
from penstock.spark.tables.landed_table import (
    Landed,
    Outcome,
    PlannedBatch,
    Span,
    TableCommitFailed,
)
from tests.support.landed_tables import (
    EPOCH,
    SCHEMA,
    SELECTION,
    WIDER,
    land,
    landed_end,
    offsets,
    rows,
    written,
)
from tests.support.places import path_of


def merge(table: DeltaMessageTable) -> None:
    live = table.live_files()
    assert live
    assert table.compact([[file.path for file in live]], 1)


LOOKS: dict[str, Callable[[DeltaMessageTable], object]] = {
    "nothing": lambda _: None,
    "exists": lambda table: table.exists(),
    "columns": lambda table: table.columns(),
    "prepare": lambda table: table.prepare(SELECTION),
    "landed": lambda table: table.landed(SELECTION),
    "epochs": lambda table: table.epochs(),
    "live_files": lambda table: table.live_files(),
    "compact": merge,
    "contents": lambda table: table.contents(),
    "present_files": lambda table: table.present_files(),
    "recent_files": lambda table: table.recent_files(timedelta.max),
    "files": lambda table: table.files(),
    "remove_orphans": lambda table: table.remove_orphans(24, remove=False),
    "replace": lambda table: table.replace(Span(EPOCH, 35, 36), written(table, rows(35, 36))),
}


@pytest.mark.parametrize(("last", "only_log"), [("a merge", False), ("a batch", True)])
@pytest.mark.parametrize("look", LOOKS)
def test_a_copy_that_grew_to_as_many_versions_is_another_table(
    tmp_path: Path, look: str, last: str, *, only_log: bool
) -> None:
    """It is put back and grows by another job, after a job looked at its table in any way."""
    table = DeltaMessageTable(tmp_path / "readings", SCHEMA, ())
    land(table, 0, 10)
    put_back = ["_delta_log"] if only_log else ["."]
    for name in put_back:
        shutil.copytree(path_of(table) / name, tmp_path / "copy" / name)
    for start in (10, 20, 30):
        land(table, start, start + 10)
    LOOKS[look](table)
    versions = DeltaTable(path_of(table)).version()
    for name in put_back:
        shutil.rmtree(path_of(table) / name)
        shutil.copytree(tmp_path / "copy" / name, path_of(table) / name)
    another = DeltaMessageTable(path_of(table), SCHEMA, ())
    end = 10
    for version in range(1, versions + 1):
        if version == versions and last == "a merge":
            merge(another)
        else:
            land(another, end, end + 2)
            end += 2
    assert DeltaTable(path_of(table)).version() == versions
    for believed in (30, 40):
        assert land(table, believed, believed + 5) is Outcome.OVERTAKEN
    assert landed_end(table) == end
    assert table.present_files() == another.present_files()
    assert land(table, end, end + 5) is Outcome.LANDED
    merge(table)
    assert offsets("delta", table) == list(range(end + 5))


def without_rows(table: DeltaMessageTable) -> None:
    """Five messages of which none is for the table."""
    batch = PlannedBatch(SELECTION, 0, 5, start=0)
    assert table.commit(batch, []) is Outcome.LANDED


DECLARED_ANEW = [
    (SCHEMA, ("line",)),
    (SCHEMA.set(4, pa.field("celsius", pa.string())), ()),
    (SCHEMA.remove(4).append(pa.field("ts", pa.timestamp("us"))), ("date",)),
]


@pytest.mark.parametrize(("schema", "partition_by"), DECLARED_ANEW)
def test_a_table_without_rows_is_declared_anew_and_keeps_the_rest(
    tmp_path: Path, schema: pa.Schema, partition_by: tuple[str, ...]
) -> None:
    before = DeltaMessageTable(tmp_path / "readings", SCHEMA, ())
    without_rows(before)
    created = DeltaTable(path_of(before))
    anew = DeltaMessageTable(path_of(before), schema, partition_by)
    anew.prepare(SELECTION)
    found = DeltaTable(path_of(before))
    assert found.version() == 1
    assert found.metadata().id == created.metadata().id
    assert found.metadata().partition_columns == [*partition_by]
    assert pa.schema(found.schema()).names == schema.names
    assert anew.landed(SELECTION) == Landed(0, 5)
    anew.prepare(SELECTION)
    assert DeltaTable(path_of(before)).version() == 1
    with pytest.raises(ConfigError, match=r"is partitioned by|of type string, and double is decl"):
        land(before, 5, 10)
    assert DeltaTable(path_of(before)).version() == 1


def test_a_protocol_that_a_table_without_rows_has_is_not_taken_back(tmp_path: Path) -> None:
    table = DeltaMessageTable(tmp_path / "readings", SCHEMA, ())
    without_rows(table)
    for column in (pa.field("ts", pa.timestamp("us")), pa.field("celsius", pa.string())):
        DeltaMessageTable(path_of(table), pa.schema([*SCHEMA][:4]).append(column), ()).prepare(
            SELECTION
        )
    protocol = DeltaTable(path_of(table)).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert protocol.reader_features == ["timestampNtz"]


@pytest.mark.parametrize(("schema", "partition_by"), DECLARED_ANEW)
def test_rows_that_land_while_a_table_is_declared_anew_stay(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    schema: pa.Schema,
    partition_by: tuple[str, ...],
) -> None:
    another = DeltaMessageTable(tmp_path / "readings", SCHEMA, ())
    without_rows(another)
    table = DeltaMessageTable(path_of(another), schema, partition_by)
    declare = table._declare_anew

    def after_another(*what: object) -> None:
        monkeypatch.undo()
        assert land(another, 5, 10) is Outcome.LANDED
        declare(*what)  # type: ignore[arg-type]

    monkeypatch.setattr(table, "_declare_anew", after_another)
    with pytest.raises(ConfigError, match=r"is partitioned by|of type double, and string is decl"):
        table.prepare(SELECTION)
    assert landed_end(another) == 10
    assert offsets("delta", another) == [5, 6, 7, 8, 9]


def test_two_jobs_add_the_same_column_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one ended with an error of the library."""
    first = DeltaMessageTable(tmp_path / "readings", SCHEMA, ())
    land(first, 0, 5)
    one, two = (DeltaMessageTable(path_of(first), WIDER, ()) for _ in range(2))
    refresh = one._refresh

    def look() -> DeltaTable | None:
        found = refresh()
        monkeypatch.undo()
        two.prepare(SELECTION)
        return found

    monkeypatch.setattr(one, "_refresh", look)
    one.prepare(SELECTION)
    assert DeltaTable(path_of(first)).version() == 1
    found = one.columns()
    assert found is not None
    assert found.names.count("unit") == 1


def test_a_replacement_that_was_paused_until_its_version_had_expired_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit is made where one was that is gone, behind the others, and nobody reads it."""
    monkeypatch.setattr(delta_log, "COMMITS_MIN", 2)
    table = DeltaMessageTable(tmp_path / "readings", SCHEMA, ())
    another = DeltaMessageTable(path_of(table), SCHEMA, ())
    for n in range(3):
        land(another, n, n + 1)
    shutil.copytree(path_of(table), tmp_path / "copy")
    commit = f"_delta_log/{3:020}.json"
    writer = delta._writer

    def paused(_: DeltaTable, actions: list[Any]) -> WriteCommit:
        def write(properties: CommitProperties) -> None:
            writer(DeltaTable(tmp_path / "copy"), actions)(properties)
            for n in range(3, 9):
                land(another, n, n + 1)
            DeltaTable(path_of(table)).create_checkpoint()
            for n in range(9, 14):
                land(another, n, n + 1)
            assert another.compact([], 2)
            assert not (path_of(table) / commit).exists()
            shutil.copy(tmp_path / "copy" / commit, path_of(table) / commit)

        monkeypatch.setattr(delta, "_writer", writer)
        return write

    monkeypatch.setattr(delta, "_writer", paused)
    table.replace(Span(EPOCH, 0, 3), written(table, rows(1, 3, 99.0)))
    assert offsets("delta", table) == list(range(1, 14))


def test_a_batch_that_the_log_refuses_each_time_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaMessageTable(tmp_path / "readings", SCHEMA, ())
    land(table, 0, 1)
    stale = DeltaMessageTable(path_of(table), WIDER, ())
    assert stale.exists()
    land(table, 1, 2)
    monkeypatch.setattr(stale, "_refresh", lambda: stale._delta)  # never sees the newer commit
    with pytest.raises(TableCommitFailed, match="the declaration of its columns could not be comm"):
        stale.prepare(SELECTION)
