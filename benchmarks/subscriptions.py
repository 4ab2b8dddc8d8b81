"""``python -m benchmarks.subscriptions``: the CPU time of a message with many other subscriptions.

It measures the CPU time of a message to one subscriber with ten, and with a million subscriptions
that do not match it, with a hundred thousand idle sessions, and while other clients subscribe and
unsubscribe. It measures the engine without sockets and store, whose cost would hide a difference,
and with the broker's settings of the garbage collector.

Each engine has its own process, and each figure is the median of alternating runs. ``hot``
publishes to 100 topics in turn, which fit in the match cache; ``cold`` to 20,000, which do not, so
that each message is matched again.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import resource
import statistics
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from penstock.engine.api import Server, ServerConnection
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.records import RecoveredState
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connect,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from penstock.protocol.properties import Properties
from penstock.services.garbage import collect_if_due, collect_in_portions
from penstock.version import build_kind

FILTERS_AT_ONCE: Final = 1000  # topic filters in one SUBSCRIBE
FILTERS_PER_CLIENT: Final = 10_000  # subscriptions of one client
READ_MESSAGES: Final = 100  # messages in one read from the socket
HOT_TOPICS: Final = 100
COLD_TOPICS: Final = 20_000
RATIO_MAX: Final = 1.5  # the largest ratio that is acceptable
VERSION: Final = 5
_NOW: Final = Now(1000.0, 1_800_000_000_000_000)


class Engine:
    """An engine without sockets and store, with a subscriber of ``bench/#`` and a publisher."""

    def __init__(self) -> None:
        limits = EngineLimits(receive_maximum=65535)
        self.server = Server(limits, RecoveredState("epoch", 0), (), "memory", _NOW)
        self.subscriber = self.join("subscriber")
        self.subscriber.receive(encode(Subscribe(1, [Subscription("bench/#", 0)]), VERSION), _NOW)
        self.publisher = self.join("publisher")
        self.turn()

    def join(self, client_id: str, is_persistent: bool = False) -> ServerConnection:
        """Connect a client and return its connection."""
        connection = ServerConnection(self.server, self.server.limits, _NOW)
        properties = Properties(session_expiry_interval=3600) if is_persistent else None
        connect = Connect(client_id, VERSION, True, 0, properties=properties)
        connection.receive(encode(connect, VERSION), _NOW)
        self.turn()
        return connection

    def turn(self) -> int:
        """Do what the driver does at the end of a turn, discarding the output; return its bytes."""
        context = self.server.context
        written = 0
        commit = context.seal()
        for release in commit.deferred_packets:
            written += release.size_bytes
            release.mark_sent()
        ready = context.turn.ready
        context.turn.ready = []
        for link in ready:
            written += sum(map(len, link.take_ready()))
        context.turn.closing = []
        collect_if_due()
        return written

    def add_subscriptions(self, count: int) -> None:
        """Add ``count`` subscriptions of other clients, some with wildcards; none matches."""
        added = 0
        while added < count:
            client = self.join(f"other-{added}")
            for first in range(added, min(count, added + FILTERS_PER_CLIENT), FILTERS_AT_ONCE):
                filters = [
                    unmatched_filter(number)
                    for number in range(first, min(count, first + FILTERS_AT_ONCE))
                ]
                packet = Subscribe(1, [Subscription(topic_filter, 1) for topic_filter in filters])
                client.receive(encode(packet, VERSION), _NOW)
                self.turn()
            added += FILTERS_PER_CLIENT

    def add_sessions(self, count: int) -> None:
        """Add ``count`` offline sessions with one subscription each."""
        for number in range(count):
            client = self.join(f"idle-{number}", is_persistent=True)
            packet = Subscribe(1, [Subscription(f"idle/{number}/command", 1)])
            client.receive(encode(packet, VERSION), _NOW)
            client.lost("benchmark", _NOW)
            self.turn()


def unmatched_filter(number: int) -> str:
    """Return a topic filter that does not match the topics of the benchmark."""
    shape = number % 4
    if shape == 0:
        return f"plant/{number % 997}/line/{number}/temperature"
    if shape == 1:
        return f"plant/{number % 997}/line/{number}/#"
    if shape == 2:
        return f"building/{number}/+/state"
    return f"device/{number}"


