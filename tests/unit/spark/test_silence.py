"""Who fell silent and who came back: the processor, in Spark's tester for processors."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from penstock.spark.derived.silence import SLACK_MS, SilenceBoundaries, SilenceProcessor

LIMIT_S = 60
KEY = "a"
EPOCH = "20261121T000000-00000001"


def watched() -> TwsTester:
    processor = SilenceProcessor(("line",), LIMIT_S * 1_000_000)
    return TwsTester(processor, timeMode="ProcessingTime")


def heard(*seconds: float) -> list[Row]:
    return [
        Row(epoch=EPOCH, offset=int(10 * at), line="a", _at_us=int(at * 1_000_000))
        for at in seconds
    ]


def told(rows: list[Row]) -> list[tuple[str, float, float, float | None]]:
    assert all((row.line, row.epoch) == (KEY, EPOCH) for row in rows)
    return [(row.state, row.at / 1e6, row.last_seen / 1e6, row.silent_s) for row in rows]


def at(spark: TwsTester, second: float) -> list[tuple[str, float, float, float | None]]:
    return told([*spark.setProcessingTime(int(second * 1000))])


def test_a_key_not_heard_of_for_longer_than_the_limit_is_silent_once() -> None:
    spark = watched()
    assert told(spark.test(KEY, heard(100, 130))) == []
    assert at(spark, 161 + SLACK_MS / 1000) == []  # of the first row; the second one came
    assert at(spark, 190) == []
    assert at(spark, 190 + SLACK_MS / 1000) == [("silent", 190, 130, None)]
    assert at(spark, 10_000) == []


def test_a_key_that_comes_back_is_told_with_the_time_of_silence_and_watched_again() -> None:
    spark = watched()
    spark.test(KEY, heard(100))
    at(spark, 170)
    assert told(spark.test(KEY, heard(500, 510))) == [("back", 500, 100, 400.0)]
    assert at(spark, 511) == []
    assert at(spark, 600) == [("silent", 570, 510, None)]


def test_a_silence_that_is_over_when_it_is_read_is_told_the_same_way() -> None:
    spark = watched()
    spark.setProcessingTime(1_000_000)
    assert told(spark.test(KEY, heard(500, 100, 160, 510))) == [
        ("silent", 220, 160, None),
        ("back", 500, 160, 340.0),
    ]
    assert at(spark, 1001) == [("silent", 570, 510, None)]


def test_exactly_the_limit_is_no_silence() -> None:
    spark = watched()
    spark.test(KEY, heard(100))
    assert told(spark.test(KEY, heard(160))) == []


def test_only_rows_at_turning_points_travel() -> None:
    rows = pa.table(
        {
            "received_at": pa.array(
                [datetime.fromtimestamp(at, UTC) for at in (0, 10, 20, 20, 20, 90, 95, 100)],
                pa.timestamp("us", "UTC"),
            ),
            "offset": pa.array(range(8), pa.int64()),
            "line": ["a", "a", "a", None, "b", "a", "a", "a"],
        }
    )
    kept = SilenceBoundaries(("line",), 60_000_000)(rows)
    assert sorted(kept.column("offset").to_pylist()) == [0, 2, 3, 4, 5, 7]
    assert SilenceBoundaries(("line",), 60_000_000)(rows.slice(0, 0)).num_rows == 0
