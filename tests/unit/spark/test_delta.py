"""The Delta commit: each batch once, each offset once, whatever happens in between. No Spark."""

from __future__ import annotations

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from penstock.errors import ConfigError
from penstock.spark import parquet_files
from penstock.spark.contents import newest_rows, read_contents, remove_orphans
from penstock.spark.parquet_files import Layout, NewFile, write_files
from penstock.spark.storage import local
from penstock.spark.tables import delta_log
from penstock.spark.tables.columns import DATE, MESSAGE_SCHEMA
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.landed_table import (
    ROWS,
    Landed,
    Outcome,
    PlannedBatch,
    Selection,
    TableCommitFailed,
    TableCommitUnknown,
)
from penstock.spark.tables.splits import unchanged_rows
from penstock.stream.rows import STREAM_SCHEMA
from tests.support.places import path_of

EPOCH = "20261121T000000-00000001"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SELECTION = Selection(EPOCH, "messages")


def rows(start: int, end: int, at: datetime = NOON) -> pa.RecordBatch:
    count = end - start
    columns = {
        "epoch": [EPOCH] * count,
        "offset": list(range(start, end)),
        "received_at": [at] * count,
        "topic": [f"t/{n}" for n in range(start, end)],
        "payload": [b"x"] * count,
        "qos": [1] * count,
        "retain": [False] * count,
        "client_id": ["c"] * count,
        "properties": [None] * count,
    }
    return pa.RecordBatch.from_pydict(columns, STREAM_SCHEMA)


def table_at(path: Path) -> DeltaMessageTable:
    return DeltaMessageTable(path, MESSAGE_SCHEMA, (DATE,))


def files_of(layout: Layout, *batches: pa.RecordBatch) -> list[NewFile]:
    parts = (unchanged_rows(pa.Table.from_batches([batch])) for batch in batches)
    return list(write_files({ROWS: layout}, "part", parts))


def written(table: DeltaMessageTable, start: int, end: int) -> list[NewFile]:
    return files_of(table.layout, rows(start, end))


def commit(
    table: DeltaMessageTable, files: list[NewFile], selection: Selection = SELECTION
) -> Outcome:
    start = min(file.first_offset for file in files)
    end = max(file.last_offset for file in files) + 1
    return table.commit(PlannedBatch(selection, start, end), files)


def landed(table: DeltaMessageTable) -> list[int]:
    return sorted(DeltaTable(path_of(table)).to_pyarrow_table().column("offset").to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> DeltaMessageTable:
    return table_at(tmp_path / "readings")


def test_the_commit_that_creates_the_table_has_its_end(table: DeltaMessageTable) -> None:
    assert table.landed(SELECTION) is None
    assert commit(table, written(table, 0, 10)) is Outcome.LANDED

    found = DeltaTable(path_of(table))
    assert found.version() == 0
    assert found.transaction_version(f"penstock-start:{EPOCH}/messages/#") == 0
    assert found.transaction_version(f"penstock-log:{EPOCH}/messages/#") == 10


def test_a_file_that_a_batch_replaces_leaves_the_table_with_its_commit(
    table: DeltaMessageTable,
) -> None:
    commit(table, [*written(table, 0, 5), *written(table, 5, 10)])
    first = table.present_files()[0]
    batch = PlannedBatch(SELECTION, 10, 22)
    assert table.commit(batch, written(table, 20, 22), [first]) is Outcome.LANDED
    kept = landed(table)
    assert kept in ([0, 1, 2, 3, 4, 20, 21], [5, 6, 7, 8, 9, 20, 21])
    gone = PlannedBatch(SELECTION, 22, 31)
    assert table.commit(gone, written(table, 30, 31), [first]) is Outcome.OVERTAKEN
    assert landed(table) == kept


def test_an_older_copy_of_the_table_that_is_put_back_under_a_job_is_seen(
    table: DeltaMessageTable, tmp_path: Path
) -> None:
    commit(table, written(table, 0, 10))
    shutil.copytree(path_of(table), tmp_path / "copy")
    commit(table, written(table, 10, 20))
    shutil.rmtree(path_of(table))
    shutil.copytree(tmp_path / "copy", path_of(table))
    assert commit(table, written(table, 20, 30)) is Outcome.OVERTAKEN
    assert commit(table, written(table, 10, 20)) is Outcome.LANDED
    assert landed(table) == list(range(20))


@pytest.mark.parametrize("exists", [False, True])
def test_writers_that_race_land_each_offset_once(table: DeltaMessageTable, *, exists: bool) -> None:
    if exists:
        commit(table, written(table, 0, 1), Selection("another epoch", "messages"))

    def land(_: int) -> Outcome:
        own = table_at(path_of(table))
        return commit(own, written(own, 0, 10))

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(land, range(4)))
    assert sorted(outcome.name for outcome in outcomes) == ["LANDED"] + 3 * ["OVERTAKEN"]
    assert landed(table) == [*([0] if exists else []), *range(10)]


