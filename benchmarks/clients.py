"""``python -m benchmarks.clients``: client libraries of Python side by side, on one broker.

Each publishes, and each receives, with QoS 0, 1 and 2: messages a second, and CPU time of its
process a message. They take turns, because the machine's speed drifts; medians are shown, and the
ratio of ours to the best of the others. What is received is published by mosquitto-like senders
of ready-made packets, so that the receiver is what is measured.
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
_PUBREC: Final = 0x50  # the first byte
_PUBREL: Final = bytes((0x62, 2))  # the first two

# Whatever the receiver's speed is, all of it arrives; the window is the client's.
_NO_LIMITS: Final = {
    "limits.max_mqueue_len": 0,
    "listener.write_buffer_bytes_max": 2**30,
    "limits.receive_maximum": 65_535,
    "limits.max_inflight": 0,  # the clients say how many
}

Measured = dict[str, float]


def main() -> None:
    """Measure and print a table for publishing and one for receiving."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000, help="of each run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each library")
    parser.add_argument("--window", type=int, default=100, help="most messages unacknowledged")
    parser.add_argument("--qos", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", nargs="+", default=["publish", "receive"])
    parser.add_argument("--libraries", nargs="+", default=list(LIBRARIES))
    chosen = parser.parse_args()
    console = Console()
    console.print(
        f"{chosen.messages} messages of 64 bytes, window {chosen.window}; penstock {build_kind()}"
    )
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        penstock_in(Path(directory), "memory", _NO_LIMITS) as broker,
    ):
        for work in chosen.work:
            runs: dict[tuple[str, int], list[Measured]] = {}
            for _ in range(chosen.repeats):
                for qos in chosen.qos:
                    for library in chosen.libraries:
                        run = _run(broker, library, work, qos, chosen.messages, chosen.window)
                        runs.setdefault((library, qos), []).append(run)
            console.print(_table(work, chosen.qos, chosen.libraries, runs))


def _table(
    work: str,
    levels: list[int],
    libraries: list[str],
    runs: dict[tuple[str, int], list[Measured]],
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
        table.add_row(library, *(f"{one['rate']:,.0f}  {one['cpu_us']:.1f}" for one in cells))
    others = [library for library in libraries if library != _OURS]
    if _OURS in libraries and others:
        table.add_row(
            "ours to the best of the others",
            *(_ratios(medians, others, qos) for qos in levels),
        )
    return table


def _ratios(medians: dict[tuple[str, int], dict[str, float]], others: list[str], qos: int) -> str:
    ours = medians[_OURS, qos]
    rate = ours["rate"] / max(medians[other, qos]["rate"] for other in others)
    cpu = min(medians[other, qos]["cpu_us"] for other in others) / ours["cpu_us"]
    return f"{rate:.1f} x  {cpu:.1f} x"


def _run(broker: Broker, library: str, work: str, qos: int, count: int, window: int) -> Measured:
    command = [sys.executable, "-m", "benchmarks.client_programs", library, work]
    command += [str(number) for number in (broker.port, qos, count, window)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if work == "receive":
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"{library} did not subscribe")
            feed(broker.port, qos, count, window)
        said = process.stdout.readline()
        if not said:
            raise RuntimeError(f"{library} failed: {' '.join(command)}")
        measured: Measured = json.loads(said)
        process.wait(_TIMEOUT_S)
        return measured
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def feed(port: int, qos: int, count: int, window: int) -> None:
    """Publish ``count`` messages, at most a window of them unacknowledged.

    The packets are one piece before the first is sent, and what comes back is 4 bytes each: the
    less this costs, the more the receiver has.
    """
    packets = memoryview(
        b"".join(
            encode(Publish(TOPIC, PAYLOAD, qos, packet_id=at % 65_535 + 1 if qos else 0), _VERSION)
            for at in range(count)
        )
    )
    size_bytes = len(packets) // count  # they are of one length
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT_S) as connection:
        connection.sendall(encode(Connect("bench-feeder", _VERSION), _VERSION))
        connection.recv(4)  # CONNACK
        if qos == 0:
            connection.sendall(packets)
            connection.sendall(encode(Disconnect(0), _VERSION))
            connection.recv(1)  # the broker has read all of it when it hangs up
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
    """The PUBRELs for the PUBRECs among ``answers``."""
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
