"""A data directory that comes back from an older copy under a query that has read further.

The broker is a real one; the copy is taken and put back as an operator does it, while it is
stopped: docs/store.md, "An older copy is put back".
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition

from penstock.errors import EpochMismatch
from penstock.protocol.kinds import V5
from penstock.spark.jobs.landing import Landing
from penstock.spark.jobs.settings import LandingSettings
from penstock.spark.options import parse_options
from penstock.spark.source import StreamReader
from tests.spark.waiting import run_available
from tests.support.broker import Broker
from tests.support.commands import run
from tests.support.fixtures import running_broker
from tests.support.pipelines import server_of
from tests.support.places import path_of
from tests.support.raw_client import RawClient

Row = tuple[str, int, str]

LOST = re.compile(
    r"lost history +(\d+) rows of epoch (\S+), offsets (\d+) to (\d+), are of a history that"
    r" the log does not have"
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path, stream=True) as started:
        yield started


def publish(broker: Broker, prefix: str, count: int) -> list[str]:
    payloads = [f"{prefix}{number}" for number in range(count)]
    with RawClient(broker.address, V5) as client:
        assert client.connect("device").reason_code == 0
        for payload in payloads:
            assert client.publish("plant/1", payload.encode()) == 0
    return payloads


def copy(broker: Broker, to: Path) -> None:
    broker.stop()
    shutil.copytree(broker.data_dir, to, ignore=shutil.ignore_patterns("control"))
    broker.start()


def put_back(broker: Broker, copied: Path) -> None:
    broker.stop()
    shutil.rmtree(broker.data_dir)
    shutil.copytree(copied, broker.data_dir)
    broker.start()


@pytest.fixture
def land(spark: SparkSession, broker: Broker, tmp_path: Path) -> Callable[..., list[Row]]:
    """Run a query of one's own until it has all; return all rows that it ever got."""
    found: list[Row] = []

    def keep(rows: DataFrame, _batch_id: int) -> None:
        found.extend((row.epoch, row.offset, row.value) for row in rows.collect())

    def run(**options: str) -> list[Row]:
        read = spark.readStream.format("penstock").options(server=server_of(broker), **options)
        frame = read.load().selectExpr("epoch", "offset", "cast(payload as string) value")
        write = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        run_available(write.foreachBatch(keep))
        return found

    return run


def test_an_older_copy_of_the_data_directory_loses_no_message_of_the_living_history(
    broker: Broker, land: Callable[..., list[Row]], tmp_path: Path
) -> None:
    old = publish(broker, "old", 20)
    copy(broker, tmp_path / "copy")
    lost = publish(broker, "lost", 20)
    assert [value for *_, value in land()] == old + lost
    put_back(broker, tmp_path / "copy")
    new = publish(broker, "new", 40)

    rows = land()
    assert [value for *_, value in rows] == old + lost + new
    assert len({(epoch, offset) for epoch, offset, _ in rows}) == len(rows)
    more = publish(broker, "more", 5)
    assert [value for *_, value in land()] == old + lost + new + more


def rows_of(planner: StreamReader, parts: Sequence[InputPartition]) -> list[str]:
    batches = (batch for part in parts for batch in planner.read(part))
    return [str(value, "utf-8") for batch in batches for value in batch[0].to_pylist()]


def test_a_batch_that_was_planned_in_the_lost_future_is_read_up_to_where_the_log_parts_from_it(
    broker: Broker, tmp_path: Path
) -> None:
    """A checkpoint that names the batch, and a broker that was put back before it was read."""
    options = parse_options({"server": server_of(broker)})
    old = publish(broker, "old", 4)
    copy(broker, tmp_path / "copy")
    publish(broker, "lost", 4)
    planner = StreamReader(options, ["payload"])
    start, limit = planner.initialOffset(), planner.getDefaultReadLimit()
    end = planner.latestOffset(start, limit)
    parts = planner.partitions(start, end)
    put_back(broker, tmp_path / "copy")
    new = publish(broker, "new", 8)

    with pytest.raises(EpochMismatch, match="they part at offset 4"):
        rows_of(planner, parts)
    again = StreamReader(options, ["payload"])
    assert rows_of(again, again.partitions(start, end)) == old
    begin = again.latestOffset(end, limit)
    assert (begin["0"], again.partitions(end, begin)) == (4, [])
    last = again.latestOffset(begin, limit)
    assert rows_of(again, again.partitions(begin, last)) == new
    for reader in (planner, again):
        reader.stop()


def test_a_position_of_an_older_version_is_taken_over_and_has_a_mark_from_then_on(
    broker: Broker,
) -> None:
    publish(broker, "old", 4)
    planner = StreamReader(parse_options({"server": server_of(broker)}), ["payload"])
    limit = planner.getDefaultReadLimit()
    end = planner.latestOffset(planner.initialOffset(), limit)
    stored = {name: value for name, value in end.items() if name != "mark"}
    assert planner.latestOffset(stored, limit) == stored, "nothing new, no batch"
    new = publish(broker, "new", 2)
    later = planner.latestOffset(stored, limit)
    assert later["mark"]
    assert rows_of(planner, planner.partitions(stored, later)) == new
    planner.stop()


def test_a_table_gets_each_message_of_the_living_history_and_keeps_what_is_lost(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    """Twice, and the job's own directory is lost as well."""
    settings = LandingSettings(tmp_path / "readings", server_of(broker), available_now=True)

    def landed() -> list[str]:
        own = spark.newSession()
        Landing(settings, open_spark=lambda *_: nullcontext(own)).run()
        rows = DeltaTable(path_of(settings)).to_pyarrow_table(columns=["payload"])
        return sorted(row["payload"].decode() for row in rows.to_pylist())

    messages = publish(broker, "old", 20)
    for number in range(2):
        copy(broker, tmp_path / f"copy-{number}")
        messages += publish(broker, f"lost-{number}-", 20)
        assert landed() == sorted(messages)
        put_back(broker, tmp_path / f"copy-{number}")
        shutil.rmtree(settings.checkpoint_dir)
        messages += publish(broker, f"new-{number}-", 40)
        assert landed() == sorted(messages)

    code, said, told = run("table", "status", str(settings.table), "--server", server_of(broker))
    assert code == 0, told
    lost = LOST.findall(said.decode())
    assert [(rows, first, last) for rows, _, first, last in lost] == [
        ("20", "20", "39"),
        ("20", "60", "79"),
    ]
    code, said, told = run("table", "show", str(settings.table), "--lost", "-n", "100")
    assert code == 0, told
    listed = re.findall(r"lost-\d-\d+", said.decode())
    assert sorted(listed) == sorted(one for one in messages if one.startswith("lost"))
