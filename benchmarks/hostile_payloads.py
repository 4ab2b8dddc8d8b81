"""``python -m benchmarks.hostile_payloads``: the CPU time of payloads made to be slow to decode.

Each attack is one payload of some hundred kilobytes. It should take no longer than an ordinary
payload of that length; most are rejected at once. ``--share`` makes every payload smaller: at a
tenth of the length, a quadratic time falls to a hundredth.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import tempfile
import time
import zlib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Final

import cbor2
import fastavro
import msgspec
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.factory import Messages, make_decoder
from penstock.decoding.topic_pattern import TopicPattern

HASH_MODULUS: Final = 2**61 - 1
"""Python's hash of an integer is the integer modulo this prime."""

SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {
            "name": "d",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        }
    ],
}


def cbor_map(keys: list[bytes]) -> bytes:
    """Return a CBOR map from encoded keys; every value is 0."""
    return b"\xba" + len(keys).to_bytes(4, "big") + b"\0".join([*keys, b""])


def colliding_uuids(count: int) -> bytes:
    """Return a CBOR map whose keys are UUIDs with equal hashes."""
    return cbor_map(
        [b"\xd8\x25\x50" + (n * HASH_MODULUS).to_bytes(16, "big") for n in range(1, count)]
    )


def colliding_decimals(count: int) -> bytes:
    """Return a CBOR map whose keys are decimal fractions with equal hashes."""
    return cbor_map([b"\xc4" + cbor2.dumps([n, pow(10, -n, HASH_MODULUS)]) for n in range(count)])


def colliding_lists(count: int) -> bytes:
    """Return a MessagePack map whose keys are lists of -1 and -2, which have equal hashes."""
    length = max(1, (count - 1).bit_length())
    keys = [b"\xdc\0" + bytes([length, *signs]) for signs in product((255, 254), repeat=length)]
    return b"\xdf" + len(keys).to_bytes(4, "big") + b"\0".join([*keys, b""])


