"""``python -m benchmarks.memory``: the growth of the broker's resident memory.

================  ==========================================================================
idle connections  connections with a session and one subscription, without messages
churn             clients that connect, subscribe, publish and disconnect, one after another
fan-out           QoS 1 messages to offline sessions: copies of the payloads, and overhead
================  ==========================================================================

Persistence is "memory", so that the process holds every message. Resident memory is read from
/proc.

An hour of churn: ``--work churn --rounds 90000 --per-second 25``.
"""

from __future__ import annotations

import argparse
import resource
import time
from itertools import pairwise
from typing import Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.blocking_client import Client
from benchmarks.broker import Broker, penstock
from penstock.protocol.kinds import DISCONNECT
from penstock.protocol.packets import Puback, Publish
from penstock.version import build_kind

_OTHER_FILES: Final = 200  # open files of this process that are not connections
_PARTS: Final = 8
_PAYLOAD: Final = b"x" * 262_144
_SMALL_BYTES: Final = 1024
_BENCHMARKS: Final = ("idle", "churn", "fan-out")
_WARM_UP: Final = 200  # connections before the first measurement


def measure_idle(broker: Broker, count: int) -> float:
    """Return the memory of one idle connection, KiB."""
    _ = _connect_clients(broker, "warm", _WARM_UP)
    before = broker.resident_mib()
    clients = _connect_clients(broker, "idle", count)
    growth = broker.resident_mib() - before
    for client in clients:
        client.close()
    return growth * 1024 / count


def _connect_clients(broker: Broker, name: str, count: int) -> list[Client]:
    clients = []
    for number in range(count):
        client = Client(broker, f"{name}-{number}")
        client.subscribe(f"{name}/{number}")
        clients.append(client)
    return clients


def measure_churn(broker: Broker, rounds: int, per_second: float, console: Console) -> list[float]:
    """Connect ``rounds`` clients one after another, at most ``per_second`` (0: without a limit).

    Returns:
        Resident memory at the start and after each of the `_PARTS` parts, MiB.
    """
    resident = []
    begun_s = time.monotonic()
    for number in track(range(rounds), "churn", console=console, transient=True):
        if number % (rounds // _PARTS) == 0:
            resident.append(broker.resident_mib())
        if per_second > 0:
            time.sleep(max(0.0, begun_s + number / per_second - time.monotonic()))
        client = Client(broker, f"churn-{number}")
        client.subscribe(f"churn/{number}/#")
        client.send(Publish(f"churn/{number}/t", b"x" * 64, 1, packet_id=1))
        kinds = {
            type(client.read()),
            type(client.read()),
        }  # the client receives its own message, before or after the PUBACK
        assert kinds == {Puback, Publish}
        client.send_bytes(bytes((DISCONNECT << 4, 0)))
        client.close()
    resident.append(broker.resident_mib())
    return resident


def measure_fan_out(broker: Broker, sessions: int, messages: int, payload: bytes) -> float:
    """Return the memory of one message that is in the queues of ``sessions`` sessions, bytes."""
    for number in range(sessions):
        client = Client(broker, f"away-{number}", is_persistent=True)
        client.subscribe("fan/#")
        client.close()
    publisher = Client(broker, "publisher")
    before = broker.resident_mib()
    for _ in range(messages):
        publisher.send(Publish("fan/out", payload, 1, packet_id=1))
        assert isinstance(publisher.read(), Puback)
    growth = broker.resident_mib() - before
    publisher.close()
    return growth * 2**20 / messages


def main() -> None:
    """Run the parts of the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=80_000, help="clients of the churn")
    parser.add_argument(
        "--per-second", type=float, default=0.0, help="clients a second; 0: no limit"
    )
    parser.add_argument("--sessions", type=int, default=1000, help="sessions of the fan-out")
    parser.add_argument(
        "--messages", type=int, default=200, help="messages of 256 KiB of the fan-out"
    )
    parser.add_argument("--work", nargs="+", choices=_BENCHMARKS, default=_BENCHMARKS)
    arguments = parser.parse_args()
    console = Console()
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
    table = Table(title=f"memory of the broker's process; it runs {build_kind()}")
    table.add_column("measurement")
    table.add_column("figure", justify="right")
    if "idle" in arguments.work:
        with penstock("memory") as broker:
            figure = measure_idle(broker, min(arguments.connections, files_max - _OTHER_FILES))
        table.add_row("an idle connection, with a session and a subscription", f"{figure:.2f} KiB")
    if "churn" in arguments.work:
        with penstock("memory") as broker:
            resident = measure_churn(broker, arguments.rounds, arguments.per_second, console)
        growth = ", ".join(f"{after - before:.2f}" for before, after in pairwise(resident))
        part = arguments.rounds // _PARTS
        table.add_row(f"growth by each {part:,} of {arguments.rounds:,} clients", f"{growth} MiB")
    if "fan-out" in arguments.work:
        sizes = []
        for payload in (_PAYLOAD[:_SMALL_BYTES], _PAYLOAD):
            with penstock("memory") as broker:
                sizes.append(
                    measure_fan_out(broker, arguments.sessions, arguments.messages, payload)
                )
        copies = (sizes[1] - sizes[0]) / (len(_PAYLOAD) - _SMALL_BYTES)
        overhead_bytes = (sizes[0] - copies * _SMALL_BYTES) / arguments.sessions
        title = f"copies of a payload in the queues of {arguments.sessions:,} sessions"
        table.add_row(title, f"{copies:.2f}")
        table.add_row("overhead of a message in each queue", f"{overhead_bytes:,.0f} bytes")
    console.print(table)


if __name__ == "__main__":
    main()
