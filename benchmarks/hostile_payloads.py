"""``python -m benchmarks.hostile_payloads``: what a payload that was made to cost much costs.

Each attack is one payload of some hundred kilobytes. It should take no longer than a payload of
that length takes that means well, and mostly is broken at once. ``--share`` makes all of them
smaller: what is quadratic takes a hundredth of the time at a tenth.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
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
from penstock.decoding.api import make_decoder
from penstock.decoding.topic_pattern import TopicPattern

PRIME: Final = 2**61 - 1
"""Numbers that differ by it have one hash in Python."""

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
    """A map with these keys, each with the value 0."""
    return b"\xba" + len(keys).to_bytes(4, "big") + b"\0".join([*keys, b""])


def uuids(count: int) -> bytes:
    """CBOR: UUIDs of one hash as keys."""
    return cbor_map([b"\xd8\x25\x50" + (n * PRIME).to_bytes(16, "big") for n in range(1, count)])


def decimals(count: int) -> bytes:
    """CBOR: decimal fractions of one hash as keys."""
    return cbor_map([b"\xc4" + cbor2.dumps([n, pow(10, -n, PRIME)]) for n in range(count)])


def tuples(count: int) -> bytes:
    """MessagePack: lists of -1 and -2 as keys, which all have one hash."""
    length = max(1, (count - 1).bit_length())
    keys = [b"\xdc\0" + bytes([length, *signs]) for signs in product((255, 254), repeat=length)]
    return b"\xdf" + len(keys).to_bytes(4, "big") + b"\0".join([*keys, b""])


def chained(count: int) -> bytes:
    """MessagePack: whole numbers that fill the places at which a dict looks one after the other
    (5 i + 1 after i, in a table of 2**n places), and a key that is looked for along all of them,
    again and again."""
    size = 1 << max(4, (count // 2).bit_length())
    numbers, place = [], 1
    for _ in range(size * 3 // 5):
        numbers.append(place)
        place = (5 * place + 1) % size
    taken = set(numbers)
    candidates = range(size, size * 1000, 7)
    longest = next(number for number in candidates if probes(number, taken, size) > size // 4)
    keys = [b"\xcf" + n.to_bytes(8, "big") for n in [*numbers, *[longest] * count]]
    return b"\xdf" + len(keys).to_bytes(4, "big") + b"\0".join([*keys, b""])


def probes(number: int, taken: set[int], size: int) -> int:
    """Places that a dict looks at for a whole number before it finds a free one."""
    count, place, perturb = 0, number % size, number
    while place in taken:
        count += 1
        perturb >>= 5
        place = (5 * place + perturb + 1) % size
    return count


def avro_decimal(count: int) -> bytes:
    """Avro: a decimal of many bytes."""
    stream = io.BytesIO()
    plain = {**SCHEMA, "fields": [{"name": "d", "type": "bytes"}]}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(plain), {"d": b"\x7f" * count})
    return stream.getvalue()


def attacks(share: float, directory: Path) -> dict[str, tuple[dict[str, Any], bytes]]:
    """By name a decoder's settings, and a payload."""
    many = int(32_768 * share)
    schema = directory / "reading.avsc"
    schema.write_text(json.dumps(SCHEMA))
    digits = b"9" * int(1_000_000 * share)
    wide = {f"c{n}": "int" for n in range(1000)}
    return {
        "cbor, UUIDs as keys": ({"kind": "cbor"}, uuids(many)),
        "cbor, decimals as keys": ({"kind": "cbor"}, decimals(many)),
        "msgpack, lists as keys": ({"kind": "msgpack"}, tuples(many // 2)),
        "msgpack, numbers as keys": ({"kind": "msgpack"}, chained(many)),
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
    }


def seconds_of(run: Callable[[], object]) -> float:
    """CPU seconds that a call takes."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def main() -> None:
    """Measure all of them and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0)
    share = parser.parse_args().share
    table = Table(title="one payload each, one core")
    for heading in ("attack", "bytes", "ms", "µs/byte", "becomes"):
        table.add_column(heading, justify="left" if heading == "attack" else "right")
    with tempfile.TemporaryDirectory() as directory:
        for name, (settings, payload) in attacks(share, Path(directory)).items():
            known = DecoderDefinition.model_fields
            kept = {key: value for key, value in settings.items() if key in known}
            decoder = make_decoder(DecoderDefinition.model_validate(kept))
            payloads = pa.array([payload], pa.binary())
            topics = pa.array(["a/b"])
            found = decoder.decode(payloads, topics)
            seconds = seconds_of(lambda: decoder.decode(payloads, topics))  # noqa: B023
            becomes = "broken" if len(found.broken) else f"{found.rows.num_rows} rows"
            table.add_row(name, *figures(len(payload), seconds), becomes)
    topic = pa.array(["a/" + "1" * int(65_000 * share) + "x"])
    pattern = TopicPattern.parse("a/{v:float}")
    seconds = seconds_of(lambda: pattern.columns(topic))
    table.add_row("a topic of digits", *figures(len(topic[0].as_py()), seconds), "broken")
    Console().print(table)


def figures(size: int, seconds: float) -> tuple[str, str, str]:
    """The middle of the table."""
    return f"{size:,}", f"{seconds * 1000:,.1f}", f"{seconds / size * 1e6:.3f}"


if __name__ == "__main__":
    main()
