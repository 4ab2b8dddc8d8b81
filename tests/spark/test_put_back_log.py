"""A data directory that comes back from an older copy under a query that has read further.

The broker is a real one; the copy is taken and put back as an operator does it, while it is
stopped: docs/store.md, "An older copy is put back".
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.protocol.kinds import V5
from tests.spark.waiting import run_available
from tests.support.broker import Broker
from tests.support.fixtures import running_broker
from tests.support.pipelines import server_of
from tests.support.raw_client import RawClient

Row = tuple[str, int, str]


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
