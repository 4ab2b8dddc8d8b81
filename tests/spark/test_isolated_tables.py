"""Several tables in one run: what happens to one of them happens to no other."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.config.table import TableDefinition
from penstock.config.table_places import CHECKPOINT_NAME
from penstock.errors import ConfigError
from penstock.spark.failure_file import TableFailure, read_failure
from penstock.spark.jobs.progress import Progress
from penstock.spark.jobs.tables import RunSettings, TablesFailed, TablesRun
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.status import table_status
from penstock.stream.client import StreamClient
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess
from tests.spark.test_declared_tables import NUMBER, offsets
from tests.spark.waiting import DEADLINE_S, wait_until
from tests.support.places import dead_letters_path_of, path_of, places_in
from tests.unit.spark.test_poison import FragileSorting

TOPICS = ("plant/1/temp", "plant/2/temp")


def declared(directory: Path, name: str, **settings: Any) -> DeclaredTable:
    definition = {"name": name, "topics": "plant/#", "decoder": NUMBER, "group": "", **settings}
    return DeclaredTable(
        TableDefinition.model_validate(definition), places_in(directory / "tables")
    )


class Run:
    """A run in a thread, and the progress of its tables."""

    def __init__(
        self, spark: SparkSession, settings: RunSettings, tables: list[DeclaredTable]
    ) -> None:
        self.progress: dict[str, Progress] = {}
        self.error: Exception | None = None
        self._run = TablesRun(
            tables, settings, self._note, lambda *_: contextlib.nullcontext(spark)
        )
        self._thread = threading.Thread(target=self._land)
        self._thread.start()

    def _note(self, name: str, progress: Progress) -> None:
        self.progress[name] = progress

    def _land(self) -> None:
        try:
            self._run.run()
        except Exception as error:
            self.error = error

    def stop(self) -> None:
        self._run.stop()
        self.join()

    def join(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def run(
    spark: SparkSession, service: ServiceProcess
) -> Iterator[Callable[[list[DeclaredTable], bool], Run]]:
    runs = []

    def begin(tables: list[DeclaredTable], available_now: bool) -> Run:
        settings = RunSettings(service.address, available_now=available_now)
        runs.append(Run(spark, settings, tables))
        return runs[-1]

    yield begin
    for one in runs:
        one.stop()


Begin = Callable[[list[DeclaredTable], bool], Run]


def failure_of(table: DeclaredTable) -> TableFailure | None:
    return read_failure(path_of(table) / CHECKPOINT_NAME)


def blocked(table: DeclaredTable) -> Path:
    """A file where the table's log is to be: nothing can be committed until it is gone."""
    path_of(table).mkdir(parents=True)
    obstacle = path_of(table) / "_delta_log"
    obstacle.write_text("in the way")
    return obstacle


def test_a_table_that_fails_is_tried_again_and_shown_while_the_others_land(
    log: LogWriter, run: Begin, tmp_path: Path, service: ServiceProcess
) -> None:
    """Issue 24, fault 2: one failing table ended all the others."""
    log.append(10, topics=TOPICS)
    bad, good = declared(tmp_path, "bad"), declared(tmp_path, "good")
    obstacle = blocked(bad)
    running = run([bad, good], False)
    wait_until(lambda: running.progress.get("good", Progress()).rows_landed == 10, "good lands")
    wait_until(lambda: getattr(failure_of(bad), "attempts", 0) >= 2, "bad is tried again")
    assert running.progress["bad"].state == "failing"
    assert str(path_of(bad)) in running.progress["bad"].failure
    with StreamClient(service.address, connect_timeout_s=0) as client:
        found = table_status(bad, client, path_of(bad) / CHECKPOINT_NAME).failure
        assert found is not None
        assert found.sentence == running.progress["bad"].failure
        assert table_status(good, client, path_of(good) / CHECKPOINT_NAME).failure is None

    log.append(10, topics=TOPICS)
    wait_until(lambda: running.progress["good"].rows_landed == 20, "good goes on landing")
    obstacle.unlink()
    wait_until(lambda: running.progress["bad"].rows_landed == 20, "bad lands what it has missed")
    wait_until(lambda: failure_of(bad) is None, "its failure to be forgotten")
    running.stop()
    assert running.error is None
    assert offsets(path_of(bad)) == offsets(path_of(good)) == list(range(20))


