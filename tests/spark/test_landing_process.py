"""The landing job as a process: killed, stopped, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

import penstock
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess
from tests.spark.waiting import DEADLINE_S, wait_until
from tests.support.process_tree import alive, descendants, kill

COMMAND = "import sys; from penstock.cli.table import app; app()"


class Job:
    """`penstock table run`, as often as wanted."""

    def __init__(self, table: Path, server: str) -> None:
        self.table = table
        self._server = server
        self.process: subprocess.Popen[str] | None = None

    def start(self, *options: str) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, "run", self.table, "--server", self._server,
             "--master", "local[2,4]", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])},
        )  # fmt: skip
        return self.process

    def version(self) -> int:
        """The table's version; -1 before there is one."""
        log = self.table / "_delta_log"
        return max((int(path.stem) for path in log.glob("*.json")), default=-1)


@pytest.fixture
def job(service: ServiceProcess, tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path / "readings", service.address)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()
    if made.process is not None:
        made.process.communicate()


@pytest.mark.torture("starts Spark twice")
def test_a_killed_job_goes_on_with_each_message_once_and_leaves_no_process(
    log: LogWriter, job: Job
) -> None:
    log.append(1000)
    process = job.start("--trigger", "0", "--max-offsets", "50")
    wait_until(lambda: job.version() >= 2, "some commits")
    started = descendants(process.pid)
    process.kill()
    process.communicate()
    wait_until(lambda: not alive(started), "Java and its workers to exit")
    assert job.version() < 19

    log.append(100)
    assert job.start("--available-now").wait(DEADLINE_S) == 0

    found = DeltaTable(job.table).to_pyarrow_table(columns=["offset"]).column("offset")
    assert sorted(found.to_pylist()) == list(range(1100))


@pytest.mark.torture("starts a Spark of its own")
def test_sigterm_ends_the_job_cleanly_even_while_the_service_is_away(
    log: LogWriter, service: ServiceProcess, job: Job
) -> None:
    log.append(10)
    process = job.start("--trigger", "0")
    wait_until(lambda: job.version() >= 1, "the first rows")
    started = descendants(process.pid)
    service.kill()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert not alive(started)
    lines = output.splitlines()
    assert lines[:2] == ["waiting for the stream service", "starting Spark"]
    assert lines[-1].startswith("ended: 10 rows landed, batch 0, offset 10 of ")


@pytest.mark.torture("waits until a hung Java is killed")
def test_sigterm_ends_a_job_whose_java_hangs_within_a_minute_and_says_so(
    log: LogWriter, job: Job
) -> None:
    """It waited for an answer of Java for ever."""
    log.append(10)
    process = job.start("--trigger", "0")
    wait_until(lambda: job.version() >= 1, "the first rows")
    started = descendants(process.pid)
    (java,) = (one for one in started if Path(f"/proc/{one.pid}/comm").read_text() == "java\n")
    os.kill(java.pid, signal.SIGSTOP)
    log.append(10)
    process.send_signal(signal.SIGTERM)
    try:
        _, told = process.communicate(timeout=60)
    finally:
        kill([java])
    assert process.returncode == 1
    assert "Java had not ended 30 s after the stop, and was killed" in told
    assert not alive(started)
