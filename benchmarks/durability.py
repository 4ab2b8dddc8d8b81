"""``python -m benchmarks.durability``: the cost of durability, and the time a restart takes.

==============  ============================================================================
rates           publishers that keep a window full, with persistence file beside memory, and
                how many messages share a sync
acknowledgement latency of PUBACK below saturation, and alternating with it the latency of a
                write and fdatasync without the broker
retention       latency of PUBACK, second by second, during a steady load, while retention
                removes segments and RocksDB compacts
a queue         one offline session whose queue spills: memory, and time to its first message
                after a restart
many sessions   sessions with subscriptions: time until the broker is ready after a restart
==============  ============================================================================

The figures depend on the machine's disk: quote ratios.
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
from benchmarks.publish import publish, publish_messages
from penstock.protocol.encode import encode
from penstock.protocol.packets import Puback, Publish
from penstock.version import build_kind

_VERSION: Final = 5
_TIMEOUT_S: Final = 120.0
_SYNCED_BYTES: Final = 4096
_SECONDS_AWAY: Final = 86_400
_FILTERS_PER_SESSION: Final = 100
_LOADS: Final = ((1, 100), (10, 100), (100, 100), (1, 1000), (10, 1000))  # messages in flight
_PACED_PER_S: Final = 2000
_STEADY_PER_S: Final = 5000
_STEADY_PAYLOAD: Final = b"x" * 1024


def p99(values: list[float]) -> float:
    """Return the 99th percentile of `values`."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


