"""``make bench``: the rate of QoS 1 publishing, with persistence file, with memory, and Mosquitto.

Runs of the brokers alternate, because the machine's speed drifts: quote the ratio of the medians,
not the figure of one run.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from benchmarks.broker import Broker, mosquitto, mosquitto_program, penstock
from benchmarks.publish import Measurement, publish
from penstock.version import build_kind

Start = Callable[[], contextlib.AbstractContextManager[Broker]]


def main() -> None:
    """Measure and print one table for each number of publishers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each broker")
    parser.add_argument("--publishers", type=int, nargs="+", default=[1, 10])
    arguments = parser.parse_args()
    brokers: dict[str, Start] = {
        "penstock, memory": lambda: penstock("memory"),
        "penstock, file (fsync before PUBACK)": lambda: penstock("file"),
    }
    console = Console()
    if mosquitto_program() is not None:
        brokers["mosquitto, no persistence"] = mosquitto
    else:
        console.print("Mosquitto is not installed (Debian: mosquitto); measured without it.")
    console.print(f"QoS 1, 64 bytes, window 100, no subscriber; penstock runs {build_kind()}")
    for publishers in arguments.publishers:
        runs: dict[str, list[Measurement]] = {name: [] for name in brokers}
        for _ in range(arguments.repeats):
            for name, start in brokers.items():
                with start() as broker:
                    runs[name].append(publish(broker, publishers, arguments.seconds))
        console.print(_table(publishers, runs))


def _table(publishers: int, runs: dict[str, list[Measurement]]) -> Table:
    table = Table(title=f"{publishers} publisher(s), medians of {len(next(iter(runs.values())))}")
    for heading in ("broker", "messages/s", "of the first", "CPU µs/message", "memory MiB"):
        table.add_column(heading, justify="left" if heading == "broker" else "right")
    rates = {
        name: statistics.median(run.messages_per_s for run in measured)
        for name, measured in runs.items()
    }
    first = next(iter(rates.values()))
    for name, measured in runs.items():
        table.add_row(
            name,
            f"{rates[name]:,.0f}",
            f"{rates[name] / first:.2f}",
            f"{statistics.median(run.cpu_us_per_message for run in measured):.2f}",
            f"{statistics.median(run.resident_mib for run in measured):.0f}",
        )
    return table


if __name__ == "__main__":
    main()
