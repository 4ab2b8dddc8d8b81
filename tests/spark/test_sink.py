"""`format("penstock")` as a sink: real broker, real Spark, and what is in the log afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.auth.tokens import OWN_FILE
from penstock.errors import ConfigError
from penstock.store.staging import DECIDED
from penstock.stream.client import StreamClient
from penstock.stream.credentials import PLAIN, Credentials
from penstock.stream.requests import PublishBatchRequest, StageRowsRequest
from penstock.stream.rows import PUBLISH_SCHEMA, STREAM_SCHEMA
from tests.spark.waiting import run_available, wait_until
from tests.support.broker import Broker
from tests.support.environment import environment
from tests.support.fixtures import Clients, running_broker
from tests.support.staged import staged_files

PROGRAM = """
import sys
from pathlib import Path
from penstock.spark.session import local_spark
server, directory, log = sys.argv[1:]
with local_spark("sink", "local[2,4]", Path(log)) as spark:
    read = spark.readStream.format("penstock").option("server", server)
    rows = read.option("topics", "in/#").option("maxOffsetsPerTrigger", "500").load()
    rows = rows.repartition(2).selectExpr("concat('out', substring(topic, 3)) topic", "payload")
    write = rows.writeStream.format("penstock").option("server", server)
    write = write.option("checkpointLocation", directory).trigger(processingTime="0 seconds")
    write.start().awaitTermination()
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path, {"stream.bind": "127.0.0.1:0"}, stream=True) as started:
        yield started


def server_of(broker: Broker) -> str:
    return "{}:{}".format(*broker.stream_address)


def log_of(broker: Broker, *topics: str) -> pa.Table:
    own = broker.data_dir / OWN_FILE
    credentials = Credentials(token_file=str(own)) if own.exists() else PLAIN
    with StreamClient(server_of(broker), credentials=credentials) as client:
        log = client.offsets("messages")
        batches = client.read("messages", log.epoch, 0, log.latest, topic_filters=topics)
        return pa.Table.from_batches(list(batches), STREAM_SCHEMA)


def numbers(broker: Broker, *topics: str) -> list[int]:
    return sorted(int(payload) for payload in log_of(broker, *topics)["payload"].to_pylist())


def publish_numbers(spark: SparkSession, broker: Broker, begin: int, end: int) -> None:
    """Messages `begin` to `end` (excluded) below `in/`, each with its number."""
    frame = spark.range(begin, end, 1, 2)
    rows = frame.selectExpr("concat('in/', id % 5) topic", "cast(id as string) payload")
    rows.write.format("penstock").option("server", server_of(broker)).mode("append").save()


def test_rows_are_messages_like_any_others(
    spark: SparkSession, broker: Broker, clients: Clients
) -> None:
    reader = clients.join(broker, "reader")
    reader.subscribe("plant/#")
    frame = spark.sql(
        "SELECT 'plant/1' topic, cast('warm' as binary) payload, 1 qos, true retain,"
        " struct('text' content_type, 'answers' response_topic, 3600 message_expiry_interval,"
        " array(struct('unit' key, 'C' value)) user_properties) properties"
    )
    write = frame.write.format("penstock").option("server", server_of(broker)).mode("append")
    write.option("sinkId", "warmth").option("clientId", "spark job").save()

    got = reader.take()
    assert (got.topic, got.payload, got.qos) == ("plant/1", b"warm", 1)
    assert got.properties is not None
    assert got.properties.response_topic == "answers"
    assert got.properties.user_properties == [("unit", "C")]
    assert got.properties.message_expiry_interval in range(3000, 3601)
    later = clients.join(broker, "later")
    later.subscribe("plant/1")
    assert later.take().retain
    (row,) = log_of(broker).to_pylist()
    assert (row["client_id"], row["retain"], row["qos"]) == ("spark job", True, 1)
    assert row["properties"]["content_type"] == "text"

    write.save()  # the same sink and batch: known, and not published again
    assert log_of(broker).num_rows == 1
    write.option("batchId", "1").save()
    assert log_of(broker).num_rows == 2
    assert not list(broker.data_dir.glob("staged/*"))


def test_mistakes_are_one_sentence_and_publish_nothing(spark: SparkSession, broker: Broker) -> None:
    def refused(frame: DataFrame, mode: str = "append") -> str:
        with pytest.raises(PySparkException) as caught:
            frame.write.format("penstock").option("server", server_of(broker)).mode(mode).save()
        return str(caught.value)

    good = spark.range(0, 10, 1, 2).selectExpr("'a' topic", "cast(id as string) payload")
    assert "a column 'id' cannot be published; select only topic" in refused(
        spark.range(1).selectExpr("'a' topic", "'' payload", "id")
    )
    assert "cannot be overwritten: use mode append" in refused(good, "overwrite")
    # One task fails, and takes with it what the other had staged.
    row = "if(id = 9, 'a/#', 'a') topic"
    assert "row 4 of its task (topic 'a/#') cannot be published" in refused(
        spark.range(0, 10, 1, 2).selectExpr(row, "cast(id as string) payload")
    )
    assert log_of(broker).num_rows == 0
    assert not staged_files(broker.data_dir, ".arrow")


