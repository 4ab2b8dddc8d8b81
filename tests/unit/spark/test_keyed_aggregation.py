"""Windows and sessions with a watermark for each key, in Spark's tester for processors."""

from __future__ import annotations

import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from penstock.config.derived import DerivedDefinition, Function
from penstock.config.table import TableDefinition
from penstock.errors import ConfigError
from penstock.spark.derived.aggregates import (
    EMPTY,
    PartialAggregate,
    final_value,
    merge_partials,
    partial_of_row,
)
from penstock.spark.derived.derived_table import DerivedTable
from penstock.spark.derived.keyed_aggregation import KeyedAggregation, append_tick
from tests.support.places import places_in

YEAR_S = 365 * 86_400
NOW_S = 50 * YEAR_S
EPOCH = "20261121T000000-00000001"
COLUMNS = {"value": "int", "measured_at": "timestamp"}
AGGREGATES = {"rows": "count", "sum": "sum(value)", "first": "first(value)", "last": "last(value)"}


def declared(kind: str = "windowed", **settings: Any) -> DerivedTable:
    length = {"window_s": 60} if kind == "windowed" else {"gap_s": 30}
    given = {
        "name": "derived",
        "kind": kind,
        "source": "readings",
        "keys": ["line"],
        "event_time": "measured_at",
        "aggregates": AGGREGATES,
        **length,
        **settings,
    }
    readings = {
        "name": "readings",
        "topics": "plant/{line}",
        "decoder": {"kind": "json", "columns": COLUMNS},
    }
    definition = DerivedDefinition.model_validate(given)
    return DerivedTable(
        definition, TableDefinition.model_validate(readings), places_in(Path("tables"))
    )


def watched(kind: str = "windowed", **settings: Any) -> TwsTester:
    derivation = declared(kind, **settings).derivation
    assert isinstance(derivation, KeyedAggregation)
    return TwsTester(
        derivation.processor(), timeMode="EventTime", eventTimeExtractor=lambda _: 2**62
    )


def said(*times: float | None, received: float = NOW_S, offset: int = 0) -> list[Row]:
    """Rows with these times, in s; the value of each is its offset."""
    return [
        Row(
            _tick=None,
            _received_us=round(received * 1e6),
            _at_us=None if at is None else round(at * 1e6),
            epoch=EPOCH,
            offset=n,
            _key0="a",
            _value0=True,
            _value1=n,
        )
        for n, at in enumerate(times, offset)
    ]


def told(rows: list[Row]) -> list[tuple[Any, ...]]:
    """Start, end, offset, aggregates, late; times in s."""
    found = []
    for row in rows:
        epoch, offset, start, end, key, *rest = row
        assert (epoch, key) == (EPOCH, "a")
        bounds = (None, None) if start is None else (start / 1e6, end / 1e6)
        found.append((*bounds, offset, *rest))
    return found


def test_windows_of_old_data_that_is_replayed_are_not_late() -> None:
    """Fault 12: lateness was measured against the time of receipt."""
    spark = watched()
    assert told(spark.test("a", said(0, 59, 60, 100, 131))) == [
        (0, 60, 1, 2, 0 + 1, 0, 1, 0),
        (60, 120, 3, 2, 2 + 3, 2, 3, 0),
    ]


def test_a_device_that_was_away_for_a_month_has_all_its_windows() -> None:
    month_s = 30 * 86_400
    spark = watched()
    assert told(spark.test("a", said(NOW_S, NOW_S + 20, received=NOW_S + 20))) == []
    back = said(NOW_S + 21, NOW_S + 59, NOW_S + 61, NOW_S + month_s,
                received=NOW_S + month_s, offset=2)  # fmt: skip
    assert [row[:5] for row in told(spark.test("a", back))] == [
        (NOW_S, NOW_S + 60, 3, 4, 0 + 1 + 2 + 3),
        (NOW_S + 60, NOW_S + 120, 4, 1, 4),
    ]


def test_a_late_message_is_counted_in_a_row_without_a_window() -> None:
    spark = watched(watermark_s=20)
    assert [row[:4] for row in told(spark.test("a", said(0, 85)))] == [(0, 60, 0, 1)]
    rows = said(59, 61, None, NOW_S + 21, NOW_S + 20, offset=2)  # late, not, none, future, not
    assert told(spark.test("a", rows)) == [
        (60, 120, 3, 2, 1 + 3, 3, 1, 0),
        (None, None, 5, 0, None, None, None, 3),
    ]


def test_a_row_belongs_to_those_of_its_windows_that_are_not_over() -> None:
    spark = watched(slide_s=20, watermark_s=0)
    spark.test("a", said(100))
    assert [row[:4] for row in told(spark.test("a", said(85, 140, offset=1)))] == [
        (60, 120, 1, 2),
        (80, 140, 1, 2),
    ]


