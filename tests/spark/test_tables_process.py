"""`penstock tables` as a process: killed in the middle, and asked afterwards."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

import penstock
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess
from tests.spark.waiting import DEADLINE_S, wait_until
from tests.support.process_tree import descendants, kill

COMMAND = "import sys; sys.argv.insert(1, 'tables'); from penstock.cli.main import main; main()"

DECLARATION = """
[tables]
dir = "{tables}"

[[tables.declared]]
name = "numbers"
topics = "plant/{{line:int}}/temp"
decoder = {{ kind = "json", columns = {{ value = {{ type = "int", path = "$" }} }} }}
group = ""
commit_s_min = 0
commit_offsets_max = 50
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "penstock.toml"
    file.write_text(DECLARATION.format(tables=tmp_path / "tables"))
    return file


def start(config: Path, server: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words, "-c", config, "--server", server],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])},
    )


@pytest.fixture
def killed_job(log: LogWriter, config: Path, service: ServiceProcess) -> None:
    """A job that was killed after some commits, well before it was done."""
    log.append(500, topics=("plant/1/temp", "plant/2/temp", "plant/x/temp"))
    job = start(config, service.address, "run", "--master", "local[2,4]")
    commits = config.parent / "tables" / "numbers" / "_delta_log"
    try:
        wait_until(lambda: len(list(commits.glob("*.json"))) > 2, "commits")
    finally:
        job.kill()
        job.communicate()
    assert len(list(commits.glob("*.json"))) < 10


@pytest.mark.torture("starts Spark three times")
@pytest.mark.usefixtures("killed_job")
def test_after_a_kill_rows_and_dead_letters_are_all_messages(
    config: Path, service: ServiceProcess
) -> None:
    job = start(config, service.address, "run", "--available-now", "--master", "local[2,4]")
    output, _ = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 0
    assert output.splitlines()[-1].startswith("numbers: ended: ")

    tables = config.parent / "tables"
    rows, dead_letters = (
        sorted(DeltaTable(tables / name).to_pyarrow_table().column("offset").to_pylist())
        for name in ("numbers", "numbers_dead_letters")
    )
    assert rows == [n for n in range(500) if n % 3 != 2]
    assert dead_letters == list(range(2, 500, 3))

    status, _ = start(config, service.address, "status", "numbers").communicate(timeout=DEADLINE_S)
    lines = [line.split(maxsplit=1) for line in status.splitlines()]
    assert lines[0] == ["numbers"]
    assert ["rows", "334"] in [[name, value.rstrip()] for name, value in lines[1:3]]
    assert re.search(r"dead letters +166\b", status)
    assert "0 offsets, 0.0 s" in status


@pytest.mark.torture("starts Spark twice")
def test_the_sentence_that_a_person_needs_comes_alone_and_the_rest_where_it_is_asked_for(
    log: LogWriter, config: Path, service: ServiceProcess
) -> None:
    """Issue 24, fault 2: it stood among 25 lines, one of which named a log that did not exist."""
    log.append(10, topics=("plant/1/temp",))
    table = config.parent / "tables" / "numbers"
    table.mkdir(parents=True)
    (table / "_delta_log").write_text("in the way")
    job = start(config, service.address, "run", "--available-now", "--master", "local[2,4]")
    _, told = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 1
    lines = told.splitlines()
    assert [" WARNING spark.jobs.supervision: table numbers fails: " in line for line in lines] == [
        True, True, True, False,
    ]  # fmt: skip
    assert lines[-1].startswith("penstock: ")
    assert str(table) in lines[-1]
    assert ".log" not in told or (table / "_checkpoint" / "spark.log").exists()

    status, _ = start(config, service.address, "status").communicate(timeout=DEADLINE_S)
    (line,) = (line.strip() for line in status.splitlines() if "gave up" in line)
    assert line.endswith(lines[-1].removeprefix("penstock: "))

    words = ("run", "--available-now", "--verbose", "--master", "local[2,4]")
    _, told = start(config, service.address, *words).communicate(timeout=DEADLINE_S)
    assert "Traceback (most recent call last):" in told
    assert told.splitlines()[-1] == lines[-1]


@pytest.mark.torture("waits for Spark's own attempts")
def test_without_java_a_run_ends_and_says_so(
    log: LogWriter, config: Path, service: ServiceProcess
) -> None:
    """To try again would be in vain; what started the run starts it anew, with a Java."""
    log.append(10, topics=("plant/1/temp",))
    job = start(config, service.address, "run", "--master", "local[2,4]")
    commits = config.parent / "tables" / "numbers" / "_delta_log"
    try:
        wait_until(lambda: list(commits.glob("*.json")), "a commit")
        below = descendants(job.pid)
        kill(one for one in below if Path(f"/proc/{one.pid}/comm").read_text() == "java\n")
        _, told = job.communicate(timeout=DEADLINE_S)
    finally:
        job.kill()
        job.communicate()
    assert job.returncode == 1
    spark_log = config.parent / "tables" / "numbers" / "_checkpoint" / "spark.log"
    assert told.splitlines()[-1] == f"penstock: Spark has ended (its output is in {spark_log})"
    assert "Traceback" not in told