def test_jobs_of_different_epochs_do_not_disturb_each_other(table: DeltaMessageTable) -> None:
    commit(table, written(table, 0, 10))
    later = Selection("20270101T000000-00000002", "messages")
    assert table.landed(later) is None
    assert commit(table, written(table, 0, 5), later) is Outcome.LANDED


def test_a_table_tells_what_it_holds_and_refuses_other_messages(table: DeltaMessageTable) -> None:
    table.prepare(Selection(EPOCH, "anything"))  # there is no table yet
    commit(table, written(table, 0, 10))
    table.prepare(Selection("another epoch", "messages"))
    with pytest.raises(ConfigError, match="holds MQTT messages of stream messages, topics #; land"):
        table.prepare(Selection(EPOCH, "messages", ("a/#",)))


def test_the_job_that_creates_the_table_says_what_it_holds(table: DeltaMessageTable) -> None:
    """Neither found a table when it started, so neither was refused then."""
    other = table_at(path_of(table))
    theirs = Selection(EPOCH, "messages", ("t/#",))
    for job, selection in ((table, SELECTION), (other, theirs)):
        job.prepare(selection)
    assert commit(table, written(table, 0, 10)) is Outcome.LANDED
    with pytest.raises(ConfigError, match=r"topics #; land MQTT messages of .* topics t/# in"):
        commit(other, written(other, 0, 10), theirs)
    assert landed(table) == list(range(10))


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_table_that_is_made_while_a_job_looks(
    table: DeltaMessageTable, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """What it holds is asked of the same table as what has landed in it."""
    other = table_at(path_of(table))
    theirs = Selection(EPOCH, "messages", ("t/#",))
    refresh = table._refresh
    outcomes = []
    left = looks

    def look() -> DeltaTable | None:
        nonlocal left
        found = refresh()
        left -= 1
        if left == 0:
            outcomes.append(commit(other, written(other, 0, 10), theirs))
        return found

    monkeypatch.setattr(table, "_refresh", look)
    with suppress(ConfigError):
        outcomes.append(commit(table, written(table, 0, 10)))
    assert outcomes == [Outcome.LANDED], "one of them, the first"
    assert landed(table_at(path_of(table))) == list(range(10))


@pytest.mark.parametrize("chosen", [("t/#",), ("t/1", "t/2")])
def test_jobs_of_other_topics_that_race_to_create_the_table(
    table: DeltaMessageTable, chosen: tuple[str, ...]
) -> None:
    def land(number: int) -> str:
        own = table_at(path_of(table))
        topics = chosen if number % 2 else ()
        selection = Selection(EPOCH, "messages", topics)
        try:
            return commit(own, written(own, 0, 10), selection).name
        except ConfigError:
            return "REFUSED"

    with ThreadPoolExecutor(4) as pool:
        outcomes = sorted(pool.map(land, range(4)))
    assert outcomes == ["LANDED", "OVERTAKEN", "REFUSED", "REFUSED"]
    assert landed(table) == list(range(10))


@pytest.mark.parametrize("name", ["100%", "a b", "ü", "a:b", "[*]"])
def test_any_directory_will_do(tmp_path: Path, name: str) -> None:
    table = table_at(tmp_path / name)
    assert commit(table, written(table, 0, 3)) is Outcome.LANDED
    assert table_at(tmp_path / name).landed(SELECTION) is not None
    assert read_contents(tmp_path / name).rows == newest_rows(tmp_path / name, 9).num_rows == 3


@pytest.mark.parametrize("name", ["a%20b", "%C3%BC", "a%2Fb", "a\\b", "a#b", "a?b"])
def test_a_directory_that_delta_misreads_is_refused(tmp_path: Path, name: str) -> None:
    for use in (table_at, read_contents):
        with pytest.raises(ConfigError, match="reads as part of a URL; choose another"):
            use(tmp_path / "tables" / name)
    assert not (tmp_path / "tables").exists()


# -- what is believed is on disk -----------------------------------------------------------


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what is synced, of the table's log and the directories above."""
    names: list[str] = []

    def note(path: Path) -> None:
        names.append(path.name)
        local.sync(path)

    monkeypatch.setattr(delta_log, "sync", note)
    return names


COMMIT_0 = f"{0:020}.json"
COMMIT_1 = f"{1:020}.json"


def killed_before_it_synced(table: DeltaMessageTable, start: int, end: int) -> None:
    """What an attempt leaves that ends between writing its commit and syncing it."""
    delta = table._refresh()
    batch, files = PlannedBatch(SELECTION, start, end), written(table, start, end)
    numbers = [Transaction(SELECTION.transaction_id, end)]
    table._write_batch(delta, batch, files, [], CommitProperties(app_transactions=numbers))


def test_a_commit_is_synced_with_the_names_that_lead_to_it(
    table: DeltaMessageTable, synced: list[str]
) -> None:
    commit(table, written(table, 0, 10))
    assert synced == [COMMIT_0, "_delta_log", path_of(table).name, path_of(table).parent.name]
    synced.clear()
    commit(table, written(table, 10, 20))
    assert synced == [COMMIT_1, "_delta_log"], "and what is known to be on disk is not again"


@pytest.mark.parametrize("ask", ["commit", "landed"])
def test_a_commit_of_an_attempt_before_is_synced_before_it_is_believed(
    table: DeltaMessageTable, synced: list[str], ask: str
) -> None:
    killed_before_it_synced(table_at(path_of(table)), 0, 10)
    killed_before_it_synced(table_at(path_of(table)), 10, 20)
    assert COMMIT_1 not in synced
    synced.clear()
    if ask == "commit":
        assert commit(table, written(table, 10, 20)) is Outcome.OVERTAKEN
    else:
        assert table.landed(SELECTION) == Landed(None, 20)
    assert synced == [
        COMMIT_0,
        COMMIT_1,
        "_delta_log",
        path_of(table).name,
        path_of(table).parent.name,
    ]


def test_a_log_of_many_commits_is_not_listed_for_each_batch(
    table: DeltaMessageTable, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(table, written(table, 0, 10))
    listed: list[str] = []
    scandir = os.scandir

    def note(path: Path) -> object:
        listed.append(path.name)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", note)
    other = table_at(path_of(table))
    synced.clear()
    commit(table, written(table, 10, 20))
    assert (synced, listed) == ([COMMIT_1, "_delta_log"], [])
    assert other.landed(SELECTION) is not None
    DeltaTable(path_of(table)).create_checkpoint()
    synced.clear()
    assert table.landed(SELECTION) is not None
    assert synced == [f"{1:020}.checkpoint.parquet", "_last_checkpoint", "_delta_log"]


def test_a_commit_found_after_an_error_is_synced(
    table: DeltaMessageTable, failing: list[str], synced: list[str]
) -> None:
    failing.append("after")
    assert commit(table, written(table, 0, 10)) is Outcome.LANDED
    assert synced[:2] == [COMMIT_0, "_delta_log"]


def test_a_commit_that_cannot_be_synced_is_not_called_landed(
    table: DeltaMessageTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: Path) -> None:
        raise OSError("input/output error")

    monkeypatch.setattr(delta_log, "sync", fail)
    with pytest.raises(TableCommitUnknown, match="input/output error"):
        commit(table, written(table, 0, 10))


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The disk fails "before" or "after" the commit took place."""
    when: list[str] = []
    commit = DeltaMessageTable._write_batch

    def fail(table: DeltaMessageTable, *what: Any) -> None:
        if when == ["after"]:
            commit(table, *what)
        raise OSError("input/output error")

    monkeypatch.setattr(DeltaMessageTable, "_write_batch", fail)
    return when


def test_an_error_after_the_commit_took_place_is_found_out(
    table: DeltaMessageTable, failing: list[str]
) -> None:
    failing.append("after")
    assert commit(table, written(table, 0, 10)) is Outcome.LANDED
    assert landed(table) == list(range(10))


def test_a_commit_of_unknown_fate_is_an_error_of_its_own_and_deletes_nothing(
    table: DeltaMessageTable, failing: list[str]
) -> None:
    failing.append("before")
    files = written(table, 0, 10)
    with pytest.raises(
        TableCommitUnknown, match="it is not known whether the batch of offsets 0 to"
    ):
        commit(table, files)
    assert all((path_of(table) / file.path).exists() for file in files)


def test_a_commit_that_the_table_refuses_has_failed(
    table: DeltaMessageTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(table, written(table, 0, 10))
    stale = table_at(path_of(table))
    assert stale.exists()
    commit(table, written(table, 10, 20))
    monkeypatch.setattr(stale, "_refresh", lambda: stale._delta)  # never sees the newer commit
    with pytest.raises(TableCommitFailed, match="offsets 10 to 20 could not be committed to"):
        commit(stale, written(table, 10, 20))
    assert landed(table) == list(range(20))


def test_transactions_survive_a_checkpoint_of_the_log(table: DeltaMessageTable) -> None:
    commit(table, written(table, 0, 10))
    DeltaTable(path_of(table)).create_checkpoint()
    (path_of(table) / "_delta_log" / f"{0:020}.json").unlink()
    assert table_at(path_of(table)).landed(SELECTION) is not None


def test_each_file_carries_its_statistics(table: DeltaMessageTable) -> None:
    later = datetime(2026, 11, 22, 0, 0, 1, tzinfo=UTC)
    files = files_of(table.layout, rows(0, 3), rows(3, 5, later))
    assert [(file.partition, file.rows) for file in files] == [
        ('{"date": "2026-11-21"}', 3), ('{"date": "2026-11-22"}', 2),
    ]  # fmt: skip
    stats = json.loads(files[1].stats)
    assert stats["numRecords"] == 2
    assert (stats["minValues"]["offset"], stats["maxValues"]["offset"]) == (3, 4)
    assert stats["minValues"]["received_at"] == "2026-11-22T00:00:01.000000Z"
    assert stats["nullCount"]["topic"] == 0

    commit(table, files)
    contents = read_contents(path_of(table))
    assert (contents.rows, contents.files) == (5, 2)
    newest = newest_rows(path_of(table), 3).to_pylist()
    assert [(row["offset"], str(row["date"])) for row in newest] == [
        (4, "2026-11-22"), (3, "2026-11-22"), (2, "2026-11-21"),
    ]  # fmt: skip


def test_a_task_keeps_few_files_open(
    table: DeltaMessageTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "OPEN_PARTITIONS_MAX", 2)
    days = [datetime(2026, 11, day, tzinfo=UTC) for day in (1, 2, 3, 4)]
    batches = [rows(n, n + 1, at) for n, at in enumerate(days)]
    files = files_of(table.layout, *batches)
    assert [json.loads(file.partition)["date"] for file in files] == [
        f"2026-11-0{day}" for day in (1, 2, 3, 4)
    ]


def test_orphans_are_removed_by_age_and_nothing_else_is(table: DeltaMessageTable) -> None:
    commit(table, written(table, 0, 10))
    old, young = (path_of(table) / written(table, 10, 20)[0].path for _ in range(2))
    two_days_ago = time.time() - 48 * 3600
    os.utime(old, (two_days_ago, two_days_ago))
    checkpoint = path_of(table) / "_checkpoint" / "metadata"
    checkpoint.parent.mkdir()
    checkpoint.write_text("{}")
    os.utime(checkpoint, (two_days_ago, two_days_ago))

    names = remove_orphans(path_of(table), remove=False)
    assert [Path(name).name for name in names] == [old.name]
    assert old.exists()
    remove_orphans(path_of(table), remove=True)
    assert not old.exists()
    assert young.exists()
    assert checkpoint.exists()
    assert landed(table) == list(range(10))


def test_numbers_and_times_lie_in_files_as_differences(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    (file,) = written(table, 0, 1000)
    group = pq.ParquetFile(path_of(table) / file.path).metadata.row_group(0)
    encodings = {
        column.path_in_schema: column.encodings
        for column in (group.column(index) for index in range(group.num_columns))
    }
    differences = {name for name, used in encodings.items() if "DELTA_BINARY_PACKED" in used}
    assert {"offset", "received_at", "qos"} <= differences
    assert not differences & {"epoch", "topic", "payload", "client_id"}
    assert "RLE_DICTIONARY" in encodings["properties.user_properties.list.element.key"]
