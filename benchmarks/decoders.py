"""``python -m benchmarks.decoders``: the rows a second that each decoder makes on one core.

Each decoder gets the same readings in its own format: an identifier, a timestamp, a number in a
nested object that is converted from degrees Fahrenheit, an integer and a Boolean, and two fields
without a column. Sparkplug B gets the five values as metrics, each of which becomes a row.

The rate is by CPU time, because a decoder runs in a Spark worker, one for each core. It is the best
of the repeats: other load on the machine only makes a run slower.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import cbor2
import fastavro
import msgspec
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from rich.console import Console
from rich.table import Table

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.factory import Decoder, Messages, make_decoder
from penstock.decoding.sparkplug_schema import payload_class
from penstock.decoding.topic_pattern import TopicPattern

COLUMNS: Final[dict[str, Any]] = {
    "id": "string",
    "ts": {"type": "timestamp", "unit_from": "s"},
    "temperature": {"type": "float", "path": "t.value", "unit_from": "degF", "unit": "degC"},
    "humidity": "int32",
    "ok": "bool",
}
FLAT: Final = {name: column for name, column in COLUMNS.items() if name != "temperature"} | {
    "temperature": {"type": "float", "unit_from": "degF", "unit": "degC"}
}
NESTED: Final = {name: column for name, column in COLUMNS.items() if name != "temperature"} | {
    "t": "struct<value: float>",
    "more": "array<int>",
}
SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "ts", "type": "long"},
        {
            "name": "t",
            "type": {
                "type": "record",
                "name": "Value",
                "fields": [{"name": "value", "type": "double"}],
            },
        },
        {"name": "humidity", "type": "int"},
        {"name": "ok", "type": "boolean"},
        {"name": "note", "type": "string"},
        {"name": "more", "type": {"type": "array", "items": "int"}},
    ],
}


def reading(number: int) -> dict[str, Any]:
    """Return the values of one message."""
    return {
        "id": f"device-{number % 100}",
        "ts": 1_768_910_740 + number,
        "t": {"value": 70.5 + number % 7},
        "humidity": number % 100,
        "ok": number % 2 == 0,
        "note": "nobody reads this",
        "more": [1, 2, 3],
    }


def as_avro(schema: Any) -> Callable[[dict[str, Any]], bytes]:
    """Return a function that encodes a reading in Avro by ``schema``."""

    def write(value: dict[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, value)
        return stream.getvalue()

    return write


def describe_reading() -> descriptor_pb2.FileDescriptorSet:
    """Return the descriptors of a Protobuf message for a reading."""
    kinds = descriptor_pb2.FieldDescriptorProto
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="bench.proto", package="bench", syntax="proto3")
    value = file.message_type.add(name="Value")
    value.field.add(name="value", number=1, type=kinds.TYPE_DOUBLE, label=kinds.LABEL_OPTIONAL)
    message = file.message_type.add(name="Reading")
    fields = {
        "id": kinds.TYPE_STRING,
        "ts": kinds.TYPE_INT64,
        "t": kinds.TYPE_MESSAGE,
        "humidity": kinds.TYPE_INT32,
        "ok": kinds.TYPE_BOOL,
        "note": kinds.TYPE_STRING,
        "more": kinds.TYPE_INT32,
    }
    for number, (name, kind) in enumerate(fields.items(), 1):
        label = kinds.LABEL_REPEATED if name == "more" else kinds.LABEL_OPTIONAL
        field = message.field.add(name=name, number=number, type=kind, label=label)
        if name == "t":
            field.type_name = ".bench.Value"
    return files


def as_protobuf(descriptors: descriptor_pb2.FileDescriptorSet) -> Callable[[dict[str, Any]], bytes]:
    """Return a function that encodes a reading in Protobuf."""
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(descriptors.file[0])
    message_class = message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Reading"))
    return lambda value: bytes(message_class(**value).SerializeToString())


def as_sparkplug() -> Callable[[dict[str, Any]], bytes]:
    """Return a function that encodes a reading as five metrics of Sparkplug B."""
    payload = payload_class()

    def write(value: dict[str, Any]) -> bytes:
        at = value["ts"] * 1000
        metrics = [
            {"name": "id", "datatype": 12, "timestamp": at, "string_value": value["id"]},
            {"name": "ts", "datatype": 13, "timestamp": at, "long_value": at},
            {"name": "t", "datatype": 10, "timestamp": at, "double_value": value["t"]["value"]},
            {"name": "humidity", "datatype": 3, "timestamp": at, "int_value": value["humidity"]},
            {"name": "ok", "datatype": 11, "timestamp": at, "boolean_value": value["ok"]},
        ]
        return bytes(payload(timestamp=at, seq=1, metrics=metrics).SerializeToString())

    return write


def as_csv(value: dict[str, Any]) -> bytes:
    """Encode a reading as a line of CSV."""
    fields = (value["id"], value["ts"], value["humidity"], value["ok"], value["t"]["value"])
    return ",".join(map(str, fields)).encode()


def as_json(value: object) -> bytes:
    """Encode a reading in JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def cases(directory: Path) -> dict[str, tuple[dict[str, Any], Callable[[dict[str, Any]], bytes]]]:
    """Return the settings of a decoder and the encoder of its payloads, by title."""
    schema, descriptors = directory / "reading.avsc", describe_reading()
    schema.write_text(json.dumps(SCHEMA))
    (directory / "reading.desc").write_bytes(descriptors.SerializeToString())
    protobuf = {"descriptor": str(directory / "reading.desc"), "message": "bench.Reading"}
    return {
        "raw": ({"kind": "raw"}, as_json),
        "text, a float": (
            {"kind": "text", "columns": {"v": "float"}},
            lambda value: str(value["t"]["value"]).encode(),
        ),
        "json, 5 columns": ({"kind": "json", "columns": COLUMNS}, as_json),
        "json, 5 columns and extra": (
            {"kind": "json", "columns": COLUMNS, "extra": "rest"},
            as_json,
        ),
        "json, 2 columns nested": ({"kind": "json", "columns": NESTED}, as_json),
        "json, as text": ({"kind": "json"}, as_json),
        "csv": ({"kind": "csv", "columns": FLAT}, as_csv),
        "cbor": ({"kind": "cbor", "columns": COLUMNS}, cbor2.dumps),
        "msgpack": ({"kind": "msgpack", "columns": COLUMNS}, msgspec.msgpack.encode),
        "msgpack, 2 columns nested": (
            {"kind": "msgpack", "columns": NESTED},
            msgspec.msgpack.encode,
        ),
        "protobuf": (
            {"kind": "protobuf", **protobuf, "columns": COLUMNS},
            as_protobuf(descriptors),
        ),
        "avro": (
            {"kind": "avro", "schema_file": str(schema), "columns": COLUMNS},
            as_avro(fastavro.parse_schema(SCHEMA)),
        ),
        "sparkplug_b": ({"kind": "sparkplug_b"}, as_sparkplug()),
    }