def test_publishing_must_be_allowed_where_clients_have_passwords(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("")
    for name in "ab":
        (tmp_path / name).mkdir()
    settings = {"stream.bind": "127.0.0.1:0", "access.password_file": passwords}
    rows = pa.Table.from_pylist(
        [{"topic": "t", "payload": b"1", "qos": 1, "retain": False, "properties": None}],
        PUBLISH_SCHEMA,
    )
    with (
        running_broker(tmp_path / "a", settings, stream=True) as broker,
        StreamClient(
            server_of(broker), credentials=Credentials(token_file=str(broker.data_dir / OWN_FILE))
        ) as client,
    ):
        with pytest.raises(ConfigError, match=r"set stream\.allow_publish = true"):
            client.stage(StageRowsRequest("s", 0, "r", 0), rows)
        with pytest.raises(ConfigError, match=r"set stream\.allow_publish = true"):
            client.publish(PublishBatchRequest("s", 0, "r"))
    with running_broker(
        tmp_path / "b", settings | {"stream.allow_publish": "true"}, stream=True
    ) as broker:
        own = Credentials(token_file=str(broker.data_dir / OWN_FILE))
        with StreamClient(server_of(broker), credentials=own) as client:
            file = client.stage(StageRowsRequest("s", 0, "r", 0), rows)
            client.publish(PublishBatchRequest("s", 0, "r", "spark", (file,)))
        assert log_of(broker).num_rows == 1


@pytest.fixture
def query(spark: SparkSession, broker: Broker, tmp_path: Path) -> Callable[[], DataStreamWriter]:
    """Source → transform → sink in one query."""

    def build() -> DataStreamWriter:
        read = spark.readStream.format("penstock").option("server", server_of(broker))
        rows = read.option("topics", "in/#").option("maxOffsetsPerTrigger", "1000").load()
        rows = rows.selectExpr("concat('out', substring(topic, 3)) topic", "payload", "qos")
        write = rows.writeStream.format("penstock").option("server", server_of(broker))
        return write.option("checkpointLocation", str(tmp_path / "checkpoint"))

    return build


def test_a_batch_that_spark_runs_again_is_published_once(
    spark: SparkSession, broker: Broker, query: Callable[[], DataStreamWriter], tmp_path: Path
) -> None:
    publish_numbers(spark, broker, 0, 500)
    run_available(query())
    assert numbers(broker, "out/#") == list(range(500))

    # Spark was killed after the broker had answered, and before it wrote that down.
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    for path in last.parent.glob(f"*{last.name}*"):
        path.unlink()
    broker.restart()
    publish_numbers(spark, broker, 500, 600)
    run_available(query())
    assert numbers(broker, "out/#") == list(range(600))


@pytest.mark.torture("publishes 100,000 rows under kills")
def test_a_decided_batch_is_published_though_spark_never_comes_back(broker: Broker) -> None:
    """Staged by tasks, decided, and the broker is killed while it publishes, again and again."""
    count, files = 100_000, 2  # enough for a slow machine to be in time to kill
    parts: list[tuple[str, int, int]] = []
    with StreamClient(server_of(broker)) as client:
        for part in range(files):
            begin = part * count // files
            payloads = [str(begin + n).encode() for n in range(count // files)]
            columns = [
                ["t"] * len(payloads),
                payloads,
                [1] * len(payloads),
                [False] * len(payloads),
                [None] * len(payloads),
            ]
            arrays = [
                pa.array(values, field.type)
                for values, field in zip(columns, PUBLISH_SCHEMA, strict=True)
            ]
            rows = pa.Table.from_arrays(arrays, schema=PUBLISH_SCHEMA)
            parts.append(client.stage(StageRowsRequest("s", 4, "run", part), rows))
    request = PublishBatchRequest("s", 4, "run", "spark", tuple(parts))
    program = (
        "import sys, json; from penstock.stream.client import StreamClient;"
        "from penstock.stream.requests import PublishBatchRequest; a = json.loads(sys.argv[2]);"
        "StreamClient(sys.argv[1]).publish(PublishBatchRequest('s', 4, 'run', 'spark', a))"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", program, server_of(broker), json.dumps(parts)], env=environment()
    )
    try:
        wait_until(lambda: staged_files(broker.data_dir, DECIDED), "the decision")
    finally:
        driver.kill()
        driver.wait()
    kills = 0
    for share in (0, 1, count // 2):
        wait_until(partial(reaches, broker, share), f"{share} rows")
        kills += bool(staged_files(broker.data_dir, DECIDED))
        broker.restart()
    wait_until(lambda: not list(broker.data_dir.glob("staged/*")), "the end of the batch")
    found = [int(payload) for payload in log_of(broker)["payload"].to_pylist()]
    assert found == list(range(count))
    assert kills > 0, "the broker was killed too late"
    with StreamClient(server_of(broker)) as client:
        client.publish(request)  # asked again by a driver that came back
    assert end_of_log(broker) == count


def end_of_log(broker: Broker) -> int:
    with StreamClient(server_of(broker)) as client:
        return client.offsets("messages").latest


def reaches(broker: Broker, end: int) -> bool:
    return end_of_log(broker) >= end


@pytest.mark.torture("starts a second Spark and kills it")
def test_source_to_sink_is_exactly_once_while_driver_and_broker_are_killed(
    spark: SparkSession, broker: Broker, query: Callable[[], DataStreamWriter], tmp_path: Path
) -> None:
    count = 6000
    publish_numbers(spark, broker, 0, count)
    where = (server_of(broker), tmp_path / "checkpoint", tmp_path / "program.log")
    driver = subprocess.Popen([sys.executable, "-c", PROGRAM, *where], env=environment())
    try:
        wait_until(lambda: numbers(broker, "out/#"), "the first batch")
        broker.restart()
        before = len(numbers(broker, "out/#"))
        wait_until(lambda: len(numbers(broker, "out/#")) > before, "another batch")
        # With rows staged that are perhaps not decided.
        wait_until(lambda: staged_files(broker.data_dir, ".arrow"), "staged rows")
    finally:
        driver.kill()
        driver.wait()
    assert len(numbers(broker, "out/#")) < count, "the driver was killed too late"
    run_available(query())
    assert numbers(broker, "out/#") == list(range(count))
