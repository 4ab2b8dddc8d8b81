"""``python -m benchmarks.durability``: what durability costs, and how soon all is back.

==============  ============================================================================
acknowledgement PUBACK of a client that waits for each, beside publishers that keep a window
                full; and beside it the machine's own write and fdatasync, in turns
retention       the same client beside a steady load, while retention removes and RocksDB
                compacts, second by second
a queue         one session that is away and spills: memory, and how soon it is back
many sessions   sessions with subscriptions: how soon the broker is ready again
==============  ============================================================================

The machine's disk is what is measured: quote ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Final, final

from rich.console import Console
from rich.table import Table

from benchmarks.broker import Broker, penstock_in
from benchmarks.publish import publish
from penstock.cli.version import build_kind
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
)
from penstock.protocol.properties import Properties

_VERSION: Final = 5
_TIMEOUT_S: Final = 120.0
_SYNCED_BYTES: Final = 4096
_SECONDS_AWAY: Final = 86_400
_FILTERS_OF_ONE: Final = 100
_STEADY_PER_S: Final = 5000
_STEADY_PAYLOAD: Final = b"x" * 1024


@final
class Client:
    """One MQTT 5 client that does a thing at a time."""

    def __init__(self, broker: Broker, client_id: str, kept: bool = False) -> None:
        self._socket = socket.create_connection(("127.0.0.1", broker.port), _TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = Decoder(1_048_576, _VERSION, server=False)
        properties = Properties(session_expiry_interval=_SECONDS_AWAY) if kept else None
        self.send(Connect(client_id, _VERSION, not kept, properties=properties))
        answer = self.read()
        assert isinstance(answer, Connack)
        assert answer.reason_code == 0, answer

    def send(self, packet: Packet) -> None:
        """Send ``packet``."""
        self._socket.sendall(encode(packet, _VERSION))

    def send_bytes(self, data: bytes) -> None:
        """Send packets that are encoded already."""
        self._socket.sendall(data)

    def read(self) -> Packet:
        """The next packet."""
        packet = self._decoder.next_packet()
        while packet is None:
            data = self._socket.recv(65_536)
            if not data:
                raise RuntimeError("the broker closed a connection")
            self._decoder.feed(data)
            packet = self._decoder.next_packet()
        return packet

    def subscribe(self, *filters: str) -> None:
        """Subscribe with QoS 1."""
        self.send(Subscribe(1, [Subscription(one, 1) for one in filters]))
        assert isinstance(self.read(), Suback)

    def publish_s(self, topic: str) -> float:
        """How long one QoS 1 message waits for its PUBACK, seconds."""
        started_s = time.perf_counter()
        self.send(Publish(topic, b"x" * 64, 1, packet_id=1))
        assert isinstance(self.read(), Puback)
        return time.perf_counter() - started_s

    def close(self) -> None:
        """Drop the connection."""
        self._socket.close()


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


def fdatasyncs_s(directory: Path, seconds: float) -> list[float]:
    """How long the machine takes to append 4 KiB and sync it, again and again."""
    taken: list[float] = []
    descriptor = os.open(directory / "synced", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        ends_s = time.perf_counter() + seconds
        while time.perf_counter() < ends_s:
            started_s = time.perf_counter()
            os.write(descriptor, b"x" * _SYNCED_BYTES)
            os.fdatasync(descriptor)
            taken.append(time.perf_counter() - started_s)
    finally:
        os.close(descriptor)
        (directory / "synced").unlink()
    return taken


def acknowledgements(directory: Path, seconds: float, repeats: int) -> Table:
    """PUBACK of one that waits for each, beside others."""
    table = Table(title=f"PUBACK of a client that waits for each, medians of {repeats} runs")
    for heading in ("beside publishers", "messages/s", "commits/s", "p50 ms", "p99 ms", "of sync"):
        table.add_column(heading, justify="right")
    rows: dict[int, list[tuple[float, float, float, float]]] = {}
    syncs_s: list[float] = []
    for _ in range(repeats):
        syncs_s.append(p99(fdatasyncs_s(directory, seconds)))
        for publishers in (0, 1, 10, 100):
            with tempfile.TemporaryDirectory(dir=directory) as store, _telling(store) as broker:
                rows.setdefault(publishers, []).append(
                    _one_acknowledged(broker, publishers, seconds)
                )
    sync_s = statistics.median(syncs_s)
    for publishers, runs in rows.items():
        rate, commits, p50, high = (statistics.median(run[n] for run in runs) for n in range(4))
        table.add_row(
            str(publishers),
            f"{rate:,.0f}",
            f"{commits:,.0f}",
            f"{p50 * 1e3:.2f}",
            f"{high * 1e3:.2f}",
            f"{high / sync_s:.1f}",
        )
    table.caption = f"write and fdatasync of 4 KiB by itself: p99 {sync_s * 1e3:.2f} ms"
    return table


def _one_acknowledged(
    broker: Broker, publishers: int, seconds: float
) -> tuple[float, float, float, float]:
    """Messages a second, commits a second, PUBACK's median and p99 (seconds)."""
    waits_s: list[float] = []
    stop = threading.Event()

    def wait_for_each() -> None:
        client = Client(broker, "waits")
        while not stop.is_set():
            waits_s.append(client.publish_s("bench/waits"))
        client.close()

    thread = threading.Thread(target=wait_for_each, daemon=True)
    thread.start()
    rate = 0.0
    if publishers:
        rate = publish(broker, publishers, seconds).messages_per_s
    else:
        stop.wait(seconds)
    stop.set()
    thread.join()
    rate += len(waits_s) / seconds
    return rate, _commits(broker) / seconds, statistics.median(waits_s), p99(waits_s)


