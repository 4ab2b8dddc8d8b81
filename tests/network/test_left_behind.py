"""A test run that is killed leaves no broker behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.broker import Broker, processes_of
from tests.support.deadline import DEADLINE_S, wait_for


def test_brokers_end_with_the_test_run_that_is_killed(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import start_and_wait as run; run()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TEST_DIRECTORY": str(tmp_path)},
    )
    with run:
        assert run.stdout is not None
        group = int(run.stdout.readline())
        wait_for("broker and stream service to run", lambda: len(processes_of({group})) == 2)
        run.send_signal(signal.SIGKILL)
        run.wait(DEADLINE_S)
    wait_for("the broker to end", lambda: not processes_of({group}))


def start_and_wait() -> None:
    broker = Broker(Path(os.environ["TEST_DIRECTORY"]), stream=True)
    broker.start()
    print(broker.process.pid, flush=True)
    sys.stdin.read()
