"""Spark on a log with a damaged block: `failOnDataLoss` decides, and the gap is told."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, SparkSession

from penstock.errors import StoreUnavailable
from penstock.spark.jobs.landing import Landing
from penstock.spark.jobs.settings import LandingSettings
from penstock.stream.client import StreamClient
from tests.contract.test_examination import END, flip, with_incompressible_chunks
from tests.spark.service_process import ServiceProcess, serving
from tests.spark.test_declared_tables import offsets
from tests.unit.cli.test_log_selection import STREAM

HIDDEN = re.compile(r"the offsets (\d+) to (\d+) cannot be read: a block of the store")


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[ServiceProcess]:
    """A log with a damaged block in its middle."""
    with_incompressible_chunks(tmp_path / "data")
    flip(tmp_path / "data", 0.5)
    with serving(tmp_path / "data", STREAM) as service:
        yield service


def hidden(service: ServiceProcess) -> range:
    with StreamClient(service.address) as client:
        ((begin, end),) = client.offsets("messages").damaged
    return range(begin, end)


def test_a_query_fails_with_the_offsets_and_the_remedy_or_reads_all_others(
    damaged: ServiceProcess, spark: SparkSession
) -> None:
    reader: DataFrameReader = spark.read.format("penstock").option("server", damaged.address)
    with pytest.raises(PySparkException) as caught:
        reader.load().collect()
    found = HIDDEN.search(str(caught.value))
    assert found is not None
    gone = hidden(damaged)
    assert (int(found[1]), int(found[2])) == (gone[0], gone[-1])
    assert "set failOnDataLoss to false" in str(caught.value)
    rows = reader.option("failOnDataLoss", "false").load().select("offset").collect()
    assert sorted(row.offset for row in rows) == [n for n in range(END) if n not in gone]
    behind = reader.load().where(f"offset > {gone[-1]}").select("offset").collect()
    assert len(behind) == END - 1 - gone[-1]


def test_a_table_waits_before_the_block_or_declares_the_gap(
    damaged: ServiceProcess,
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def land(*, fails: bool) -> None:
        settings = LandingSettings(
            table=tmp_path / "table",
            server=damaged.address,
            available_now=True,
            fail_on_data_loss=fails,
        )
        Landing(settings, open_spark=lambda *_: contextlib.nullcontext(spark.newSession())).run()

    with pytest.raises(StoreUnavailable, match=HIDDEN) as caught:
        land(fails=True)
    assert "--accept-data-loss" in str(caught.value)
    gone = hidden(damaged)
    land(fails=False)
    assert offsets(tmp_path / "table") == [n for n in range(END) if n not in gone]
    assert f"offsets {gone[0]} to {gone[-1]} are not in the table in " in caplog.text
