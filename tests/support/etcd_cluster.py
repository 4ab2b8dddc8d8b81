"""Three real etcd servers that keep a replicated log, on loopback (``log_servers``)."""

from __future__ import annotations

import base64
import json
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final

import pytest

from tests.support.deadline import wait_for
from tests.support.log_servers import SERVERS, LogServer, LogServers, answer_at

_CALL_S: Final = 10.0
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

    Attributes:
        store_dir: its data.
    """

    def __init__(self, name: str, directory: Path, scheme: str) -> None:
        super().__init__(name, directory, ports=3)
        port, peer_port, self._metrics_port = self.ports
        self.store_dir = directory / "data"
        self.url = f"{scheme}://127.0.0.1:{port}"
        self.peer_url = f"http://127.0.0.1:{peer_port}"

    def configure(self, servers: Sequence[EtcdServer], options: Sequence[str]) -> None:
        """Say which servers there are, and what else it is told."""
        self._configured = (tuple(servers), tuple(options))
        self._configure("new")

    def begin_anew(self, state: str = "existing") -> None:
        """Begin with empty data at the next start, as a member that was added to the cluster; or
        of a ``new`` one."""
        self.store_dir.rename(self.store_dir.with_name(f"aside-{time.time_ns()}"))
        self._configure(state)

    def ask(self, path: str) -> dict[str, Any]:
        """Return whether it is healthy, as a NATS server answers ``/healthz``."""
        del path
        return {"status": "ok" if self.is_healthy() else ""}

    def _configure(self, state: str) -> None:
        servers, options = self._configured
        peers = ",".join(f"{server.name}={server.peer_url}" for server in servers)
        self.command = [
            *(str(_PROGRAM), "--name", self.name, "--data-dir", str(self.store_dir)),
            *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
            *("--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url),
            *("--initial-cluster", peers, "--initial-cluster-state", state),
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
        names: their names; numbered without.
    """

    def __init__(
        self,
        directory: Path,
        servers: int = SERVERS,
        options: Sequence[str] = (),
        scheme: str = "http",
        names: Sequence[str] = (),
    ) -> None:
        super().__init__()
        for name in names or [f"e{number}" for number in range(1, servers + 1)]:
            home = directory / name
            home.mkdir(parents=True)
            self.servers.append(EtcdServer(name, home, scheme))
        for server in self.servers:
            server.configure(self.servers, options)

    def fill_anew(self, name: str) -> bool:
        """Remove a server from the cluster, add it again, and start it with empty data: what
        `etcdctl` does for an operator. Return False, and do nothing, while another one is away."""
        server = self.server(name)
        others = [one for one in self.servers if one is not server]
        if not all(one.is_healthy() for one in others):
            return False
        other = others[0]
        wait_for("the member to be removed", lambda: self.remove(server))
        if server.is_running:
            server.kill()
        wait_for(
            "the member to be added",
            lambda: _post(other, "/v3/cluster/member/add", {"peerURLs": [server.peer_url]}),
        )
        server.begin_anew()
        server.start()
        return True

    def remove(self, server: EtcdServer) -> bool:
        """Ask another server to remove one from the cluster; return whether it was no member."""
        other = next(one for one in self.servers if one is not server and one.is_running)
        members = _post(other, "/v3/cluster/member/list", {}).get("members")
        found = [one for one in members or () if server.peer_url in one["peerURLs"]]
        for member in found:
            _post(other, "/v3/cluster/member/remove", {"ID": member["ID"]})
        return members is not None and not found

    def begin_new(self) -> None:
        """Let servers that do not run begin a new cluster, with empty data."""
        for server in self.servers:
            server.begin_anew("new")

    def wait_until_whole(self) -> None:
        """Wait until each server knows a leader."""
        for server in self.servers:
            wait_for(f"{server.name} of etcd", server.is_healthy)


def _post(server: EtcdServer, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a server; an empty one where it refuses for now, or takes too long."""
    request = urllib.request.Request(f"{server.url}{path}", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=_CALL_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (urllib.error.HTTPError, TimeoutError):  # as when the others are not known to be healthy
        return {}


def say_another_end(server: EtcdServer, log: str, end: int, other: int) -> None:
    """Restart a server with another end of a log in its data, as after a crash that takes an entry
    from the log which the server had applied.

    Args:
        server: the server, which may be behind the others for a while.
        log: the name of the log.
        end: its end.
        other: the end that this server is to know.
    """
    key = base64.b64encode(f"{log}/end".encode()).decode()
    value = base64.b64encode(b"%016x" % end).decode()

    def has_end() -> bool:
        found = _post(server, "/v3/kv/range", {"key": key, "serializable": True}).get("kvs", [])
        return any(one["value"] == value for one in found)

    wait_for(f"{server.name} to have entry {end}", has_end)
    (database,) = server.store_dir.glob("member/snap/db")
    found = re.compile(rb"(?<!log/)%016x" % end)  # not where it is the name of the entry
    server.stop()  # with its database written to the end
    content = database.read_bytes()
    assert found.search(content)
    database.write_bytes(found.sub(b"%016x" % other, content))
    server.start()
