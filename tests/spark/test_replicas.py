"""A streaming query that reads a cluster: its first machine dies while it lands, and none tells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess
from tests.spark.waiting import wait_until


class Cluster:
    """Two equal logs and their services; the second one may lag."""

    def __init__(self, directory: Path) -> None:
        self.logs = [LogWriter(directory / name) for name in ("one", "two")]
        self.services = [ServiceProcess(log.data_dir) for log in self.logs]
        for service in self.services:
            service.start()

    @property
    def addresses(self) -> str:
        return ",".join(f"grpc://{service.address}" for service in self.services)

    def close(self) -> None:
        for service in self.services:
            service.stop()
        for log in self.logs:
            log.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def test_a_query_lands_each_message_once_while_its_first_address_dies(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    first, second = cluster.logs
    landed: list[int] = []
    batches: list[int] = []

    def land(rows: DataFrame, batch_id: int) -> None:
        if batch_id == 1:  # it is planned, and its tasks have not begun
            cluster.services[0].kill()
            second.append(20)  # the second one lagged: it has only now what was planned
        landed.extend(row.offset for row in rows.select("offset").collect())
        batches.append(batch_id)

    for log in cluster.logs:
        log.append(40)
    query = (
        spark.readStream.format("penstock")
        .options(server=cluster.addresses, minPartitions="2")
        .load()
        .writeStream.foreachBatch(land)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        wait_until(lambda: batches or not query.isActive, "the first batch")
        first.append(20)
        wait_until(lambda: len(batches) > 1 or not query.isActive, "the batch without the first")
        second.append(15)
        wait_until(lambda: len(landed) >= 75 or not query.isActive, "the last messages")
        assert query.exception() is None
    finally:
        query.stop()
    assert sorted(landed) == list(range(75))  # none is missing, none there twice
