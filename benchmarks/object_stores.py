"""What a small Parquet file costs in an object store: requests, and processor time of the client.

``python -m benchmarks.object_stores`` writes and reads files through pyarrow's S3 file system and
through a place of Penstock's (obstore), at moto's S3 server on loopback. It decided which of the
two tables use (docs/dependencies.md): count the requests, of 20 to 200 ms each far away.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from penstock.config.object_store import ObjectStoreSettings
from penstock.spark.storage.opening import location_of
from tests.support.deadline import wait_for
from tests.support.object_store import KEYS

_FILES: Final = 50
_REQUEST: Final = re.compile(r"(?:PUT|POST|GET|HEAD) /lake")
_ROWS: Final = pa.table({"offset": list(range(5000)), "text": [str(n) for n in range(5000)]})


def main() -> None:
    """Print a line for each library and direction."""
    os.environ.update(KEYS)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with tempfile.NamedTemporaryFile() as log:
        host, port = endpoint.removeprefix("http://").split(":")
        command = [sys.executable, "-m", "moto.server", "-H", host, "-p", port]
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for("the server", lambda: _has_bucket(endpoint))
            for name, work in _works(endpoint).items():
                _print(name, work, Path(log.name))
        finally:
            server.kill()
            server.wait()


def _has_bucket(endpoint: str) -> bool:
    try:
        with urlopen(Request(f"{endpoint}/lake", b"", method="PUT")) as answer:
            return bool(answer.status == 200)
    except URLError:
        return False


def _works(endpoint: str) -> dict[str, Callable[[str], object]]:
    """Return what is done with a file of each name."""
    files = pyarrow.fs.S3FileSystem(
        endpoint_override=endpoint.removeprefix("http://"), scheme="http"
    )
    place = location_of("s3://lake/obstore", ObjectStoreSettings(endpoint=endpoint))

    def write_by_pyarrow(name: str) -> None:
        with files.open_output_stream(f"lake/pyarrow/{name}") as file:
            pq.write_table(_ROWS, file)

    def write_by_obstore(name: str) -> None:
        file = (place / name).open_output()
        pq.write_table(_ROWS, file)
        file.close()

    def read_by_obstore(name: str) -> None:
        with (place / name).open_input() as content:
            pq.ParquetFile(content).read()

    return {
        "pyarrow writes": write_by_pyarrow,
        "obstore writes": write_by_obstore,
        "pyarrow reads": lambda name: pq.read_table(f"lake/pyarrow/{name}", filesystem=files),
        "obstore reads": read_by_obstore,
    }


def _print(name: str, work: Callable[[str], object], log: Path) -> None:
    requests, began_s = _requests(log), time.process_time()
    for number in range(_FILES):
        work(str(number))
    cpu_ms = (time.process_time() - began_s) / _FILES * 1000
    print(f"{name}: {(_requests(log) - requests) / _FILES:.1f} requests, {cpu_ms:.1f} ms a file")


def _requests(log: Path) -> int:
    return len(_REQUEST.findall(log.read_text()))


if __name__ == "__main__":
    main()