def time_fdatasyncs_s(directory: Path, seconds: float) -> list[float]:
    """Append 4 KiB to a file and sync it, repeatedly; return the time of each, seconds."""
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
    """Return messages a second with and without durability, and messages for each sync."""
    table = Table(title=f"as fast as acknowledgements allow, medians of {repeats} runs")
    headings = (
        "publishers",
        "window",
        "file, messages/s",
        "memory, messages/s",
        "ratio",
        "syncs/s",
        "messages/sync",
    )
    for heading in headings:
        table.add_column(heading, justify="right")
    for publishers, window in _LOADS:
        file: list[float] = []
        memory: list[float] = []
        shares: list[float] = []
        for _ in range(repeats):
            with (
                tempfile.TemporaryDirectory(dir=directory) as store,
                _run_with_commit_count(store) as broker,
            ):
                before = _count_commits(broker)
                measured = publish(broker, publishers, seconds, window)
                file.append(measured.messages_per_s)
                shares.append(measured.messages / (_count_commits(broker) - before))
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
    """Return the latency of PUBACK below saturation, and that of a sync without the broker.

    At saturation the latency is the window divided by the rate, which `rates` shows already.
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
            syncs.append(_summary(time_fdatasyncs_s(directory, 1.0)))
            with (
                tempfile.TemporaryDirectory(dir=directory) as store,
                penstock_in(Path(store), "file") as broker,
            ):
                _measure_paced_pubacks_s(broker, publishers, 1.0)
                waits_s = _measure_paced_pubacks_s(broker, publishers, seconds)
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


def _measure_paced_pubacks_s(broker: Broker, publishers: int, seconds: float) -> list[float]:
    """Publish at a fixed rate; return the latency of each PUBACK, seconds.

    Each publisher has at most one unacknowledged message; publishers send in turn.
    """
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
            due_s = max(due_s, now_s)  # a late message does not make the next ones faster
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


def _run_with_commit_count(directory: str) -> contextlib.AbstractContextManager[Broker]:
    """Run a broker that publishes its number of commits every second, in `$SYS`."""
    return penstock_in(Path(directory), "file", {"status.sys_interval_s": 1})


def _count_commits(broker: Broker) -> int:
    """Return the number of commits since the start of the broker.

    Publishes a message first: the broker publishes the number only when it changed.
    """
    client, other = Client(broker, "asks"), Client(broker, "commits")
    client.subscribe("$SYS/broker/commits/count")
    packets = [client.read()]
    other.measure_puback_s("bench/commits")
    packets.append(client.read())
    client.close()
    other.close()
    assert isinstance(packets[1], Publish)
    return int(packets[1].payload)


def retention(directory: Path, seconds: float) -> Table:
    """Return the latency of PUBACK during a steady load, for each setting of retention."""
    table = Table(title=f"the same beside {_STEADY_PER_S:,} messages a second of 1 KiB")
    for heading in ("retention", "p50 ms", "p99 ms", "worst second's p99 ms"):
        table.add_column(heading, justify="right")
    streams = json.dumps([{"name": "kept", "topic_filters": ["#"], "retention_s": 0}])
    for name, bytes_max, stream_settings in (
        ("removes nothing", 0, {}),
        ("down to 8 MiB", 8 * 2**20, {}),
        ("all of it kept for a stream", 8 * 2**20, {"stream.streams": streams}),
    ):
        settings = {
            "durability.retention_bytes_max": bytes_max,
            "stream.enabled": "true",
        } | stream_settings
        with (
            tempfile.TemporaryDirectory(dir=directory) as store,
            penstock_in(Path(store), "file", settings) as broker,
        ):
            waits = _measure_pubacks_under_load(broker, seconds)
        by_second: dict[int, list[float]] = {}
        for sent_at_s, waited_s in waits:
            by_second.setdefault(int(sent_at_s), []).append(waited_s)
        all_s = [waited_s for _, waited_s in waits]
        worst_s = max(p99(second_s) for second_s in by_second.values())
        figures = (statistics.median(all_s), p99(all_s), worst_s)
        table.add_row(name, *(f"{figure * 1e3:.2f}" for figure in figures))
    return table


def _measure_pubacks_under_load(broker: Broker, seconds: float) -> list[tuple[float, float]]:
    """Publish one message at a time during a steady load of QoS 0.

    Returns:
        For each message the time since the start and the latency of its PUBACK, seconds.
    """
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
    while (sent_at_s := time.perf_counter() - began_s) < seconds:
        waits.append((sent_at_s, client.measure_puback_s("bench/waits")))
    stop.set()
    thread.join()
    client.close()
    return waits


def queue(directory: Path, messages: int) -> Table:
    """Return memory and restart time with one offline session whose queue spills, and without."""
    table = Table(title=f"one offline session with {messages:,} messages of 64 bytes")
    headings = ("messages for", "grown by MiB", "after a restart MiB", "ready s", "first message s")
    for heading in headings:
        table.add_column(heading, justify="right")
    settings = {"limits.mqueue_overflow": "spill", "limits.max_mqueue_len": 0}
    for whom, topic_filter in (("nobody", "nobody/#"), ("the session", "bench/#")):
        with tempfile.TemporaryDirectory(dir=directory) as store:
            with penstock_in(Path(store), "file", settings) as broker:
                away = Client(broker, "away", is_persistent=True)
                away.subscribe(topic_filter)
                away.close()
                publish(broker, 2, 1.0)  # fills the caches of the store
                before_mib = broker.resident_mib()
                publish_messages(broker, 2, messages)
                grown_mib = broker.resident_mib() - before_mib
            started_s = time.perf_counter()
            with penstock_in(Path(store), "file", settings) as broker:
                ready_s = time.perf_counter() - started_s
                restarted_mib = broker.resident_mib()
                client = Client(broker, "away", is_persistent=True)
                first = ""
                if topic_filter == "bench/#":
                    assert isinstance(client.read(), Publish)
                    first = f"{time.perf_counter() - started_s:.1f}"
                client.close()
        table.add_row(whom, f"{grown_mib:.0f}", f"{restarted_mib:.0f}", f"{ready_s:.1f}", first)
    return table


def sessions(directory: Path, count: int) -> Table:
    """Return the memory of `count` sessions with subscriptions, and the time of a restart."""
    table = Table(title=f"{count:,} sessions with {_FILTERS_PER_SESSION} subscriptions each")
    for heading in ("memory MiB", "restart s"):
        table.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory(dir=directory) as store:
        with penstock_in(Path(store), "file") as broker:
            for number in range(count):
                client = Client(broker, f"s{number}", is_persistent=True)
                client.subscribe(
                    *(f"plant/{number}/{place}" for place in range(_FILTERS_PER_SESSION))
                )
                client.close()
            memory_mib = broker.resident_mib()
        started_s = time.perf_counter()
        with penstock_in(Path(store), "file"):
            ready_s = time.perf_counter() - started_s
    table.add_row(f"{memory_mib:.0f}", f"{ready_s:.1f}")
    return table


def main() -> None:
    """Run the benchmarks and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--messages", type=int, default=1_000_000, help="in the queue")
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--directory", type=Path, default=None, help="on the disk to measure")
    arguments = parser.parse_args()
    console = Console()
    console.print(f"penstock runs {build_kind()}")
    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix="penstock-bench-") as name:
        directory = Path(name)
        with console.status("rates"):
            table = rates(directory, arguments.seconds, arguments.repeats)
        console.print(table)
        with console.status("acknowledgements"):
            table = acknowledgements(directory, arguments.seconds, arguments.repeats)
        console.print(table)
        with console.status("retention"):
            table = retention(directory, max(40.0, arguments.seconds))  # retention runs every 30 s
        console.print(table)
        with console.status("a queue"):
            table = queue(directory, arguments.messages)
        console.print(table)
        with console.status("many sessions"):
            table = sessions(directory, arguments.sessions)
        console.print(table)


if __name__ == "__main__":
    main()
