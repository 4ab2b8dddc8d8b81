"""`spark.read.format("penstock")`, found by Spark without registration."""

from __future__ import annotations

import datetime
import json
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.protocol.properties import Properties, encode_properties
from penstock.spark.schema import SPARK_SCHEMA
from penstock.stream.rows import STREAM_SCHEMA
from tests.contract.archived import ALARMS, publish_mixed, writing
from tests.spark.log_writer import FIRST_RECEIVED_AT_US, LogWriter
from tests.spark.service_process import ServiceProcess, serving


@pytest.fixture
def reader(spark: SparkSession, service: ServiceProcess) -> DataFrameReader:
    return spark.read.format("penstock").option("server", service.address)


def offsets(frame: DataFrame) -> list[int]:
    return [row.offset for row in frame.select("offset").orderBy("offset").collect()]


another = partial(pytest.param, marks=pytest.mark.torture("one more sentence, by the same way"))


def test_spark_types_are_exactly_the_arrow_types_of_the_stream() -> None:
    assert to_arrow_schema(SPARK_SCHEMA, timezone="UTC").equals(STREAM_SCHEMA)


def test_every_column_of_every_message_arrives(log: LogWriter, reader: DataFrameReader) -> None:
    encoded = encode_properties(
        Properties(
            content_type="text/plain",
            message_expiry_interval=60,
            correlation_data=b"\x00\xff",
            user_properties=[("k", "v"), ("k", "w")],
        )
    )
    log.append(3)
    log.append(4, properties=encoded)

    rows = reader.load().orderBy("offset").collect()

    assert [row.offset for row in rows] == list(range(7))
    assert rows[1].properties is None
    last = rows[5]
    assert (last.epoch, last.topic, bytes(last.payload)) == (log.epoch, "plant/1/pressure", b"5")
    assert (last.qos, last.retain, last.client_id) == (2, False, "device-1")
    assert last.received_at.astimezone(datetime.UTC) == datetime.datetime(
        2023, 11, 14, 22, 13, 25, tzinfo=datetime.UTC
    )
    found = last.properties
    assert (found.content_type, found.message_expiry_interval) == ("text/plain", 60)
    assert bytes(found.correlation_data) == b"\x00\xff"
    assert [(pair.key, pair.value) for pair in found.user_properties] == [("k", "v"), ("k", "w")]


def test_sql_reads_by_a_view_or_by_a_table_that_is_told_where(
    log: LogWriter, spark: SparkSession, service: ServiceProcess
) -> None:
    """A table's options do not reach the source when it is read: Spark would read another log."""
    log.append(5)
    given = f"(server '{service.address}')"
    with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW instead"):
        spark.sql(f"CREATE TABLE messages USING penstock OPTIONS {given}")
    spark.sql("CREATE TABLE messages USING penstock")
    try:
        assert spark.sql(f"SELECT * FROM messages WITH {given}").count() == 5
    finally:
        spark.sql("DROP TABLE messages")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING penstock OPTIONS {given}")
    assert spark.sql("SELECT count(*) FROM seen").first()[0] == 5  # type: ignore[index]
    spark.catalog.dropTempView("seen")


def test_a_range_is_split_into_the_partitions_asked_for(
    log: LogWriter, reader: DataFrameReader
) -> None:
    log.append(10)
    log.append(91)
    frame = reader.option("minPartitions", "4").load()
    sizes = [len(part) for part in frame.rdd.glom().collect()]
    assert sizes == [25, 25, 25, 26]


def test_an_empty_log_gives_no_rows(reader: DataFrameReader) -> None:
    assert reader.load().count() == 0


def test_topic_filters_choose_rows_and_offsets_stay(
    log: LogWriter, reader: DataFrameReader
) -> None:
    log.append(9)
    frame = reader.option("topics", "plant/+/pressure, plant/2/#").load()
    assert offsets(frame) == [1, 2, 4, 5, 7, 8]


def test_the_default_stream_leaves_out_topics_that_start_with_a_dollar(
    log: LogWriter, reader: DataFrameReader
) -> None:
    """A leading wildcard does not match them [MQTT-4.7.2-1]."""
    log.append(6, topics=("$SYS/uptime", "a"))
    assert offsets(reader.load()) == [1, 3, 5]


