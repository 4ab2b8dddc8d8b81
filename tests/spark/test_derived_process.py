"""`penstock tables run` with derived tables as a process: killed in the middle, and run again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

import penstock
from tests.spark.log_writer import FIRST_RECEIVED_AT_US, LogWriter
from tests.spark.service_process import ServiceProcess
from tests.spark.waiting import DEADLINE_S, wait_until

COMMAND = "import sys; from penstock.cli.tables import app; app()"
COUNT = 400
START_S = FIRST_RECEIVED_AT_US // 1_000_000
EVENTS_S = START_S - 86_400
"""The devices' clocks are a day behind."""

DECLARATION = """
[tables]
dir = "{tables}"

[[tables.declared]]
name = "numbers"
topics = "plant/{{line:int}}/temp"
[tables.declared.decoder]
kind = "json"
columns = {{ value = "int", time = {{ type = "timestamp", unit_from = "s" }} }}

[[tables.derived]]
name = "windows"
kind = "windowed"
group = ""
source = "numbers"
keys = ["line"]
window_s = 10
watermark_s = 0
aggregates = {{ rows = "count", sum = "sum(value)" }}
commit_s_min = 0
commit_offsets_max = 40

[[tables.derived]]
name = "by_event"
kind = "windowed"
group = ""
source = "numbers"
keys = ["line"]
event_time = "time"
window_s = 10
watermark_s = 0
aggregates = {{ rows = "count", sum = "sum(value)" }}
commit_s_min = 0
commit_offsets_max = 40

[[tables.derived]]
name = "last"
kind = "last_known"
group = ""
source = "numbers"
keys = ["line"]
commit_s_min = 0
commit_offsets_max = 40
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "penstock.toml"
    file.write_text(DECLARATION.format(tables=tmp_path / "tables"))
    return file


def start(config: Path, service: ServiceProcess, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words, "-c", config, "--server", service.address],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])},
    )


def reading(number: int) -> bytes:
    return b'{"value": %d, "time": %d}' % (number, EVENTS_S + number)


def has_commits(log: Path) -> bool:
    return len(list(log.glob("*.json"))) > 1


def windows(path: Path, first_s: int) -> list[tuple[float, int, int, int]]:
    """The windows of a table: when each begins, in seconds after `first_s`, and what is in it."""
    return sorted(
        (row["window_start"].timestamp() - first_s, row["line"], row["rows"], row["sum"])
        for row in DeltaTable(path).to_pyarrow_table().to_pylist()
    )


@pytest.mark.torture("starts Spark three times")
def test_after_a_kill_each_window_is_there_once_and_the_last_row_is_the_last(
    log: LogWriter, config: Path, service: ServiceProcess
) -> None:
    log.append(COUNT, topics=("plant/1/temp", "plant/2/temp"), payload=reading)
    derived = ("windows", "by_event", "last")
    tables = config.parent / "tables"
    logs = [tables / name / "_delta_log" for name in derived]
    job = start(config, service, "run", *derived, "--master", "local[2,4]")
    try:
        wait_until(lambda: job.poll() or all(map(has_commits, logs)), "commits")
    finally:
        job.kill()
        job.communicate()

    options = ("--available-now", "--master", "local[2,4]")
    job = start(config, service, "run", *derived, *options)
    job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 0

    by_event = windows(tables / "by_event", EVENTS_S)
    assert len(by_event) == len(set(by_event))
    assert set(by_event) == set(windows(tables / "windows", START_S)), "by the clock of the devices"
    assert windows(tables / "windows", START_S) == [
        (first, line, 5, sum(range(first + line - 1, first + 10, 2)))
        for first in range(0, COUNT - 10, 10)
        for line in (1, 2)
    ]
    last = DeltaTable(tables / "last").to_pyarrow_table().to_pylist()
    assert sorted((row["line"], row["value"]) for row in last) == [(1, COUNT - 2), (2, COUNT - 1)]

    status, _ = start(config, service, "status", *derived).communicate(timeout=DEADLINE_S)
    assert "complete until  2023-11-14 22:19:59 UTC" in status
    assert status.count("0 offsets, 0.0 s") == 3

    validate, _ = start(config, service, "validate", "windows").communicate(timeout=DEADLINE_S)
    assert validate.startswith("windows: from numbers, windows of 10 s every 10 s of received_at")
    assert validate.splitlines()[1].split() == [
        "offset", "window_start", "window_end", "line", "rows", "sum",
    ]  # fmt: skip

    refused = start(config, service, "backfill", "last", "--from", "0", "--to", "9")
    refused.communicate(timeout=DEADLINE_S)
    assert refused.returncode != 0
