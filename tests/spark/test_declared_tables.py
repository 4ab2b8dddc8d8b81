"""`penstock tables`: declared tables, through Spark, whatever is repeated on the way."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame, SparkSession

from penstock.cli.table import show
from penstock.config.table import TableDefinition
from penstock.config.table_places import CHECKPOINT_NAME
from penstock.errors import ConfigError, OffsetOutOfRange
from penstock.spark.contents import newest_rows, read_table
from penstock.spark.jobs import supervision
from penstock.spark.jobs.backfill import backfill
from penstock.spark.jobs.lock import JobLock, JobRunning
from penstock.spark.jobs.progress import Progress
from penstock.spark.jobs.tables import RunSettings, TablesRun
from penstock.spark.parquet_files import NewFile
from penstock.spark.session import SparkFailed
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.dry_run import land_sample
from penstock.spark.tables.erased import ErasedMessages
from penstock.spark.tables.landed_table import (
    ROWS,
    PlannedBatch,
    Selection,
    Span,
    TableCommitFailed,
)
from penstock.spark.tables.landing_target import LandingTarget
from penstock.spark.tables.status import table_status
from penstock.spark.tables.upkeep_record import read_upkeep_record
from penstock.stream.client import StreamClient
from tests.spark.log_writer import FIRST_RECEIVED_AT_US, LogWriter
from tests.spark.service_process import ServiceProcess
from tests.support.deadline import wait_for
from tests.support.places import dead_letters_path_of, path_of, places_in
from tests.support.table_readers import read_back

TOPICS = "plant/{line:int}/{quantity}"
NUMBER: dict[str, Any] = {"kind": "json", "columns": {"value": {"type": "int", "path": "$"}}}
"""The log writer's payloads are the offset as text, which is JSON."""

Run = Callable[..., dict[str, Progress]]


@pytest.fixture
def declare(tmp_path: Path) -> Callable[..., DeclaredTable]:
    def declared(name: str = "readings", **settings: Any) -> DeclaredTable:
        definition = {"name": name, "topics": TOPICS, "decoder": NUMBER, "group": "", **settings}
        return DeclaredTable(
            TableDefinition.model_validate(definition), places_in(tmp_path / "tables")
        )

    return declared


Declare = Callable[..., DeclaredTable]


@pytest.fixture
def settings(service: ServiceProcess) -> RunSettings:
    return RunSettings(service.address, available_now=True)


@pytest.fixture
def run(spark: SparkSession, settings: RunSettings) -> Run:
    def run_once(*tables: DeclaredTable) -> dict[str, Progress]:
        last: dict[str, Progress] = {}

        def note(name: str, progress: Progress) -> None:
            last[name] = progress

        TablesRun(tables, settings, note, lambda *_: contextlib.nullcontext(spark)).run()
        return last

    return run_once


@pytest.fixture
def client(service: ServiceProcess) -> Iterator[StreamClient]:
    with StreamClient(service.address, connect_timeout_s=0) as connected:
        yield connected


