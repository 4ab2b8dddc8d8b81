"""The columns of a stream, as Spark types.

Spark accepts record batches only if their Arrow schema is exactly the one that it derives from
these types. So `STREAM_SCHEMA` (penstock.stream.rows) has that schema; a test compares the two.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
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

POSITION_SCHEMA: Final = StructType(SPARK_SCHEMA.fields[:2])
"""The columns by which a row is found in the log: epoch and offset."""


_LEVEL_TYPES: Final[dict[pa.DataType, DataType]] = {
    pa.string(): StringType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
}


def stream_schema(*, include_properties: bool, levels: pa.Schema | None = None) -> StructType:
    """Return the columns of the stream, without `properties` unless they are included.

    Args:
        include_properties: whether `properties` is one of them.
        levels: columns for the named levels of topics, which follow; None without any.
    """
    fields = SPARK_SCHEMA.fields if include_properties else SPARK_SCHEMA.fields[:-1]
    return StructType(
        [*fields, *(StructField(field.name, _LEVEL_TYPES[field.type]) for field in levels or ())]
    )


def choose_columns(schema: StructType, available: StructType = SPARK_SCHEMA) -> list[str]:
    """Return the names of the columns that a user selected with `.schema(…)`.

    Args:
        schema: the selected columns.
        available: the columns of the stream.

    Raises:
        ConfigError: the stream lacks a column, or has it with another type.
    """
    known = {field.name: field.dataType for field in available.fields}
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