def test_sessions_are_joined_by_what_comes_late() -> None:
    spark = watched("sessions", watermark_s=100)
    assert told(spark.test("a", said(0, 50, 25, 79, 300))) == [
        (0, 79, 3, 4, 0 + 1 + 2 + 3, 0, 3, 0)
    ]
    assert [row[-1] for row in told(spark.test("a", said(199, offset=5)))] == [1]
    assert told(spark.test("a", said(200, 400, offset=6)))[0][:4] == (200, 200, 6, 1)


def test_a_key_not_heard_of_is_written_and_forgotten() -> None:
    spark = watched(idle_s=1000)
    spark.test("a", said(0))
    due_ms = (NOW_S + 1000) * 1000
    spark.test("a", said(10, received=NOW_S + 500, offset=1))
    assert spark.setWatermark(due_ms + 1) == []  # the timer of the first row; one came since
    assert told(spark.setWatermark(due_ms + 500_001)) == [(0, 60, 1, 2, 0 + 1, 0, 1, 0)]
    assert spark.peekValueState("pace", "a") is None
    later = NOW_S + 5000
    assert told(spark.test("a", said(20, 130, received=later, offset=2))) == [
        (0, 60, 2, 1, 2, 2, 2, 0)
    ]


def test_a_key_that_comes_back_after_the_time_is_taken_for_new_before_the_timer_says_so() -> None:
    spark = watched(idle_s=1000)
    spark.test("a", said(500))
    found = told(spark.test("a", said(0, 71, received=NOW_S + 1000, offset=1)))
    assert [row[:4] for row in found] == [(480, 540, 0, 1), (0, 60, 1, 1)]


def test_a_clock_that_was_set_back_makes_nothing_late() -> None:
    spark = watched(idle_s=1000)
    spark.setWatermark(NOW_S * 1000)
    old = NOW_S - 7200
    assert [row[:2] for row in told(spark.test("a", said(0, 71, received=old)))] == [(0, 60)]


def test_ticks_are_no_rows() -> None:
    tick = said(0)[0].asDict() | {"offset": None, "_at_us": None}
    spark = watched()
    assert spark.test("a", [Row(**tick)]) == []
    assert spark.peekValueState("pace", "a") is None


def test_a_tick_has_the_time_of_the_last_row() -> None:
    times = pa.array([5, 9, 7], pa.timestamp("us", "UTC"))
    rows = pa.table({"offset": [1, 2, 3], "received_at": times})
    found = append_tick(rows).column("offset").to_pylist(), append_tick(rows).num_rows
    assert found == ([1, 2, 3, None], 4)
    assert append_tick(rows).column("received_at")[3].value == 9
    assert append_tick(rows.slice(0, 0)).num_rows == 0


SHIFTS = st.lists(st.integers(-80, 200), min_size=1, max_size=25)


@given(SHIFTS, st.sets(st.integers(1, 24)), st.sampled_from(["windowed", "sessions"]))
def test_the_cut_of_the_log_into_batches_changes_nothing(
    shifts: list[int], cuts: set[int], kind: str
) -> None:
    times = list(itertools.accumulate(shifts))
    rows = said(*times)

    def run(*places: int) -> tuple[list[tuple[Any, ...]], int]:
        spark = watched(kind, slide_s=20) if kind == "windowed" else watched(kind)
        found = []
        for begin, end in itertools.pairwise([0, *places, len(rows)]):
            found += told(spark.test("a", rows[begin:end][::-1]))
        windows = [row for row in found if row[0] is not None]
        return windows, sum(row[-1] for row in found)

    assert run(*sorted(cut for cut in cuts if cut < len(rows))) == run()


@given(st.lists(st.none() | st.floats(), max_size=8))
def test_parts_can_be_put_together_in_any_order(values: list[float | None]) -> None:
    functions: list[Function] = ["count", "min", "max", "first", "last"]
    for function in functions:
        parts = [partial_of_row(function, value, n, n) for n, value in enumerate(values)]
        forth = back = EMPTY
        for part in parts:
            forth = merge_partials(function, forth, part)
        for part in reversed(parts):
            back = merge_partials(function, part, back)
        assert repr(final_value(function, forth)) in (
            repr(final_value(function, back)),
            repr(-0.0),  # which is no less than 0.0, and no greater
            repr(0.0),
        )


def test_a_sum_that_is_larger_than_its_column_is_null() -> None:
    large = partial_of_row("sum", 2**62, 0, 0)
    total = merge_partials("sum", large, large)
    assert final_value("sum", total) is None
    assert final_value("sum", merge_partials("sum", total, partial_of_row("sum", -5, 0, 0))) is None
    digits = partial_of_row("sum", Decimal("9" * 38), 0, 0)
    assert final_value("sum", merge_partials("sum", digits, digits)) is None
    assert final_value("mean", PartialAggregate()) is None


def test_an_aggregate_of_nested_values_is_refused() -> None:
    table = declared()
    table.source.schema = table.source.schema.append(
        pa.field("box", pa.struct([("a", pa.int64())]))
    )
    definition = table.definition.model_copy(update={"aggregates": {"x": "last(box)"}})
    with pytest.raises(
        ConfigError, match=r"an aggregate of box, .* only single values are possible"
    ):
        KeyedAggregation(definition, table.source)
