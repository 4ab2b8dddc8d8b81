"""Servers that keep a replicated log, of any kind: started, paused, killed and started again.

::

      start ─▶ a leader is elected ── kill | pause | resume | restart ─▶ …
                          ╰──────────── close ─▶ nothing left

Ports are chosen before the start, because each server must know where the others are, and held
until ``close``, so that nobody else is given one while a server is away. A server is the leader of
its own process group; nothing is left either when the test run is killed (``left_behind``).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from penstock.transport.reserved_port import ReservedPort
from tests.support import left_behind
from tests.support.deadline import DEADLINE_S

SERVERS: Final = 3


class LogServer:
    """One server.

    Args:
        name: its name.
        directory: an empty directory for its data, its settings and its log.
        ports: how many ports it needs.

    Attributes:
        command: what starts it; set before the start.
        url: at which clients reach it; set before the start.
    """

    def __init__(self, name: str, directory: Path, ports: int) -> None:
        self.name: Final = name
        self.log_path = directory / "server.log"
        self.command: Sequence[str] = ()
        self.url = ""
        self._reserved = [ReservedPort("127.0.0.1") for _ in range(ports)]
        self.ports = tuple(port.port for port in self._reserved)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the present start."""
        assert self._process is not None, f"{self.name} does not run"
        return self._process

    @property
    def pid(self) -> int:
        """The process; 0 while there is none."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        """True between a start and an end."""
        return self._process is not None

    def start(self) -> None:
        """Start it; it is not ready yet."""
        assert self._process is None, f"{self.name} runs"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        left_behind.watch(self._process.pid)

    def pause(self) -> None:
        """Stop it in the middle of what it does; its connections stand."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without a warning; its files stay as the page cache has them."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end."""
        self._end(signal.SIGTERM)

    def close(self) -> None:
        """End it if it runs, and give its ports free."""
        if self._process is not None:
            self.kill()
        for port in self._reserved:
            port.close()

    def _end(self, number: signal.Signals) -> None:
        process = self.process
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            os.killpg(process.pid, signal.SIGCONT)
        try:
            process.wait(DEADLINE_S)
        finally:
            left_behind.forget(process.pid)
            self._process = None


Server = TypeVar("Server", bound=LogServer)


class LogServers(Generic[Server]):
    """All servers of one cluster; whoever makes them closes them."""

    def __init__(self) -> None:
        self.servers: list[Server] = []

    @property
    def urls(self) -> tuple[str, ...]:
        """URLs of all servers, for ``cluster.log``."""
        return tuple(server.url for server in self.servers)

    def start(self) -> None:
        """Start those that do not run, and wait until all are there and one leads."""
        for server in self.servers:
            if not server.is_running:
                server.start()
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        """Wait until all servers run and one leads."""
        raise NotImplementedError

    def server(self, name: str) -> Server:
        """Return the server of this name."""
        return next(server for server in self.servers if server.name == name)

    def pause(self) -> None:
        """Pause all servers."""
        for server in self.servers:
            server.pause()

    def resume(self) -> None:
        """Let all servers go on."""
        for server in self.servers:
            server.resume()

    def restart(self) -> None:
        """Kill all servers at once, and start them again."""
        for server in self.servers:
            server.kill()
        self.start()

    def close(self) -> None:
        """End all servers."""
        for server in self.servers:
            server.close()


def answer_at(port: int, path: str) -> dict[str, Any]:
    """Return the JSON that a port of this machine answers with; empty where there is none."""
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer: dict[str, Any] = json.load(connection.getresponse())
            return answer
    return {}
