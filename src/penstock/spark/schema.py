"""The columns of a stream, as Spark types.

Spark takes record batches only when their Arrow schema is exactly the one it derives from these
types, so `STREAM_SCHEMA` (penstock.stream.rows) is written to match; a test compares the two.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.errors import ConfigError

_USER_PROPERTY: Final = StructType(
    [StructField("key", StringType()), StructField("value", StringType())]
)

_PROPERTIES: Final = StructType(
    [
        StructField("payload_format_indicator", ByteType()),
        StructField("message_expiry_interval", LongType()),
        StructField("content_type", StringType()),
        StructField("response_topic", StringType()),
        StructField("correlation_data", BinaryType()),
        StructField("user_properties", ArrayType(_USER_PROPERTY)),
    ]
)

SPARK_SCHEMA: Final = StructType(
    [
        StructField("epoch", StringType()),
        StructField("offset", LongType()),
        StructField("received_at", TimestampType()),
        StructField("topic", StringType()),
        StructField("payload", BinaryType()),
        StructField("qos", ByteType()),
        StructField("retain", BooleanType()),
        StructField("client_id", StringType()),
        StructField("properties", _PROPERTIES),
    ]
)
"""The columns of `spark.read.format("penstock")`, in order."""


def offered_schema(*, include_properties: bool) -> StructType:
    """Return the offered columns; the user may have left out `properties`."""
    fields = SPARK_SCHEMA.fields if include_properties else SPARK_SCHEMA.fields[:-1]
    return StructType(fields)


def choose_columns(schema: StructType, offered: StructType = SPARK_SCHEMA) -> list[str]:
    """Return the names of the columns in `schema`, which a user gave with `.schema(…)`.

    Raises:
        ConfigError: a column is not offered, or has another type.
    """
    known = {field.name: field.dataType for field in offered.fields}
    for field in schema.fields:
        if field.name not in known:
            raise ConfigError(
                f"a penstock stream has no column {field.name!r}; it has {', '.join(known)}"
            )
        if field.dataType != known[field.name]:
            raise ConfigError(
                f"column {field.name!r} has the type {known[field.name].simpleString()},"
                f" not {field.dataType.simpleString()}"
            )
    return [field.name for field in schema.fields]