def test_tables_land_what_is_there_now_side_by_side(
    log: LogWriter, spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    """Each began when the first batch of the one before had landed: all messages of that table."""
    log.append(10, topics=TOPICS)
    tables = [declared(tmp_path, "first"), declared(tmp_path, "second")]
    second_landed = threading.Event()
    waited: list[bool] = []

    def note(name: str, progress: Progress) -> None:
        if name == "second" and progress.rows_landed == 10:
            second_landed.set()
        if name == "first" and progress.state == "landing" and not waited:
            waited.append(second_landed.wait(DEADLINE_S))

    settings = RunSettings(service.address, available_now=True)
    TablesRun(tables, settings, note, lambda *_: contextlib.nullcontext(spark)).run()
    assert waited == [True]
    assert offsets(path_of(tables[0])) == offsets(path_of(tables[1])) == list(range(10))


def test_a_run_that_is_stopped_with_messages_left_says_which_tables_lack_them(
    log: LogWriter, spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    """The exit code was 0, as if all had landed."""
    log.append(10, topics=TOPICS)
    tables = [declared(tmp_path, name, commit_offsets_max=1) for name in ("first", "second")]
    settings = RunSettings(service.address, available_now=True)

    def stop(_name: str, progress: Progress) -> None:
        if progress.rows_landed:
            stopped.stop()

    stopped = TablesRun(tables, settings, stop, lambda *_: contextlib.nullcontext(spark))
    with pytest.raises(TablesFailed, match="stopped before all messages had landed in first, sec"):
        stopped.run()
    TablesRun(tables, settings, open_spark=lambda *_: contextlib.nullcontext(spark)).run()
    assert offsets(path_of(tables[0])) == offsets(path_of(tables[1])) == list(range(10))


def test_a_mistake_ends_its_table_only_and_is_told_at_the_end(
    log: LogWriter, run: Begin, tmp_path: Path
) -> None:
    log.append(10, topics=TOPICS)
    bad, good = declared(tmp_path, "bad"), declared(tmp_path, "good")
    run([bad], True).join()
    changed = declared(tmp_path, "bad", topics="plant/1/#")
    both = run([changed, good], True)
    both.join()
    assert isinstance(both.error, TablesFailed)
    assert str(both.error).startswith("table bad gave up: the table in ")
    assert both.progress["bad"].state == "gave up"
    assert both.progress["good"].state == "ended"
    assert offsets(path_of(good)) == list(range(10))
    found = failure_of(bad)
    assert found is not None
    assert found.gave_up
    alone = run([changed], True)
    alone.join()
    assert isinstance(alone.error, ConfigError), "of a single table its own error, and exit code"


@pytest.mark.torture("waits between three attempts")
def test_an_available_now_table_is_tried_a_few_times_and_the_others_end_first(
    log: LogWriter, run: Begin, tmp_path: Path
) -> None:
    log.append(10, topics=TOPICS)
    bad, good = declared(tmp_path, "bad"), declared(tmp_path, "good")
    blocked(bad)
    both = run([bad, good], True)
    both.join()
    assert isinstance(both.error, TablesFailed)
    assert "table bad gave up: " in str(both.error)
    found = failure_of(bad)
    assert found is not None
    assert (found.attempts, found.gave_up) == (3, True)
    assert offsets(path_of(good)) == list(range(10))


def test_a_poison_message_ends_no_table(log: LogWriter, run: Begin, tmp_path: Path) -> None:
    """Issue 24, fault 2: its batch is in the checkpoint, and would fail after every restart."""
    log.append(30, topics=TOPICS, payload=lambda n: b"poison" if n == 17 else b"%d" % n)
    table = declared(tmp_path, "numbers")
    table.split = FragileSorting(table, RecursionError("too deep"))
    running = run([table], True)
    running.join()
    assert running.error is None
    assert offsets(path_of(table)) == [n for n in range(30) if n != 17]
    (dead,) = DeltaTable(dead_letters_path_of(table)).to_pyarrow_table().to_pylist()
    assert (dead["offset"], dead["payload"], dead["kind"]) == (17, b"poison", "broken")
    assert dead["reason"].endswith(": RecursionError: too deep")


@pytest.mark.torture("waits for Spark's four attempts of a task")
def test_an_error_in_a_worker_is_told_by_its_last_line_only(
    log: LogWriter, run: Begin, tmp_path: Path
) -> None:
    """Issue 24, fault 2: what Spark makes of it has 25 lines; and it buries no message."""
    log.append(10, topics=TOPICS, payload=lambda _: b"poison")
    table = declared(tmp_path, "numbers")
    table.split = FragileSorting(table, OSError("the descriptor is away"))
    running = run([table], True)
    running.join()
    assert str(running.error) == "Spark ended the query: OSError: the descriptor is away"
    assert not dead_letters_path_of(table).exists()