def encode_reads(topics: int, qos: int) -> list[bytes]:
    """Return reads of `READ_MESSAGES` encoded PUBLISH packets, to ``topics`` topics in turn."""
    packets = [
        encode(
            Publish(f"bench/{number}", b"x" * 64, qos, packet_id=number % 60000 + 1 if qos else 0),
            VERSION,
        )
        for number in range(max(topics, READ_MESSAGES))
    ]
    return [
        b"".join(packets[first : first + READ_MESSAGES])
        for first in range(0, len(packets), READ_MESSAGES)
    ]


def measure_cpu_us(engine: Engine, blocks: list[bytes], messages: int) -> float:
    """Publish ``messages`` without system calls; return the CPU time of one, microseconds."""
    rounds = messages // READ_MESSAGES
    count = len(blocks)
    started_s = time.process_time()
    written = 0
    for number in range(rounds):
        engine.publisher.receive(blocks[number % count], _NOW)
        written += engine.turn()
    used_s = time.process_time() - started_s
    assert written > rounds * READ_MESSAGES * 64, "not every message arrived"
    return used_s / (rounds * READ_MESSAGES) * 1e6


def measure_churn_us(
    engine: Engine, blocks: list[bytes], messages: int, change_interval: int, name: str
) -> float:
    """Publish while a client changes a subscription every ``change_interval`` messages.

    Returns:
        The CPU time of one message, microseconds, without that of the subscriptions.
    """
    client = engine.join("churner")
    subscribe = encode(Subscribe(1, [Subscription(name, 0)]), VERSION)
    unsubscribe = encode(Unsubscribe(2, [name]), VERSION)
    count = len(blocks)
    used_s = 0.0
    changes = 0
    rounds = messages // READ_MESSAGES
    for number in range(rounds):
        if number * READ_MESSAGES >= changes * change_interval:
            client.receive(unsubscribe if changes % 2 else subscribe, _NOW)
            engine.turn()
            changes += 1
        started_s = time.process_time()
        engine.publisher.receive(blocks[number % count], _NOW)
        engine.turn()
        used_s += time.process_time() - started_s
    client.close(0, "benchmark", _NOW)
    engine.turn()
    return used_s / (rounds * READ_MESSAGES) * 1e6


def resident_bytes() -> int:
    """Return the resident memory of this process, bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@dataclass(frozen=True)
class Background:
    """Subscriptions and idle sessions that the engine has besides the subscriber."""

    subscriptions: int = 0
    sessions: int = 0

    def __str__(self) -> str:
        if self.sessions:
            return f"{self.sessions:,} idle sessions"
        return f"{self.subscriptions:,} subscriptions"


@dataclass(frozen=True)
class Run:
    """A run of `measure_cpu_us`, or of `measure_churn_us` if it has a changed filter."""

    messages: int
    topics: int
    qos: int = 0
    changed_filter: str = ""
    change_interval: int = 1000


class CollectorPauses:
    """Measures the longest pause of the garbage collector in this process."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._began_s = 0.0
        gc.callbacks.append(self._on_collection)

    def _on_collection(self, phase: str, _: dict[str, int]) -> None:
        now_s = time.perf_counter()
        if phase == "start":
            self._began_s = now_s
        else:
            self.longest_s = max(self.longest_s, now_s - self._began_s)


class EngineProcess:
    """An engine in its own process.

    Args:
        background: other subscriptions and sessions of the engine.
    """

    def __init__(self, background: Background) -> None:
        self.label = str(background)
        spawn = multiprocessing.get_context("spawn")
        self._connection, child_end = spawn.Pipe()
        self._process = spawn.Process(target=_run_engine, args=(child_end, background), daemon=True)
        self._process.start()
        child_end.close()
        self.size_bytes: int
        self.longest_pause_s: float  # of the garbage collector, while the background was added
        self.size_bytes, self.longest_pause_s = self._connection.recv()

    def run(self, run: Run) -> float:
        """Run ``run`` in the process; return the CPU time of one message, microseconds."""
        self._connection.send(run)
        figure: float = self._connection.recv()
        return figure

    def close(self) -> None:
        """End the process and wait for it."""
        self._connection.close()
        self._process.join()


