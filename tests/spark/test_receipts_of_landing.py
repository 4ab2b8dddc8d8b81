"""Receipts end to end: publisher, broker, landing job and table, with both processes killed."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.protocol.properties import Properties
from penstock.spark.jobs.landing import Landing
from penstock.spark.jobs.settings import LandingSettings
from penstock.stream.client import StreamClient
from tests.spark.test_landing_process import Job
from tests.spark.waiting import wait_until
from tests.support.broker import Broker
from tests.support.fixtures import running_broker
from tests.support.places import path_of
from tests.support.process_tree import alive, descendants
from tests.support.raw_client import NothingReceivedError, RawClient


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path, {"limits.max_mqueue_len": 0}, stream=True) as made:
        yield made


def server(broker: Broker) -> str:
    host, port = broker.stream_address
    return f"{host}:{port}"


def publish(broker: Broker, numbers: range) -> None:
    with RawClient(broker.address) as publisher:
        publisher.connect("publisher")
        for number in numbers:
            name = b"%d" % number
            asks = Properties(
                response_topic="receipts/p",
                correlation_data=name,
                user_properties=[("penstock-receipt", "readings")],
            )
            assert publisher.publish("plant/1", name, 1, properties=asks) == 0


class Receiver:
    """Counts receipts by correlation data; `offsets` is what they say of each."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.counts: Counter[bytes] = Counter()
        self.offsets: dict[bytes, int] = {}
        self.connect(clean_start=True)
        self.client.subscribe("receipts/p", qos=1)

    def connect(self, *, clean_start: bool = False) -> None:
        self.client = RawClient(self._broker.address)
        self.client.connect("receiver", clean_start, 0, None, 3600)

    def take(self) -> int:
        """Take what is there; how many were told of by now."""
        with contextlib.suppress(NothingReceivedError):
            properties = self.client.take(0.1).properties
            assert properties is not None
            name = properties.correlation_data or b""
            said = dict(properties.user_properties or [])
            assert said["penstock-receipt"] == "readings"
            self.counts[name] += 1
            self.offsets[name] = int(said["penstock-offset"])
        return len(self.counts)


def run(spark: SparkSession, settings: LandingSettings) -> None:
    own = spark.newSession()
    Landing(settings, open_spark=lambda *_: contextlib.nullcontext(own)).run()


@pytest.mark.torture("kills broker, service and Spark in turn")
def test_each_message_that_landed_has_a_receipt_whoever_was_killed(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    receiver = Receiver(broker)
    publish(broker, range(100))
    job = Job(tmp_path / "readings", server(broker))
    process = job.start(
        "--trigger", "0", "--max-offsets", "10", "--topics", "plant/#", "--group", "landing"
    )  # fmt: skip
    try:
        wait_until(lambda: receiver.take() >= 15, "some receipts")
    finally:
        started = descendants(process.pid)
        process.kill()
        process.communicate()
    wait_until(lambda: not alive(started), "Java and its workers to exit")

    publish(broker, range(100, 150))
    receiver.client.drop()
    broker.restart()  # by SIGKILL
    receiver.connect()
    settings = LandingSettings(
        tmp_path / "readings",
        server(broker),
        topics=("plant/#",),
        available_now=True,
        group="landing",
    )
    run(spark, settings)

    wait_until(lambda: receiver.take() == 150, "every receipt")
    rows = DeltaTable(path_of(settings)).to_pyarrow_table(columns=["payload", "offset"]).to_pylist()
    assert len(rows) == 150
    assert {row["payload"]: row["offset"] for row in rows} == receiver.offsets
    receiver.client.drop()
    with StreamClient(server(broker)) as client:
        (table,) = client.tables()
        (reader,) = client.readers()
        log = client.offsets("messages")
    assert (table.table, table.topics, table.refused) == ("readings", ("plant/#",), 0)
    assert table.receipts >= 150
    assert table.offset == reader.offset <= log.latest
    assert reader.offset > max(receiver.offsets.values())


def test_a_table_lands_while_nobody_can_be_told_and_the_next_run_makes_up_for_it(
    spark: SparkSession, broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a crash between the table's commit and the call."""
    receiver = Receiver(broker)
    publish(broker, range(5))
    settings = LandingSettings(
        tmp_path / "readings", server(broker), topics=("plant/#",), available_now=True
    )
    run(spark, settings)
    wait_until(lambda: receiver.take() == 5, "the first receipts")

    publish(broker, range(5, 10))
    control = broker.data_dir / "control"
    control.rename(broker.data_dir / "elsewhere")
    with caplog.at_level(logging.WARNING):
        run(spark, settings)
    (broker.data_dir / "elsewhere").rename(control)
    assert (
        "the landed offset was not reported, so receipts are delayed: no stream service"
        in caplog.text
    )
    assert DeltaTable(path_of(settings)).to_pyarrow_table(columns=["offset"]).num_rows == 10
    assert receiver.client.settle() == []

    run(spark, settings)
    wait_until(lambda: receiver.take() == 10, "the receipts of what had landed")
    assert set(receiver.counts.values()) == {1}
    receiver.client.drop()


@pytest.mark.torture("lands twice")
def test_a_table_that_begins_at_the_end_has_no_receipts_for_what_was_before(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    receiver = Receiver(broker)
    publish(broker, range(3))
    settings = LandingSettings(
        tmp_path / "readings",
        server(broker),
        topics=("plant/#",),
        available_now=True,
        starting_offsets="latest",
    )
    run(spark, settings)
    publish(broker, range(3, 6))
    run(spark, settings)
    wait_until(lambda: receiver.take() == 3, "receipts")
    assert set(receiver.counts) == {b"3", b"4", b"5"}
    assert receiver.client.settle() == []
    receiver.client.drop()
