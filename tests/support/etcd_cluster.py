"""Three real etcd servers that keep a replicated log, on loopback.

As ``nats_cluster``: ports are chosen before the start and held until ``close``, each server is the
leader of its own process group, and nothing is left when the test run is killed (``left_behind``).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final

import pytest

from penstock.transport.reserved_port import ReservedPort
from tests.support import left_behind
from tests.support.deadline import DEADLINE_S, wait_for

SERVERS: Final = 3

_PROGRAM: Final = shutil.which("etcd")

needed = pytest.mark.skipif(
    _PROGRAM is None, reason="etcd is not installed: apt-get install etcd-server"
)


@final
class EtcdServer:
    """One of the servers.

    Args:
        name: its name.
        directory: an empty directory for its data and its log.
        scheme: of its URL.
    """

    def __init__(self, name: str, directory: Path, scheme: str) -> None:
        self.name: Final = name
        self._directory = directory
        self._port, self._peer_port = ReservedPort("127.0.0.1"), ReservedPort("127.0.0.1")
        self._metrics_port = ReservedPort("127.0.0.1")
        self.url = f"{scheme}://127.0.0.1:{self._port.port}"
        self.peer_url = f"http://127.0.0.1:{self._peer_port.port}"
        self._command: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, servers: Sequence[EtcdServer], options: Sequence[str]) -> None:
        """Say which servers there are, and what else it is told."""
        assert _PROGRAM is not None
        peers = ",".join(f"{server.name}={server.peer_url}" for server in servers)
        self._command = [
            *(_PROGRAM, "--name", self.name, "--data-dir", str(self._directory / "data")),
            *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
            *("--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url),
            *("--initial-cluster", peers, "--initial-cluster-state", "new"),
            *("--listen-metrics-urls", f"http://127.0.0.1:{self._metrics_port.port}"),
            *("--logger", "zap", *options),
        ]

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the present start."""
        assert self._process is not None, f"{self.name} does not run"
        return self._process

    @property
    def is_running(self) -> bool:
        """True between a start and an end."""
        return self._process is not None

    def start(self) -> None:
        """Start it."""
        assert self._process is None, f"{self.name} runs"
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
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
        """End it without a warning; its files stay."""
        process = self.process
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(DEADLINE_S)
        finally:
            left_behind.forget(process.pid)
            self._process = None

    def ask(self, path: str) -> dict[str, Any]:
        """Return what it answers at ``path``; empty where it does not."""
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            connection = http.client.HTTPConnection("127.0.0.1", self._metrics_port.port, timeout=5)
            with contextlib.closing(connection):
                connection.request("GET", path)
                answer: dict[str, Any] = json.load(connection.getresponse())
                return answer
        return {}

    def is_healthy(self) -> bool:
        """Whether it knows a leader and takes part."""
        return self.ask("/health").get("health") == "true"

    def close(self) -> None:
        """End it if it runs, and give its ports free."""
        if self._process is not None:
            self.kill()
        self._port.close()
        self._peer_port.close()
        self._metrics_port.close()


@final
class EtcdCluster:
    """Servers of one cluster.

    Args:
        directory: an empty directory.
        servers: how many.
        options: more options of each server.
        scheme: of the URLs; ``https`` needs options with a certificate.
    """

    def __init__(
        self,
        directory: Path,
        servers: int = SERVERS,
        options: Sequence[str] = (),
        scheme: str = "http",
    ) -> None:
        self.servers: list[EtcdServer] = []
        for number in range(1, servers + 1):
            home = directory / f"e{number}"
            home.mkdir(parents=True)
            self.servers.append(EtcdServer(f"e{number}", home, scheme))
        for server in self.servers:
            server.configure(self.servers, options)

    @property
    def urls(self) -> tuple[str, ...]:
        """URLs of all servers, for ``cluster.log``."""
        return tuple(server.url for server in self.servers)

    def start(self) -> None:
        """Start those that do not run, and wait until each knows a leader."""
        for server in self.servers:
            if not server.is_running:
                server.start()
        for server in self.servers:
            wait_for(f"{server.name} of etcd", server.is_healthy)

    def server(self, name: str) -> EtcdServer:
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
