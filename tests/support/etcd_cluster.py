"""Three real etcd servers that keep a replicated log, on loopback (``log_servers``)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

import pytest

from tests.support.deadline import wait_for
from tests.support.log_servers import SERVERS, LogServer, LogServers, answer_at

_PROGRAM: Final = shutil.which("etcd")

needed = pytest.mark.skipif(
    _PROGRAM is None, reason="etcd is not installed: apt-get install etcd-server"
)


@final
class EtcdServer(LogServer):
    """One of the servers.

    Args:
        name: its name.
        directory: an empty directory for its data and its log.
        scheme: of its URL.
    """

    def __init__(self, name: str, directory: Path, scheme: str) -> None:
        super().__init__(name, directory, ports=3)
        port, peer_port, self._metrics_port = self.ports
        self._data_dir = directory / "data"
        self.url = f"{scheme}://127.0.0.1:{port}"
        self.peer_url = f"http://127.0.0.1:{peer_port}"

    def configure(self, servers: Sequence[EtcdServer], options: Sequence[str]) -> None:
        """Say which servers there are, and what else it is told."""
        peers = ",".join(f"{server.name}={server.peer_url}" for server in servers)
        self.command = [
            *(str(_PROGRAM), "--name", self.name, "--data-dir", str(self._data_dir)),
            *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
            *("--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url),
            *("--initial-cluster", peers, "--initial-cluster-state", "new"),
            *("--listen-metrics-urls", f"http://127.0.0.1:{self._metrics_port}"),
            *("--logger", "zap", *options),
        ]

    def is_healthy(self) -> bool:
        """Whether it knows a leader and takes part."""
        return answer_at(self._metrics_port, "/health").get("health") == "true"


@final
class EtcdCluster(LogServers[EtcdServer]):
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
        super().__init__()
        for number in range(1, servers + 1):
            home = directory / f"e{number}"
            home.mkdir(parents=True)
            self.servers.append(EtcdServer(f"e{number}", home, scheme))
        for server in self.servers:
            server.configure(self.servers, options)

    def wait_until_whole(self) -> None:
        """Wait until each server knows a leader."""
        for server in self.servers:
            wait_for(f"{server.name} of etcd", server.is_healthy)
