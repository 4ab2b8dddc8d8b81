"""Fault 3 of issue 24: no payload holds a table up. Work is counted, not timed.

Keys of maps are text, bytes or whole numbers of 64 bits, and are hashed only as what nobody can
foresee the hash of; numbers have a bound; a payload becomes a bounded number of values.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import cbor2
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decoding import cbor, msgpack
from penstock.decoding.map_keys import count_values, with_text_keys
from penstock.decoding.topic_pattern import TopicPattern
from tests.unit.decoding.decode import decode, decoder, outcome
from tests.unit.decoding.sparkplug_payloads import PAYLOAD

KEY = (
    "The payload has a map with a key that is neither text nor bytes nor a whole number of 64 bits."
)
WRITE: dict[str, Callable[[Any], bytes]] = {
    "json": msgspec.json.encode,
    "cbor": cbor2.dumps,
    "msgpack": msgspec.msgpack.encode,
}
PRIME = 2**61 - 1  # whole numbers that differ by it have one hash


@contextmanager
def hashed() -> Iterator[list[object]]:
    """The values whose hashes Python's own code computes meanwhile."""
    found: list[object] = []

    def note(frame: Any, event: str, argument: Any) -> None:  # noqa: ARG001
        if event == "call" and frame.f_code.co_name == "__hash__":
            found.append(frame.f_locals.get("self"))

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


def cbor_map(pairs: list[tuple[bytes, bytes]]) -> bytes:
    return b"\xba" + len(pairs).to_bytes(4, "big") + b"".join(map(b"".join, pairs))


def msgpack_map(pairs: list[tuple[bytes, bytes]]) -> bytes:
    return b"\xdf" + len(pairs).to_bytes(4, "big") + b"".join(map(b"".join, pairs))


def colliding_uuids(count: int) -> list[bytes]:
    return [b"\xd8\x25\x50" + (n * PRIME).to_bytes(16, "big") for n in range(1, count + 1)]


def tuples(length: int) -> list[bytes]:
    """All lists of -1 and -2, which have one hash."""
    return [bytes([0x90 + length, *signs]) for signs in product((0xFF, 0xFE), repeat=length)]


def test_uuids_as_keys_are_refused_before_they_are_hashed() -> None:
    payload = cbor_map([(key, b"\0") for key in colliding_uuids(1000)])
    assert hash(uuid.UUID(int=PRIME)) == hash(uuid.UUID(int=2 * PRIME))
    with hashed() as found:
        broken = decode(payload, kind="cbor").broken
    assert [one for one in found if isinstance(one, uuid.UUID)] == []
    assert broken == {0: KEY}


def test_tuples_as_keys_are_refused_before_they_are_hashed() -> None:
    """Where they are not refused, each is compared with all before it."""
    payload = msgpack_map([(key, b"\0") for key in tuples(10)])
    assert decode(payload, kind="msgpack").broken == {0: KEY}
    columns = {"v": "json"}
    inside = b"\x81\xa1v" + payload
    assert decode(inside, kind="msgpack", columns=columns).broken == {0: KEY}


@pytest.mark.parametrize(
    "key",
    [
        (1, 2),
        1.5,
        True,
        None,
        2**64,
        -(2**64) - 1,
        Decimal("1.5"),
        uuid.UUID(int=5),
        datetime(2026, 1, 20, tzinfo=UTC),
        cbor2.CBORTag(4711, 1),
        cbor2.frozendict({1: 2}),
    ],
    ids=repr,
)
@pytest.mark.parametrize("depth", [0, 2])
def test_a_key_is_text_bytes_or_a_whole_number(key: object, depth: int) -> None:
    value: object = {key: 1}
    for _ in range(depth):
        value = {"a": [value]}
    assert decode(cbor2.dumps(value), kind="cbor").broken == {0: KEY}


def test_a_key_inside_of_a_key_is_none_either() -> None:
    for inner in (b"\x81\x81\x01", b"\xa1\x01\x02", b"\xc1\x01"):
        assert decode(b"\xa1" + inner + b"\x00", kind="cbor").broken == {0: KEY}
    assert decode(b"\x81\x92\x01\x02\x00", kind="msgpack").broken == {0: KEY}
    assert decode(b"\x81\x81\x01\x02\x00", kind="msgpack").broken == {0: KEY}


