"""No payload makes a decoder raise, hang or grow, and every message is accounted for.

Payloads here are arbitrary bytes, well-known payloads with some bytes changed, and bombs: those
that claim to be large, or are nested deeply. What a message becomes does not depend on the messages
beside it, for a batch that is read again may be cut elsewhere.
"""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import cbor2
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.documents import DocumentDecoder, NoQuickReader
from penstock.decoding.factory import Decoder
from tests.support.budget import budget
from tests.unit.decoding.decode import decoder, outcome
from tests.unit.decoding.real_payloads import SAMPLES
from tests.unit.decoding.sparkplug_payloads import PAYLOAD, birth
from tests.unit.decoding.test_with_a_schema import (
    DATUM,
    MOMENT,
    READING,
    SCHEMA,
    avro,
    message,
    reading_descriptor,
)

EVERY_TYPE: dict[str, Any] = {
    "s": "string",
    "b": "bool",
    "i": "int8",
    "l": "int64",
    "f": "float32",
    "d": "float64",
    "n": "decimal(10,3)",
    "at": "timestamp",
    "at_s": {"type": "timestamp", "unit_from": "s", "path": "n"},
    "at_ns": {"type": "timestamp", "unit_from": "ns", "path": "l"},
    "local": {"type": "timestamp", "path": "at", "time_zone": "Europe/Berlin"},
    "day": {"type": "date", "path": "at"},
    "y": "binary",
    "j": "json",
    "deep": {"type": "float", "path": "t.u.0.v", "scale": 0.1, "offset": 2},
    "inner": {"type": "int16", "path": "t.i", "default": 4},
}


