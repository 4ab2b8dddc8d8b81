"""`groupId`: a streaming query is a registered reader of a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.control.reader_requests import ReaderState
from penstock.stream.client import StreamClient
from tests.spark.waiting import DEADLINE_S, run_available, wait_until
from tests.support.broker import Broker
from tests.support.fixtures import running_broker
from tests.support.raw_client import RawClient


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("broker"), stream=True) as made:
        yield made


@pytest.fixture
def server(broker: Broker) -> str:
    host, port = broker.stream_address
    return f"{host}:{port}"


@pytest.fixture
def client(server: str) -> Iterator[StreamClient]:
    with StreamClient(server) as made:
        yield made


@pytest.fixture
def publish(broker: Broker) -> Iterator[Callable[[int], None]]:
    with RawClient(broker.address) as publisher:
        publisher.connect("publisher")

        def publish(count: int) -> None:
            for _ in range(count):
                publisher.publish("plant/1", b"x", qos=1)

        yield publish


class Sink:
    """Keeps the offsets it gets; `fail` makes the next batch fail."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.fail = False

    def __call__(self, rows: DataFrame, _batch_id: int) -> None:
        if self.fail:
            raise RuntimeError("the sink is out of order")
        self.offsets += sorted(row.offset for row in rows.select("offset").collect())


def state(client: StreamClient, group: str) -> ReaderState | None:
    return next((found for found in client.readers() if found.group == group), None)


def test_a_group_pins_latest_and_says_how_far_it_is(
    spark: SparkSession,
    broker: Broker,
    server: str,
    client: StreamClient,
    publish: Callable[[int], None],
    tmp_path: Path,
) -> None:
    sink = Sink()

    def writer() -> DataStreamWriter:
        return (
            spark.readStream.format("penstock")
            .options(server=server, groupId="etl", startingOffsets="latest")
            .load()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )

    publish(10)
    query = writer().start()
    wait_until(lambda: state(client, "etl"), "the group")
    sink.fail = True
    publish(10)
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(DEADLINE_S)
    held = state(client, "etl")
    assert held is not None
    assert (held.offset, held.lag_messages, held.stream) == (10, 10, "messages")
    assert held.about.startswith("Spark on ")

    broker.restart()
    with RawClient(broker.address) as publisher:
        publisher.connect("late")
        publisher.publish("plant/1", b"x", qos=1)
    sink.fail = False
    run_available(writer())
    assert sink.offsets == list(range(10, 21)), "latest asked again would be 21"
    done = state(client, "etl")
    assert done is not None
    assert (done.offset, done.lag_messages, done.lag_s) == (21, 0, 0.0)


def test_a_query_that_may_not_have_the_group_ends_and_says_so(
    spark: SparkSession, server: str, client: StreamClient, publish: Callable[[int], None]
) -> None:
    publish(1)

    def run(**options: str) -> None:
        frame = spark.readStream.format("penstock").options(server=server, groupId="one", **options)
        run_available(frame.load().writeStream.foreachBatch(Sink()))

    run(topics="plant/#")
    with pytest.raises(
        PySparkException, match=r"group one reads plant/# of the stream messages, an"
    ):
        run(topics="other/#")
    client.release("one")
    run(topics="other/#")


@pytest.mark.torture("starts a second broker")
def test_a_query_of_two_brokers_is_a_reader_of_each(
    spark: SparkSession,
    server: str,
    client: StreamClient,
    publish: Callable[[int], None],
    tmp_path: Path,
) -> None:
    with running_broker(tmp_path, stream=True) as second:
        other = "{}:{}".format(*second.stream_address)
        sink = Sink()

        def run() -> None:
            frame = spark.readStream.format("penstock").options(
                servers=f"{server},{other}", groupId="both", startingOffsets="latest"
            )
            writer = frame.load().writeStream.option("checkpointLocation", str(tmp_path / "c"))
            run_available(writer.foreachBatch(sink))

        publish(3)
        with RawClient(second.address) as publisher, StreamClient(other) as second_client:
            publisher.connect("publisher")
            publisher.publish("plant/2", b"x", qos=1)
            run()
            publish(2)
            publisher.publish("plant/2", b"x", qos=1)
            run()
            states = [state(known, "both") for known in (client, second_client)]
            assert [found.offset for found in states if found] == [
                client.offsets("messages").latest,
                second_client.offsets("messages").latest,
            ]
            assert [found.lag_messages for found in states if found] == [0, 0]
            assert len(sink.offsets) == 3


def test_a_batch_query_has_no_group(spark: SparkSession, server: str) -> None:
    frame = spark.read.format("penstock").options(server=server, groupId="etl").load()
    with pytest.raises(PySparkException, match=r"option groupId is for spark.readStream"):
        frame.count()
