"""``python -m benchmarks.shared``: a group whose members are away, and taking what waits for it.

The engine alone, without sockets and store, as in ``benchmarks.subscriptions``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.subscriptions import VERSION, Engine
from penstock.engine.batch.commit import Commit
from penstock.engine.batch.records import RecoveredState
from penstock.engine.clock import Now
from penstock.engine.limits import DROP_OLDEST, REJECT, SPILL, EngineLimits
from penstock.engine.message import Message
from penstock.engine.server.server import Server
from penstock.protocol.encode import encode
from penstock.protocol.packets import Puback, Subscribe, Subscription
from penstock.version import build_kind

GROUP: Final = "$share/g/t"
WINDOW: Final = 32
_NOW: Final = Now(1000.0, 1_800_000_000_000_000)


class Group(Engine):
    """A broker with one group.

    Args:
        limits: bounds.
    """

    def __init__(self, limits: EngineLimits) -> None:
        self.server = Server(limits, RecoveredState("epoch", 0), (), "memory", _NOW)

    def member(self, name: str, *filters: str) -> None:
        """A member that is away; it has other subscriptions too."""
        client = self.join(name, kept=True)
        packet = Subscribe(1, [Subscription(one, 1) for one in (GROUP, *filters)])
        client.receive(encode(packet, VERSION), _NOW)
        client.lost("benchmark", _NOW)
        self.turn()

    def publish(self, topic: str, messages: int) -> float:
        """CPU time of one message, microseconds; one that would be refused is not published."""
        router = self.server.router
        used_s = 0.0
        for first in range(0, messages, 100):
            started_s = time.process_time()
            for _ in range(min(100, messages - first)):
                message = Message(topic, b"x" * 64, 1, False, "p", _NOW.wall_us)
                router.publish_if_room(message, None, _NOW)
            used_s += time.process_time() - started_s
            self.turn()
        return used_s / messages * 1e6


def away(members: int, policy: str, full: bool, messages: int) -> float:
    """One message to a group of which nobody is connected."""
    limits = EngineLimits(max_mqueue_len=1 if full else 0, mqueue_overflow=policy)
    group = Group(limits)
    for number in range(members):
        group.member(f"m{number}")
    group.publish("t", members if full else 1)
    return group.publish("t", messages)


def handing_on(waiting: int) -> tuple[float, int, float]:
    """``waiting`` messages, half of them for a group whose member left; another takes them.

    Returns:
        Microseconds a message that changed hands, deliveries of the first that were stored
        again, and milliseconds of the longest turn.
    """
    limits = EngineLimits(max_mqueue_len=1000, mqueue_overflow=SPILL, max_inflight=WINDOW)
    group = Group(limits)
    group.member("holder", "own")
    for _ in range(waiting // 2000):
        group.publish("t", 1000)
        group.publish("own", 1000)
    holder = group.server.registry.sessions["holder"]
    helper = group.join("helper", kept=True)
    packet = Subscribe(1, [Subscription(GROUP, 1)])
    helper.receive(encode(packet, VERSION), _NOW)
    session = group.server.registry.sessions["helper"]
    stored_again = 0
    longest_s = 0.0
    queue = group.server.router.sharing.groups[GROUP].queue
    before = queue.queue_length
    started_s = time.process_time()
    for _ in range(waiting // 20 // WINDOW):
        turn_s = time.process_time()
        group.server.tick(_NOW)
        commit = group.server.context.seal()
        stored_again += sum(
            len(run)
            for one in commit.progress
            if one.number in (holder.number, queue.number)
            for run in one.segments
        )
        _finish(commit)
        ids = [entry.packet_id for entry in session.transmission.window.entries()]
        acks = b"".join(encode(Puback(packet_id), VERSION) for packet_id in ids)
        helper.link.take_ready()
        helper.receive(acks, _NOW)
        longest_s = max(longest_s, time.process_time() - turn_s)
    used_s = time.process_time() - started_s
    handed_on = before - queue.queue_length
    return used_s / max(1, handed_on) * 1e6, stored_again, longest_s * 1000


def _finish(commit: Commit) -> None:
    """What the store would do: bytes leave, and bodies are read."""
    for release in commit.releases:
        release.done()
    for stored, asked in commit.body_requests:
        bodies = {offset: Message("t", b"x" * 64, 1, offset=offset) for offset in asked}
        stored.supply(asked, bodies, _NOW)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=5000)
    parser.add_argument("--messages", type=int, default=2000, help="in one run")
    parser.add_argument(
        "--waiting", type=int, default=100_000, help="for a group and its member that left"
    )
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    console = Console(width=110)
    console.print(f"engine alone, {build_kind()}")
    table = Table(title=f"nobody is connected: CPU µs a message, medians of {chosen.repeats}")
    table.add_column("members")
    for heading in ("with room", "full, drop_oldest", "full, reject"):
        table.add_column(heading, justify="right")
    for members in (10, chosen.members):
        kinds = [(DROP_OLDEST, False), (DROP_OLDEST, True), (REJECT, True)]
        figures = [
            statistics.median(
                away(members, policy, full, chosen.messages) for _ in range(chosen.repeats)
            )
            for policy, full in kinds
        ]
        table.add_row(f"{members:,}", *[f"{figure:.1f}" for figure in figures])
    console.print(table)
    each_us, stored_again, longest_ms = handing_on(chosen.waiting)
    console.print(
        f"handing on from {chosen.waiting:,} that wait, half of them shared: {each_us:.0f} µs "
        f"each, {stored_again:,} stored again, the longest turn {longest_ms:.1f} ms"
    )


if __name__ == "__main__":
    main()
