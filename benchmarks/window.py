"""``python -m benchmarks.window``: the cost of a large in-flight window of a stored session.

It measures the CPU time of one message, from PUBLISH to its last acknowledgement, in a broker
without sockets: engine, records, and the commits to RocksDB with their syncs. The window of the
subscriber is full, and it acknowledges the oldest messages, 1 or 16 in each commit. The garbage
collector has the broker's settings. Every figure is the median of alternating runs; quote the ratio
to the first line, because the machine's speed drifts.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Final, final

from rich.console import Console
from rich.table import Table

from penstock.engine.api import Server, ServerConnection
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Message
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.packets import (
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
)
from penstock.protocol.properties import Properties
from penstock.services.garbage import collect_and_freeze, collect_if_due, collect_in_portions
from penstock.store.rocks import RocksStore
from penstock.version import build_kind

WINDOWS: Final = (32, 1000, 10_000)
AT_ONCE: Final = (1, 16)
VERSION: Final = 5
_FILLED_AT_ONCE: Final = 500
_NOW: Final = Now(1000.0, 1_800_000_000_000_000)


@final
class Broker:
    """A broker without sockets, with a store and a subscriber whose window is full.

    Args:
        data_dir: the directory of the store.
        window: the number of messages in the subscriber's in-flight window.
        qos: the QoS of the subscription and of all messages.
    """

    def __init__(self, data_dir: Path, window: int, qos: int) -> None:
        self.used_s = 0.0
        self._qos = qos
        self._store = RocksStore(data_dir)
        limits = EngineLimits(max_inflight=window, max_mqueue_len=0)
        self._server = Server(limits, self._store.recover(), ("#",), "fsync", _NOW)
        self._server.context.store_health.waits_for_disk = True
        self._server.context.batch.collect_columns()
        self._decoder = Decoder(1_000_000, VERSION, server=False)
        self._subscriber = ServerConnection(self._server, limits, _NOW)
        self._unacknowledged: deque[int] = deque()
        self._released: list[int] = []
        properties = Properties(session_expiry_interval=3600, receive_maximum=65535)
        self._turn([Connect("subscriber", VERSION, True, 0, properties=properties)], 0)
        self._turn([Subscribe(1, [Subscription("t", qos)])], 0)
        for first in range(0, window, _FILLED_AT_ONCE):
            self._turn([], min(_FILLED_AT_ONCE, window - first))
        assert len(self._unacknowledged) == window

    def exchange(self, messages: int) -> None:
        """Acknowledge the oldest ``messages`` and publish as many, in one commit."""
        answers: list[Packet] = []
        for _ in range(messages):
            packet_id = self._unacknowledged.popleft()
            answers.append(Puback(packet_id) if self._qos == 1 else Pubrec(packet_id))
        answers += [Pubcomp(packet_id) for packet_id in self._released]
        self._released = []
        self._turn(answers, messages)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _turn(self, packets: list[Packet], messages: int) -> None:
        data = b"".join(encode(packet, VERSION) for packet in packets)
        started_s = time.process_time()
        if data:
            self._subscriber.receive(data, _NOW)
        for _ in range(messages):
            message = Message("t", b"x" * 64, self._qos, False, "p", _NOW.wall_us)
            self._server.router.publish(message, None, _NOW)
        context = self._server.context
        commit = context.seal()
        if commit.has_writes:
            self._store.prepare(commit)
            self._store.commit(commit)
        context.store_health.mark_committed(commit)
        pieces: list[bytes] = []
        for release in commit.deferred_packets:
            pieces += release.pieces
            release.mark_sent()
        ready, context.turn.ready = context.turn.ready, []
        for link in ready:
            pieces += link.take_ready()
        collect_if_due()
        self.used_s += time.process_time() - started_s
        self._decoder.feed(b"".join(pieces))
        while (packet := self._decoder.next_packet()) is not None:
            if isinstance(packet, Publish):
                self._unacknowledged.append(packet.packet_id)
            elif isinstance(packet, Pubrel):
                self._released.append(packet.packet_id)


def cpu_us(window: int, qos: int, at_once: int, messages: int) -> float:
    """Return the CPU time of one message, in microseconds."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        broker = Broker(Path(directory), window, qos)
        broker.exchange(at_once)
        collect_and_freeze()
        broker.used_s = 0.0
        for _ in range(messages // at_once):
            broker.exchange(at_once)
        broker.close()
        return broker.used_s / (messages // at_once * at_once) * 1e6


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2000, help="messages of one run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each figure")
    arguments = parser.parse_args()
    collect_in_portions()
    kinds = [(qos, at_once) for at_once in AT_ONCE for qos in (1, 2)]
    runs: dict[tuple[int, int, int], list[float]] = {}
    for _ in range(arguments.repeats):
        for window in WINDOWS:
            for qos, at_once in kinds:
                figure = cpu_us(window, qos, at_once, arguments.messages)
                runs.setdefault((window, qos, at_once), []).append(figure)
    title = f"CPU µs a message, medians of {arguments.repeats}; {build_kind()}"
    table = Table(title=title)
    table.add_column("window", justify="right")
    for qos, at_once in kinds:
        table.add_column(f"QoS {qos}, {at_once} in a commit", justify="right")
    for window in WINDOWS:
        figures = [statistics.median(runs[window, qos, at_once]) for qos, at_once in kinds]
        table.add_row(f"{window:,}", *[f"{figure:,.1f}" for figure in figures])
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
