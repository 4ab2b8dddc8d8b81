"""`penstock tables` as a process: killed in the middle, and asked afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

import penstock
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess
from tests.spark.waiting import DEADLINE_S, wait_until

COMMAND = "import sys; from penstock.cli.tables import app; app()"

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


@pytest.mark.long
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
    assert "dead letters  166" in status
    assert "0 offsets, 0.0 s" in status
