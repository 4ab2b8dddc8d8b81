"""``python -m benchmarks.cluster_log``: compares NATS clients for appends to the log of a cluster.

Three NATS servers on this machine store the log, each syncing every append. Appends are made one
after the other, as the broker does. Three clients alternate in short slices of one run, so that
changes in the machine's speed affect all of them: the broker's own client
(``cluster/nats_client.py`` below ``JetStreamLog``), nats-py in an event loop that runs only inside
the calls, and a bare socket, whose time is the least possible (the floor).

The last column decides which client the broker uses: the CPU time of the client's process as a
share of the time of a commit. The committer's thread spends it while it holds the interpreter's
lock, so the engine's thread cannot run. A library would be preferred up to a share of one fifth.

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


class Measurement:
    """The times of the appends of one client with one size."""

    def __init__(self) -> None:
        self.latencies_s: list[float] = []
        self.cpu_s = 0.0
        self.elapsed_s = 0.0

    def run(self, append: Append, data: bytes, after: int, seconds: float) -> int:
        """Append ``data`` for ``seconds``, after sequence ``after``; return the last sequence."""
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
        """Return appends a second, p50 and p99 in ms, CPU time in µs, and its share of p50."""
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
    """The client of nats-py, in an event loop that runs only inside the calls."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = self._loop.run_until_complete(nats.connect(url))

    def append(self, data: bytes, after: int) -> None:
        """Append ``data`` after sequence ``after``."""
        header = {"Nats-Expected-Last-Sequence": str(after)}
        request = self._client.request(_SUBJECT, data, _CALL_S, headers=header)
        assert json.loads(self._loop.run_until_complete(request).data)["seq"] == after + 1

    def close(self) -> None:
        """Close the connection and the loop."""
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


class BareSocket:
    """A socket that sends one append and reads its acknowledgement, without a client."""

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
        """Append ``data`` after sequence ``after``."""
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
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="seconds for each client and size"
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, help="sizes of an entry, bytes"
    )
    arguments = parser.parse_args()
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
            closing(NatsPy(cluster.servers[0].url)) as nats_py,
            closing(BareSocket(cluster.servers[0].port)) as bare_socket,
        ):
            log.open(30)
            clients: dict[str, Append] = {
                "penstock": lambda data, after: log.append(data, after, _CALL_S),
                "nats-py": nats_py.append,
                "floor": bare_socket.append,
            }
            after = 0
            for size in arguments.sizes:
                data = os.urandom(size)
                measured = {name: Measurement() for name in clients}
                for append in clients.values():  # warm up
                    after = Measurement().run(append, data, after, _SLICE_S)
                for _ in range(max(1, round(arguments.seconds / _SLICE_S))):
                    for name, append in clients.items():
                        after = measured[name].run(append, data, after, _SLICE_S)
                log.trim(after + 1, _CALL_S)
                for name, measurement in measured.items():
                    table.add_row(str(size), name, *measurement.row())
    console.print(table)


if __name__ == "__main__":
    main()
