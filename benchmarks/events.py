"""What events cost: CPU of the broker for one QoS 1 message from a publisher to a subscriber.

    python -m benchmarks.events

The brokers take turns, because the machine's speed drifts: quote the ratio to the first. CPU time
is that of the broker's process, without the clients'.
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
from benchmarks.publish import WINDOW, publish_so_many
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.packets import Connect, Puback, Publish, Suback, Subscribe, Subscription
from penstock.version import build_kind

_VERSION: Final = 4
_ALL_WAIT: Final = {"limits.max_mqueue_len": "0", "limits.max_mqueue_bytes": "0"}
_ON: Final = {"events.enabled": "true"}
_ALL: Final = {**_ON, "events.topic_filters": '["#"]'}

SETTINGS: Final[dict[str, dict[str, str]]] = {
    "without events": {},
    "of clients": _ON,
    "and 1 message in 100": {**_ALL, "events.sample_one_in": "100"},
    "and 1 message in 10": {**_ALL, "events.sample_one_in": "10"},
    "and every message": _ALL,
}


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000, help="of one run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each broker")
    chosen = parser.parse_args()
    runs: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for _ in range(chosen.repeats):
        for name, settings in SETTINGS.items():
            with (
                tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
                penstock_in(Path(directory), "file", {**_ALL_WAIT, **settings}) as broker,
            ):
                runs[name].append(cpu_us(broker, chosen.messages))
    table = Table(title=f"medians of {chosen.repeats}; penstock runs {build_kind()}")
    for heading in ("events", "CPU µs/message", "of the first"):
        table.add_column(heading, justify="left" if heading == "events" else "right")
    first = statistics.median(next(iter(runs.values())))
    for name, measured in runs.items():
        median = statistics.median(measured)
        table.add_row(name, f"{median:.1f}", f"{median / first:.2f}")
    Console().print(table)


def cpu_us(broker: Broker, messages: int) -> float:
    """CPU of the broker for one message that goes to one subscriber."""
    subscriber = _Subscriber(broker.port)
    subscriber.start()
    subscriber.subscribed.wait()
    publish_so_many(broker, 1, 2000)  # caches, and the first segments
    subscriber.wait_for(2000)
    before, received = broker.cpu_s(), subscriber.received
    publish_so_many(broker, 1, messages)
    subscriber.wait_for(received + messages)
    used_s = broker.cpu_s() - before
    taken = subscriber.received - received
    subscriber.close()
    return used_s / taken * 1e6


class _Subscriber(threading.Thread):
    """Acknowledges what it gets."""

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
            with contextlib.suppress(OSError):  # it is over
                self._socket.sendall(answers)

    def wait_for(self, messages: int) -> None:
        deadline = time.monotonic() + 120
        while self.received < messages - WINDOW:
            assert time.monotonic() < deadline, f"only {self.received} messages came"
            time.sleep(0.01)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self.join()
        self._socket.close()


if __name__ == "__main__":
    main()
