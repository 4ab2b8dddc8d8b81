"""A real S3 server that stores on disk, with a proxy before it that spoils requests.

The server is versitygw (Go), which keeps each object as a file, and knows conditional writes. It is
killed and started again as a server of a log is::

    tests ──▶ proxy (object_store) ──▶ versitygw ──▶ directory/data/BUCKET/KEY
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import pytest
from pyarrow.fs import S3FileSystem

from tests.support.deadline import wait_for
from tests.support.log_servers import LogServer
from tests.support.object_store import KEYS, REGION, ObjectStore, object_store

_PROGRAM: Final = shutil.which("versitygw")

needed = pytest.mark.skipif(
    _PROGRAM is None, reason="versitygw is not installed: `make lake` does it, with Go"
)


@final
class S3Server(LogServer):
    """The server.

    Args:
        directory: an empty directory for its data and its log.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__("s3", directory, ports=1)
        data = directory / "data"
        data.mkdir(parents=True)
        self.target = f"127.0.0.1:{self.ports[0]}"
        self.url = f"http://{self.target}"
        self.command = [
            *(str(_PROGRAM), "--port", self.target, "--region", REGION),
            *("--access", KEYS["AWS_ACCESS_KEY_ID"], "--secret", KEYS["AWS_SECRET_ACCESS_KEY"]),
            *("posix", str(data)),
        ]

    def start(self) -> None:
        """Start it, and wait until it listens."""
        super().start()
        wait_for("the S3 server", self._listens)

    def restart(self) -> None:
        """Kill it in the middle of what it does, and start it again."""
        self.kill()
        self.start()

    def _listens(self) -> bool:
        assert self.process.poll() is None, self.log_path.read_text(errors="replace")
        try:
            with socket.create_connection(("127.0.0.1", self.ports[0]), 1):
                return True
        except OSError:
            return False


@dataclass(frozen=True)
class DiskStore:
    """A running server and the proxy before it."""

    server: S3Server
    proxy: ObjectStore

    def make_bucket(self, name: str) -> None:
        """Make an empty bucket."""
        files = S3FileSystem(
            access_key=KEYS["AWS_ACCESS_KEY_ID"],
            secret_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            endpoint_override=self.server.target,
            scheme="http",
            allow_bucket_creation=True,
        )
        files.create_dir(name)


@contextmanager
def disk_store(directory: Path) -> Iterator[DiskStore]:
    """Run both for the time of a `with` block."""
    server = S3Server(directory)
    try:
        server.start()
        with object_store(server.target) as proxy:
            yield DiskStore(server, proxy)
    finally:
        server.close()
