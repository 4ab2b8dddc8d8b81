"""The OpenTelemetry process: what it cannot use, and what it does about a defect."""

import subprocess
import sys
from pathlib import Path

from tests.support.deadline import DEADLINE_S

COMMAND = (sys.executable, "-m", "penstock.otlp.service", "--endpoint", "http://127.0.0.1:9")


def test_a_file_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    headers = ("--headers-file", str(tmp_path / "absent"))
    done = subprocess.run(
        [*COMMAND, "--data-dir", str(tmp_path), *headers],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 2
    assert "absent cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_thread_with_a_defect_ends_the_process(tmp_path: Path) -> None:
    """Whatever it is: here a time that no clock can wait for."""
    with subprocess.Popen(
        [*COMMAND, "--data-dir", str(tmp_path), "--interval-s", "1e300"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.wait(DEADLINE_S) == 1
        assert process.stderr is not None
        said = process.stderr.read()
    assert "a defect: OverflowError" in said
    assert "Traceback" not in said
