"""Programs are started, killed, started again, and nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.temperatures import programs
from examples.temperatures.programs import DemoFailed, Program, end_leftovers, mark_this_process
from examples.temperatures.replay import SPARK, Plan
from examples.temperatures.sites import BROKER, CUT, LOST

STAY = "import time; print('ready', flush=True); time.sleep(600)"
LEAVE_A_CHILD = f"""
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", {STAY!r}], stdout=subprocess.DEVNULL, start_new_session=True
)
print(child.pid)
"""


@pytest.fixture
def mark() -> Iterator[str]:
    """A mark that does not stay in this process's environment."""
    yield mark_this_process()
    del os.environ[programs.MARK]


def python(name: str, code: str, tmp_path: Path) -> Program:
    return Program(name, [sys.executable, "-c", code], tmp_path / "log")


def test_a_killed_program_starts_again_and_only_its_new_life_is_ready(tmp_path: Path) -> None:
    program = python("one", STAY, tmp_path)
    program.start()
    program.wait_for_line("ready")
    program.kill()
    assert not program.running
    program.start()
    program.wait_for_line("ready")
    assert (tmp_path / "log").read_text() == "ready\nready\n"
    assert program.stop() == -signal.SIGTERM
    assert not program.running


def test_a_program_that_ends_by_itself_is_told_with_its_last_words(tmp_path: Path) -> None:
    program = python("one", "raise SystemExit('the port is taken')", tmp_path)
    program.start()
    with pytest.raises(DemoFailed, match=r"one ended with code 1:\nthe port is taken"):
        program.wait_for_line("ready")


def test_a_descendant_that_was_left_behind_is_found_and_killed(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "VANISH_S_MAX", 0.1)
    command = [sys.executable, "-c", LEAVE_A_CHILD]
    orphan = int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert end_leftovers(mark) == [orphan]
    programs.wait_until(lambda: not _alive(orphan), 5.0, "the orphan to die")
    assert end_leftovers(mark) == []


def test_kills_are_spread_over_the_run() -> None:
    assert Plan(broker_kills=2, spark_kills=1).targets() == [BROKER, SPARK, BROKER]
    assert Plan(broker_kills=0, spark_kills=2).targets() == [SPARK, SPARK]
    cluster = Plan(broker_kills=3, spark_kills=0, is_cluster=True)
    assert cluster.targets((LOST, CUT)) == [LOST, CUT, LOST]
    assert Plan(broker_kills=3, spark_kills=2).targets() == [BROKER, SPARK, BROKER, SPARK, BROKER]


def _alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
