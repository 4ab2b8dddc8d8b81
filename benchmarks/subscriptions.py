"""``python -m benchmarks.subscriptions``: does a message cost more when others subscribe?

CPU time a message, for a message that one client gets, while nobody, or a million
subscriptions that do not match it, or a hundred thousand sessions stand beside it; and while
other clients subscribe and unsubscribe. In the engine alone, without sockets or a store, where
nothing hides the cost, and with the garbage collector as the broker runs it.

Each engine has a process of its own, as a broker has, and each figure is the median of runs that
take turns. ``hot`` publishes to 100 topics in turn, which
the match cache keeps; ``cold`` to 20,000, which it does not, so that each message is matched anew.
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

from penstock.engine.batch.records import RecoveredState
from penstock.engine.clock import Now
from penstock.engine.limits import EngineLimits
from penstock.engine.server.server import Server
from penstock.engine.server.server_connection import ServerConnection
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

FILTERS_AT_ONCE: Final = 1000  # in one SUBSCRIBE
FILTERS_OF_ONE: Final = 10_000  # subscriptions of one client
READ_MESSAGES: Final = 100  # that arrive in one read
HOT_TOPICS: Final = 100
COLD_TOPICS: Final = 20_000
RATIO_MAX: Final = 1.5  # what is asked for
VERSION: Final = 5
_NOW: Final = Now(1000.0, 1_800_000_000_000_000)


class Engine:
    """A broker without sockets and store, one subscriber of ``bench/#`` and one publisher."""

    def __init__(self) -> None:
        limits = EngineLimits(receive_maximum=65535)
        self.server = Server(limits, RecoveredState("epoch", 0), (), "memory", _NOW)
        self.subscriber = self.join("subscriber")
        self.subscriber.receive(encode(Subscribe(1, [Subscription("bench/#", 0)]), VERSION), _NOW)
        self.publisher = self.join("publisher")
        self.turn()

    def join(self, client_id: str, kept: bool = False) -> ServerConnection:
        """A connected client."""
        connection = ServerConnection(self.server, self.server.limits, _NOW)
        properties = Properties(session_expiry_interval=3600) if kept else None
        connect = Connect(client_id, VERSION, True, 0, properties=properties)
        connection.receive(encode(connect, VERSION), _NOW)
        self.turn()
        return connection

    def turn(self) -> int:
        """What the driver does at the end of a turn, writing to nowhere; bytes that left."""
        context = self.server.context
        written = 0
        commit = context.seal()
        for release in commit.releases:
            written += release.size_bytes
            release.done()
        ready = context.turn.ready
        context.turn.ready = []
        for link in ready:
            written += sum(map(len, link.take_ready()))
        context.turn.closing = []
        collect_if_due()
        return written

    def add_subscriptions(self, count: int) -> None:
        """Filters of other clients, exact and with wildcards, none of which matches."""
        made = 0
        while made < count:
            client = self.join(f"other-{made}")
            for first in range(made, min(count, made + FILTERS_OF_ONE), FILTERS_AT_ONCE):
                filters = [
                    other_filter(number)
                    for number in range(first, min(count, first + FILTERS_AT_ONCE))
                ]
                packet = Subscribe(1, [Subscription(one, 1) for one in filters])
                client.receive(encode(packet, VERSION), _NOW)
                self.turn()
            made += FILTERS_OF_ONE

    def add_sessions(self, count: int) -> None:
        """Sessions of clients that are away, with one subscription each."""
        for number in range(count):
            client = self.join(f"idle-{number}", kept=True)
            packet = Subscribe(1, [Subscription(f"idle/{number}/command", 1)])
            client.receive(encode(packet, VERSION), _NOW)
            client.lost("benchmark", _NOW)
            self.turn()


def other_filter(number: int) -> str:
    """The filter of somebody who is not concerned."""
    shape = number % 4
    if shape == 0:
        return f"plant/{number % 997}/line/{number}/temperature"
    if shape == 1:
        return f"plant/{number % 997}/line/{number}/#"
    if shape == 2:
        return f"building/{number}/+/state"
    return f"device/{number}"


def blocks_of(topics: int, qos: int) -> list[bytes]:
    """Ready-made reads of PUBLISH packets to so many topics in turn."""
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


def user_us(engine: Engine, blocks: list[bytes], messages: int) -> float:
    """CPU time of one message, microseconds; there are no system calls in it."""
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


def churn_us(engine: Engine, blocks: list[bytes], messages: int, every: int, name: str) -> float:
    """CPU time of one message while a client changes a subscription every so many."""
    client = engine.join("churner")
    subscribe = encode(Subscribe(1, [Subscription(name, 0)]), VERSION)
    unsubscribe = encode(Unsubscribe(2, [name]), VERSION)
    count = len(blocks)
    used_s = 0.0
    changes = 0
    rounds = messages // READ_MESSAGES
    for number in range(rounds):
        if number * READ_MESSAGES >= changes * every:
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
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@dataclass(frozen=True)
class Beside:
    """What stands beside the messages."""

    subscriptions: int = 0
    sessions: int = 0

    def __str__(self) -> str:
        if self.sessions:
            return f"{self.sessions:,} idle sessions"
        return f"{self.subscriptions:,} subscriptions"


