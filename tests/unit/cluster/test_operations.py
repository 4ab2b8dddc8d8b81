"""The operations of a batch: noted as they are written, and read as they were noted."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.operations import (
    DELETE,
    DELETE_RANGE,
    FAMILIES,
    PUT,
    NotedBatch,
    Operation,
    decode_operations,
    encode_operations,
)
from penstock.cluster.record import RecordDamaged
from penstock.store.database import COLUMN_FAMILIES, open_database
from penstock.store.parts import PARTS_FAMILY

operation = st.tuples(
    st.integers(PUT, DELETE_RANGE), st.integers(0, len(FAMILIES) - 1), st.binary(), st.binary()
)


@given(st.lists(operation, max_size=20))
def test_operations_are_read_as_they_were_written(operations: list[Operation]) -> None:
    assert decode_operations(encode_operations(operations)) == operations


def test_operations_that_compress_are_compressed_and_others_are_not() -> None:
    log = FAMILIES.index("log")
    for value, compresses in (
        (b"temperature " * 1000, True),
        (random.Random(1).randbytes(12_000), False),
        (b"x" * 4000, False),  # too little to gain from
    ):
        operations: list[Operation] = [(PUT, log, b"key", value), (DELETE, log, b"other", b"")]
        body = encode_operations(operations)
        assert (len(body) < len(value)) == compresses
        assert decode_operations(body) == operations
        assert decode_operations(msgspec.msgpack.encode(operations)) == operations


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1\x01",
        b"\xc1\x01" + (2).to_bytes(8, "little"),
        b"\xc1\x01" + (2**40).to_bytes(8, "little") + b"\x10a",
        b"\xc1\x01" + (100).to_bytes(8, "little") + b"\xf0abc",
        b"\xc1\x02" + (1).to_bytes(8, "little") + b"\x10a",
        b"\xc1",
        msgspec.msgpack.encode({}),
        msgspec.msgpack.encode([(PUT, 0, b"")]),
        msgspec.msgpack.encode([(3, 0, b"", b"")]),
        msgspec.msgpack.encode([(-1, 0, b"", b"")]),
        msgspec.msgpack.encode([(PUT, len(FAMILIES), b"", b"")]),
        msgspec.msgpack.encode([(PUT, -1, b"", b"")]),
    ],
)
def test_other_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(RecordDamaged):
        decode_operations(body)


def test_the_order_of_the_column_families_is_part_of_the_format() -> None:
    assert FAMILIES == (
        "meta",
        "log",
        "sessions",
        "subscriptions",
        "queue",
        "progress",
        "retained",
        "wills",
        "archive",
        "parts",
    )


def test_a_batch_writes_what_it_notes(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    try:
        batch = NotedBatch(database.rocks_batch(), database.handles)
        assert batch.is_empty()
        for number, name in enumerate(COLUMN_FAMILIES):
            batch.put(b"k%d" % number, b"v", database.handles[name])
        batch.delete(b"k0", database.handles["meta"])
        batch.delete_range(b"k", b"l", database.handles["wills"])
        assert not batch.is_empty()
        assert batch.size_in_bytes() > 0
        database.make_parts_family()  # after the batch was made
        batch.put(b"part", b"v", database.handles[PARTS_FAMILY])
        database.write_here(batch.rocks, sync=False)
        found = {(name, key) for name in database.families for key, _ in database.items(name)}
    finally:
        database.close()
    expected: set[tuple[str, bytes]] = set()
    for kind, family, key, value in batch.operations:
        if kind == PUT:
            expected.add((FAMILIES[family], key))
        elif kind == DELETE:
            expected.discard((FAMILIES[family], key))
        else:
            expected = {
                one for one in expected if one[0] != FAMILIES[family] or not key <= one[1] < value
            }
    assert found == expected
    assert (FAMILIES[-1], b"part") in found


def test_a_range_that_no_database_takes_is_refused_before_it_is_in_the_log(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    try:
        batch = NotedBatch(database.rocks_batch(), database.handles)
        with pytest.raises(ValueError, match="before it begins"):
            batch.delete_range(b"b", b"a", database.handles["meta"])
        assert batch.is_empty()
        batch.delete_range(b"a", b"a", database.handles["meta"])
        database.write_here(batch.rocks, sync=False)
    finally:
        database.close()
