"""No message ends a table: one with which the sorting raises is a dead letter. No Spark."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pyarrow as pa
import pytest

from penstock.decoding.factory import DecodedBatch, Decoder, Messages, make_decoder
from penstock.errors import ConfigError
from penstock.spark.parquet_files import check_writable
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.decoding_split import DecodingSplit
from penstock.spark.tables.landed_table import DEAD_LETTERS, ROWS
from penstock.spark.tables.poison import REASON_CHARACTERS_MAX, make_in_parts, reason_of
from tests.unit.spark.test_decoding_split import declared, messages

NUMBERS: dict[str, Any] = {"kind": "json", "columns": {"v": {"type": "int", "path": "$"}}}


class Fragile:
    """A decoder with a defect: it raises where a payload is poison, whatever else is there."""

    def __init__(self, decoder: Decoder, error: Exception) -> None:
        self.schema = decoder.schema
        self._decoder = decoder
        self._error = error
        self.calls = 0

    def decode(self, messages: Messages) -> DecodedBatch:
        self.calls += 1
        if b"poison" in messages.payloads.to_pylist():
            raise self._error
        return self._decoder.decode(messages)


class FragileSorting(DecodingSplit):
    """That of a table whose decoder is fragile."""

    def __init__(self, table: DeclaredTable, error: Exception) -> None:
        super().__init__(table.definition, table.schema)
        self._error = error

    @cached_property
    def _decoder(self) -> Fragile:
        return Fragile(make_decoder(self._table.decoder), self._error)


def fragile(error: Exception, **settings: Any) -> FragileSorting:
    return FragileSorting(declared(decoder=NUMBERS, **settings), error)


def test_a_message_that_raises_where_it_should_not_is_a_dead_letter_with_the_exception() -> None:
    """Issue 24, fault 2: its batch failed again after each restart, for ever."""
    sorting = fragile(KeyError("no\nsuch field"))
    payloads = [b"poison" if n in (3, 700) else b"?" if n == 5 else b"%d" % n for n in range(1000)]
    parts = sorting(messages(*(("plant/a/1/temp", payload) for payload in payloads)))
    dead = parts[DEAD_LETTERS].to_pylist()
    assert [(row["offset"], row["kind"]) for row in dead] == [
        (13, "broken"), (15, "broken"), (710, "broken"),
    ]  # fmt: skip
    reason = "Penstock has a defect that this message triggers: KeyError: 'no\\nsuch field'"
    assert [row["reason"] for row in dead if row["payload"] == b"poison"] == [reason] * 2
    assert parts[ROWS].column("v").to_pylist() == [
        n for n in range(1000) if n not in (3, 5, 700)
    ], "all others, in their order"
    assert sorting._decoder.calls < 50


def test_all_of_a_batch_may_be_poison() -> None:
    sorting = fragile(ValueError())
    parts = sorting(messages(*[("plant/a/1/temp", b"poison")] * 5))
    assert ROWS not in parts
    assert parts[DEAD_LETTERS].num_rows == 5


@pytest.mark.parametrize("error", [OSError("no space"), ConfigError("no such file")])
def test_an_error_that_is_no_fault_of_a_message_makes_no_dead_letter(error: Exception) -> None:
    sorting = fragile(error)
    with pytest.raises(type(error), match="no s"):
        sorting(messages(("plant/a/1/temp", b"1"), ("plant/a/1/temp", b"poison")))


def test_a_batch_that_is_sorted_in_parts_finds_the_same_repeats() -> None:
    """The first attempt at it must not be remembered, or each message would be a repeat."""
    sorting = fragile(ValueError(), repeats={"column": "v", "within_s": 60})
    payloads = [b"1", b"2", b"1", b"poison", b"2"]
    found = messages(*(("plant/a/1/temp", payload) for payload in payloads))
    ids = sorting.message_ids(found)
    assert ids.to_pylist() == ["1", "2", "1", None, "2"]
    with_seen_at = found.append_column("message_id", ids)
    with_seen_at = with_seen_at.append_column("seen_at", pa.nulls(5, pa.timestamp("us", tz="UTC")))
    parts = sorting(with_seen_at)
    assert parts[ROWS].column("offset").to_pylist() == [10, 11]
    assert [(row["offset"], row["kind"]) for row in parts[DEAD_LETTERS].to_pylist()] == [
        (12, "repeated"), (13, "broken"), (14, "repeated"),
    ]  # fmt: skip


def test_values_that_cannot_be_written_are_found_before_they_are() -> None:
    far = pa.array([2**62], pa.timestamp("us", tz="UTC"))
    with pytest.raises((OverflowError, ValueError)):
        check_writable(pa.table({"at": far}), ())
    check_writable(pa.table({"at": pa.array([None], far.type), "line": ["a"]}), ("line",))


def test_parts_come_in_order_and_a_reason_is_short() -> None:
    def make(part: pa.Table) -> list[int]:
        numbers: list[int] = part.column("n").to_pylist()
        if 7 in numbers:
            raise ValueError("seven")
        return numbers

    parts = make_in_parts(pa.table({"n": range(20)}), make, lambda part, _: [-part["n"][0].as_py()])
    assert [n for part in parts for n in part] == [*range(7), -7, *range(8, 20)]
    assert len(reason_of(ValueError("x" * 10_000))) < REASON_CHARACTERS_MAX + 80
    assert reason_of(ValueError()).endswith(": ValueError")