@dataclass(frozen=True)
class Run:
    """Messages to publish; see ``user_us`` and ``churn_us``."""

    messages: int
    topics: int
    qos: int = 0
    changed: str = ""
    changed_every: int = 1000


class Pauses:
    """Looks at how long the garbage collector holds everything up."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._began_s = 0.0
        gc.callbacks.append(self._saw)

    def _saw(self, phase: str, _: dict[str, int]) -> None:
        now_s = time.perf_counter()
        if phase == "start":
            self._began_s = now_s
        else:
            self.longest_s = max(self.longest_s, now_s - self._began_s)


class Apart:
    """An engine in a process of its own.

    Args:
        beside: what stands beside the messages.
    """

    def __init__(self, beside: Beside) -> None:
        self.label = str(beside)
        spawning = multiprocessing.get_context("spawn")
        self._orders, theirs = spawning.Pipe()
        self._process = spawning.Process(target=_serve, args=(theirs, beside), daemon=True)
        self._process.start()
        theirs.close()
        self.size_bytes: int
        self.longest_pause_s: float  # of the garbage collector, while all that was made
        self.size_bytes, self.longest_pause_s = self._orders.recv()

    def run(self, order: Run) -> float:
        """CPU time of one message, microseconds."""
        self._orders.send(order)
        figure: float = self._orders.recv()
        return figure

    def end(self) -> None:
        """Let the process end."""
        self._orders.close()
        self._process.join()


def _serve(orders: Connection, beside: Beside) -> None:
    """The process of one engine: it says its size, then runs what it is told to."""
    engine = Engine()
    gc.collect()
    before = resident_bytes()
    collect_in_portions()
    pauses = Pauses()
    engine.add_subscriptions(beside.subscriptions)
    engine.add_sessions(beside.sessions)
    orders.send((resident_bytes() - before, pauses.longest_s))
    blocks: dict[tuple[int, int], list[bytes]] = {}
    while True:
        try:
            order = orders.recv()
        except EOFError:
            return
        kind = (order.topics, order.qos)
        if kind not in blocks:
            blocks[kind] = blocks_of(*kind)
        if order.changed:
            figure = churn_us(
                engine, blocks[kind], order.messages, order.changed_every, order.changed
            )
        else:
            figure = user_us(engine, blocks[kind], order.messages)
        orders.send(figure)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscriptions", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--messages", type=int, default=200_000, help="in one run")
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    console = Console(width=110)
    console.print(f"engine alone, {build_kind()}; CPU µs a message, QoS 0 and 1 to one client")
    with console.status("subscribing"):
        few = Apart(Beside(subscriptions=10))
        many = Apart(Beside(subscriptions=chosen.subscriptions))
        idle = Apart(Beside(sessions=chosen.sessions))
    console.print(
        f"memory: {many.size_bytes / chosen.subscriptions:,.0f} bytes a subscription, "
        f"{idle.size_bytes / chosen.sessions:,.0f} bytes an idle session with one"
    )
    console.print(
        f"longest pause of the garbage collector meanwhile: {many.longest_pause_s * 1000:,.0f} ms"
    )
    with console.status("publishing"):
        compared = _compared(chosen.messages, chosen.repeats, [few, many, idle])
        churned = _churned(chosen.messages, chosen.repeats, many)
    console.print(compared)
    console.print(churned)
    for engine in (few, many, idle):
        engine.end()


def _compared(messages: int, repeats: int, engines: list[Apart]) -> Table:
    kinds = {
        "QoS 0, hot": Run(messages, HOT_TOPICS, 0),
        "QoS 1, hot": Run(messages, HOT_TOPICS, 1),
        "QoS 0, cold": Run(messages, COLD_TOPICS, 0),
    }
    figures: dict[tuple[str, Apart], list[float]] = {}
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


def _churned(messages: int, repeats: int, engine: Apart) -> Table:
    table = Table(title="QoS 0 to 1000 topics, one subscription changed every 1000 messages")
    table.add_column("changed filter")
    table.add_column("µs a message", justify="right")
    for label, changed in (
        ("none", ""),
        ("another topic", "other/topic"),
        ("a wildcard beside", "other/+/state"),
        ("one of the topics", "bench/7"),
        ("all of the topics", "bench/+"),
    ):
        figures = [engine.run(Run(messages, 1000, 0, changed)) for _ in range(repeats)]
        table.add_row(label, f"{statistics.median(figures):.2f}")
    return table


if __name__ == "__main__":
    main()
