"""``python -m benchmarks.shared``: shared subscriptions with offline members, and handover.

It measures the engine without sockets and store, as ``benchmarks.subscriptions`` does.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.subscriptions import VERSION, Engine
from penstock.engine.api import Commit, Server
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import DROP_OLDEST, REJECT, SPILL, EngineLimits
from penstock.engine.values.message import Message
from penstock.engine.values.records import RecoveredState
from penstock.protocol.encode import encode
from penstock.protocol.packets import Puback, Subscribe, Subscription
from penstock.version import build_kind

GROUP: Final = "$share/g/t"
WINDOW: Final = 32
_NOW: Final = Now(1000.0, 1_800_000_000_000_000)


class GroupEngine(Engine):
    """An engine with one shared subscription, `GROUP`.

    Args:
        limits: the limits of the engine.
    """

    def __init__(self, limits: EngineLimits) -> None:
        self.server = Server(limits, RecoveredState("epoch", 0), (), "memory", _NOW)

    def add_offline_member(self, name: str, *filters: str) -> None:
        """Add an offline member that also subscribes to ``filters``."""
        client = self.join(name, is_persistent=True)
        packet = Subscribe(1, [Subscription(topic_filter, 1) for topic_filter in (GROUP, *filters)])
        client.receive(encode(packet, VERSION), _NOW)
        client.lost("benchmark", _NOW)
        self.turn()

    def publish(self, topic: str, messages: int) -> float:
        """Publish messages, unless the queue has no room; return CPU microseconds of each."""
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


def measure_offline_group(members: int, policy: str, is_full: bool, messages: int) -> float:
    """Return the CPU microseconds of a message to a group without connected members."""
    limits = EngineLimits(max_mqueue_len=1 if is_full else 0, mqueue_overflow=policy)
    group = GroupEngine(limits)
    for number in range(members):
        group.add_offline_member(f"m{number}")
    group.publish("t", members if is_full else 1)
    return group.publish("t", messages)


def measure_handover(message_count: int) -> tuple[float, int, float]:
    """Hand the queued messages of a group over to a new member, while a member is offline.

    The queues have ``message_count`` messages; half of them are the group's.

    Returns:
        CPU microseconds of a message handed over, the number of deliveries stored again, and the
        milliseconds of the longest turn of the event loop.
    """
    limits = EngineLimits(max_mqueue_len=1000, mqueue_overflow=SPILL, max_inflight=WINDOW)
    group = GroupEngine(limits)
    group.add_offline_member("holder", "own")
    for _ in range(message_count // 2000):
        group.publish("t", 1000)
        group.publish("own", 1000)
    holder = group.server.registry.sessions["holder"]
    new_member = group.join("helper", is_persistent=True)
    packet = Subscribe(1, [Subscription(GROUP, 1)])
    new_member.receive(encode(packet, VERSION), _NOW)
    session = group.server.registry.sessions["helper"]
    stored_again = 0
    longest_s = 0.0
    queue = group.server.router.sharing.groups[GROUP].queue
    queued_before = queue.queue_length
    started_s = time.process_time()
    for _ in range(message_count // 20 // WINDOW):
        turn_s = time.process_time()
        group.server.tick(_NOW)
        commit = group.server.context.seal()
        stored_again += sum(
            len(run)
            for progress in commit.progress
            if progress.number in (holder.number, queue.number)
            for run in progress.segments
        )
        _finish(commit)
        ids = [entry.packet_id for entry in session.transmission.window.entries()]
        acks = b"".join(encode(Puback(packet_id), VERSION) for packet_id in ids)
        new_member.link.take_ready()
        new_member.receive(acks, _NOW)
        longest_s = max(longest_s, time.process_time() - turn_s)
    used_s = time.process_time() - started_s
    handed_over = queued_before - queue.queue_length
    return used_s / max(1, handed_over) * 1e6, stored_again, longest_s * 1000


def _finish(commit: Commit) -> None:
    """Complete a commit as the store would: release packets, and supply payloads."""
    for release in commit.deferred_packets:
        release.mark_sent()
    for stored, offsets in commit.body_requests:
        bodies = {offset: Message("t", b"x" * 64, 1, offset=offset) for offset in offsets}
        stored.supply(offsets, bodies, _NOW)


def main() -> None:
    """Run both benchmarks and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=5000)
    parser.add_argument("--messages", type=int, default=2000, help="messages of one run")
    parser.add_argument(
        "--waiting",
        type=int,
        default=100_000,
        help="queued messages of a group and its offline member",
    )
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    console = Console(width=110)
    console.print(f"engine alone, {build_kind()}")
    table = Table(title=f"no member is connected: CPU µs a message, medians of {arguments.repeats}")
    table.add_column("members")
    for heading in ("with room", "full, drop_oldest", "full, reject"):
        table.add_column(heading, justify="right")
    for members in (10, arguments.members):
        kinds = [(DROP_OLDEST, False), (DROP_OLDEST, True), (REJECT, True)]
        figures = [
            statistics.median(
                measure_offline_group(members, policy, is_full, arguments.messages)
                for _ in range(arguments.repeats)
            )
            for policy, is_full in kinds
        ]
        table.add_row(f"{members:,}", *[f"{figure:.1f}" for figure in figures])
    console.print(table)
    each_us, stored_again, longest_ms = measure_handover(arguments.waiting)
    console.print(
        f"handover, {arguments.waiting:,} queued messages, half of them shared: {each_us:.0f} µs "
        f"each, {stored_again:,} stored again, longest turn {longest_ms:.1f} ms"
    )


if __name__ == "__main__":
    main()
