"""Checks the options and columns of `format("penstock")` when it publishes.

Columns are identified by their names. `topic` and `payload` are required (`topic` as a column or as
an option); `qos`, `retain` and `properties` are optional, and if a column is missing, or a value
null, the options apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegralType,
    NullType,
    StringType,
    StructType,
)

from penstock.engine.values.sink_batches import BATCH_MAX
from penstock.engine.values.topics import is_system_topic, is_topic_name
from penstock.errors import ConfigError
from penstock.spark.declared_options import SINK_OPTIONS
from penstock.spark.option_values import SERVER, OptionReader, parse_service_addresses
from penstock.spark.schema import SPARK_SCHEMA
from penstock.store.staging import NAME_RULE, is_sink_name
from penstock.stream.client import CONNECT_TIMEOUT_S
from penstock.stream.credentials import PLAIN, Credentials
from penstock.stream.requests import CLIENT_ID_CHARACTERS_MAX, TOPIC_LEVELS_MAX

OPTION_NAMES: Final = tuple(option.name for option in SINK_OPTIONS)

COLUMNS: Final = ("topic", "payload", "qos", "retain", "properties")

_PROPERTIES: Final = SPARK_SCHEMA["properties"].dataType


@dataclass(frozen=True)
class SinkOptions:
    """The validated options of one sink.

    Attributes:
        server: HOST:PORT of the stream service; in a cluster of each, separated by commas.
        topic: the topic of rows without one; None if each row must have one.
        qos: the QoS of rows without one.
        retain: the RETAIN flag of rows without one.
        client_id: the client id of the messages in the log; empty: one made of the sink's id.
        sink_id: identifies the rows of `df.write` to the broker; empty: a random id.
        batch: the number of the batch of that sink.
        checkpoint: location of the query's checkpoint; empty for `df.write`.
        fail_on_data_loss: whether the query ends if the broker lacks batches that it published.
        connect_timeout_s: seconds for which the service may be unreachable.
        credentials: the credentials for the service.
    """

    server: str = SERVER
    topic: str | None = None
    qos: int = 1
    retain: bool = False
    client_id: str = ""
    sink_id: str = ""
    batch: int = 0
    checkpoint: str = ""
    fail_on_data_loss: bool = True
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    credentials: Credentials = PLAIN


def parse_sink_options(options: Mapping[str, str], is_streaming: bool) -> SinkOptions:
    """Return the options of a sink.

    Args:
        options: the given options, by name.
        is_streaming: whether the sink is that of `df.writeStream`.

    Raises:
        ConfigError: one sentence about the first mistake.
    """
    reader = OptionReader(options, OPTION_NAMES, "sink")
    if is_streaming:
        for name in ("sinkId", "batchId"):
            if name in reader.names:
                raise ConfigError(
                    f"option {name} is for df.write; a streaming query is recognised by the id in"
                    " its checkpoint, and its batches by their numbers"
                )
    elif "batchId" in reader.names and "sinkId" not in reader.names:
        raise ConfigError("option batchId needs sinkId, the sink of the batch")
    sink_id = reader.text("sinkId", "")
    if "sinkId" in reader.names and not is_sink_name(sink_id):
        raise ConfigError(f"option sinkId must be {NAME_RULE}, not {sink_id!r}")
    client_id = reader.text("clientId", "")
    if len(client_id) > CLIENT_ID_CHARACTERS_MAX or "\0" in client_id:
        raise ConfigError(f"option clientId may have {CLIENT_ID_CHARACTERS_MAX} characters")
    topic = reader.text("topic", None)
    if topic is not None and (not is_topic_name(topic, TOPIC_LEVELS_MAX) or is_system_topic(topic)):
        raise ConfigError(
            "option topic must be one that a client may publish to, with no + and # and not one of"
            f" the broker's own, not {topic!r}"
        )
    server, tls = parse_service_addresses("server", reader.text("server", SERVER))
    return SinkOptions(
        server=server,
        topic=topic,
        qos=reader.whole_number("qos", 0, 2, SinkOptions.qos),
        retain=reader.boolean("retain", default=SinkOptions.retain),
        client_id=client_id,
        sink_id=sink_id,
        batch=reader.whole_number("batchId", 0, BATCH_MAX, SinkOptions.batch),
        checkpoint=reader.text("checkpointLocation", "") if is_streaming else "",
        fail_on_data_loss=reader.boolean("failOnDataLoss", default=SinkOptions.fail_on_data_loss),
        connect_timeout_s=reader.seconds("connectTimeoutSeconds", CONNECT_TIMEOUT_S),
        credentials=reader.credentials(tls=tls),
    )


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raise ConfigError for the first column that cannot be published, or is missing."""
    found = {field.name: field.dataType for field in schema.fields}
    for name in schema.fieldNames():
        if name not in COLUMNS:
            raise ConfigError(
                f"a column {name!r} cannot be published; select only {', '.join(COLUMNS)}"
            )
    if len(found) < len(schema.fields):
        raise ConfigError("two columns have the same name")
    if "payload" not in found:
        raise ConfigError("there must be a column payload, a string or binary")
    if "topic" not in found and options.topic is None:
        raise ConfigError("there must be a column topic, or the option topic for all rows")
    for name, kinds, what in (
        ("topic", (StringType,), "a string"),
        ("payload", (StringType, BinaryType), "a string or binary"),
        ("qos", (IntegralType, NullType), "a whole number"),
        ("retain", (BooleanType, NullType), "boolean"),
    ):
        if name in found and not isinstance(found[name], kinds):
            raise ConfigError(f"column {name!r} must be {what}, not {found[name].simpleString()}")
    _check_properties(found.get("properties"))


def _check_properties(kind: DataType | None) -> None:
    if kind is None or isinstance(kind, NullType):
        return
    assert isinstance(_PROPERTIES, StructType)
    known = {field.name: field.dataType for field in _PROPERTIES.fields}
    if not isinstance(kind, StructType):
        raise ConfigError(
            f"column 'properties' must be a struct of any of {', '.join(known)}, not"
            f" {kind.simpleString()}"
        )
    for field in kind.fields:
        if field.name not in known:
            raise ConfigError(
                f"column 'properties' has a field {field.name!r}; there is {', '.join(known)}"
            )
        expected = known[field.name]
        if field.dataType == expected or isinstance(field.dataType, NullType):
            continue
        if isinstance(expected, IntegralType) and isinstance(field.dataType, IntegralType):
            continue
        if field.dataType.simpleString() != expected.simpleString():
            raise ConfigError(
                f"field {field.name!r} of column 'properties' must be {expected.simpleString()},"
                f" not {field.dataType.simpleString()}"
            )