@pytest.fixture(scope="module")
def decoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Decoder]:
    directory: Path = tmp_path_factory.mktemp("schemas")
    descriptor, schema = directory / "plant.desc", directory / "schema.avsc"
    descriptor.write_bytes(reading_descriptor().SerializeToString())
    schema.write_text(json.dumps(SCHEMA))
    csv_columns = {
        name: column if isinstance(column, str) else {**column, "path": ""}
        for name, column in EVERY_TYPE.items()
    }
    made = {
        "json": decoder(kind="json", columns=EVERY_TYPE),
        "json extra": decoder(kind="json", columns=EVERY_TYPE, extra="rest"),
        "json many": decoder(kind="json", columns=EVERY_TYPE, many=True),
        "json text": decoder(kind="json"),
        "csv": decoder(kind="csv", columns=csv_columns),
        "csv header": decoder(kind="csv", columns=EVERY_TYPE, header=True),
        "cbor": decoder(kind="cbor", columns=EVERY_TYPE),
        "cbor text": decoder(kind="cbor"),
        "msgpack": decoder(kind="msgpack", columns=EVERY_TYPE),
        "msgpack text": decoder(kind="msgpack"),
        "protobuf": decoder(kind="protobuf", descriptor=str(descriptor), message="plant.Reading"),
        "avro": decoder(kind="avro", schema_file=str(schema)),
        "sparkplug_b": decoder(kind="sparkplug_b", expanded_bytes_max=10**6),
        "text": decoder(kind="text", columns={"v": "float"}),
        "raw": decoder(kind="raw"),
    }
    for sample in SAMPLES:
        made[sample.name] = decoder(**sample.decoder)
    return made


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["2026-01-20T12:00:00Z", "2026-03-29T02:30:00", "1.5", "on", "1e400", "nan"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["u", "v", "i", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
DOCUMENTS = st.dictionaries(st.sampled_from([*EVERY_TYPE, "t", "unknown"]), VALUES, max_size=8)


def encoded(value: object) -> list[bytes]:
    """A document in each notation that has its values."""
    found = [json.dumps(value).encode(), cbor2.dumps(value)]
    try:
        found.append(msgspec.msgpack.encode(value))
    except OverflowError:  # MessagePack has no such numbers
        found.append(b"\x80")
    return found


KNOWN = [
    *(sample.payload for sample in SAMPLES),
    birth(),
    avro(DATUM),
    message("plant.Reading", at=MOMENT, **READING),
]


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """A known payload with some of its bytes changed, removed, repeated or added."""
    payload = bytearray(draw(st.sampled_from(KNOWN)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(payload)))
        if draw(st.booleans()):
            payload[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
        else:
            payload[at:at] = payload[: draw(st.integers(0, 20))]
    return bytes(payload)


def check(decoder: Decoder, payloads: list[bytes]) -> None:
    """Each message is in the rows or broken, by itself as among the others."""
    together = outcome(decoder, payloads)
    rows: list[str] = []
    for position, payload in enumerate(payloads):
        alone = outcome(decoder, [payload])
        assert alone.broken.get(0) == together.broken.get(position)
        assert alone.broken or alone.rows or is_empty(payload)
        rows += [repr(row) for row in alone.rows]
    assert rows == [repr(row) for row in together.rows]


def is_empty(payload: bytes) -> bool:
    """Whether a payload may have no rows: lines without anything, a header alone, empty lists."""
    lines = payload.decode("utf-8-sig", "replace").split("\n")
    return len([line for line in lines if line.strip("\r")]) < 2


@settings(max_examples=budget(40))
@given(payloads=st.lists(st.binary(max_size=40) | changed(), max_size=4))
def test_any_bytes(decoders: dict[str, Decoder], payloads: list[bytes]) -> None:
    for one in decoders.values():
        check(one, payloads)


@settings(max_examples=budget(80))
@given(values=st.lists(DOCUMENTS, min_size=1, max_size=4))
def test_any_document(decoders: dict[str, Decoder], values: list[object]) -> None:
    notations = list(zip(*(encoded(value) for value in values), strict=True))
    for name, payloads in zip(["json", "cbor", "msgpack"], notations, strict=True):
        check(decoders[name], list(payloads))
    check(decoders["json many"], [json.dumps(values).encode()])
    quick = outcome(decoders["json"], list(notations[0]))
    whole = outcome(decoders["json extra"], list(notations[0]))
    assert quick.broken == whole.broken
    without = [{key: value for key, value in row.items() if key != "rest"} for row in whole.rows]
    assert repr(quick.rows) == repr(without)


@settings(max_examples=budget(50))
@given(
    lines=st.lists(
        st.lists(st.text(max_size=5) | st.floats().map(str), min_size=16, max_size=16), max_size=3
    )
)
def test_any_line(decoders: dict[str, Decoder], lines: list[list[str]]) -> None:
    check(decoders["csv"], [",".join(line).encode("utf-8", "replace") for line in lines])


DEEP = 200_000
BOMBS = {
    "deep lists": b"[" * DEEP,
    "deep objects": b'{"s":' * DEEP,
    "deep in a key that is skipped": b'{"unknown":' + b"[" * DEEP,
    "deep and closed": b'{"j":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep enough to read, too deep to write": b'{"j":' + b"[" * 900 + b"]" * 900 + b"}",
    "long number": b'{"l":' + b"9" * DEEP + b"}",
    "long number in text": b'{"l":"' + b"9" * DEEP + b'"}',
    "long fraction": b'{"n":0.' + b"9" * DEEP + b"}",
    "large exponent": b'{"n":1e999999999,"l":1e999999999}',
    "large exponent in text": b'{"n":"1e999999999","l":"1e999999999","d":"1e-999999999"}',
    "cbor deep lists": b"\x81" * DEEP,
    "cbor deep tags": b"\xc6" * DEEP,
    "cbor endless lists": b"\x9f" * DEEP,
    "cbor large list": b"\x9b\x00\x00\x00\xff\xff\xff\xff\xff",
    "cbor largest list": b"\x9b" + b"\xff" * 8,
    "cbor large text": b"\x7b\x00\x00\x00\xff\xff\xff\xff\xff",
    "cbor large decimal": cbor2.dumps({"n": 1}).replace(
        b"\x01", b"\xc4\x82\x1a\x7f\xff\xff\xff\x01"
    ),
    "cbor large int": cbor2.dumps({"l": 1}).replace(b"\x01", b"\xc4\x82\x1a\x7f\xff\xff\xff\x01"),
    "cbor large float": b"\xa1\x61d\xc5\x82\x1a\x7f\xff\xff\xff\x01",
    "cbor long number": cbor2.dumps({"l": 256**DEEP, "s": 256**DEEP}),
    "cbor keys of one hash": b"\xb9\xea\x60"  # a map of 60,000
    + b"".join(cbor2.dumps((2**61 - 1) * (n + 2**20)) + b"\0" for n in range(60_000)),
    "cbor in itself": b"\xd8\x1c\x81\xd8\x1d\x00",
    "cbor shared": b"\xd8\x1c\x82\x01\xd8\x1d\x00",
    "cbor pattern": b"\xa1\x61s\xd8\x23\x78\x1e" + b"(((((((a*)*)*)*)*)*)*)" + b"a" * 8,
    "msgpack deep lists": b"\x91" * DEEP,
    "msgpack large list": b"\xdd\xff\xff\xff\xff",
    "msgpack large map": b"\x81\xa1u\xdf\xff\xff\xff\xff",
    "msgpack large bytes": b"\xc6\xff\xff\xff\xff",
    "protobuf deep": b"\x22\x7f" * DEEP,
    "avro large list": avro(DATUM)[:20] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    "avro numbers that do not end": b"\xff" * DEEP,
    "sparkplug zip": bytes(
        PAYLOAD(
            uuid="SPBV1.0_COMPRESSED", body=gzip.compress(bytes(50_000_000))
        ).SerializeToString()
    ),
    "sparkplug large array": bytes(
        PAYLOAD(
            metrics=[{"datatype": 32, "bytes_value": b"\xff\xff\xff\xff\x01"}]
        ).SerializeToString()
    ),
    "csv open quote": b'"' + b"x\n" * DEEP,
    "csv many fields": b"," * DEEP,
    "csv long header": b"s," * 1000 + b"\n" + b"1," * 1000,
}
MEMORY_MAX = 64 * 2**20


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs(decoders: dict[str, Decoder], bomb: str) -> None:
    """A small payload takes little memory, in whatever decoder it ends up, and little time: the
    limit of the test run would end it."""
    tracemalloc.start()
    try:
        for one in decoders.values():
            found = outcome(one, [BOMBS[bomb]])
            assert found.broken or found.rows or is_empty(BOMBS[bomb])
        assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
    finally:
        tracemalloc.stop()


def test_a_failure_that_nobody_foresaw_breaks_one_message() -> None:
    """A reader that fails in a way no decoder expects, as a defect in a library would."""

    class Notation(NoQuickReader):
        def read(self, payload: bytes) -> object:
            if payload == b"bad":
                raise MemoryError
            return {"a": 1}

        def values_in(self, payload: bytes) -> int:
            return len(payload)

    definition = DecoderDefinition.model_validate({"kind": "cbor", "columns": {"a": "int"}})
    found = outcome(DocumentDecoder(definition, Notation()), [b"x", b"bad", b"y"])
    assert found.sources == [0, 2]
    assert found.broken == {1: "The payload could not be decoded (MemoryError)."}


def test_batches_larger_than_a_portion(decoders: dict[str, Decoder]) -> None:
    payloads = [b'{"i":%d}' % (number % 200) for number in range(20_000)]
    found = outcome(decoders["json"], payloads)
    assert found.sources == [number for number in range(20_000) if number % 200 < 128]
    assert list(found.broken) == [number for number in range(20_000) if number % 200 >= 128]
    assert found.rows[128]["i"] == 0
