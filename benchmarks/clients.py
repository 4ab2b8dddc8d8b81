"""``python -m benchmarks.clients``: compares MQTT client libraries of Python on one broker.

Each library publishes and receives with QoS 0, 1 and 2; the tables show messages a second and CPU
time of its process for each message. Runs of the libraries alternate, because the machine's speed
drifts; the tables show medians, and the ratio of Penstock to the best other library. To measure a
receiver, the messages are sent as packets that were encoded before.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.broker import Broker, penstock_in
from benchmarks.client_programs import LIBRARIES, PAYLOAD, TOPIC
from penstock.protocol.encode import encode
from penstock.protocol.packets import Connect, Disconnect, Publish
from penstock.version import build_kind

_OURS: Final = "penstock"
_VERSION: Final = 4
_TIMEOUT_S: Final = 120.0
_PUBREC: Final = 0x50  # first byte of the packet
_PUBREL: Final = bytes((0x62, 2))  # first two bytes of the packet

# The broker drops nothing for a slow receiver, and the client chooses the window.
_NO_LIMITS: Final = {
    "limits.max_mqueue_len": 0,
    "listener.write_buffer_bytes_max": 2**30,
    "limits.receive_maximum": 65_535,
    "limits.max_inflight": 0,  # the receive maximum of the client
}

Measurement = dict[str, float]


def main() -> None:
    """Measure and print a table for publishing and one for receiving."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000, help="messages of each run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each library")
    parser.add_argument("--window", type=int, default=100, help="most unacknowledged messages")
    parser.add_argument("--qos", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", nargs="+", default=["publish", "receive"])
    parser.add_argument("--libraries", nargs="+", default=list(LIBRARIES))
    arguments = parser.parse_args()
    console = Console()
    console.print(
        f"{arguments.messages} messages of 64 bytes, window {arguments.window};"
        f" penstock {build_kind()}"
    )
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        penstock_in(Path(directory), "memory", _NO_LIMITS) as broker,
    ):
        for work in arguments.work:
            runs: dict[tuple[str, int], list[Measurement]] = {}
            for _ in range(arguments.repeats):
                for qos in arguments.qos:
                    for library in arguments.libraries:
                        run = _run(broker, library, work, qos, arguments.messages, arguments.window)
                        runs.setdefault((library, qos), []).append(run)
            console.print(_table(work, arguments.qos, arguments.libraries, runs))


def _table(
    work: str,
    levels: list[int],
    libraries: list[str],
    runs: dict[tuple[str, int], list[Measurement]],
) -> Table:
    table = Table(title=f"{work}: messages/s, CPU \u00b5s/message")
    table.add_column("library")
    for qos in levels:
        table.add_column(f"QoS {qos}", justify="right")
    medians = {
        of: {name: statistics.median(run[name] for run in measured) for name in ("rate", "cpu_us")}
        for of, measured in runs.items()
    }
    for library in libraries:
        cells = [medians[library, qos] for qos in levels]
        table.add_row(library, *(f"{cell['rate']:,.0f}  {cell['cpu_us']:.1f}" for cell in cells))
    others = [library for library in libraries if library != _OURS]
    if _OURS in libraries and others:
        table.add_row(
            "penstock / best other library",
            *(_ratios(medians, others, qos) for qos in levels),
        )
    return table


def _ratios(medians: dict[tuple[str, int], dict[str, float]], others: list[str], qos: int) -> str:
    ours = medians[_OURS, qos]
    rate = ours["rate"] / max(medians[other, qos]["rate"] for other in others)
    cpu = min(medians[other, qos]["cpu_us"] for other in others) / ours["cpu_us"]
    return f"{rate:.1f} x  {cpu:.1f} x"


def _run(broker: Broker, library: str, work: str, qos: int, count: int, window: int) -> Measurement:
    command = [sys.executable, "-m", "benchmarks.client_programs", library, work]
    command += [str(number) for number in (broker.port, qos, count, window)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if work == "receive":
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"{library} did not subscribe")
            feed(broker.port, qos, count, window)
        output = process.stdout.readline()
        if not output:
            raise RuntimeError(f"{library} failed: {' '.join(command)}")
        measured: Measurement = json.loads(output)
        process.wait(_TIMEOUT_S)
        return measured
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def feed(port: int, qos: int, count: int, window: int) -> None:
    """Publish ``count`` messages, at most ``window`` of them unacknowledged.

    All packets are encoded before the first is sent, and every acknowledgement has 4 bytes, so that
    this takes little CPU time from the receiver.
    """
    packets = memoryview(
        b"".join(
            encode(Publish(TOPIC, PAYLOAD, qos, packet_id=at % 65_535 + 1 if qos else 0), _VERSION)
            for at in range(count)
        )
    )
    size_bytes = len(packets) // count  # all packets have the same length
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT_S) as connection:
        connection.sendall(encode(Connect("bench-feeder", _VERSION), _VERSION))
        connection.recv(4)  # CONNACK
        if qos == 0:
            connection.sendall(packets)
            connection.sendall(encode(Disconnect(0), _VERSION))
            connection.recv(1)  # the broker closes after it read all packets
            return
        sent = 0
        acknowledged = 0
        received = b""
        while acknowledged < count:
            last = min(count, acknowledged + window)
            if last > sent:
                connection.sendall(packets[sent * size_bytes : last * size_bytes])
                sent = last
            received += connection.recv(65_536)
            whole = len(received) - len(received) % 4
            releases = _releases(received[:whole])
            acknowledged += (whole - len(releases)) // 4
            received = received[whole:]
            if releases:
                connection.sendall(releases)


def _releases(answers: bytes) -> bytes:
    """Return the encoded PUBRELs for the PUBRECs among ``answers``."""
    kinds = answers[::4]
    if _PUBREC not in kinds:
        return b""
    if kinds.count(_PUBREC) == len(kinds):
        releases = bytearray(answers)
        releases[::4] = _PUBREL[:1] * len(kinds)
        return bytes(releases)
    pieces = [answers[at : at + 4] for at in range(0, len(answers), 4)]
    return b"".join([_PUBREL + piece[2:] for piece in pieces if piece[0] == _PUBREC])


if __name__ == "__main__":
    main()
