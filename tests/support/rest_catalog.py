"""A real REST catalog of Iceberg's: the project's own server, over a SQLite file that outlives it.

Its jars come from Maven (`rest_catalog.xml`); a proxy before it spoils requests as before a store::

    tests ──▶ proxy ──▶ RESTCatalogServer ──▶ catalog.db, and the object store
"""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import pytest

from penstock.spark.java import find_java_home
from tests.support.deadline import wait_for
from tests.support.log_servers import LogServer
from tests.support.object_store import KEYS, REGION, ObjectStore, object_store

_JARS: Final = Path(__file__).parents[2] / "build" / "rest-catalog"

needed = pytest.mark.skipif(
    not _JARS.is_dir(), reason="the jars of a REST catalog are not there: `make lake` gets them"
)


@final
class RestCatalogServer(LogServer):
    """The server.

    Args:
        directory: an empty directory for its data and its log.
        endpoint: the URL of the object store.
        warehouse: the URL of a place there.
    """

    def __init__(self, directory: Path, endpoint: str, warehouse: str) -> None:
        super().__init__("catalog", directory, ports=1)
        directory.mkdir(parents=True)
        self.target = f"127.0.0.1:{self.ports[0]}"
        self.url = f"http://{self.target}"
        settings = {
            "CATALOG_REST_PORT": self.ports[0],
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "CATALOG_URI": f"jdbc:sqlite:{directory / 'catalog.db'}",
            "CATALOG_WAREHOUSE": warehouse,
            "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
            "CATALOG_S3_ENDPOINT": endpoint,
            "CATALOG_S3_PATH__STYLE__ACCESS": "true",
            "AWS_REGION": REGION,
            **KEYS,
        }
        java = Path(find_java_home() or os.environ["JAVA_HOME"], "bin", "java")
        self.command = [
            *("env", *(f"{name}={value}" for name, value in settings.items())),
            *(str(java), "-cp", f"{_JARS}/*", "org.apache.iceberg.rest.RESTCatalogServer"),
        ]

    def start(self) -> None:
        """Start it, and wait until it answers."""
        super().start()
        wait_for("the REST catalog", self._answers)

    def restart(self) -> None:
        """Kill it in the middle of what it does, and start it again."""
        self.kill()
        self.start()

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log_path.read_text(errors="replace")
        try:
            with urllib.request.urlopen(f"{self.url}/v1/config", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@dataclass(frozen=True)
class RestCatalog:
    """A running server and the proxy before it."""

    server: RestCatalogServer
    proxy: ObjectStore


@contextmanager
def rest_catalog(directory: Path, endpoint: str, warehouse: str) -> Iterator[RestCatalog]:
    """Run both for the time of a `with` block."""
    server = RestCatalogServer(directory, endpoint, warehouse)
    try:
        server.start()
        with object_store(server.target) as proxy:
            yield RestCatalog(server, proxy)
    finally:
        server.close()