def _run_engine(connection: Connection, background: Background) -> None:
    """Serve an `EngineProcess`: send the memory of the engine, then the figure of each run."""
    engine = Engine()
    gc.collect()
    before = resident_bytes()
    collect_in_portions()
    pauses = CollectorPauses()
    engine.add_subscriptions(background.subscriptions)
    engine.add_sessions(background.sessions)
    connection.send((resident_bytes() - before, pauses.longest_s))
    blocks: dict[tuple[int, int], list[bytes]] = {}
    while True:
        try:
            run = connection.recv()
        except EOFError:
            return
        kind = (run.topics, run.qos)
        if kind not in blocks:
            blocks[kind] = encode_reads(*kind)
        if run.changed_filter:
            figure = measure_churn_us(
                engine, blocks[kind], run.messages, run.change_interval, run.changed_filter
            )
        else:
            figure = measure_cpu_us(engine, blocks[kind], run.messages)
        connection.send(figure)


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscriptions", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--messages", type=int, default=200_000, help="messages of one run")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    console = Console(width=110)
    console.print(f"engine alone, {build_kind()}; CPU µs a message, QoS 0 and 1 to one client")
    with console.status("subscribing"):
        small = EngineProcess(Background(subscriptions=10))
        large = EngineProcess(Background(subscriptions=arguments.subscriptions))
        idle = EngineProcess(Background(sessions=arguments.sessions))
    console.print(
        f"memory: {large.size_bytes / arguments.subscriptions:,.0f} bytes a subscription, "
        f"{idle.size_bytes / arguments.sessions:,.0f} bytes an idle session with one"
    )
    console.print(
        f"longest pause of the garbage collector meanwhile: {large.longest_pause_s * 1000:,.0f} ms"
    )
    with console.status("publishing"):
        background_table = _compare_backgrounds(
            arguments.messages, arguments.repeats, [small, large, idle]
        )
        churn_table = _measure_churn(arguments.messages, arguments.repeats, large)
    console.print(background_table)
    console.print(churn_table)
    for engine in (small, large, idle):
        engine.close()


def _compare_backgrounds(messages: int, repeats: int, engines: list[EngineProcess]) -> Table:
    kinds = {
        "QoS 0, hot": Run(messages, HOT_TOPICS, 0),
        "QoS 1, hot": Run(messages, HOT_TOPICS, 1),
        "QoS 0, cold": Run(messages, COLD_TOPICS, 0),
    }
    figures: dict[tuple[str, EngineProcess], list[float]] = {}
    for _ in range(repeats):
        for kind, run in kinds.items():
            for engine in engines:
                figures.setdefault((kind, engine), []).append(engine.run(run))
    table = Table(title=f"medians of {repeats}, and the ratio to the first (at most {RATIO_MAX})")
    table.add_column("messages")
    for engine in engines:
        table.add_column(engine.label, justify="right")
    for kind in kinds:
        medians = [statistics.median(figures[kind, engine]) for engine in engines]
        first = medians[0]
        table.add_row(kind, *[f"{median:.2f} ({median / first:.2f})" for median in medians])
    return table


def _measure_churn(messages: int, repeats: int, engine: EngineProcess) -> Table:
    table = Table(title="QoS 0 to 1000 topics, one subscription changed every 1000 messages")
    table.add_column("changed filter")
    table.add_column("µs a message", justify="right")
    for label, changed_filter in (
        ("none", ""),
        ("another topic", "other/topic"),
        ("another wildcard", "other/+/state"),
        ("one of the topics", "bench/7"),
        ("all of the topics", "bench/+"),
    ):
        figures = [engine.run(Run(messages, 1000, 0, changed_filter)) for _ in range(repeats)]
        table.add_row(label, f"{statistics.median(figures):.2f}")
    return table


if __name__ == "__main__":
    main()
