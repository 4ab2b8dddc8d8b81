"""``python -m benchmarks.durability``: what durability costs, and how soon all is back.

==============  ============================================================================
rates           publishers that keep a window full, with persistence file beside memory, and
                how many messages share a sync
acknowledgement how long PUBACK takes below saturation, and in turns the machine's own write
                and fdatasync
retention       PUBACK of a client that waits for each, beside a steady load, while retention
                removes and RocksDB compacts, second by second
a queue         one session that is away and spills: memory, and how soon it is back
many sessions   sessions with subscriptions: how soon the broker is ready again
==============  ============================================================================

The machine's disk is what is measured: quote ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import statistics
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.blocking_client import Client
from benchmarks.broker import Broker, penstock, penstock_in
from benchmarks.publish import publish, publish_so_many
from penstock.protocol.encode import encode
from penstock.protocol.packets import Puback, Publish
from penstock.version import build_kind

_VERSION: Final = 5
_TIMEOUT_S: Final = 120.0
_SYNCED_BYTES: Final = 4096
_SECONDS_AWAY: Final = 86_400
_FILTERS_OF_ONE: Final = 100
_LOADS: Final = ((1, 100), (10, 100), (100, 100), (1, 1000), (10, 1000))  # messages in flight
_PACED_PER_S: Final = 2000
_STEADY_PER_S: Final = 5000
_STEADY_PAYLOAD: Final = b"x" * 1024


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


def rates(directory: Path, seconds: float, repeats: int) -> Table:
    """Messages a second with and without durability, and how many share a sync."""
    table = Table(title=f"as fast as acknowledgements allow, medians of {repeats} runs")
    headings = (
        "publishers",
        "window",
        "file, messages/s",
        "memory, messages/s",
        "ratio",
        "syncs/s",
        "a sync",
    )
    for heading in headings:
        table.add_column(heading, justify="right")
    for publishers, window in _LOADS:
        file: list[float] = []
        memory: list[float] = []
        shares: list[float] = []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory(dir=directory) as store, _telling(store) as broker:
                before = _commits(broker)
                measured = publish(broker, publishers, seconds, window)
                file.append(measured.messages_per_s)
                shares.append(measured.messages / (_commits(broker) - before))
            with penstock("memory") as broker:
                memory.append(publish(broker, publishers, seconds, window).messages_per_s)
        durable, volatile, share = (statistics.median(runs) for runs in (file, memory, shares))
        table.add_row(
            str(publishers),
            f"{window:,}",
            f"{durable:,.0f}",
            f"{volatile:,.0f}",
            f"{durable / volatile:.2f}",
            f"{durable / share:,.0f}",
            f"{share:,.0f}",
        )
    return table


def acknowledgements(directory: Path, seconds: float, repeats: int) -> Table:
    """How long PUBACK takes below saturation, beside a sync of the machine.

    Where windows are full, the wait is the window divided by the rate, and says nothing more.
    """
    table = Table(title=f"PUBACK at {_PACED_PER_S:,} messages/s or less, medians of {repeats} runs")
    headings = ("publishers", "messages/s", "p50 ms", "p99 ms", "p50 / sync's", "p99 / sync's")
    for heading in headings:
        table.add_column(heading, justify="right")
    counts = (1, 10, 100)
    runs: dict[int, list[tuple[float, float, float]]] = {publishers: [] for publishers in counts}
    syncs: list[tuple[float, float]] = []
    for _ in range(repeats):
        for publishers in counts:
            syncs.append(_summary(fdatasyncs_s(directory, 1.0)))
            with (
                tempfile.TemporaryDirectory(dir=directory) as store,
                penstock_in(Path(store), "file") as broker,
            ):
                _paced_s(broker, publishers, 1.0)
                waits_s = _paced_s(broker, publishers, seconds)
                runs[publishers].append((*_summary(waits_s), len(waits_s) / seconds))
    sync_p50, sync_p99 = (statistics.median(run[n] for run in syncs) for n in range(2))
    for publishers, summaries in runs.items():
        p50, high, rate = (statistics.median(run[n] for run in summaries) for n in range(3))
        table.add_row(
            str(publishers),
            f"{rate:,.0f}",
            f"{p50 * 1e3:.2f}",
            f"{high * 1e3:.2f}",
            f"{p50 / sync_p50:.1f}",
            f"{high / sync_p99:.1f}",
        )
    table.caption = (
        f"write and fdatasync of 4 KiB by itself: p50 {sync_p50 * 1e3:.2f} ms,"
        f" p99 {sync_p99 * 1e3:.2f} ms"
    )
    return table


def _summary(waits_s: list[float]) -> tuple[float, float]:
    return statistics.median(waits_s), p99(waits_s)


def _paced_s(broker: Broker, publishers: int, seconds: float) -> list[float]:
    """How long each PUBACK took, seconds: clients take turns, one message of each at a time."""
    selector = selectors.DefaultSelector()
    packet = encode(Publish("bench/paced", b"x" * 64, 1, packet_id=1), _VERSION)
    idle: deque[Client] = deque()
    for number in range(publishers):
        client = Client(broker, f"paced-{number}")
        selector.register(client.socket, selectors.EVENT_READ, client)
        idle.append(client)
    clients = list(idle)
    sent_s: dict[Client, float] = {}
    waits_s: list[float] = []
    now_s = due_s = time.perf_counter()
    ends_s = now_s + seconds
    while now_s < ends_s:
        while idle and due_s <= now_s:
            client = idle.popleft()
            sent_s[client] = time.perf_counter()
            client.send_bytes(packet)
            due_s += 1 / _PACED_PER_S
        if not idle:
            due_s = max(due_s, now_s)  # what could not be sent in time is not made up for
        for key, _ in selector.select(max(0.0, due_s - now_s) if idle else 1.0):
            client = key.data
            assert isinstance(client.read(), Puback)
            waits_s.append(time.perf_counter() - sent_s[client])
            idle.append(client)
        now_s = time.perf_counter()
    for client in clients:
        client.close()
    selector.close()
    return waits_s


def _telling(directory: str) -> contextlib.AbstractContextManager[Broker]:
    """A broker that tells its commits every second."""
    return penstock_in(Path(directory), "file", {"status.sys_interval_s": 1})


def _commits(broker: Broker) -> int:
    """Commits since the start, as told next; one more is made, for it is told when it changes."""
    client, other = Client(broker, "asks"), Client(broker, "commits")
    client.subscribe("$SYS/broker/commits/count")
    told = [client.read()]
    other.publish_s("bench/commits")
    told.append(client.read())
    client.close()
    other.close()
    assert isinstance(told[1], Publish)
    return int(told[1].payload)


def retention(directory: Path, seconds: float) -> Table:
    """PUBACK beside a steady load, with nothing to remove and with all of it."""
    table = Table(title=f"the same beside {_STEADY_PER_S:,} messages a second of 1 KiB")
    for heading in ("retention", "p50 ms", "p99 ms", "worst second's p99 ms"):
        table.add_column(heading, justify="right")
    keeps = json.dumps([{"name": "kept", "topic_filters": ["#"], "retention_s": 0}])
    for name, bytes_max, streams in (
        ("removes nothing", 0, {}),
        ("down to 8 MiB", 8 * 2**20, {}),
        ("all of it kept for a stream", 8 * 2**20, {"stream.streams": keeps}),
    ):
        settings = {"durability.retention_bytes_max": bytes_max, "stream.enabled": "true"} | streams
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
    """One session that is away and spills, beside the same messages for nobody."""
    table = Table(title=f"one session, away, with {messages:,} messages of 64 bytes")
    headings = ("messages for", "grown by MiB", "after a restart MiB", "ready s", "first message s")
    for heading in headings:
        table.add_column(heading, justify="right")
    settings = {"limits.mqueue_overflow": "spill", "limits.max_mqueue_len": 0}
    for whom, topic_filter in (("nobody", "nobody/#"), ("the session", "bench/#")):
        with tempfile.TemporaryDirectory(dir=directory) as store:
            with penstock_in(Path(store), "file", settings) as broker:
                away = Client(broker, "away", kept=True)
                away.subscribe(topic_filter)
                away.close()
                publish(broker, 2, 1.0)  # what the store takes for itself
                before_mib = broker.resident_mib()
                publish_so_many(broker, 2, messages)
                grown_mib = broker.resident_mib() - before_mib
            started_s = time.perf_counter()
            with penstock_in(Path(store), "file", settings) as broker:
                ready_s = time.perf_counter() - started_s
                restarted_mib = broker.resident_mib()
                client = Client(broker, "away", kept=True)
                first = ""
                if topic_filter == "bench/#":
                    assert isinstance(client.read(), Publish)
                    first = f"{time.perf_counter() - started_s:.1f}"
                client.close()
        table.add_row(whom, f"{grown_mib:.0f}", f"{restarted_mib:.0f}", f"{ready_s:.1f}", first)
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
        with console.status("rates"):
            table = rates(directory, chosen.seconds, chosen.repeats)
        console.print(table)
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
