"""Mending a log changes the type bytes that can be none of ours, and nothing else."""

import struct
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.store.recyclable import find_recyclable_records, mend

BLOCK_BYTES = 32 * 1024
HEADER = struct.Struct("<IHB")
OURS = (1, 2, 3, 4)
TWINS = {5: 1, 6: 2, 7: 3, 8: 4, 11: 10}

RECORDS = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), st.sampled_from(OURS), st.binary(max_size=300)),
    max_size=30,
)


def written(records: list[tuple[int, int, bytes]]) -> bytes:
    """Return a log of whole records; none is broken over two blocks."""
    log = b""
    for checksum, kind, body in records:
        rest = BLOCK_BYTES - len(log) % BLOCK_BYTES
        if rest < HEADER.size + len(body):
            log += bytes(rest)
        log += HEADER.pack(checksum, len(body), kind) + body
    return log


def mended(log: bytes) -> bytes:
    """Return what is left of a log after the mending, which must have an end."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "000007.log")
        path.write_bytes(log)
        mend(find_recyclable_records(Path(directory)))
        assert not find_recyclable_records(Path(directory)), "nothing is left to mend"
        return path.read_bytes()


@given(RECORDS)
def test_a_log_that_rocksdb_writes_for_us_is_left_as_it_is(
    records: list[tuple[int, int, bytes]],
) -> None:
    log = written(records)
    assert mended(log) == log


@given(RECORDS, st.binary(max_size=400))
def test_garbage_behind_a_log_changes_no_record(
    records: list[tuple[int, int, bytes]], garbage: bytes
) -> None:
    log = written(records)
    assert mended(log + garbage)[: len(log)] == log


@given(st.binary(max_size=2000) | st.integers(1, 24).map(lambda n: b"\x05\x0b\x08" * (n * 1000)))
def test_of_any_bytes_only_types_become_their_twins(log: bytes) -> None:
    after = mended(log)
    assert len(after) == len(log)
    for before, now in set(zip(log, after, strict=True)):
        assert now == before or now == TWINS[before]