def main() -> None:
    """Measure every decoder and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    table = Table(title=f"{arguments.messages:,} messages, best of {arguments.repeats}, one core")
    for heading in ("decoder", "bytes/message", "messages/s", "rows/s", "µs/message"):
        table.add_column(heading, justify="left" if heading == "decoder" else "right")
    topics = pa.array([f"plant/{n % 7}/{n % 50}/t" for n in range(arguments.messages)])
    with tempfile.TemporaryDirectory() as directory:
        for name, (settings, write) in cases(Path(directory)).items():
            decoder = make_decoder(DecoderDefinition.model_validate(settings))
            payloads = pa.array([write(reading(n)) for n in range(arguments.messages)], pa.binary())
            rows, seconds = measure(decoder, payloads, topics, arguments.repeats)
            size = f"{payloads.nbytes / len(payloads) - 4:.0f}"
            table.add_row(name, size, *rates(len(payloads), rows, seconds))
    pattern = TopicPattern.parse("plant/{line:int}/{machine:int}/t")
    seconds = min(cpu_time(lambda: pattern.columns(topics)) for _ in range(arguments.repeats))
    table.add_row("a topic pattern", "", *rates(len(topics), len(topics), seconds))
    Console().print(table)


def measure(
    decoder: Decoder, payloads: pa.BinaryArray, topics: pa.StringArray, repeats: int
) -> tuple[int, float]:
    """Return the number of rows, and the CPU seconds of the fastest run."""
    messages = Messages(payloads, topics, pa.array(range(len(payloads)), pa.int64()))
    decoded = decoder.decode(messages)
    assert not len(decoded.broken), decoded.reasons[0]
    seconds = min(cpu_time(lambda: decoder.decode(messages)) for _ in range(repeats))
    return decoded.rows.num_rows, seconds


def cpu_time(run: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def rates(messages: int, rows: int, seconds: float) -> tuple[str, str, str]:
    """Return the cells for messages a second, rows a second and CPU time."""
    return (
        f"{messages / seconds:,.0f}",
        f"{rows / seconds:,.0f}",
        f"{seconds / messages * 1e6:.2f}",
    )


if __name__ == "__main__":
    main()