def test_whole_numbers_as_keys_become_text_so_that_none_can_choose_their_hashes() -> None:
    numbers = [0, 1, -1, 23, 24, 255, 2**63, -(2**63), 2**64 - 1]
    value = {"t": {number: str(number) for number in numbers}}
    texts = {"t": {str(number): str(number) for number in numbers}}
    assert (
        cbor2.loads(with_text_keys(cbor2.dumps(value), cbor.read_head, cbor._encode_text_key))
        == texts
    )
    written = msgspec.msgpack.encode(value)
    assert (
        msgspec.msgpack.decode(with_text_keys(written, msgpack.read_head, msgpack._encode_text_key))
        == texts
    )
    for kind, payload in (("cbor", cbor2.dumps(value)), ("msgpack", written)):
        found = decode(payload, kind=kind)
        assert json.loads(found.rows[0]["value"]) == texts


def test_a_large_map_of_numbers_is_read_whether_it_is_quick_or_not() -> None:
    value = {"t": {number * PRIME % 2**63: number for number in range(2000)}, "n": 1}
    columns = {"t": "map<string, int>", "n": "int"}
    for kind, payload in (("cbor", cbor2.dumps(value)), ("msgpack", msgspec.msgpack.encode(value))):
        found = decode(payload, kind=kind, columns=columns)
        assert len(found.rows[0]["t"]) == 2000, found.broken


DOCUMENTS = st.recursive(
    st.none()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=20)
        | st.dictionaries(
            st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(), inner, max_size=20
        )
    ),
    max_leaves=20,
)


def with_texts(value: Any) -> Any:
    """The value, in which whole numbers are text where they are keys."""
    if isinstance(value, dict):
        return {
            str(key) if isinstance(key, int) else key: with_texts(inner)
            for key, inner in value.items()
        }
    return [with_texts(inner) for inner in value] if isinstance(value, list) else value


@given(value=DOCUMENTS)
def test_keys_of_any_document_become_text_and_nothing_else_changes(value: Any) -> None:
    written = with_text_keys(cbor2.dumps(value), cbor.read_head, cbor._encode_text_key)
    assert cbor2.loads(written) == with_texts(value)
    written = with_text_keys(
        msgspec.msgpack.encode(value), msgpack.read_head, msgpack._encode_text_key
    )
    assert msgspec.msgpack.decode(written) == with_texts(value)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x9f\x01\xbf\x61a\x01\xff\x7f\x61b\x61c\xff\xff",
        b"\xbf\x01\x02\x03\x9f\xff\xff",
        b"\xc1\xfb\x41\xd4\x52\xd9\xe2\x00\x00\x00",
        b"\xd9\xd9\xf7\xa1\x05\x80",
        b"\x5f\x42\x01\x02\x43\x03\x04\x05\xff",
        cbor2.dumps({"a": [1, -500, 1.5, None, b"x" * 300, "y" * 70_000], 7: {8: {9: []}}}),
    ],
)
def test_well_formed_cbor_is_walked_to_its_end(payload: bytes) -> None:
    seen: list[int] = []

    def head(data: bytes, at: int) -> Any:
        found = cbor.read_head(data, at)
        seen.append(found[1])
        return found

    assert count_values(payload, head) > 0
    assert seen[-1] == len(payload)


@pytest.mark.parametrize("depth", [5_000_000])
def test_the_walk_through_heads_is_linear(depth: int) -> None:
    """A head is looked at once, whatever the payload is."""
    calls = 0

    def head(data: bytes, at: int) -> Any:
        nonlocal calls
        calls += 1
        return cbor.read_head(data, at)

    payload = b"\x81" * 10_000 + b"\xbf" * 10_000 + bytes(depth % 10)
    count_values(payload, head)
    assert calls <= len(payload) + 1


def test_decimals_of_avro_have_a_bound(tmp_path: Path) -> None:
    schema = tmp_path / "d.avsc"
    schema.write_text(
        json.dumps(
            {
                "type": "record",
                "name": "R",
                "fields": [
                    {
                        "name": "d",
                        "type": {
                            "type": "bytes",
                            "logicalType": "decimal",
                            "precision": 10,
                            "scale": 2,
                        },
                    }
                ],
            }
        )
    )
    made = decoder(kind="avro", schema_file=str(schema))
    fits, long = b"\x04\x30\x39", b"\x80\x89\x18" + b"\x7f" * 200_000
    large = b"\x0e\x01\x00\x00\x00\x00\x00\x00"
    found = outcome(made, [fits, long, large])
    assert found.rows == [{"d": Decimal("123.45")}]
    assert found.broken[1] == "The payload has a decimal of more than 128 bytes."
    assert found.broken[2].endswith("out of range for decimal(10,2).")