def test_columns_can_be_chosen_by_schema(log: LogWriter, reader: DataFrameReader) -> None:
    log.append(3)
    rows = reader.schema("topic string, qos byte").load().collect()
    assert min(tuple(row) for row in rows) == ("plant/1/pressure", 2)


def test_a_range_can_be_named(log: LogWriter, reader: DataFrameReader) -> None:
    log.append(20)
    frame = (
        reader.option("startingOffsets", '{"0": 5}')
        .option("endingOffsets", f'{{"epoch": "{log.epoch}", "0": 8}}')
        .load()
    )
    assert offsets(frame) == [5, 6, 7]


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        another("startingOffset", "earliest", "did you mean startingOffsets?"),
        ("stream", "nothing", "there is no stream 'nothing'; there is: messages"),
        ("startingOffsets", '{"0": 0, "epoch": "old"}', "it was restored or created anew"),
        another("endingOffsets", '{"0": 99}', "offset 99 is not in the log yet, which ends at 3"),
        another(
            "startingOffsets", "latest", 'option startingOffsets: "latest" is for spark.readStream'
        ),
        another("maxOffsetsPerTrigger", "5", "option maxOffsetsPerTrigger is for spark.readStream"),
        another(
            "startingTimestamp", "2024-01-01T00:00Z", "nothing was received at or after 2024-01-01"
        ),
        another(
            "endingOffsets", '{"0": -2}', 'endingOffsets: "earliest" would leave nothing to read'
        ),
    ],
)
def test_a_mistake_is_one_clear_sentence(
    log: LogWriter, reader: DataFrameReader, option: str, value: str, sentence: str
) -> None:
    log.append(3)
    with pytest.raises(PySparkException) as caught:
        reader.option(option, value).load().count()
    assert sentence in str(caught.value)


