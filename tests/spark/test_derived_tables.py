"""`[[tables.derived]]` through Spark: what is computed, and that each batch counts once."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.config.derived import DerivedDefinition
from penstock.config.table import TableDefinition
from penstock.config.table_places import CHECKPOINT_NAME
from penstock.spark.derived.derived_table import DerivedTable
from penstock.spark.jobs.progress import Progress
from penstock.spark.jobs.tables import RunSettings, TablesRun
from penstock.spark.tables.status import TableStatus, table_status
from penstock.stream.client import StreamClient
from tests.spark.log_writer import FIRST_RECEIVED_AT_US, LogWriter
from tests.spark.service_process import ServiceProcess
from tests.support.deadline import wait_for
from tests.support.places import path_of, places_in

NUMBER: dict[str, Any] = {"kind": "json", "columns": {"value": {"type": "int", "path": "$"}}}
"""The log writer's payloads are the offset as text, which is JSON; offset n is received n seconds
after the first."""

START_S = FIRST_RECEIVED_AT_US // 1_000_000

Declare = Callable[..., DerivedTable]
Run = Callable[..., dict[str, Progress]]


@pytest.fixture
def declare(tmp_path: Path) -> Declare:
    def declared(kind: str, source: dict[str, Any] | None = None, **settings: Any) -> DerivedTable:
        readings = {"name": "readings", "topics": "plant/{line:int}/temp", "decoder": NUMBER}
        given = {"name": kind, "kind": kind, "source": "readings", "keys": ["line"], "group": ""}
        return DerivedTable(
            DerivedDefinition.model_validate({**given, **settings}),
            TableDefinition.model_validate({**readings, **(source or {})}),
            places_in(tmp_path / "tables"),
        )

    return declared


@pytest.fixture
def run(spark: SparkSession, service: ServiceProcess) -> Run:
    def run_once(*tables: DerivedTable) -> dict[str, Progress]:
        last: dict[str, Progress] = {}

        def note(name: str, progress: Progress) -> None:
            last[name] = progress

        settings = RunSettings(service.address, available_now=True)
        TablesRun(tables, settings, note, lambda *_: contextlib.nullcontext(spark)).run()
        return last

    return run_once


def rows(table: DerivedTable, *columns: str) -> list[tuple[Any, ...]]:
    found = DeltaTable(path_of(table)).to_pyarrow_table().select(columns).to_pylist()
    return sorted(tuple(second(value) for value in row.values()) for row in found)


def second(value: Any) -> Any:
    """Times in seconds after the first message."""
    return value.timestamp() - START_S if isinstance(value, datetime) else value


def standing_of(table: DerivedTable) -> TableStatus:
    with StreamClient("127.0.0.1:9", connect_timeout_s=0) as nobody:
        return table_status(table, nobody, path_of(table) / CHECKPOINT_NAME)


def forget_done(table: DerivedTable) -> None:
    """As if the driver had died after the table's last commit and before Spark's."""
    commits = path_of(table) / CHECKPOINT_NAME / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)


def forget_planned(table: DerivedTable) -> None:
    """As if the driver had died after Spark's last commit and before the next batch was planned."""
    checkpoint = path_of(table) / CHECKPOINT_NAME
    done = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for path in (checkpoint / "offsets").iterdir():
        if path.name.isdigit() and int(path.name) > done:
            path.unlink()
            (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


TOPICS = ("plant/1/temp", "plant/2/temp", "plant/x/temp")
"""The last one makes dead letters, which count nowhere."""

AGGREGATES = {
    "rows": "count",
    "low": "min(value)",
    "high": "max(value)",
    "mean": "mean(value)",
    "sum": "sum(value)",
    "first": "first(value)",
    "last": "last(value)",
}


def windows(heard: dict[int, list[int]], until: int) -> list[tuple[Any, ...]]:
    """What the windows of 40 s, one every 20 s, have that ended by then, of each line."""
    found = []
    for start in range(-20, until - 39, 20):
        for line, seconds in heard.items():
            inside = [n for n in seconds if start <= n < start + 40]
            if inside:
                mean = sum(inside) / len(inside)
                low, high = inside[0], inside[-1]
                found.append((start, line, len(inside), low, high, mean, sum(inside), low, high))
    return sorted(found)


def test_windows_and_sessions_are_written_once_when_they_are_over(
    log: LogWriter, declare: Declare, run: Run
) -> None:
    log.append(100, topics=TOPICS)
    table = declare(
        "windowed", window_s=40, slide_s=20, aggregates=AGGREGATES, commit_offsets_max=60
    )
    sessions = declare("sessions", {"topics": "plant/{line:int}/+"}, gap_s=15)
    columns = ("window_start", "line", *AGGREGATES)
    heard = {line: [n for n in range(161) if n % 3 == line - 1] for line in (1, 2)}
    run(table, sessions)
    assert rows(table, *columns) == windows(heard, 99 - 10)
    assert standing_of(table).watermark == datetime.fromtimestamp(START_S + 89, UTC)

    forget_done(table)
    log.append(30, topics=("plant/2/level",))  # line 1 says nothing for longer than the gap
    log.append(31, topics=TOPICS)
    run(table, sessions)
    for line in (1, 2):
        heard[line] = [n for n in heard[line] if not 100 <= n < 130]
    assert rows(table, *columns) == windows(heard, 160 - 10)
    found = rows(sessions, "line", "session_start", "session_end", "count", "offset")
    assert found == [(1, 0, 99, 34, 99)]


@pytest.mark.torture("one more run of Spark")
def test_rows_that_come_too_late_are_counted_as_late(
    log: LogWriter, declare: Declare, run: Run
) -> None:
    shifts = {50: -100, 51: 100, 53: -15}

    def measured(n: int) -> bytes:
        time = {} if n == 52 else {"t": START_S + n + shifts.get(n, 0)}
        return json.dumps({"value": n, **time}).encode()

    log.append(120, topics=("plant/1/temp",), payload=measured)
    columns = {"value": "int", "time": {"type": "timestamp", "path": "t", "unit_from": "s"}}
    table = declare(
        "windowed",
        {"decoder": {"kind": "json", "columns": columns}},
        window_s=20,
        event_time="time",
        watermark_s=20,
        commit_offsets_max=40,
    )
    run(table)
    assert rows(table, "late", "count", "window_start") == [
        (0, 16, 40), (0, 20, 0), (0, 20, 60), (0, 21, 20), (3, 0, None),
    ]  # fmt: skip
    assert standing_of(table).watermark is None  # each key has its own


HISTORY_S = 1_356_998_400
"""2013-01-01."""

TIMED: dict[str, Any] = {
    "kind": "json",
    "columns": {
        "value": "int",
        "time": {"type": "timestamp", "path": "t", "unit_from": "s"},
        "note": "string",
        "price": {"type": "decimal(10,2)", "path": "value"},
    },
}


@pytest.mark.torture("runs two stateful tables twice")
def test_windows_of_history_that_is_replayed_are_whole_at_the_pace_of_each_key(
    log: LogWriter, declare: Declare, run: Run
) -> None:
    """Fault 12: all of it was late. Line 2 is away for a month between its rows."""
    away_s = 30 * 86_400

    def told(n: int) -> bytes:
        late_s = away_s if n % 2 and n > 80 else 0
        at = HISTORY_S + 10 * n + late_s
        return json.dumps({"value": n, "t": at, "note": f"{n:03}"}).encode()

    aggregates = {
        **AGGREGATES,
        "note": "max(note)",
        "price": "sum(price)",
        "newest": "max(time)",
        "heard": "last(received_at)",
    }
    table = declare(
        "windowed",
        {"decoder": TIMED},
        window_s=100,
        event_time="time",
        aggregates=aggregates,
        commit_offsets_max=40,
    )
    sessions = declare("sessions", {"decoder": TIMED}, gap_s=60, event_time="time")
    topics = ("plant/1/temp", "plant/2/temp")
    log.append(120, topics=topics, payload=told)
    run(table, sessions)
    forget_done(table)
    log.append(80, topics=topics, payload=told)
    run(table, sessions)

    expected = []
    for line in (1, 2):
        of_line = [n for n in range(200) if n % 2 == line - 1]
        at = {n: 10 * n + (away_s if n % 2 and n > 80 else 0) for n in of_line}
        newest = max(at.values())
        for start in sorted({at[n] // 100 * 100 for n in of_line}):
            inside = [n for n in of_line if start <= at[n] < start + 100]
            if start + 100 <= newest - 10:
                low, high = inside[0], inside[-1]
                expected.append(
                    (
                        *(HISTORY_S + start - START_S, line, len(inside), low, high),
                        *(sum(inside) / len(inside), sum(inside), low, high, f"{high:03}"),
                        *(Decimal(sum(inside)), HISTORY_S + at[high] - START_S, high, 0),
                    )
                )
    assert rows(table, "window_start", "line", *aggregates, "late") == sorted(expected)
    found = rows(sessions, "line", "count", "session_start", "session_end", "late")
    begin = HISTORY_S - START_S
    assert found == [(2, 40, begin + 10, begin + 790, 0)]


@pytest.mark.torture("one more run of a windowed table")
def test_a_key_of_which_nothing_comes_is_written_as_it_is(
    log: LogWriter, declare: Declare, run: Run
) -> None:
    def told(n: int) -> bytes:
        return json.dumps({"value": n, "t": HISTORY_S + n}).encode()

    table = declare("windowed", {"decoder": TIMED}, window_s=100, event_time="time", idle_s=30)
    log.append(3, topics=("plant/1/temp",), payload=told)
    log.append(40, topics=("plant/2/temp",), payload=told)
    run(table)
    assert rows(table, "line", "count", "window_start") == [(1, 3, HISTORY_S - START_S)]


def test_the_last_known_row_of_each_key_is_the_only_one(
    log: LogWriter, declare: Declare, run: Run
) -> None:
    log.append(9, topics=TOPICS, retain=True)
    last = declare("last_known")
    retained = declare("last_known", name="retained", retained_only=True, keys=["topic"])
    run(last, retained)
    assert rows(last, "line", "value", "received_at") == [(1, 6, 6), (2, 7, 7)]
    assert rows(retained, "topic", "value") == [("plant/1/temp", 6), ("plant/2/temp", 7)]

    log.append(2, topics=("plant/1/temp",))
    log.append(1, topics=("plant/2/temp",), retain=True, payload=lambda _: b"")
    log.append(1, topics=("plant/3/temp",), retain=True)
    run(last, retained)
    assert rows(last, "line", "value") == [(1, 10), (2, 7), (3, 12)]
    assert rows(retained, "topic", "value") == [("plant/1/temp", 6), ("plant/3/temp", 12)]


def test_a_line_that_is_silent_is_told_once_and_one_that_comes_back(
    log: LogWriter, declare: Declare, run: Run
) -> None:
    log.append(10, topics=TOPICS)
    table = declare("silent", limit_s=60, commit_s_min=0)
    columns = ("line", "at", "state", "last_seen", "silent_s", "offset")
    run(table)
    silent = [(1, 69, "silent", 9, None, 9), (2, 67, "silent", 7, None, 7)]
    assert rows(table, *columns) == silent

    forget_done(table)
    log.append(1, topics=("plant/2/temp",), step_us=100_000_000)
    run(table)
    back = [(2, 1000, "back", 7, 993.0, 10), (2, 1060, "silent", 1000, None, 10)]
    assert rows(table, *columns) == sorted([*silent, *back])
    forget_planned(table)
    run(table)  # nothing new: it ends all the same
    assert rows(table, *columns) == sorted([*silent, *back])


@pytest.mark.parametrize("left", ["nothing", "a batch to be done again"])
@pytest.mark.torture("waits for eleven seconds")
def test_a_line_that_fell_silent_while_the_job_was_away_is_told_without_a_new_message(
    log: LogWriter, declare: Declare, run: Run, left: str
) -> None:
    now_us = time.time_ns() // 1000
    log.append(2, topics=("plant/1/temp",), step_us=now_us - FIRST_RECEIVED_AT_US)
    table = declare("silent", limit_s=10, commit_s_min=0)
    run(table)
    forget_planned(table)
    if left != "nothing":
        forget_done(table)

    wait_for("the timer to run out", lambda: time.time_ns() // 1000 > now_us + 11_000_000)
    run(table)
    assert rows(table, "state", "offset") == [("back", 1), ("silent", 0), ("silent", 1)]


def test_a_silent_table_of_an_empty_log_ends(declare: Declare, run: Run) -> None:
    assert run(declare("silent", limit_s=60, commit_s_min=0))["silent"].state == "ended"
