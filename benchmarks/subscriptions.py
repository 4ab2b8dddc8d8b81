"""``python -m benchmarks.subscriptions``: does a message cost more when others subscribe?

CPU time a message, for a message that one client gets, while nobody, or a million
subscriptions that do not match it, or a hundred thousand sessions stand beside it; and while
other clients subscribe and unsubscribe. In the engine alone, without sockets or a store, where
nothing hides the cost.

Each figure is the median of runs that take turns. ``hot`` publishes to 100 topics in turn, which
the match cache keeps; ``cold`` to 20,000, which it does not, so that each message is matched anew.
"""

from __future__ import annotations

import argparse
import gc
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from penstock.cli.version import build_kind
from penstock.engine.clock import Now
from penstock.engine.limits import EngineLimits
from penstock.engine.records import Recovered
from penstock.engine.server import Server
from penstock.engine.server_connection import ServerConnection
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connect,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from penstock.protocol.properties import Properties

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
        self.server = Server(limits, Recovered("epoch", 0), (), "memory", _NOW)
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
        effects = self.server.effects
        written = 0
        commit = effects.seal()
        for release in commit.releases:
            written += len(release.data)
            release.done()
        ready = effects.ready
        effects.ready = []
        for link in ready:
            written += len(link.take_ready())
        effects.closing = []
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


def measured(label: str, grow: Callable[[Engine], None]) -> tuple[str, Engine, int]:
    """An engine with what stands beside the messages, and what that takes of memory."""
    gc.collect()
    before = resident_bytes()
    engine = Engine()
    grow(engine)
    gc.collect()
    return label, engine, resident_bytes() - before


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
    few = measured("10 subscriptions", lambda engine: engine.add_subscriptions(10))
    many = measured(
        f"{chosen.subscriptions:,} subscriptions",
        lambda engine: engine.add_subscriptions(chosen.subscriptions),
    )
    idle = measured(
        f"{chosen.sessions:,} idle sessions", lambda engine: engine.add_sessions(chosen.sessions)
    )
    console.print(
        f"memory: {many[2] / chosen.subscriptions:,.0f} bytes a subscription, "
        f"{idle[2] / chosen.sessions:,.0f} bytes an idle session with one"
    )
    started_s = time.process_time()
    gc.collect()
    console.print(f"a full garbage collection of all that: {time.process_time() - started_s:.1f} s")
    gc.freeze()  # as the broker does with what it recovered
    console.print(_compared(chosen.messages, chosen.repeats, [few, many, idle]))
    console.print(_churned(chosen.messages, chosen.repeats, many[1]))


def _compared(messages: int, repeats: int, beside: list[tuple[str, Engine, int]]) -> Table:
    kinds = [
        ("QoS 0, hot", blocks_of(HOT_TOPICS, 0)),
        ("QoS 1, hot", blocks_of(HOT_TOPICS, 1)),
        ("QoS 0, cold", blocks_of(COLD_TOPICS, 0)),
    ]
    runs: dict[tuple[str, str], list[float]] = {}
    for _ in range(repeats):
        for kind, blocks in kinds:
            for label, engine, _ in beside:
                figure = user_us(engine, blocks, messages)
                runs.setdefault((kind, label), []).append(figure)
    table = Table(title=f"medians of {repeats}, and the ratio to the first (at most {RATIO_MAX})")
    table.add_column("messages")
    for label, _, _ in beside:
        table.add_column(label, justify="right")
    for kind, _ in kinds:
        medians = [statistics.median(runs[kind, label]) for label, _, _ in beside]
        first = medians[0]
        table.add_row(kind, *[f"{median:.2f} ({median / first:.2f})" for median in medians])
    return table


def _churned(messages: int, repeats: int, engine: Engine) -> Table:
    blocks = blocks_of(1000, 0)
    table = Table(title="QoS 0 to 1000 topics, one subscription changed every 1000 messages")
    table.add_column("changed filter")
    table.add_column("µs a message", justify="right")
    for label, name in (
        ("none", ""),
        ("another topic", "other/topic"),
        ("a wildcard beside", "other/+/state"),
        ("one of the topics", "bench/7"),
        ("all of the topics", "bench/+"),
    ):
        figures = [
            user_us(engine, blocks, messages)
            if not name
            else churn_us(engine, blocks, messages, 1000, name)
            for _ in range(repeats)
        ]
        table.add_row(label, f"{statistics.median(figures):.2f}")
    return table


if __name__ == "__main__":
    main()
