"""A log that was restored from a backup under jobs that read it: docs/spark.md, "After a restore".

The broker is a real one, the store's commands are those of the document.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from penstock.config.table import TableDefinition
from penstock.errors import ConfigError
from penstock.protocol.kinds import V5
from penstock.spark.jobs.backfill import backfill
from penstock.spark.jobs.landing import Landing
from penstock.spark.jobs.settings import LandingSettings
from penstock.spark.jobs.tables import RunSettings, TablesRun
from penstock.spark.tables.declared import DeclaredTable
from tests.spark.waiting import run_available
from tests.support.broker import Broker
from tests.support.commands import run
from tests.support.fixtures import running_broker
from tests.support.pipelines import server_of
from tests.support.places import path_of, places_in
from tests.support.raw_client import RawClient

GOES_ON = re.compile(r"the log continues at offset (\d+), in the new epoch (\S+?):")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path, stream=True) as started:
        yield started


def publish(broker: Broker, *payloads: str) -> None:
    with RawClient(broker.address, V5) as client:
        assert client.connect("device").reason_code == 0
        for payload in payloads:
            assert client.publish("plant/1", payload.encode()) == 0


def restored(broker: Broker, backup: Path) -> tuple[int, str]:
    """The disk is lost, and the backup put in its place: where the log goes on, and its epoch."""
    broker.stop()
    shutil.rmtree(broker.data_dir)
    code, said, told = run("store", "restore", str(backup), "--data-dir", str(broker.data_dir))
    assert code == 0, told
    found = GOES_ON.search(said.decode())
    assert found is not None, said
    broker.start()
    return int(found[1]), found[2]


def back_up(broker: Broker, backup: Path) -> Path:
    code, _, told = run("store", "backup", str(backup), "--data-dir", str(broker.data_dir))
    assert code == 0, told
    return backup


@pytest.fixture
def land(spark: SparkSession, broker: Broker, tmp_path: Path) -> Callable[..., None]:
    """`penstock table run readings --available-now`, with what else is given."""
    settings = LandingSettings(tmp_path / "readings", server_of(broker), available_now=True)

    def once(**given: str) -> None:
        own = spark.newSession()  # a session knows only one query of a name
        Landing(
            replace(settings, **given),  # type: ignore[arg-type]  # all of them are texts
            open_spark=lambda *_: contextlib.nullcontext(own),
        ).run()

    return once


def payloads(table: Path, column: str = "payload") -> list[str]:
    found = DeltaTable(table).to_pyarrow_table(columns=["offset", column])
    return sorted(str(value, "utf-8") if isinstance(value, bytes) else value
                  for value in found.column(column).to_pylist())  # fmt: skip


def test_a_table_that_was_ahead_of_the_backup_gets_what_is_new_once(
    broker: Broker, land: Callable[..., None], tmp_path: Path
) -> None:
    publish(broker, "a", "b", "c")
    backup = back_up(broker, tmp_path / "backup")
    publish(broker, "d", "e")
    land()
    restored(broker, backup)
    publish(broker, "f")

    land()
    assert payloads(tmp_path / "readings") == ["a", "b", "c", "d", "e", "f"]
    publish(broker, "g")
    land()  # from then on as ever
    assert payloads(tmp_path / "readings") == ["a", "b", "c", "d", "e", "f", "g"]


def test_a_backfill_after_a_restore_lands_no_message_twice(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    """The messages before it have their rows under another epoch."""
    definition = {"name": "texts", "topics": "plant/{line:int}", "decoder": "text"}
    table = DeclaredTable(
        TableDefinition.model_validate(definition), places_in(tmp_path / "tables")
    )
    settings = RunSettings(server_of(broker), available_now=True)

    def land() -> None:
        TablesRun([table], settings, open_spark=lambda *_: contextlib.nullcontext(spark)).run()

    publish(broker, "a", "b", "c")
    land()
    restored(broker, back_up(broker, tmp_path / "backup"))
    publish(broker, "d", "e")
    land()
    (filled,) = backfill(spark.newSession(), table, settings, 0, 5)
    assert (filled.span.start, filled.span.end, filled.rows) == (3, 5, 2)
    assert payloads(path_of(table), "value") == ["a", "b", "c", "d", "e"]
    with pytest.raises(ConfigError, match="can be filled from offset 3 on"):
        backfill(spark.newSession(), table, settings, 0, 3)


@pytest.mark.torture("restores one more log")
def test_a_declared_table_that_was_behind_the_backup_gets_what_it_had_not(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    def tables_run(**given: str) -> Path:
        definition = {"name": "texts", "topics": "plant/{line:int}", "decoder": "text", **given}
        table = DeclaredTable(
            TableDefinition.model_validate(definition), places_in(tmp_path / "tables")
        )
        settings = RunSettings(server_of(broker), available_now=True)
        opened = contextlib.nullcontext(spark)
        TablesRun([table], settings, open_spark=lambda *_: opened).run()
        return path_of(table)

    publish(broker, "a", "b")
    path = tables_run()
    publish(broker, "c")
    restored(broker, back_up(broker, tmp_path / "backup"))
    publish(broker, "d")

    tables_run()
    assert payloads(path, "value") == ["a", "b", "c", "d"]


@pytest.mark.torture("restores one more log")
def test_a_query_of_ones_own_goes_on_where_the_restored_log_parts_from_what_it_read(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    found: list[str] = []

    def keep(rows: DataFrame, _batch_id: int) -> None:
        found.extend(row.value for row in rows.collect())

    def query() -> None:
        read = spark.readStream.format("penstock").options(server=server_of(broker))
        frame = read.load().selectExpr("cast(payload as string) value")
        write = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        run_available(write.foreachBatch(keep))

    publish(broker, "a", "b")
    backup = back_up(broker, tmp_path / "backup")
    publish(broker, "c")
    query()
    restored(broker, backup)
    publish(broker, "d")
    query()
    assert found == ["a", "b", "c", "d"]
    publish(broker, "e")
    query()
    assert found == ["a", "b", "c", "d", "e"]