def test_a_range_of_time_can_be_named(log: LogWriter, reader: DataFrameReader) -> None:
    """Offset n was received n seconds after 22:13:20."""
    log.append(7)
    log.append(13)
    frame = (
        reader.option("startingTimestamp", "2023-11-14T22:13:25Z")
        .option("endingTimestamp", str((FIRST_RECEIVED_AT_US + 8_000_000) // 1000))
        .load()
    )
    assert offsets(frame) == [5, 6, 7]
    to_the_end = reader.option("endingTimestamp", "2030-01-01T00:00Z").load()
    assert offsets(to_the_end) == list(range(5, 20))
    after_it = (
        reader.option("startingTimestamp", "2030-01-01T00:00Z")
        .option("startingOffsetsByTimestampStrategy", "latest")
        .load()
    )
    assert offsets(after_it) == []


def test_a_partition_has_no_more_than_the_records_asked_for(
    log: LogWriter, reader: DataFrameReader
) -> None:
    log.append(100)
    frame = reader.option("minPartitions", "1").option("maxRecordsPerPartition", "30").load()
    assert [len(part) for part in frame.rdd.glom().collect()] == [25, 25, 25, 25]


def test_properties_can_be_left_out(log: LogWriter, reader: DataFrameReader) -> None:
    log.append(3)
    bare = reader.option("includeProperties", "false")
    assert bare.load().columns == SPARK_SCHEMA.names[:-1]
    assert bare.load().count() == 3
    with pytest.raises(PySparkException, match="has no column 'properties'; it has epoch, offset"):
        bare.schema(SPARK_SCHEMA).load().count()


FILTERS = [
    "offset >= 30 and offset < 35",
    "offset in (3, 50, 99)",
    "received_at >= '2023-11-14T22:13:50Z' and received_at < '2023-11-14T22:13:55.000001Z'",
    "received_at = timestamp_seconds(1700000007)",
    "topic = 'plant/1/pressure' and offset > 90",
    "topic in ('plant/1/pressure', 'other') and received_at > '2023-11-14T22:14:50Z'",
    "topic like 'plant/1/%' and offset < 6",
    "topic like 'plant/1/%' and topic like '%ture' and not offset = 0 and offset < 9",
    "offset < 5 or topic = 'plant/2/temperature' and offset < 9",
    "topic is null or offset is null",
    "offset > 10 and offset < 5",
    "properties is null and qos = 1 and offset <= 10",
]


@pytest.mark.parametrize(
    "is_on",
    [
        "true",
        pytest.param("false", marks=pytest.mark.torture("the filters are those of Spark alone")),
    ],
)
def test_filters_mean_the_same_whether_they_are_pushed_down_or_not(
    log: LogWriter, reader: DataFrameReader, spark: SparkSession, is_on: str, tmp_path: Path
) -> None:
    log.append(60)
    log.append(40)
    reader.load().write.parquet(str(tmp_path / "everything"))
    everything = spark.read.parquet(str(tmp_path / "everything"))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", is_on)
    try:
        for text in FILTERS:
            assert offsets(reader.load().where(text)) == offsets(everything.where(text)), text
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_a_pushed_down_filter_stands_in_the_plan(
    log: LogWriter, reader: DataFrameReader, capsys: pytest.CaptureFixture[str]
) -> None:
    log.append(3)
    chosen = reader.load().where("offset > 1 and received_at > '2020-01-01' and qos = 0")
    chosen.explain("formatted")
    plan = capsys.readouterr().out
    pushed = next(line for line in plan.splitlines() if line.startswith("PushedFilters"))
    assert "GreaterThan(offset,1), GreaterThan(received_at," in pushed
    assert "qos" not in pushed


def test_named_levels_are_columns_and_a_condition_on_one_is_applied_by_the_log(
    log: LogWriter, reader: DataFrameReader, capsys: pytest.CaptureFixture[str]
) -> None:
    log.append(6, topics=("plant/1/temp", "plant/x/temp", "plant/2/flow", "other"))
    frame = reader.option("topicPattern", "plant/{line:int}/{what}").load()
    rows = frame.select("what", "line", "offset").orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [
        ("temp", 1, 0), ("temp", None, 1), ("flow", 2, 2), ("temp", 1, 4), ("temp", None, 5),
    ]  # fmt: skip
    chosen = reader.schema("offset bigint, what string").load().where("what = 'flow'")
    assert [tuple(row) for row in chosen.collect()] == [(2, "flow")]
    chosen.explain("formatted")
    plan = capsys.readouterr().out
    assert "EqualTo(what,flow)" in plan
    assert "Filter (" not in plan


def test_several_brokers_are_read_as_one(
    log: LogWriter,
    other_log: LogWriter,
    service: ServiceProcess,
    other_service: ServiceProcess,
    spark: SparkSession,
) -> None:
    log.append(10)
    other_log.append(30)
    servers = f"{service.address}, grpc://{other_service.address}"
    reader = spark.read.format("penstock").option("servers", servers).option("minPartitions", "4")
    frame = reader.load()
    assert sorted(len(part) for part in frame.rdd.glom().collect()) == [10, 10, 10, 10]
    counts = {row.epoch: row["count"] for row in frame.groupBy("epoch").count().collect()}
    assert counts == {log.epoch: 10, other_log.epoch: 30}

    starting = {service.address: {"0": -2}, other_service.address: {"0": 28}}
    ending = {service.address: {"0": 2}, other_service.address: {"0": -1}}
    part = reader.option("startingOffsets", json.dumps(starting))
    found = part.option("endingOffsets", json.dumps(ending)).load().select("epoch", "offset")
    assert sorted(tuple(row) for row in found.collect()) == [
        (log.epoch, 0), (log.epoch, 1), (other_log.epoch, 28), (other_log.epoch, 29),
    ]  # fmt: skip


def test_a_broker_of_several_that_is_away_is_named(
    service: ServiceProcess, other_service: ServiceProcess, spark: SparkSession
) -> None:
    other_service.kill()
    reader = spark.read.format("penstock").option("connectTimeoutSeconds", "5")
    frame = reader.option("servers", f"{service.address},{other_service.address}").load()
    with pytest.raises(PySparkException, match=f"answers at {other_service.address}; is the br"):
        frame.count()


def test_a_stream_reaches_further_back_than_the_log(tmp_path: Path, spark: SparkSession) -> None:
    with writing(tmp_path / "data") as writer:
        alarms = publish_mixed(writer, 20)
        writer.leave(45)
        with serving(writer.data_dir, ALARMS) as process:
            reader = spark.read.format("penstock").option("server", process.address)
            assert offsets(reader.option("stream", "alarms").load()) == alarms
