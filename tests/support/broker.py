"""A real broker process for a test: started on a free port, killed, started again there.

::

      Broker(dir) ── start ─▶ running ── kill | stop ─▶ ended ── start ─▶ running ...
                                 ╰────────── close ─▶ nothing left ◀────────╯

The ports of the first start are kept, as is the data directory, so a client finds the broker
again; they are held until ``close``, so that nobody else is given one while the broker is away.
Every start is the leader of its own process group; ``close`` ends all that is in it, and a
traceback in the broker's log fails the test, whatever else it checked. Nothing is left either when
the test run is killed (``left_behind``).
"""

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, final

from penstock.transport.reserved_port import ReservedPort
from tests.support import left_behind
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.environment import environment
from tests.support.processes import PENSTOCK, ForkedProcess, Process, start_process

READY_WORD: Final = "penstock ready"
SERVE: Final = (*PENSTOCK, "serve")

Address = tuple[str, int]


@final
class Broker:
    """One broker and what belongs to it.

    Args:
        directory: an empty directory for its data and its log.
        settings: "group.name" to value; the defaults otherwise.
        persistence: "file" or "memory".
        command: what is started instead of ``python -m penstock serve``, before its options.
        stream: whether the stream service runs too.
        log_path: of its log, where that is not beside its data.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        persistence: str = "file",
        command: Sequence[str] = SERVE,
        stream: bool = False,
        log_path: Path | None = None,
    ) -> None:
        self.data_dir = directory / "data"
        self.address: Address = ("127.0.0.1", 0)
        self.stream_address: Address = ("127.0.0.1", 0)
        self.urls: list[str] = []  # of all its listeners, as it said them
        self.admin_url = ""  # of its admin process; empty without one
        self.log_path = log_path or directory / "broker.log"
        self._persistence = persistence
        self.command = tuple(command)
        chosen: dict[str, object] = {"stream.enabled": str(stream).lower(), "log.level": "debug"}
        self._environment = environment(chosen | dict(settings or {}))
        self._process: Process | None = None
        self._output = -1  # where it says that it is ready; open while it runs
        self._groups: list[int] = []
        self._held: list[ReservedPort] = []

    def set_environment(self, name: str, value: str) -> None:
        """Set one more variable for the starts to come."""
        self._environment[name] = value

    @property
    def host(self) -> str:
        """Where it listens."""
        return self.address[0]

    @property
    def port(self) -> int:
        """Where it listens; the same after a restart."""
        return self.address[1]

    @property
    def process(self) -> Process:
        """The process of the present start."""
        assert self._process is not None, "the broker was not started"
        return self._process

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        self.address = self._hold(self.address)
        self.stream_address = self._hold(self.stream_address)
        command = [
            *self.command,
            "--bind",
            _text(self.address),
            "--data-dir",
            str(self.data_dir),
            "--persistence",
            self._persistence,
            "--stream-bind",
            _text(self.stream_address),
        ]
        with self.log_path.open("ab") as log:
            self._close_output()  # of a start that ended by itself
            self._output, told = os.pipe()
            self._process = start_process(command, self._environment, told, log.fileno())
            os.close(told)
        self._groups.append(self._process.pid)
        left_behind.watch(self._process.pid)
        words = self._ready_line().split()
        is_other = ("grpc", "http")
        self.urls = [word for word in words if "://" in word and not word.startswith(is_other)]
        if "admin" in words:
            self.admin_url = words[words.index("admin") + 1]
        self.address = address_of(words[words.index("ready") + 1])
        if "stream" in words:
            self.stream_address = address_of(words[words.index("stream") + 1])
            if isinstance(self._process, ForkedProcess):
                wait_for("its stream service, which is not forked", self._has_stream)

    def kill(self) -> None:
        """End it as a crash would: SIGKILL, to the broker alone."""
        self.process.send_signal(signal.SIGKILL)
        self._ended()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(number)
        return self._ended()

    def restart(self) -> None:
        """Kill it and start it again, on the same port and data directory."""
        self.kill()
        self.start()

    def family(self) -> list[int]:
        """The processes of all its starts that still exist (a zombie does not)."""
        return processes_of(self._groups)

    def log(self) -> str:
        """What it wrote to standard error, over all starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def close(self) -> None:
        """End everything that is left, for certain, and look for defects in the log."""
        for held in self._held:
            held.close()
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        if self._process is not None:
            self._ended()
            wait_for("all processes of the broker to end", lambda: not self.family())
        for group in self._groups:
            left_behind.forget(group)
        log = self.log()
        print(f"--- log of the broker at {_text(self.address)}\n{log[-20_000:]}")
        assert "Traceback" not in log, "the broker logged a traceback"

    def _hold(self, address: Address) -> Address:
        host, port = address
        if port:
            return address
        held = ReservedPort(host)
        self._held.append(held)
        return host, held.port

    def _has_stream(self) -> bool:
        """Return whether somebody listens for readers of the log, or nobody will: it has ended."""
        with socket.socket() as probe:
            probe.settimeout(1.0)
            is_there = probe.connect_ex(self.stream_address) == 0
        return is_there or self.process.poll() is not None

    def _ended(self) -> int:
        code = self.process.wait(DEADLINE_S)
        self._close_output()
        return code

    def _close_output(self) -> None:
        if self._output >= 0:
            os.close(self._output)
            self._output = -1

    def _ready_line(self) -> str:
        said = b""
        ends_s = time.monotonic() + DEADLINE_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            while not said.endswith(b"\n"):
                left_s = ends_s - time.monotonic()
                readable = selector.select(max(0.0, left_s))
                assert readable, f"not ready after {DEADLINE_S:g} s:\n{self.log()}"
                piece = os.read(self._output, 4096)
                assert piece, f"the broker ended before it was ready:\n{self.log()}"
                said += piece
        line = said.decode()
        assert line.startswith(READY_WORD), line
        return line


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def address_of(url: str) -> Address:
    """Host and port of a URL."""
    host, _, port = url.rpartition("//")[2].rpartition(":")
    return host, int(port)


def processes_of(groups: Collection[int]) -> list[int]:
    """The processes in these groups that still exist."""
    return [pid for pid, group in _process_groups() if group in groups]


def _process_groups() -> list[tuple[int, int]]:
    """(process, its group) of every process that is not a zombie, from /proc."""
    found: list[tuple[int, int]] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] not in "ZX":
            found.append((int(path.parent.name), int(fields[2])))
    return found
