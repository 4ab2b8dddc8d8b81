"""A signal at every line of a wait: it must end the wait, wherever it arrives.

Run in a process of its own, because a wait that a signal broke never returns::

    python -m tests.support.interrupted service|landing

The process ends with exit code 0 and prints how many lines were tried when each wait ended; whoever
runs it sets the deadline.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

BLOCKED_AFTER_S: Final = 0.3
"""A wait that has not reached the line by then is taken to be waiting before it."""


LINES_MAX: Final = 250
"""Of a wait that looks again and again: more than one round."""


def at_every_line(prepare: Callable[[], Callable[[], object]]) -> int:
    """Call what `prepare` makes with SIGTERM at its first line, at its second, and so on.

    Returns how many lines ran before the call waited, `LINES_MAX` at most.
    """
    line = 0
    while line < LINES_MAX and _interrupt(prepare(), line + 1):
        line += 1
    return line


def _interrupt(call: Callable[[], object], line: int) -> bool:
    seen = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal seen
        seen += event == "line"
        if seen == line:
            sys.settrace(None)
            signal.raise_signal(signal.SIGTERM)
        return trace

    otherwise = threading.Timer(BLOCKED_AFTER_S, os.kill, (os.getpid(), signal.SIGTERM))
    otherwise.start()
    sys.settrace(trace)
    call()
    sys.settrace(None)
    otherwise.cancel()
    otherwise.join()
    return seen >= line


def _service() -> Callable[[], object]:
    from penstock.stream.stop_signal import StopSignal

    reading, _ = os.pipe()  # an input that does not end
    os.dup2(reading, sys.stdin.fileno())
    return StopSignal().wait


def _landing() -> Callable[[], object]:
    from penstock.cli.spark_jobs import stop_on_signals
    from penstock.spark.jobs import job
    from penstock.spark.jobs.landing import Landing
    from penstock.spark.jobs.settings import LandingSettings
    from penstock.stream.client import StreamUnavailable

    class Away:
        def offsets(self, _stream: str, **_: object) -> object:
            raise StreamUnavailable("away")

    job.POLL_S = 0.001  # type: ignore[misc]  # as many rounds as there are lines
    landing = Landing(LandingSettings(Path("table"), connect_timeout_s=600))
    stop_on_signals(landing.stop)
    return lambda: landing._wait_for_log(Away())  # type: ignore[arg-type]


if __name__ == "__main__":
    print(at_every_line({"service": _service, "landing": _landing}[sys.argv[1]]))