def delta_rows(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    found = DeltaTable(path).to_pyarrow_table(columns=["offset", *columns])
    return sorted(tuple(row.values()) for row in found.to_pylist())


def offsets(path: Path) -> list[int]:
    return [row[0] for row in delta_rows(path)]


def test_rows_and_dead_letters_are_all_messages_and_every_reader_finds_the_same(
    log: LogWriter,
    declare: Declare,
    run: Run,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # without a warning
    log.append(
        30, topics=("plant/1/temp", "plant/x/temp", "plant/2/power"), step_us=4 * 3600 * 10**6
    )
    tables = [
        declare(kind, format=kind, metadata=("received_at", "topic", "client_id", "qos"))
        for kind in ("delta", "iceberg", "parquet")
    ]
    progress = run(*tables)
    assert {(it.rows_landed, it.dead_letters) for it in progress.values()} == {(20, 10)}

    delta, iceberg, parquet = (read_back(table, spark).to_pylist() for table in tables)
    assert delta == iceberg == parquet
    assert [row["offset"] for row in delta] == [n for n in range(30) if n % 3 != 1]
    assert (delta[1]["line"], delta[1]["quantity"], delta[1]["value"]) == (2, "power", 2)
    assert (delta[1]["qos"], delta[1]["client_id"]) == (2, "device-0")

    letters = DeltaTable(dead_letters_path_of(tables[0])).to_pyarrow_table().to_pylist()
    assert sorted(row["offset"] for row in letters) == [n for n in range(30) if n % 3 == 1]
    assert {row["kind"] for row in letters} == {"broken"}
    assert {bytes(row["payload"]) for row in letters} == {b"%d" % n for n in range(1, 30, 3)}


def test_an_iceberg_table_by_days_and_buckets_lands_each_message_once(
    log: LogWriter, declare: Declare, run: Run, spark: SparkSession, settings: RunSettings
) -> None:
    topics = tuple(f"plant/{line}/temp" for line in range(10))
    table = declare(
        format="iceberg",
        partition_by=["day(received_at)", "bucket[3](line)"],
        commit_offsets_max=20,
    )
    log.append(30, topics=topics, step_us=4 * 3600 * 10**6)
    run(table)
    log.append(10, topics=topics, step_us=4 * 3600 * 10**6)
    run(table)

    catalog = SqlCatalog("penstock", uri=f"sqlite:///{path_of(table).parent}/iceberg.db")
    loaded = catalog.load_table("penstock.readings")
    found = loaded.scan().to_arrow()
    assert sorted(found.column("offset").to_pylist()) == list(range(40))
    names = [field.name for field in loaded.spec().fields]
    assert names == ["received_at_day", "line_bucket_3"]
    assert loaded.inspect.partitions().num_rows > 3
    backfill(spark, table, settings, 5, 35)
    again = loaded.refresh().scan().to_arrow()
    assert again.sort_by("offset") == found.sort_by("offset")


def test_a_batch_of_too_many_partitions_is_told_in_one_sentence(
    log: LogWriter, declare: Declare, run: Run
) -> None:
    log.append(40, topics=tuple(f"plant/{line}/temp" for line in range(40)))
    table = declare(partition_by=["line"], partitions_max=30)
    with pytest.raises(ConfigError, match="has rows in more than 30 partitions by line, and each "):
        run(table)
    assert offsets(path_of(table)) == []


def test_a_second_run_starts_no_spark_while_the_first_has_the_checkpoint(
    log: LogWriter, declare: Declare, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It got the cores of a cluster, and the first run, with the checkpoint, got none."""
    monkeypatch.setattr(supervision, "PAUSE_S_MAX", 0.01)
    log.append(3)
    table = declare()
    opened: list[object] = []

    def open_spark(*how: object) -> contextlib.AbstractContextManager[SparkSession]:
        opened.append(how)
        raise SparkFailed("there is no Spark here")

    def run_second() -> None:
        TablesRun([table], settings, open_spark=open_spark).run()

    with JobLock(path_of(table) / CHECKPOINT_NAME) as first:
        first.take()
        with pytest.raises(JobRunning, match="another job is running"):
            run_second()
    assert opened == []
    with pytest.raises(SparkFailed, match="there is no Spark here"):
        run_second()
    assert len(opened) == 1


def test_a_trigger_is_for_all_tables_of_a_run(
    log: LogWriter, declare: Declare, spark: SparkSession, settings: RunSettings
) -> None:
    log.append(3)
    tables = TablesRun(
        [declare(commit_s_min=3600)],
        replace(settings, trigger_s=0.0, available_now=False),
        lambda _name, progress: tables.stop() if progress.rows_landed == 5 else None,
        lambda *_: contextlib.nullcontext(spark),
    )
    thread = threading.Thread(target=tables.run)
    thread.start()
    path = path_of(tables._tables[0])
    try:
        wait_for("the first rows", lambda: any(path.glob("_delta_log/*.json")) and offsets(path))
        log.append(2)  # an hour later, with the table's own setting
        thread.join(300)
        assert not thread.is_alive()
    finally:  # a run that goes on would disturb the tests behind this one
        tables.stop()
        thread.join()


def nested(n: int) -> bytes:
    """A document whose parts are empty, null or missing in turn; but no list of structs is null,
    which pyiceberg 0.12 reads as an empty one (apache/iceberg-python#3833)."""
    points: list[Any] = [[], [{"x": n, "t": {"k": [n / 2]}}], [None, {}]]
    numbers: list[Any] = [None, [], [n, None]]
    document = {"points": points[n % 3], "numbers": numbers[n // 3 % 3]}
    return json.dumps(document | ({"place": {"line": f"l{n}"}} if n % 4 else {})).encode()


@pytest.mark.torture("lands three tables and reads each with three readers")
def test_every_reader_finds_the_same_nested_values(
    log: LogWriter,
    declare: Declare,
    run: Run,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # without a warning
    log.append(24, topics=("plant/1/temp",), payload=nested)
    columns = {
        "place": "struct<line: string, level: int8>",
        "points": "array<struct<x: int, t: map<string, array<float>>>>",
        "numbers": "array<float>",
    }
    tables = [
        declare(kind, format=kind, decoder={"kind": "json", "columns": columns})
        for kind in ("delta", "iceberg", "parquet")
    ]
    run(*tables)
    delta, iceberg, parquet = (read_back(table, spark).to_pylist() for table in tables)
    assert delta == iceberg == parquet
    assert [row["points"] for row in delta[:3]] == [
        [],
        [{"x": 1, "t": [("k", [0.5])]}],
        [None, {"x": None, "t": None}],
    ]
    assert [row["place"] for row in delta[:2]] == [None, {"line": "l1", "level": None}]
    assert [row["numbers"] for row in delta[0:9:3]] == [None, [], [6.0, None]]


def test_a_declared_table_is_shown_and_read_without_the_extension_of_delta(
    log: LogWriter,
    declare: Declare,
    run: Run,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log.append(6, topics=("plant/1/temp", "plant/2/hot air"))
    table = declare(partition_by=("quantity", "line"))  # a directory cannot have that name
    run(table)
    newest = newest_rows(path_of(table), 2).to_pylist()
    assert [(row["offset"], row["quantity"]) for row in newest] == [(5, "hot air"), (4, "temp")]
    frame = read_table(spark, path_of(table)).orderBy("offset")
    assert [(row.line, row.quantity, row.value) for row in frame.collect()] == [
        (1 + number % 2, ("temp", "hot air")[number % 2], number) for number in range(6)
    ]
    show(str(path_of(table)), rows=1)
    shown = capsys.readouterr().out
    assert "quantity" in shown
    assert "hot air" in shown


def test_a_crash_between_the_two_commits_is_mended_by_the_replay(
    log: LogWriter, declare: Declare, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(12, topics=("plant/1/temp", "plant/x/temp"))
    table = declare()
    with monkeypatch.context() as crash:
        commit = DeltaMessageTable.commit

        def killed(self: DeltaMessageTable, batch: PlannedBatch, files: list[NewFile]) -> Any:
            if path_of(self) == path_of(table) and files:
                raise TableCommitFailed("killed before the rows")
            return commit(self, batch, files)

        crash.setattr(DeltaMessageTable, "commit", killed)
        with pytest.raises(TableCommitFailed, match="killed before the rows"):
            run(table)
    assert offsets(dead_letters_path_of(table)) == [1, 3, 5, 7, 9, 11]
    assert offsets(path_of(table)) == []

    corrected = declare(topics="plant/{line}/{quantity}")  # what is buried stays buried
    progress = run(corrected)["readings"]
    assert (progress.rows_landed, progress.dead_letters) == (6, 0)
    assert offsets(path_of(table)) == [0, 2, 4, 6, 8, 10]
    assert offsets(dead_letters_path_of(table)) == [1, 3, 5, 7, 9, 11]


def test_a_column_that_is_declared_later_is_filled_by_a_backfill(
    log: LogWriter, declare: Declare, run: Run, settings: RunSettings, spark: SparkSession
) -> None:
    log.append(10, topics=("plant/1/temp", "plant/x/temp"))
    run(declare())
    log.append(10, topics=("plant/1/temp", "plant/{x}/temp"))
    wider_decoder = {
        **NUMBER,
        "columns": {**NUMBER["columns"], "text": {"type": "string", "path": "$"}},
    }
    wider = declare(decoder=wider_decoder)
    run(wider)
    texts = dict(delta_rows(path_of(wider), "text"))
    assert texts == {n: (str(n) if n >= 10 else None) for n in range(0, 20, 2)}

    for _ in range(2):
        (with_missing_columns,) = backfill(spark.newSession(), wider, settings, 3, 9)
        assert (with_missing_columns.span.start, with_missing_columns.span.end) == (3, 9)
        assert (with_missing_columns.rows, with_missing_columns.dead_letters) == (3, 3)
    texts = dict(delta_rows(path_of(wider), "text"))
    assert texts == {n: (str(n) if n >= 10 or 3 <= n < 9 else None) for n in range(0, 20, 2)}
    assert offsets(dead_letters_path_of(wider)) == list(range(1, 20, 2))

    with pytest.raises(ConfigError, match="has landed all before offset 20"):
        backfill(spark.newSession(), wider, settings, 20, 30)


@pytest.mark.torture("fills twice and lands three times")
def test_a_table_begun_late_gets_what_was_before(
    log: LogWriter, declare: Declare, run: Run, settings: RunSettings, spark: SparkSession
) -> None:
    log.append(10)
    late = declare(starting_offsets=json.dumps({"0": 6}), commit_offsets_max=2)
    run(late)
    assert offsets(path_of(late)) == [6, 7, 8, 9]
    backfill(spark.newSession(), late, settings, 0, 8)
    assert offsets(path_of(late)) == list(range(10))
    log.append(2)
    run(late)
    assert offsets(path_of(late)) == list(range(12))

    missing = {"type": "int", "path": "missing", "required": True}
    strict = declare(decoder={**NUMBER, "columns": {**NUMBER["columns"], "missing": missing}})
    backfill(spark.newSession(), strict, settings, 0, 2)
    assert offsets(path_of(strict)) == list(range(2, 12))
    assert offsets(dead_letters_path_of(strict)) == [0, 1]


@pytest.mark.torture("fills three times")
def test_a_backfill_takes_out_only_what_it_has_read_again(
    log: LogWriter,
    service: ServiceProcess,
    declare: Declare,
    run: Run,
    settings: RunSettings,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the log has lost, and whoever accepts that: the table keeps it."""
    for _ in range(4):
        log.append(4)
    table = declare()
    run(table)
    lenient = replace(settings, fail_on_data_loss=False)
    service.kill()
    log.give_up(4, 8)
    service.start()
    with pytest.raises(OffsetOutOfRange, match="the offsets 4 to 7 are lost"):
        backfill(spark.newSession(), table, settings, 0, 12)
    with_missing_columns = backfill(spark.newSession(), table, lenient, 0, 12)
    assert [(f.span.start, f.span.end, f.rows) for f in with_missing_columns] == [
        (0, 4, 4),
        (8, 12, 4),
    ]
    assert offsets(path_of(table)) == list(range(16))

    erased = LandingTarget.erased

    def retention_meanwhile(
        self: LandingTarget, messages: DataFrame, selection: Selection, span: Span
    ) -> DataFrame:
        log.trim(12)  # the log was asked for its beginning, and is not read yet
        return erased(self, messages, selection, span)

    monkeypatch.setattr(LandingTarget, "erased", retention_meanwhile)
    with pytest.raises(OffsetOutOfRange, match="offset 8 is no longer in the stream"):
        backfill(spark.newSession(), table, lenient, 8, 16)
    assert offsets(path_of(table)) == list(range(16))


def test_a_message_that_is_sent_again_lands_once_also_when_the_checkpoint_is_lost(
    log: LogWriter, declare: Declare, run: Run
) -> None:
    repeated = b"\x26\x00\x02id\x00\x01%d"
    for n in (0, 1, 0, 2, 1):
        for odd in (b"", repeated % n):
            log.append(1, properties=odd, topics=("plant/1/temp",))
    table = declare(repeats={"user_property": "id", "within_s": 600}, commit_offsets_max=6)
    progress = run(table)["readings"]
    assert (progress.rows_landed, progress.dead_letters) == (8, 2)
    shutil.rmtree(path_of(table) / CHECKPOINT_NAME)
    for n in (2, 3):
        log.append(1, topics=("plant/1/temp",))
        log.append(1, properties=repeated % n, topics=("plant/1/temp",))
    run(table)
    ids = [name for _, name in delta_rows(path_of(table), "message_id") if name is not None]
    assert sorted(ids) == ["0", "1", "2", "3"]
    letters = DeltaTable(dead_letters_path_of(table)).to_pyarrow_table().to_pylist()
    assert sorted((row["offset"], row["kind"]) for row in letters) == [
        (5, "repeated"), (9, "repeated"), (11, "repeated"),
    ]  # fmt: skip
    assert len(offsets(path_of(table))) + len(letters) == log.end


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # without a warning


@pytest.mark.usefixtures("planner")
@pytest.mark.parametrize(
    "kind",
    ["delta", pytest.param("iceberg", marks=pytest.mark.torture("the same in another format"))],
)
def test_files_are_put_together_while_messages_land(
    kind: str, log: LogWriter, declare: Declare, run: Run, spark: SparkSession
) -> None:
    log.append(24)
    table = declare(format=kind, commit_offsets_max=2, upkeep={"merge_files": 3, "share": 0.9})
    run(table)
    assert [row["offset"] for row in read_back(table, spark).to_pylist()] == list(range(24))
    contents = table.open()[ROWS].contents()
    assert contents is not None
    assert contents.files < 9, "of 12 commits"
    upkept = read_upkeep_record(table.location)
    assert upkept.failures == 0
    assert upkept.merged_files > upkept.merged_into > 0


@pytest.mark.usefixtures("planner")
@pytest.mark.parametrize(
    "kind",
    [
        "iceberg",
        pytest.param("delta", marks=pytest.mark.torture("the same in another format")),
        pytest.param("parquet", marks=pytest.mark.torture("the same in another format")),
    ],
)
def test_fault_4_a_backfill_leaves_out_what_somebody_has_deleted(
    kind: str,
    log: LogWriter,
    declare: Declare,
    run: Run,
    settings: RunSettings,
    spark: SparkSession,
) -> None:
    """The log still has the messages of a device whose rows were erased."""
    log.append(16, topics=("plant/1/temp", "plant/2/temp", "plant/x/temp", "plant/3/temp"))
    begun = {"format": kind, "starting_offsets": json.dumps({"0": 4})}
    table = declare(**begun)
    run(table)

    def found() -> list[int]:
        return [row["offset"] for row in read_back(table, spark).to_pylist()]

    assert found() == [4, 5, 7, 8, 9, 11, 12, 13, 15]
    erase(table, "line", 2)
    assert found() == [4, 7, 8, 11, 12, 15]
    wider = declare(
        decoder={
            **NUMBER,
            "columns": {**NUMBER["columns"], "text": {"type": "string", "path": "$"}},
        },
        **begun,
    )
    for _ in range(2):
        (with_missing_columns,) = backfill(spark.newSession(), wider, settings, 0, 16)
        assert with_missing_columns.erased == ErasedMessages(3, 5, 13, (("plant/2/temp", 3),), 1)
        assert found() == [0, 1, 3, 4, 7, 8, 11, 12, 15], "what was before the table began is new"
    (with_missing_columns,) = backfill(
        spark.newSession(), wider, settings, 4, 8, restores_erased=True
    )
    assert with_missing_columns.erased == ErasedMessages(1, 5, 5, (("plant/2/temp", 1),), 1)
    assert found() == [0, 1, 3, 4, 5, 7, 8, 11, 12, 15]
    erase(table, "line", 2)
    (with_missing_columns,) = backfill(spark.newSession(), wider, settings, 0, 4)
    assert with_missing_columns.erased is not None, (
        "what a backfill brought is known to have landed, too"
    )
    assert found() == [0, 3, 4, 7, 8, 11, 12, 15]


def erase(table: DeclaredTable, column: str, value: int) -> None:
    """Delete rows as people do, with the format's own tools."""
    match table.definition.format:
        case "delta":
            DeltaTable(path_of(table)).delete(f"{column} = {value}")
        case "iceberg":
            catalog = SqlCatalog(
                "penstock", uri=f"sqlite:///{Path(table.location.uri).parent / 'iceberg.db'}"
            )
            catalog.load_table(("penstock", path_of(table).name)).delete(f"{column} == {value}")
        case "parquet":
            for file in path_of(table).glob("date=*/*.parquet"):
                rows = pq.ParquetFile(file).read()
                kept = rows.filter(pc.not_equal(rows.column(column), value))
                pq.write_table(kept, file)


def test_payloads_with_several_rows_land(log: LogWriter, declare: Declare, run: Run) -> None:
    decoder = {"kind": "json", "many": True, "columns": {"v": {"type": "int", "path": "$"}}}
    log.append(3, topics=("plant/1/temp",), payload=lambda n: b"[%d,%d]" % (n, n + 10))
    table = declare(decoder=decoder)
    run(table)
    assert delta_rows(path_of(table), "v") == [(n, v) for n in range(3) for v in (n, n + 10)]


def test_a_dry_run_shows_rows_and_reasons_and_writes_nothing(
    log: LogWriter, declare: Declare, client: StreamClient
) -> None:
    log.append(2000, topics=("plant/1/temp", "plant/x/temp"))
    table = declare()
    parts = land_sample(table, client, 100)
    assert parts["rows"].column("offset").to_pylist() == list(range(1900, 2000, 2))
    assert parts["dead_letters"].num_rows == 50
    assert not path_of(table).exists()


def test_status_tells_what_a_table_holds_and_how_far_it_is_behind(
    log: LogWriter, declare: Declare, run: Run, service: ServiceProcess, client: StreamClient
) -> None:
    log.append(10, topics=("plant/1/temp", "plant/x/temp"))
    table = declare()
    empty = table_status(table, client, path_of(table) / CHECKPOINT_NAME)
    assert empty.rows is None
    assert empty.lag is not None
    assert empty.lag.offsets == 10
    run(table)
    log.append(5)
    found = table_status(table, client, path_of(table) / CHECKPOINT_NAME)
    assert found.rows is not None
    assert found.dead_letters is not None
    assert found.lag is not None
    assert (found.rows.rows, found.dead_letters.rows, found.landed_end) == (5, 5, 10)
    assert found.lag.offsets == 5
    assert found.lag.seconds > 1_800_000_000 - FIRST_RECEIVED_AT_US / 10**6 - 10**8
    service.kill()
    assert table_status(table, client, path_of(table) / CHECKPOINT_NAME).lag is None
