"""``python -m benchmarks.cluster_log``: appends to the log of a cluster, by the client that has it.

Three NATS servers on this machine keep the log, each syncing every append. One append is under way,
as in the broker. Three clients take turns in short slices of one run, so that the machine's moods
hit all: the broker's own (``cluster/nats_client.py`` behind ``JetStreamLog``), nats-py in an event
loop that runs only inside the calls, and a bare socket with nothing around it, which is the floor.

The last column decides which client the broker has: the share of a commit in which the client's own
process computes. The committer's thread does that under the interpreter's lock, so it is time that
the engine's thread does not have. A library is taken unless it costs more than a fifth.

Seen on 27 November 2026, two busy cores, p50 and processor time of the client:

====== ============== ============== ============== ====================
bytes  penstock       nats-py        floor          of a commit
====== ============== ============== ============== ====================
2,000  0.91 ms, 86 µs 1.09 ms, 233   0.83 ms, 34    9.4 %, 21.3 %, 4.1 %
10,000 1.09 ms, 90 µs 1.25 ms, 239   1.02 ms, 37    8.3 %, 19.1 %, 3.7 %
50,000 1.67 ms, 113   1.85 ms, 282   1.64 ms, 52    6.8 %, 15.2 %, 3.2 %
====== ============== ============== ============== ====================
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import nats
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine
from penstock.cluster.jetstream import JetStreamLog
from penstock.config.cluster import Cluster
from tests.support.nats_cluster import nats_cluster

SIZES: Final = (2_000, 10_000, 50_000)
_NAME: Final = "bench"
_SUBJECT: Final = f"{_NAME}.log"
_SLICE_S: Final = 0.5
_CALL_S: Final = 10.0

Append = Callable[[bytes, int], None]


class Measured:
    """Appends of one client and one size."""

    def __init__(self) -> None:
        self.latencies_s: list[float] = []
        self.cpu_s = 0.0
        self.elapsed_s = 0.0

    def run(self, append: Append, data: bytes, after: int, seconds: float) -> int:
        """Append for some seconds; return the last sequence."""
        began_cpu_s, began_s = time.process_time(), time.perf_counter()
        ends_s = began_s + seconds
        at_s = began_s
        while at_s < ends_s:
            append(data, after)
            after += 1
            now = time.perf_counter()
            self.latencies_s.append(now - at_s)
            at_s = now
        self.cpu_s += time.process_time() - began_cpu_s
        self.elapsed_s += at_s - began_s
        return after

    def row(self) -> list[str]:
        """Return appends/s, p50, p99, processor time for each, and its share."""
        ordered = sorted(self.latencies_s)
        count = len(ordered)
        return [
            f"{count / self.elapsed_s:.0f}",
            f"{ordered[count // 2] * 1e3:.2f}",
            f"{ordered[count * 99 // 100] * 1e3:.2f}",
            f"{self.cpu_s / count * 1e6:.0f}",
            f"{self.cpu_s / count / ordered[count // 2]:.1%}",
        ]


class NatsPy:
    """The library's client, driven by a loop that runs only inside the calls."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = self._loop.run_until_complete(nats.connect(url))

    def append(self, data: bytes, after: int) -> None:
        """Append one entry."""
        header = {"Nats-Expected-Last-Sequence": str(after)}
        asked = self._client.request(_SUBJECT, data, _CALL_S, headers=header)
        assert json.loads(self._loop.run_until_complete(asked).data)["seq"] == after + 1

    def close(self) -> None:
        """Close the connection and the loop."""
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


class Floor:
    """A socket, one request, and the line that comes back; it can do nothing else."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(
            b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'
            b"SUB answer 1\r\nPING\r\n"
        )
        while not self._socket.recv(65_536).endswith(b"PONG\r\n"):
            pass

    def append(self, data: bytes, after: int) -> None:
        """Append one entry."""
        header = b"NATS/1.0\r\nNats-Expected-Last-Sequence: %d\r\n\r\n" % after
        sizes = (len(header), len(header) + len(data))
        line = b"HPUB %b answer %d %d\r\n" % (_SUBJECT.encode(), *sizes)
        self._socket.sendall(b"%b%b%b\r\n" % (line, header, data))
        answer = self._socket.recv(65_536)
        while not answer.endswith(b"}\r\n"):
            answer += self._socket.recv(65_536)
        assert b'"seq":%d' % (after + 1) in answer, answer

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each client and size")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of entries, bytes")
    chosen = parser.parse_args()
    console = Console()
    table = Table(title=machine())
    for heading in (
        "bytes",
        "client",
        "appends/s",
        "p50 ms",
        "p99 ms",
        "CPU µs",
        "of p50",
    ):
        table.add_column(heading, justify="left" if heading == "client" else "right")
    with tempfile.TemporaryDirectory() as directory, nats_cluster(Path(directory)) as cluster:
        log = JetStreamLog(Cluster(log=cluster.urls, name=_NAME), "benchmark")
        with (
            closing(log),
            closing(NatsPy(cluster.servers[0].url)) as library,
            closing(Floor(cluster.servers[0].port)) as floor,
        ):
            log.open(30)
            clients: dict[str, Append] = {
                "penstock": lambda data, after: log.append(data, after, _CALL_S),
                "nats-py": library.append,
                "floor": floor.append,
            }
            after = 0
            for size in chosen.sizes:
                data = os.urandom(size)
                measured = {name: Measured() for name in clients}
                for append in clients.values():  # warm
                    after = Measured().run(append, data, after, _SLICE_S)
                for _ in range(max(1, round(chosen.seconds / _SLICE_S))):
                    for name, append in clients.items():
                        after = measured[name].run(append, data, after, _SLICE_S)
                log.trim(after + 1, _CALL_S)
                for name, of_client in measured.items():
                    table.add_row(str(size), name, *of_client.row())
    console.print(table)


if __name__ == "__main__":
    main()