def _telling(directory: str) -> contextlib.AbstractContextManager[Broker]:
    """A broker that tells its commits every second."""
    return penstock_in(Path(directory), "file", {"status.sys_interval_s": 1})


def _commits(broker: Broker) -> int:
    """Commits since the start, as told next."""
    client = Client(broker, "asks")
    client.subscribe("$SYS/broker/commits/count")
    told = [client.read() for _ in range(2)]
    client.close()
    assert isinstance(told[1], Publish)
    return int(told[1].payload)


def retention(directory: Path, seconds: float) -> Table:
    """PUBACK beside a steady load, with nothing to remove and with all of it."""
    table = Table(title=f"the same beside {_STEADY_PER_S:,} messages a second of 1 KiB")
    for heading in ("retention", "p50 ms", "p99 ms", "worst second's p99 ms"):
        table.add_column(heading, justify="right")
    for name, bytes_max in (("removes nothing", 0), ("down to 8 MiB", 8 * 2**20)):
        settings = {"durability.retention_bytes_max": bytes_max}
        with (
            tempfile.TemporaryDirectory(dir=directory) as store,
            penstock_in(Path(store), "file", settings) as broker,
        ):
            waits = _beside_steady_load(broker, seconds)
        by_second: dict[int, list[float]] = {}
        for at_s, waited_s in waits:
            by_second.setdefault(int(at_s), []).append(waited_s)
        all_s = [waited_s for _, waited_s in waits]
        worst_s = max(p99(one) for one in by_second.values())
        figures = (statistics.median(all_s), p99(all_s), worst_s)
        table.add_row(name, *(f"{figure * 1e3:.2f}" for figure in figures))
    return table


def _beside_steady_load(broker: Broker, seconds: float) -> list[tuple[float, float]]:
    """When a message was sent and how long it waited, seconds, one at a time."""
    stop = threading.Event()

    def load() -> None:
        client = Client(broker, "steady")
        packet = encode(Publish("bench/steady", _STEADY_PAYLOAD, 0), _VERSION)
        while not stop.wait(0.01):
            client.send_bytes(packet * (_STEADY_PER_S // 100))
        client.close()

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    client = Client(broker, "waits")
    waits: list[tuple[float, float]] = []
    began_s = time.perf_counter()
    while (at_s := time.perf_counter() - began_s) < seconds:
        waits.append((at_s, client.publish_s("bench/waits")))
    stop.set()
    thread.join()
    client.close()
    return waits


def queue(directory: Path, messages: int) -> Table:
    """One session that is away and spills."""
    table = Table(title=f"one session, away, with {messages:,} messages of 64 bytes")
    for heading in ("memory MiB", "the same published for nobody", "ready s", "first message s"):
        table.add_column(heading, justify="right")
    settings = {"limits.mqueue_overflow": "spill", "limits.max_mqueue_len": 0}
    grown: list[float] = []
    for topic_filter in ("nobody/#", "bench/#"):
        with tempfile.TemporaryDirectory(dir=directory) as store:
            with penstock_in(Path(store), "file", settings) as broker:
                away = Client(broker, "away", kept=True)
                away.subscribe(topic_filter)
                away.close()
                publish(broker, 2, 1.0)  # what the store takes for itself
                before = broker.resident_mib()
                done = 0.0
                while done < messages:
                    done += publish(broker, 2, 1.0).messages_per_s
                grown.append(broker.resident_mib() - before)
            started_s = time.perf_counter()
            with penstock_in(Path(store), "file", settings) as broker:
                ready_s = time.perf_counter() - started_s
                client = Client(broker, "away", kept=True)
                if topic_filter == "bench/#":
                    assert isinstance(client.read(), Publish)
                first_s = time.perf_counter() - started_s
                client.close()
    table.add_row(f"{grown[1]:.0f}", f"{grown[0]:.0f}", f"{ready_s:.1f}", f"{first_s:.1f}")
    return table


def sessions(directory: Path, count: int) -> Table:
    """Many sessions with subscriptions."""
    table = Table(title=f"{count:,} sessions with {_FILTERS_OF_ONE} subscriptions each")
    for heading in ("memory MiB", "ready again s"):
        table.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory(dir=directory) as store:
        with penstock_in(Path(store), "file") as broker:
            for number in range(count):
                client = Client(broker, f"s{number}", kept=True)
                client.subscribe(*(f"plant/{number}/{one}" for one in range(_FILTERS_OF_ONE)))
                client.close()
            memory_mib = broker.resident_mib()
        started_s = time.perf_counter()
        with penstock_in(Path(store), "file"):
            ready_s = time.perf_counter() - started_s
    table.add_row(f"{memory_mib:.0f}", f"{ready_s:.1f}")
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--messages", type=int, default=1_000_000, help="in the queue")
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--directory", type=Path, default=None, help="on the disk to measure")
    chosen = parser.parse_args()
    console = Console()
    console.print(f"penstock runs {build_kind()}")
    with tempfile.TemporaryDirectory(dir=chosen.directory, prefix="penstock-bench-") as name:
        directory = Path(name)
        with console.status("acknowledgements"):
            table = acknowledgements(directory, chosen.seconds, chosen.repeats)
        console.print(table)
        with console.status("retention"):
            table = retention(directory, max(40.0, chosen.seconds))  # it comes every 30 s
        console.print(table)
        with console.status("a queue"):
            table = queue(directory, chosen.messages)
        console.print(table)
        with console.status("many sessions"):
            table = sessions(directory, chosen.sessions)
        console.print(table)


if __name__ == "__main__":
    main()
