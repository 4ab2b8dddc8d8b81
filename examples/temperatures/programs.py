"""The programs of the demonstration: started, killed, started again, and never left behind.

Each runs in a session of its own, so that Ctrl-C reaches only us, and carries a mark in its
environment, by which its descendants are found however they were orphaned.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from examples.temperatures.fleet import Order

ROOT: Final = Path(__file__).resolve().parents[2]
MARK: Final = "PENSTOCK_DEMO_RUN"

POLL_S: Final = 0.05
READY_S_MAX: Final = 20.0
STOP_S_MAX: Final = 30.0
VANISH_S_MAX: Final = 10.0
_LOG_TAIL_LINES: Final = 15


class DemoFailed(Exception):
    """The demonstration could not go on; the sentence says why."""


def wait_until(condition: Callable[[], bool], longest_s: float, what: str) -> None:
    """Return when `condition` holds.

    Raises:
        DemoFailed: it does not after `longest_s`; `what` completes "waited … s for".
    """
    deadline = time.monotonic() + longest_s
    while not condition():
        if time.monotonic() > deadline:
            raise DemoFailed(f"waited {longest_s:.0f} s for {what}")
        time.sleep(POLL_S)


def free_port() -> int:
    """A port of the loopback interface that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def mark_this_process() -> str:
    """Mark what this process starts from now on; the mark."""
    mark = secrets.token_hex(8)
    os.environ[MARK] = mark
    return mark


def end_leftovers(mark: str) -> list[int]:
    """Wait for marked processes to vanish, kill those that do not; their process ids."""
    deadline = time.monotonic() + VANISH_S_MAX
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    for process_id in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)
    return left


def _marked(mark: str) -> list[int]:
    wanted = f"{MARK}={mark}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return [process_id for process_id in found if process_id != os.getpid()]


class Program:
    """One program and its log file, through all its lives.

    Args:
        name: for messages.
        command: what to run.
        log: file that takes what it prints.
    """

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start_bytes = 0

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; the log goes on where it was."""
        with self.log.open("ab") as output:
            self._log_start_bytes = output.tell()
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait_for_line(self, text: str) -> None:
        """Until this life's log has `text`.

        Raises:
            DemoFailed: it ended instead, or takes too long.
        """

        def is_there() -> bool:
            self.check()
            return text in self._printed()

        wait_until(is_there, READY_S_MAX, f"{self.name} to print “{text}”; see {self.log}")

    def check(self) -> None:
        """Raise DemoFailed if it ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            tail = "\n".join(self._printed().splitlines()[-_LOG_TAIL_LINES:])
            raise DemoFailed(f"{self.name} ended with code {self._process.returncode}:\n{tail}")

    def kill(self) -> None:
        """SIGKILL to it and to its process group while it runs; wait for its death.

        Raises:
            DemoFailed: it had ended by itself.
        """
        self.check()
        self.end()

    def end(self) -> None:
        """SIGKILL to whatever is left of it."""
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code.

        Raises:
            DemoFailed: it had ended by itself, or does not end.
        """
        self.check()
        process = self._process
        assert process is not None
        self._process = None
        process.terminate()
        try:
            return process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process = process
            raise DemoFailed(
                f"{self.name} did not end within {STOP_S_MAX:.0f} s of SIGTERM"
            ) from None

    def _printed(self) -> str:
        with self.log.open("rb") as file:
            file.seek(self._log_start_bytes)
            return file.read().decode(errors="replace")


class DeviceProcess:
    """One device, and what it last said about itself.

    Args:
        order: what it is told.
        log: file that takes what it prints to standard error.
        before: what stands before its command.
    """

    def __init__(self, order: Order, log: Path, before: tuple[str, ...] = ()) -> None:
        self.order = order
        self.sent = 0
        self.acknowledged = 0
        self.connections = 0
        self.in_flight_when_broken: list[int] = []  # one for each time the connection broke
        self.sessions_forgotten = 0
        self.reconnects_cut_off = 0
        self.done = False
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*before, sys.executable, "-m", "examples.temperatures.device"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        self._log = log
        self._say(order.to_json())
        output_lines = self._process.stdout
        assert output_lines is not None
        self._listener = threading.Thread(target=self._listen, args=(output_lines,), daemon=True)
        self._listener.start()

    def finish(self) -> None:
        """Tell it to come to an end once it has replayed what it must."""
        self._say("finish")

    def check(self) -> None:
        """Raise DemoFailed if it ended before it was done."""
        if not self.done and self._process.poll() is not None:
            self._listener.join()
            if not self.done:
                name = self.order.device.name
                raise DemoFailed(f"device {name} ended too early; see {self._log}")

    def stop(self) -> None:
        """End it in any case."""
        pipe = self._process.stdin
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            self._process.wait(VANISH_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join()

    def _say(self, line: str) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):  # `check` tells that it is gone
            pipe.write(line + "\n")
            pipe.flush()

    def _listen(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                facts: dict[str, int] = json.loads(line)
                if facts.get("broken"):
                    self.in_flight_when_broken.append(facts["in_flight"])
                elif facts.get("session_forgotten"):
                    self.sessions_forgotten += 1
                elif facts.get("cut_off"):
                    self.reconnects_cut_off += 1
                else:
                    self.sent = facts["sent"]
                    self.acknowledged = facts["acknowledged"]
                    self.connections += facts.get("connected", 0)
                    self.done = bool(facts.get("done"))
