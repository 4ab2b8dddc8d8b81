"""Starts the broker that is measured, and reads its CPU time and memory from the kernel."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cpu_shares import cpu_s_of

START_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Broker:
    """A running broker on loopback."""

    port: int
    pid: int
    stream: str = ""  # HOST:PORT of its stream service
    admin: str = ""  # URL of its admin process

    def cpu_s(self) -> float:
        """Return user and system time of the process since its start, seconds."""
        return cpu_s_of(self.pid)

    def resident_mib(self) -> float:
        """Return the resident memory of the process, MiB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextlib.contextmanager
def penstock(persistence: str) -> Iterator[Broker]:
    """Run Penstock with persistence "file" or "memory", in a new directory."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        penstock_in(Path(directory), persistence) as broker,
    ):
        yield broker


@contextlib.contextmanager
def penstock_in(
    directory: Path,
    persistence: str,
    settings: Mapping[str, object] | None = None,
    until_primary: bool = True,
    under: Sequence[str] = (),
) -> Iterator[Broker]:
    """Run Penstock on the data in ``directory``, with ``settings`` by "group.name".

    ``under`` is the command of a program that runs it, as Valgrind does. A broker of a cluster
    starts as a standby: with ``until_primary`` this waits until it is the primary.

    Raises:
        RuntimeError: the broker did not start.
    """
    command = [
        *(*under, sys.executable, "-m", "penstock", "serve", "--bind", "127.0.0.1:0"),
        *("--data-dir", str(directory), "--persistence", persistence),
        *("--stream-bind", "127.0.0.1:0", "--log-level", "error"),
    ]
    environment = dict(os.environ)
    single_user_limits: dict[str, object] = {  # one user publishes everything
        "memory.share_max": 1,
        "memory.sessions_bytes_max": 4 * 2**30,
    }
    for name, value in (single_user_limits | dict(settings or {})).items():
        environment[f"PENSTOCK_{name.replace('.', '__')}".upper()] = str(value)
    with _running(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        while until_primary and line.startswith("penstock standby"):
            line = process.stdout.readline()
        if not line.startswith(("penstock ready", "penstock standby")):
            raise RuntimeError(f"the broker did not start: {line!r}")
        address = next(word for word in line.split() if word.startswith("mqtt://"))
        words = line.split()
        words_by_name = dict(itertools.pairwise(words))
        stream = words_by_name.get("stream", "").removeprefix("grpc://")
        port = int(address.rpartition(":")[2])
        yield Broker(port, process.pid, stream, words_by_name.get("admin", ""))


@contextlib.contextmanager
def mosquitto() -> Iterator[Broker]:
    """Run Mosquitto without persistence; it must be installed (see `mosquitto_program`)."""
    program = mosquitto_program()
    assert program is not None
    port = _free_port()
    with _running([program, "-p", str(port)], stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
                break
        yield Broker(port, process.pid)


def mosquitto_program() -> str | None:
    """Return the path of Mosquitto (Debian's package ``mosquitto``), or None if not installed."""
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextlib.contextmanager
def _running(
    command: list[str], stdout: int, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, stdout=stdout, stderr=subprocess.DEVNULL, text=True, env=env
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