def probe_chain(count: int) -> bytes:
    """Return a MessagePack map whose keys make a long probe sequence in a dict.

    Integers occupy the slots that a dict probes one after the other (5 i + 1 after i, in a table of
    2**n slots); then one key that collides with most of them is repeated ``count`` times.
    """
    size = 1 << max(4, (count // 2).bit_length())
    numbers, slot = [], 1
    for _ in range(size * 3 // 5):
        numbers.append(slot)
        slot = (5 * slot + 1) % size
    taken = set(numbers)
    candidates = range(size, size * 1000, 7)
    longest = next(number for number in candidates if count_probes(number, taken, size) > size // 4)
    keys = [b"\xcf" + n.to_bytes(8, "big") for n in [*numbers, *[longest] * count]]
    return b"\xdf" + len(keys).to_bytes(4, "big") + b"\0".join([*keys, b""])


def count_probes(number: int, taken: set[int], size: int) -> int:
    """Return the number of occupied slots that a dict probes for ``number`` before a free one."""
    count, slot, perturb = 0, number % size, number
    while slot in taken:
        count += 1
        perturb >>= 5
        slot = (5 * slot + perturb + 1) % size
    return count


def avro_decimal(count: int) -> bytes:
    """Return an Avro record with a decimal of ``count`` bytes."""
    stream = io.BytesIO()
    plain = {**SCHEMA, "fields": [{"name": "d", "type": "bytes"}]}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(plain), {"d": b"\x7f" * count})
    return stream.getvalue()


def attacks(share: float, directory: Path) -> dict[str, tuple[dict[str, Any], bytes]]:
    """Return the settings of a decoder and a payload for each attack, by name."""
    count = int(32_768 * share)
    schema = directory / "reading.avsc"
    schema.write_text(json.dumps(SCHEMA))
    digits = b"9" * int(1_000_000 * share)
    wide = {f"c{n}": "int" for n in range(1000)}
    return {
        "cbor, UUIDs as keys": ({"kind": "cbor"}, colliding_uuids(count)),
        "cbor, decimals as keys": ({"kind": "cbor"}, colliding_decimals(count)),
        "msgpack, lists as keys": ({"kind": "msgpack"}, colliding_lists(count // 2)),
        "msgpack, numbers as keys": ({"kind": "msgpack"}, probe_chain(count)),
        "avro, a long decimal": (
            {"kind": "avro", "schema_file": str(schema)},
            avro_decimal(int(200_000 * share)),
        ),
        "json, a long number": ({"kind": "json", "columns": {"j": "json"}}, b'{"j":%s}' % digits),
        "json, a long fraction": (
            {"kind": "json", "columns": {"d": "decimal(38,9)"}},
            b'{"d":0.%s}' % digits,
        ),
        "json, empty rows of 1000 columns": (
            {"kind": "json", "many": True, "columns": wide},
            msgspec.json.encode([{}] * int(50_000 * share)),
        ),
        "json, an open text of quotes": (
            {"kind": "json", "columns": {"j": "json"}, "values_max": 1000},
            b'"' + b'\\"' * int(500_000 * share),
        ),
        "csv, a million fields": (
            {"kind": "csv", "header": True, "columns": {"a": "int"}},
            b"a" + b"," * int(1_000_000 * share) + b"\n1",
        ),
        **text_attacks(share),
        **expanding_attacks(share),
    }


def text_attacks(share: float) -> dict[str, tuple[dict[str, Any], bytes]]:
    """Return attacks as ``attacks`` does, on formats that are lines of text."""
    count = int(1_000_000 * share)
    columns = {"v": "double"}
    pairs = b",".join(b"f%d=1" % number for number in range(count // 8))
    return {
        "ndjson, empty lines": ({"kind": "ndjson", "columns": columns}, b"\n" * count),
        "ndjson, one open bracket a line": ({"kind": "ndjson", "columns": columns}, b"[\n" * count),
        "line protocol, an open text of quotes": (
            {"kind": "line_protocol", "columns": columns},
            b'm v="' + b'\\"' * (count // 2),
        ),
        "line protocol, escaped blanks": (
            {"kind": "line_protocol", "columns": columns},
            b"m" + b"\\ " * (count // 2) + b" v=1",
        ),
        "line protocol, many fields": (
            {"kind": "line_protocol", "columns": columns, "extra": "rest"},
            b"m " + pairs,
        ),
        "k=v, many equals signs": ({"kind": "key_value", "columns": columns}, b"=" * count),
        "k=v, an open text of quotes": (
            {"kind": "key_value", "columns": columns},
            b'v="' + b'\\"' * (count // 2),
        ),
        "k=v, blanks": ({"kind": "key_value", "columns": columns}, b"v=1" + b" " * count),
        "nmea, commas": ({"kind": "nmea", "columns": columns}, b"$GPGGA" + b"," * count + b"*00"),
        "nmea, dollar signs": ({"kind": "nmea", "columns": columns}, b"$" * count),
        "senml, base names that grow": (
            {"kind": "senml", "columns": columns},
            msgspec.json.encode([{"bn": "x" * 200, "n": "y", "v": 1}] * (count // 250)),
        ),
        "senml, a base name of half the payload": (
            {"kind": "senml", "columns": columns},
            msgspec.json.encode(
                [{"bn": "x" * (count // 2), "n": "y", "v": 1}, *[{"v": 1}] * (count // 20)]
            ),
        ),
    }


def expanding_attacks(share: float) -> dict[str, tuple[dict[str, Any], bytes]]:
    """Return attacks as ``attacks`` does, with payloads that become longer as they are decoded."""
    count = int(1_000_000 * share)
    columns = {"v": "double"}
    nested = json.dumps({"v": 1})
    for _ in range(8):  # each level doubles the backslashes
        nested = json.dumps({"t": nested})
    return {
        "gzip, zeros": (
            {"kind": "json", "columns": columns, "compression": "gzip"},
            gzip.compress(bytes(64 * count)),
        ),
        "gzip, empty members": (
            {"kind": "json", "columns": columns, "compression": "gzip"},
            gzip.compress(b"") * (count // 20),
        ),
        "zlib, zeros": (
            {"kind": "json", "columns": columns, "compression": "auto"},
            zlib.compress(bytes(64 * count)),
        ),
        "json, text in text": (
            {"kind": "json", "columns": columns, "json_texts": ["$.t"]},
            nested.encode(),
        ),
        "json, lists of many lengths": (
            {"kind": "json", "columns": columns, "rows_of": "lists"},
            msgspec.json.encode({f"c{n}": [1] * n for n in range(int(600 * share**0.5))}),
        ),
        "json, a list beside many": (
            {"kind": "json", "columns": columns, "rows_of": "lists"},
            msgspec.json.encode(
                {"v": [1] * (count // 10), **{f"c{n}": "x" for n in range(count // 10)}}
            ),
        ),
        "json, keys as rows": (
            {"kind": "json", "columns": columns, "rows_of": "keys"},
            msgspec.json.encode({f"k{n}": {"v": n} for n in range(count // 20)}),
        ),
    }


def cpu_seconds(run: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def main() -> None:
    """Measure every attack and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0)
    share = parser.parse_args().share
    table = Table(title="one payload each, one core")
    for heading in ("attack", "bytes", "ms", "µs/byte", "result"):
        table.add_column(heading, justify="left" if heading == "attack" else "right")
    with tempfile.TemporaryDirectory() as directory:
        for name, (settings, payload) in attacks(share, Path(directory)).items():
            fields = DecoderDefinition.model_fields
            decoder_settings = {key: value for key, value in settings.items() if key in fields}
            decoder = make_decoder(DecoderDefinition.model_validate(decoder_settings))
            messages = Messages(
                pa.array([payload], pa.binary()), pa.array(["a/b"]), pa.array([0], pa.int64())
            )
            batch = decoder.decode(messages)
            seconds = cpu_seconds(lambda: decoder.decode(messages))  # noqa: B023
            result = "broken" if len(batch.broken) else f"{batch.rows.num_rows} rows"
            table.add_row(name, *figures(len(payload), seconds), result)
    topic = pa.array(["a/" + "1" * int(65_000 * share) + "x"])
    pattern = TopicPattern.parse("a/{v:float}")
    seconds = cpu_seconds(lambda: pattern.columns(topic))
    table.add_row("a topic of digits", *figures(len(topic[0].as_py()), seconds), "broken")
    Console().print(table)


def figures(size: int, seconds: float) -> tuple[str, str, str]:
    """Return the cells for the size, the milliseconds, and the microseconds for each byte."""
    return f"{size:,}", f"{seconds * 1000:,.1f}", f"{seconds / size * 1e6:.3f}"


if __name__ == "__main__":
    main()
