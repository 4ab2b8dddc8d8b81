"""The demonstration itself, small: it ends as the README says, and Ctrl-C leaves nothing behind."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.temperatures.programs import ROOT, wait_until

SMALL = ("--devices", "4", "--readings", "200", "--rate", "60", "--seed", "7")


def command(directory: Path, *more: str) -> list[str]:
    demo = [sys.executable, "-m", "examples.temperatures", "--directory", str(directory)]
    return [*demo, *SMALL, *more]


@pytest.mark.timeout(1200)
def test_killed_broker_and_killed_spark_job_lose_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    run = ("--broker-kills", "1", "--spark-kills", "1")
    done = subprocess.run(command(directory, *run), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing lost; at QoS 2 nothing twice." in done.stdout
    assert "broker killed with" in done.stdout
    assert "Spark job killed" in done.stdout
    assert "cut off;" not in done.stdout  # a kill never met a device that was reconnecting
    assert "without a kill" not in done.stdout
    assert str(directory / "temperatures") in done.stdout.replace("\n", "")
    for ledger in (directory / "ledgers").iterdir():
        with ledger.open() as file:
            assert all(entry["acknowledged_at_s"] for entry in csv.DictReader(file))
    assert not (directory / "broker").exists()
    assert _processes_about(directory) == {}


@pytest.mark.timeout(1200)
def test_ctrl_c_ends_every_process(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    demo = subprocess.Popen(
        command(directory), cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert demo.stdout is not None
    try:
        for line in demo.stdout:
            if "devices are replaying" in line:
                break
        wait_until(lambda: len(_processes_about(directory)) >= 3, 30.0, "broker and Spark job")
        os.killpg(demo.pid, signal.SIGINT)
        assert demo.wait(60) == 130
        wait_until(lambda: not _processes_about(directory), 5.0, "every process to end")
    finally:
        demo.kill()
        demo.wait()
        demo.stdout.close()
        for process_id in _processes_about(directory):
            os.kill(process_id, signal.SIGKILL)


def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    wide = os.environ | {"COLUMNS": "1000"}  # the path may be long, and the lines are not to be cut
    done = subprocess.run(command(tmp_path), cwd=ROOT, env=wide, capture_output=True, text=True)
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def _processes_about(directory: Path) -> dict[int, str]:
    """Processes whose command line names the directory, but for the demonstration itself."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in line and "examples.temperatures --directory" not in line:
            found[int(path.parent.name)] = line
    return found
