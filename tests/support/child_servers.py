"""The NATS server that a broker runs (cluster.server_config), as faults see it.

The broker starts it again when it is killed, so ``start`` has nothing to do.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any, final

from tests.support.deadline import wait_for
from tests.support.log_servers import answer_at
from tests.support.nats_cluster import NatsServer
from tests.support.networks import Place

ACCOUNTS = """
accounts {
  BROKERS {
    jetstream: enabled, users: [ { user: broker, password: broker } ]
    imports: [ { service: { account: SYS, subject: "$SYS.REQ.SERVER.PING.JSZ" } } ]
  }
  SYS {
    users: [ { user: system, password: system } ]
    exports: [ { service: "$SYS.REQ.SERVER.PING.JSZ", response_type: stream,
                 accounts: [BROKERS] } ]
  }
}
system_account: SYS
no_auth_user: broker
"""
"""Accounts as `penstock cluster init` writes them, without logins for brokers."""

SYSTEM_LOGIN = "system:system\n"
"""The login of the system account."""


@final
class ChildServer:
    """The server of one broker.

    Args:
        configured: the server that was configured and is not started.
        data_dir: the broker's data directory.
        place: where the broker runs.
    """

    def __init__(self, configured: NatsServer, data_dir: Path, place: Place) -> None:
        self.name = configured.name
        self.url = configured.url
        self.config_file = configured.config_file
        self.store_dir = data_dir / "nats"
        self.monitoring_port = configured.monitoring_port
        self._place = place
        self._names = 1

    @property
    def pid(self) -> int:
        """The process; 0 while there is none."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes().split(b"\0")
                is_server = words[0].endswith(b"nats-server")
                if is_server and str(self.config_file).encode() in words:
                    return int(path.parent.name)
        return 0

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return bool(self.pid)

    def start(self) -> None:
        """Do nothing: the broker starts it."""

    def rename(self) -> str:
        """Give it another name, while it does not run: to the others it is another server. Return
        the name."""
        before, self._names = self.name, self._names + 1
        self.name = f"{before.partition('-')[0]}-{self._names}"
        config = self.config_file.read_text()
        line = f"server_name: {before}\n"
        assert line in config
        self.config_file.write_text(config.replace(line, f"server_name: {self.name}\n"))
        return self.name

    def kill(self) -> None:
        """End it as a crash would; return when it has ended."""
        pid = self.pid
        if pid:
            self._send(pid, signal.SIGKILL)
            wait_for(f"the end of the server {self.name}", lambda: self.pid != pid)

    def pause(self) -> None:
        """Stop it in the middle of what it does."""
        self._send(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._send(self.pid, signal.SIGCONT)

    def ask(self, path: str) -> dict[str, Any]:
        """Return what its monitoring port says at ``path``; empty where it does not answer."""
        with self._place.inside():
            return answer_at(self.monitoring_port, path)

    def _send(self, pid: int, number: signal.Signals) -> None:
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
