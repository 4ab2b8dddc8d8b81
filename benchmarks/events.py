"""Measures the CPU time of events, for one QoS 1 message from a publisher to a subscriber.

    python -m benchmarks.events

Runs of the brokers alternate, because the machine's speed drifts: quote the ratio to the first. The
CPU time is that of the broker's process, without the clients.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.broker import Broker, penstock_in
from benchmarks.publish import WINDOW, publish_messages
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.packets import Connect, Puback, Publish, Suback, Subscribe, Subscription
from penstock.version import build_kind

_VERSION: Final = 4
_NO_QUEUE_LIMITS: Final = {"limits.max_mqueue_len": "0", "limits.max_mqueue_bytes": "0"}
_ENABLED: Final = {"events.enabled": "true"}
_ALL_TOPICS: Final = {**_ENABLED, "events.topic_filters": '["#"]'}

SETTINGS: Final[dict[str, dict[str, str]]] = {
    "without events": {},
    "events of clients": _ENABLED,
    "and 1 message in 100": {**_ALL_TOPICS, "events.sample_one_in": "100"},
    "and 1 message in 10": {**_ALL_TOPICS, "events.sample_one_in": "10"},
    "and every message": _ALL_TOPICS,
}


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000, help="messages of one run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each broker")
    arguments = parser.parse_args()
    runs: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for _ in range(arguments.repeats):
        for name, settings in SETTINGS.items():
            with (
                tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
                penstock_in(Path(directory), "file", {**_NO_QUEUE_LIMITS, **settings}) as broker,
            ):
                runs[name].append(measure_cpu_us(broker, arguments.messages))
    table = Table(title=f"medians of {arguments.repeats}; penstock runs {build_kind()}")
    for heading in ("events", "CPU µs/message", "of the first"):
        table.add_column(heading, justify="left" if heading == "events" else "right")
    first = statistics.median(next(iter(runs.values())))
    for name, measured in runs.items():
        median = statistics.median(measured)
        table.add_row(name, f"{median:.1f}", f"{median / first:.2f}")
    Console().print(table)


def measure_cpu_us(broker: Broker, messages: int) -> float:
    """Return the broker's CPU time for one message to one subscriber, microseconds."""
    subscriber = _Subscriber(broker.port)
    subscriber.start()
    subscriber.subscribed.wait()
    publish_messages(broker, 1, 2000)  # warm caches, and create the first segments
    subscriber.wait_for(2000)
    before, received = broker.cpu_s(), subscriber.received
    publish_messages(broker, 1, messages)
    subscriber.wait_for(received + messages)
    used_s = broker.cpu_s() - before
    taken = subscriber.received - received
    subscriber.close()
    return used_s / taken * 1e6


class _Subscriber(threading.Thread):
    """Subscribes, and acknowledges every message, in a thread."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.received = 0
        self.subscribed = threading.Event()
        self._socket = socket.create_connection(("127.0.0.1", port), 10)
        self._socket.settimeout(None)
        hello = [Connect("bench-subscriber", _VERSION), Subscribe(1, [Subscription("bench/#", 1)])]
        self._socket.sendall(b"".join(encode(packet, _VERSION) for packet in hello))

    def run(self) -> None:
        decoder = Decoder(1_000_000, _VERSION, server=False)
        while data := self._socket.recv(65536):
            decoder.feed(data)
            answers = bytearray()
            while (packet := decoder.next_packet()) is not None:
                if isinstance(packet, Publish):
                    self.received += 1
                    answers += encode(Puback(packet.packet_id), _VERSION)
                elif isinstance(packet, Suback):
                    self.subscribed.set()
            with contextlib.suppress(OSError):  # the connection is closed already
                self._socket.sendall(answers)

    def wait_for(self, messages: int) -> None:
        deadline = time.monotonic() + 120
        while self.received < messages - WINDOW:
            assert time.monotonic() < deadline, f"received only {self.received} messages"
            time.sleep(0.01)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self.join()
        self._socket.close()


if __name__ == "__main__":
    main()
