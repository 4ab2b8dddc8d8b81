"""A table's checkpoint comes back from an older copy, is lost, or is that of another table."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.spark.jobs.landing import Landing
from penstock.spark.jobs.progress import Progress
from penstock.spark.jobs.settings import LandingSettings
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess
from tests.support.places import path_of

Land = Callable[[LandingSettings], Progress]


@pytest.fixture
def settings(service: ServiceProcess, tmp_path: Path) -> LandingSettings:
    return LandingSettings(table=tmp_path / "readings", server=service.address, available_now=True)


@pytest.fixture
def land(spark: SparkSession) -> Land:
    def run(settings: LandingSettings) -> Progress:
        own = spark.newSession()  # a session knows only one query of a name
        return Landing(settings, open_spark=lambda *_: contextlib.nullcontext(own)).run()

    return run


def landed(table: Path) -> list[int]:
    offsets = DeltaTable(table).to_pyarrow_table(columns=["offset"]).column("offset")
    return sorted(offsets.to_pylist())


def test_a_checkpoint_from_an_older_copy_loses_no_message(
    log: LogWriter, settings: LandingSettings, land: Land, tmp_path: Path
) -> None:
    checkpoint = settings.checkpoint_dir
    log.append(10)
    land(settings)
    shutil.copytree(checkpoint, tmp_path / "copy")
    log.append(10)
    land(settings)
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "copy", checkpoint)
    for _ in range(2):
        log.append(10)
        assert land(settings).lag == 0
    assert landed(path_of(settings)) == list(range(40))


def test_a_checkpoint_of_another_table_that_is_ahead_loses_no_message(
    log: LogWriter, settings: LandingSettings, land: Land, tmp_path: Path
) -> None:
    other = replace(settings, table=tmp_path / "other")
    log.append(10)
    land(settings)
    land(other)
    log.append(10)
    land(other)
    shutil.rmtree(settings.checkpoint_dir)
    shutil.copytree(other.checkpoint_dir, settings.checkpoint_dir)
    log.append(10)
    assert land(settings).lag == 0
    assert landed(path_of(settings)) == list(range(30))


def test_a_table_without_rows_begins_where_it_once_began_whatever_becomes_of_its_checkpoint(
    log: LogWriter, settings: LandingSettings, land: Land
) -> None:
    settings = replace(settings, topics=("b/#",), starting_offsets="latest")
    log.append(10, topics=("b/1",))
    land(settings)
    shutil.rmtree(settings.checkpoint_dir)
    log.append(10, topics=("b/1",))
    land(settings)
    assert landed(path_of(settings)) == list(range(10, 20))
