"""`penstock table run`: messages to a Delta table, whatever is repeated on the way."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.errors import ConfigError, EpochMismatch, OffsetOutOfRange
from penstock.spark.contents import newest_rows, read_contents, read_landed_end, read_table
from penstock.spark.jobs.landing import Landing
from penstock.spark.jobs.lock import JobRunning
from penstock.spark.jobs.progress import Progress
from penstock.spark.jobs.settings import LandingSettings
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess
from tests.spark.waiting import wait_until
from tests.support.places import path_of

Land = Callable[[LandingSettings], Progress]


@pytest.fixture
def settings(service: ServiceProcess, tmp_path: Path) -> LandingSettings:
    return LandingSettings(table=tmp_path / "readings", server=service.address, available_now=True)


@pytest.fixture
def land(spark: SparkSession) -> Land:
    def run(settings: LandingSettings) -> Progress:
        own = spark.newSession()  # a session knows only one query of a name
        landing = Landing(settings, open_spark=lambda *_: contextlib.nullcontext(own))
        return landing.run()

    return run


def _has_rows(table: Path) -> bool:
    return (table / "_delta_log").is_dir() and bool(landed(table))


def landed(table: Path) -> list[int]:
    offsets = DeltaTable(table).to_pyarrow_table(columns=["offset"]).column("offset")
    return sorted(offsets.to_pylist())


def test_messages_land_with_all_columns_partitioned_by_date(
    log: LogWriter, settings: LandingSettings, land: Land, spark: SparkSession
) -> None:
    log.append(60, step_us=3_600_000_000)  # an hour apart: three dates
    progress = land(settings)

    assert (progress.rows_landed, progress.offset, progress.lag) == (60, 60, 0)
    assert landed(path_of(settings)) == list(range(60))
    delta = DeltaTable(path_of(settings))
    assert delta.metadata().partition_columns == ["date"]
    assert {path.name for path in path_of(settings).glob("date=*")} == {
        "date=2023-11-14", "date=2023-11-15", "date=2023-11-16", "date=2023-11-17",
    }  # fmt: skip
    contents = read_contents(settings.table)
    assert (contents.rows, contents.epoch) == (60, log.epoch)
    assert [row["offset"] for row in newest_rows(settings.table, 3).to_pylist()] == [59, 58, 57]
    by_spark = read_table(spark, settings.table).where("date = '2023-11-15'").orderBy("offset")
    assert [bytes(row.payload) for row in by_spark.limit(2).collect()] == [b"2", b"3"]


def test_a_lost_checkpoint_repeats_nothing(
    log: LogWriter, settings: LandingSettings, land: Land
) -> None:
    log.append(10)
    land(settings)
    shutil.rmtree(settings.checkpoint_dir)
    log.append(5)
    assert land(settings).rows_landed == 5
    assert landed(path_of(settings)) == list(range(15))


@pytest.mark.torture("runs two jobs at once")
def test_two_jobs_on_one_table_land_each_message_once(
    log: LogWriter, settings: LandingSettings, land: Land, tmp_path: Path
) -> None:
    log.append(120)
    jobs = [
        replace(settings, checkpoint=tmp_path / f"checkpoint-{n}", offsets_per_batch_max=limit)
        for n, limit in enumerate((30, 40))
    ]
    with ThreadPoolExecutor() as pool:
        rows = [progress.rows_landed for progress in pool.map(land, jobs)]
    assert sum(rows) == 120
    assert landed(path_of(settings)) == list(range(120))


def test_a_second_job_with_the_same_checkpoint_is_refused(
    log: LogWriter, settings: LandingSettings, land: Land, spark: SparkSession
) -> None:
    log.append(1)
    refused: list[JobRunning] = []

    def open_spark(*_: object) -> AbstractContextManager[SparkSession]:
        try:
            land(settings)
        except JobRunning as error:
            refused.append(error)
        return contextlib.nullcontext(spark.newSession())

    Landing(settings, open_spark=open_spark).run()
    assert "another job is running with the checkpoint" in str(refused[0])
    assert landed(path_of(settings)) == [0]


def test_a_table_whose_topics_match_nothing_is_passed_without_a_row(
    log: LogWriter, settings: LandingSettings, land: Land
) -> None:
    log.append(10, topics=("a",))
    chosen = replace(settings, topics=("b/#",))
    assert land(chosen).rows_landed == 0
    assert read_landed_end(settings.table, log.epoch, "messages") == 10
    log.append(10, topics=("a", "b/1"))
    assert land(chosen).rows_landed == 5
    assert landed(path_of(settings)) == [11, 13, 15, 17, 19]


def test_a_table_of_other_messages_is_refused(
    log: LogWriter, settings: LandingSettings, land: Land
) -> None:
    log.append(3)
    land(settings)
    with pytest.raises(ConfigError, match="holds MQTT messages of stream messages, topics #; land"):
        land(replace(settings, topics=("plant/#",)))


@pytest.mark.torture("one more table that is refused")
def test_a_table_that_passed_messages_by_mistake_is_not_taken_for_others(
    log: LogWriter, settings: LandingSettings, land: Land
) -> None:
    log.append(6)
    assert land(replace(settings, topics=("plnt/#",))).rows_landed == 0
    corrected = replace(settings, topics=("plant/#",))
    with pytest.raises(ConfigError, match=r"holds .* topics plnt/#; land .* topics plant/# in"):
        land(corrected)
    shutil.rmtree(path_of(settings))
    assert land(corrected).rows_landed == 6
    assert landed(path_of(settings)) == list(range(6))


def test_a_log_of_another_epoch_is_added_to_the_table_when_the_user_says_where_it_begins(
    log: LogWriter, service: ServiceProcess, settings: LandingSettings, land: Land, tmp_path: Path
) -> None:
    log.append(10)
    land(settings)
    service.kill()
    with LogWriter(tmp_path / "restored", "20270101T000000-00000002") as restored:
        restored.append(4)
        other = ServiceProcess(restored.data_dir)
        other.address = service.address
        other.start()
        try:
            shutil.rmtree(settings.checkpoint_dir)  # what has landed is in the table
            with pytest.raises(
                EpochMismatch, match=r"the log is now of epoch .*has landed messages of"
            ):
                land(settings)
            begin = json.dumps({"0": 0, "epoch": restored.epoch})
            land(replace(settings, starting_offsets=begin))
        finally:
            other.stop()
    assert landed(path_of(settings)) == [0, 0, 1, 1, 2, 2, 3, 3, *range(4, 10)]


def test_a_job_that_accepts_losses_goes_on_with_another_log_as_a_new_table_does(
    log: LogWriter,
    service: ServiceProcess,
    settings: LandingSettings,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """Its offsets count from anew: the epoch tells its rows from those of the log before."""
    log.append(10)
    restored = LogWriter(tmp_path / "restored", "20270101T000000-00000002")
    other = ServiceProcess(restored.data_dir)
    other.address = service.address
    accepting = replace(settings, available_now=False, trigger_s=0.1, fail_on_data_loss=False)
    landing = Landing(accepting, open_spark=lambda *_: contextlib.nullcontext(spark.newSession()))
    with ThreadPoolExecutor() as pool:
        job = pool.submit(landing.run)
        try:
            wait_until(lambda: _has_rows(path_of(settings)), "the first rows")
            service.kill()
            restored.append(4)
            other.start()
            wait_until(lambda: len(landed(path_of(settings))) == 14, "the rows of the other log")
        finally:
            landing.stop()
            job.result(60)
            other.stop()
            restored.close()
    rows = DeltaTable(path_of(settings)).to_pyarrow_table(columns=["epoch", "offset"]).to_pylist()
    found = sorted((row["epoch"], row["offset"]) for row in rows)
    assert found == [(log.epoch, offset) for offset in range(10)] + [
        (restored.epoch, offset) for offset in range(4)
    ]


def test_messages_lost_to_retention_end_the_job_unless_the_user_accepts_it(
    log: LogWriter, settings: LandingSettings, land: Land
) -> None:
    log.append(10)
    land(settings)
    log.append(10)
    log.append(10)
    log.trim(20)
    with pytest.raises(OffsetOutOfRange, match="the offsets 10 to 19 were not read before"):
        land(settings)
    assert land(replace(settings, fail_on_data_loss=False)).rows_landed == 10
    assert landed(path_of(settings)) == [*range(10), *range(20, 30)]
