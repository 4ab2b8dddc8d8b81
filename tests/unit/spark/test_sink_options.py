"""The sink's options and columns: what each mistake is told, and what rows become."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from penstock.errors import ConfigError
from penstock.spark.sink_options import SinkOptions, check_columns, parse_sink_options
from penstock.spark.sink_rows import rows_to_publish
from penstock.stream.rows import PUBLISH_SCHEMA


@pytest.mark.parametrize(
    ("options", "is_streaming", "sentence"),
    [
        ({"topics": "a"}, True, "the penstock sink has no option 'topics'; did you mean topic?"),
        ({"qos": "3"}, True, "option qos must be a whole number from 0 to 2, not '3'"),
        ({"retain": "yes"}, False, "option retain must be true or false, not 'yes'"),
        ({"sinkId": "a"}, True, "option sinkId is for df.write; a streaming query is recognised"),
        ({"batchId": "1"}, True, "option batchId is for df.write"),
        ({"batchId": "1"}, False, "option batchId needs sinkId"),
        ({"sinkId": "a/b"}, False, "option sinkId must be 1 to 128 letters"),
        ({"sinkId": "a", "batchId": "x"}, False, "option batchId must be a whole number from 0"),
        ({"clientId": "x" * 257}, False, "option clientId may have 256 characters"),
        ({"server": "nowhere"}, False, "option server must be"),
        ({"server": "grpc+tls://a:1", "tls": "false"}, False, "option tls is false, and the addr"),
        ({"topic": "a/+"}, True, "option topic must be one that a client may publish to, with no"),
        ({"topic": ""}, True, "option topic must be one that a client may publish to"),
        ({"topic": "$SYS/x"}, False, "option topic must be one that a client may publish to"),
        ({"token": "short"}, False, "option token must be 16 to 4096 letters"),
        ({"tls": "false", "tlsCaFile": "ca.pem"}, True, "option tlsCaFile names the authorities"),
        ({"token": "0" * 16, "tokenFile": "f"}, True, "options token and tokenFile say the"),
    ],
)
def test_a_wrong_option_is_one_sentence(
    options: dict[str, str], is_streaming: bool, sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_sink_options(options, is_streaming)
    assert str(caught.value).startswith(sentence)


def test_case_does_not_matter_and_the_checkpoint_is_sparks() -> None:
    given = {"SINKID": "a", "batchid": "7", "QoS": "2", "checkpointLocation": "c", "topic": "t"}
    expected = SinkOptions(topic="t", qos=2, sink_id="a", batch=7)
    assert parse_sink_options(given, False) == expected


def schema(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


STRING, INT = StringType(), IntegerType()
PAIRS = ArrayType(schema(key=STRING, value=STRING))


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (schema(topic=STRING), "there must be a column payload"),
        (schema(payload=STRING), "there must be a column topic, or the option topic"),
        (schema(topic=STRING, payload=STRING, x=INT), "a column 'x' cannot be published; select"),
        (schema(topic=INT, payload=STRING), "column 'topic' must be a string, not int"),
        (schema(topic=STRING, payload=INT), "column 'payload' must be a string or binary, not"),
        (
            schema(topic=STRING, payload=STRING, qos=STRING),
            "column 'qos' must be a whole number, not string",
        ),
        (
            schema(topic=STRING, payload=STRING, retain=INT),
            "column 'retain' must be boolean, not int",
        ),
        (
            schema(topic=STRING, payload=STRING, properties=INT),
            "column 'properties' must be a struct of any of payload_format_indicator, ",
        ),
        (
            schema(topic=STRING, payload=STRING, properties=schema(a=INT)),
            "column 'properties' has a field 'a'; there is payload_format_indicator, ",
        ),
        (
            schema(topic=STRING, payload=STRING, properties=schema(content_type=INT)),
            "field 'content_type' of column 'properties' must be string, not int",
        ),
        (
            StructType([StructField("payload", STRING), StructField("payload", STRING)]),
            "two columns have the same name",
        ),
    ],
)
def test_a_wrong_column_is_one_sentence(columns: StructType, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_columns(columns, SinkOptions())
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    "columns",
    [
        schema(topic=STRING, payload=BinaryType(), qos=LongType(), retain=BooleanType()),
        schema(payload=STRING, topic=STRING, properties=schema(message_expiry_interval=INT)),
        schema(topic=STRING, payload=STRING, properties=schema(user_properties=PAIRS)),
        schema(topic=STRING, payload=STRING, qos=NullType(), properties=NullType()),
    ],
)
def test_columns_that_can_be_published(columns: StructType) -> None:
    check_columns(columns, SinkOptions())


def test_rows_have_the_exact_types_and_the_defaults_where_they_are_null() -> None:
    batch = pa.RecordBatch.from_pylist(
        [
            {"payload": "ä", "qos": None, "topic": "a", "properties": {"content_type": "x"}},
            {"payload": "b", "qos": 2, "topic": None, "properties": None},
        ],
        pa.schema(
            [
                ("payload", pa.string()),
                ("qos", pa.int64()),
                ("topic", pa.string()),
                ("properties", pa.struct([("content_type", pa.string())])),
            ]
        ),
    )
    options = SinkOptions(topic="t", qos=0, retain=True)
    rows = rows_to_publish(batch, batch.schema.names, options)
    assert rows.schema == PUBLISH_SCHEMA
    first, second = rows.to_pylist()
    assert (first["topic"], first["payload"], first["qos"], first["retain"]) == (
        "a",
        "ä".encode(),
        0,
        True,
    )
    assert first["properties"]["content_type"] == "x"
    assert first["properties"]["user_properties"] is None
    assert (second["topic"], second["qos"], second["properties"]) == ("t", 2, None)


def test_a_number_that_does_not_fit_is_one_sentence() -> None:
    batch = pa.RecordBatch.from_pydict({"topic": ["a"], "payload": ["b"], "qos": [300]})
    with pytest.raises(ConfigError, match="a value of 'qos' cannot be published"):
        rows_to_publish(batch, batch.schema.names, SinkOptions())
