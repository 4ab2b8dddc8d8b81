"""Start Penstock in a tenth of the time: forked from a process that has loaded its modules.

::

      test run ── command, environment, directory, output ─▶ fork server ── fork ─▶ penstock
          ▲                                                       │
          ╰──────────── its process id, later its exit status ────╯

A start of ``python -m penstock`` takes more than a second of processor time, nearly all of it to
import modules, and a run of all tests starts thousands. The fork server imports them once. A
forked process leads a session of its own and runs the same ``main`` with the same arguments,
environment and directory; it is signalled and killed as any other.

A command that is not plainly ``python -m penstock``, or a variable that the interpreter or the C
library reads when it starts, gets an interpreter of its own. So does every process where the kernel
has no descriptors of processes: where it is not Linux.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, TypeAlias, final

from tests.support import fork_server
from tests.support.deadline import DEADLINE_S
from tests.support.environment import environment

PENSTOCK: Final = (sys.executable, "-m", "penstock")

_FORKS: Final = hasattr(os, "pidfd_open")
_READ_LATER: Final = ("PENSTOCK_", "PYTEST_")  # variables of Penstock's own, and of nobody
_SAID_BYTES_MAX: Final = 64


@final
class ForkedProcess:
    """A process that the fork server started: what tests need of ``subprocess.Popen``."""

    def __init__(self, status: socket.socket) -> None:
        self.pid = int(status.recv(_SAID_BYTES_MAX))
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Return its exit status; None while it runs."""
        with contextlib.suppress(BlockingIOError):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit status, or minus the signal that ended it.

        Raises:
            OSError: it has not ended after ``timeout`` seconds.
        """
        if self.returncode is None:
            self._status.settimeout(timeout)
            said = self._status.recv(_SAID_BYTES_MAX)
            self._status.close()
            assert said, "the fork server has ended"
            self.returncode = int(said)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):  # its end is known before it is told
            if self.poll() is None:
                os.kill(self.pid, number)


Process: TypeAlias = "ForkedProcess | subprocess.Popen[bytes]"


def start_process(
    command: Sequence[str],
    variables: Mapping[str, str],
    output: int,
    errors: int,
    given: int | None = None,
) -> Process:
    """Start a command as the leader of a session; return its process.

    Args:
        command: program and arguments.
        variables: its whole environment.
        output: descriptor of its standard output.
        errors: descriptor of its standard error.
        given: descriptor of its standard input; None: it is empty.
    """
    if given is None:
        with Path(os.devnull).open("rb") as nothing:
            return start_process(command, variables, output, errors, nothing.fileno())
    if not (_FORKS and tuple(command[:3]) == PENSTOCK and _is_read_later(variables)):
        return subprocess.Popen(
            command,
            stdin=given,
            stdout=output,
            stderr=errors,
            env=variables,
            start_new_session=True,
        )
    request = {
        "arguments": command[len(PENSTOCK) :],
        "environment": dict(variables),
        "cwd": str(Path.cwd()),
    }
    status, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with other:
        descriptors = (given, output, errors, other.fileno())
        socket.send_fds(_fork_server(), [json.dumps(request).encode()], descriptors)
    return ForkedProcess(status)


def run_penstock(
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    said: bytes = b"",
    before: Sequence[str] = (),
    within_s: float = DEADLINE_S,
) -> subprocess.CompletedProcess[str]:
    """Run ``penstock`` to its end; return its exit status, output and errors (what is no UTF-8 in
    them is escaped by surrogates).

    Args:
        arguments: after ``penstock``.
        variables: its whole environment; that of the tests by default.
        said: its standard input.
        before: a program that runs it.
        within_s: seconds after which it is ended, and the test fails.
    """
    command = (*before, *PENSTOCK, *arguments)
    with TemporaryFile() as given, TemporaryFile() as output, TemporaryFile() as errors:
        given.write(said)
        given.seek(0)
        process = start_process(
            command,
            environment() if variables is None else variables,
            output.fileno(),
            errors.fileno(),
            given.fileno(),
        )
        try:
            code = process.wait(within_s)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        errors.seek(0)
        texts = (file.read().decode(errors="surrogateescape") for file in (output, errors))
        return subprocess.CompletedProcess(command, code, *texts)


def _is_read_later(variables: Mapping[str, str]) -> bool:
    """Return whether the fork server has the same environment, but for Penstock's own variables."""
    names = {name for name, _ in variables.items() ^ _given().items()}
    return all(name.startswith(_READ_LATER) for name in names)


@cache
def _given() -> dict[str, str]:
    """Return the environment of the fork server: that of the first start."""
    return environment()


@cache
def _fork_server() -> socket.socket:
    """Start the fork server of this test run; it ends with it, also when that is killed."""
    control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with other:
        server = subprocess.Popen(
            [sys.executable, fork_server.__file__, str(other.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=_given() | {"OPENBLAS_NUM_THREADS": "1"},  # numpy's, which would begin others
            pass_fds=[other.fileno()],
            start_new_session=True,
        )
    atexit.register(server.wait)
    atexit.register(control.close)  # before it
    return control
