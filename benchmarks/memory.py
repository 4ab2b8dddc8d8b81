"""``python -m benchmarks.memory``: what the broker's process grows by.

================  ==========================================================================
idle connections  each with a session and one subscription, that send and get nothing
churn             connect, subscribe, publish, disconnect, again and again: what stays
fan-out           QoS 1 to sessions that are away: copies of the bodies, and what else
================  ==========================================================================

Sessions are in memory, so that nothing rests in the log; resident memory as the kernel tells it.

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

_OURS: Final = 200  # files of this process beside its connections
_PARTS: Final = 8
_BODY: Final = b"x" * 262_144
_SMALL_BYTES: Final = 1024
_WORK: Final = ("idle", "churn", "fan-out")
_WARM_UP: Final = 200  # connections, before anything is counted


def idle(broker: Broker, count: int) -> float:
    """KiB that one idle connection takes."""
    _ = _connected(broker, "warm", _WARM_UP)
    before = broker.resident_mib()
    clients = _connected(broker, "idle", count)
    grown = broker.resident_mib() - before
    for client in clients:
        client.close()
    return grown * 1024 / count


def _connected(broker: Broker, name: str, count: int) -> list[Client]:
    clients = []
    for number in range(count):
        client = Client(broker, f"{name}-{number}")
        client.subscribe(f"{name}/{number}")
        clients.append(client)
    return clients


def churn(broker: Broker, rounds: int, per_second: float, console: Console) -> list[float]:
    """Resident MiB at the beginning and after each part of ``rounds`` lives of a client."""
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
        kinds = {type(client.read()), type(client.read())}  # to itself, in either order
        assert kinds == {Puback, Publish}
        client.send_bytes(bytes((DISCONNECT << 4, 0)))
        client.close()
    resident.append(broker.resident_mib())
    return resident


def waiting(broker: Broker, sessions: int, messages: int, body: bytes) -> float:
    """Bytes of one message that waits in the queues of so many sessions."""
    for number in range(sessions):
        client = Client(broker, f"away-{number}", kept=True)
        client.subscribe("fan/#")
        client.close()
    publisher = Client(broker, "publisher")
    before = broker.resident_mib()
    for _ in range(messages):
        publisher.send(Publish("fan/out", body, 1, packet_id=1))
        assert isinstance(publisher.read(), Puback)
    grown = broker.resident_mib() - before
    publisher.close()
    return grown * 2**20 / messages


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=80_000, help="of the churn")
    parser.add_argument("--per-second", type=float, default=0.0, help="of them; 0: as many as go")
    parser.add_argument("--sessions", type=int, default=1000, help="of the fan-out")
    parser.add_argument("--messages", type=int, default=200, help="of 256 KiB, of the fan-out")
    parser.add_argument("--work", nargs="+", choices=_WORK, default=_WORK)
    chosen = parser.parse_args()
    console = Console()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    table = Table(title=f"memory of the broker's process; it runs {build_kind()}")
    table.add_column("what")
    table.add_column("figure", justify="right")
    if "idle" in chosen.work:
        with penstock("memory") as broker:
            figure = idle(broker, min(chosen.connections, most - _OURS))
        table.add_row("an idle connection, with a session and a subscription", f"{figure:.2f} KiB")
    if "churn" in chosen.work:
        with penstock("memory") as broker:
            resident = churn(broker, chosen.rounds, chosen.per_second, console)
        grown = ", ".join(f"{after - before:.2f}" for before, after in pairwise(resident))
        part = chosen.rounds // _PARTS
        table.add_row(f"growth in each {part:,} of {chosen.rounds:,} lives", f"{grown} MiB")
    if "fan-out" in chosen.work:
        sizes = []
        for body in (_BODY[:_SMALL_BYTES], _BODY):
            with penstock("memory") as broker:
                sizes.append(waiting(broker, chosen.sessions, chosen.messages, body))
        copies = (sizes[1] - sizes[0]) / (len(_BODY) - _SMALL_BYTES)
        each = (sizes[0] - copies * _SMALL_BYTES) / chosen.sessions
        what = f"copies of a body that {chosen.sessions:,} sessions wait for"
        table.add_row(what, f"{copies:.2f}")
        table.add_row(
            "and beside it, of each message in each of their queues", f"{each:,.0f} bytes"
        )
    console.print(table)


if __name__ == "__main__":
    main()