def test_numbers_of_json_have_a_bound() -> None:
    long = b"9" * 5000
    columns = {"d": "decimal(10,2)", "j": "json"}
    found = decode(
        b'{"d": 0.' + long + b"}",
        b'{"j": [0.' + long + b"]}",
        b'{"j": ' + long + b"}",
        kind="json",
        columns=columns,
    )
    assert found.broken[0] == "The payload has a number of more than 400 characters."
    assert found.broken[1] == found.broken[0]
    assert found.sources == []


@pytest.mark.parametrize("kind", ["json", "cbor", "msgpack"])
def test_a_payload_is_a_bounded_number_of_values(kind: str) -> None:
    said = "The payload has more values than values_max allows (1000)."
    columns = {"a": "json"}
    many: list[Any] = [[[]] * 1200, {"a": [0] * 1500}]
    for value in many:
        broken = decode(WRITE[kind](value), kind=kind, columns=columns, values_max=1000).broken
        assert broken == {0: said}
    fits = {"a": ["x" * 10] * 900}
    assert decode(WRITE[kind](fits), kind=kind, columns=columns, values_max=1000).sources == [0]


@pytest.mark.parametrize("kind", ["json", "cbor", "msgpack"])
def test_rows_times_columns_are_bounded(kind: str) -> None:
    """An empty object of a list is a row of all columns."""
    settings: dict[str, Any] = {
        "kind": kind,
        "many": True,
        "columns": {f"c{n}": "int" for n in range(100)},
        "values_max": 2000,
    }
    payloads = [WRITE[kind]([{}] * count) for count in (20, 21, 3)]
    found = decode(*payloads, **settings)
    assert found.sources == [0] * 20 + [2] * 3
    assert found.broken == {1: "The payload becomes more values than values_max allows (2000)."}


def test_structs_in_lists_count_with_all_their_fields() -> None:
    fields = ", ".join(f"f{n}: int" for n in range(100))
    columns = {"v": f"array<array<struct<{fields}>>>"}
    payloads = [json.dumps({"v": [[{}] * 5] * count}).encode() for count in (3, 5)]
    found = decode(*payloads, kind="json", columns=columns, values_max=2000)
    assert found.sources == [0]
    assert found.broken == {1: "The payload becomes more values than values_max allows (2000)."}


def test_lines_of_csv_are_bounded_by_their_columns() -> None:
    columns = {f"c{n}": "int" for n in range(100)}
    payloads = [b"c1\n" + b"1\n" * count for count in (10, 30)]
    found = decode(*payloads, kind="csv", header=True, columns=columns, values_max=2000)
    assert found.sources == [0] * 10
    assert found.broken == {1: "The payload becomes more values than values_max allows (2000)."}


def test_bits_of_sparkplug_are_bounded() -> None:
    def payload(count: int) -> bytes:
        value = count.to_bytes(4, "little") + bytes((count + 7) // 8)
        metrics = [{"datatype": 32, "bytes_value": value}]
        return bytes(PAYLOAD(metrics=metrics).SerializeToString())

    found = decode(payload(800), payload(8000), kind="sparkplug_b", values_max=2000)
    assert found.sources == [0]
    assert found.broken == {1: "The payload becomes more values than values_max allows (2000)."}


def test_a_level_of_a_topic_is_read_in_linear_time() -> None:
    """Digits could be divided between two parts of the pattern in as many ways as there are."""
    topic = "a/" + "1" * 60_000 + "x"
    _, misfits, reasons = TopicPattern.parse("a/{v:float}").columns(pa.array([topic]))
    assert misfits.to_pylist() == [0]
    assert reasons[0].as_py().endswith("which is no finite number.")


def test_long_texts_are_no_times() -> None:
    columns = {"t": "timestamp", "d": {"type": "date", "format": "%d %m %Y"}}
    text = b"2026-01-20" + b" " * 100_000
    found = decode(
        b'{"t": "' + text + b'"}', b'{"d": "' + text + b'"}', kind="json", columns=columns
    )
    assert [reason.rpartition("which ")[2] for reason in found.broken.values()] == [
        "is too long for a time."
    ] * 2
