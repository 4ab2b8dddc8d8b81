"""The scenarios in which brokers are compared, and the figures of a run."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Final

PENSTOCK: Final = "Penstock"
MOSQUITTO: Final = "Mosquitto"
DURABLE: Final = "Penstock, fsync before PUBACK"


@dataclass(frozen=True)
class Scenario:
    """A load from publishers to subscribers.

    Attributes:
        name: the title in tables and plots.
        options: the options of ``penstock bench``.
        levels: the levels of QoS to run.
        brokers: the names of the brokers to run.
    """

    name: str
    options: tuple[str, ...]
    levels: tuple[int, ...] = (0, 1, 2)
    brokers: tuple[str, ...] = (PENSTOCK, MOSQUITTO, "aedes", "amqtt")


SCENARIOS: Final = (
    Scenario("1 → 1", ("-P", "1", "-S", "1")),
    Scenario("10 → 10", ("-P", "10", "-S", "10")),
    Scenario("1 → 50", ("-P", "1", "-S", "50", "--end-to-end", "200")),
    Scenario("1 → 1, 2,000 messages/s", ("-r", "2000"), (0, 1, 2), (PENSTOCK, MOSQUITTO)),
    Scenario(
        "10 → 10, sessions that last", ("-P", "10", "-S", "10", "-c"), (1,), (DURABLE, MOSQUITTO)
    ),
)


@dataclass(frozen=True)
class Run:
    """The figures of one run.

    Attributes:
        cpu_s: the broker's CPU seconds for a million received copies; 0 if none was received.
        rate: the received copies a second.
        p50_ms: the median latency from the due time of a message to its receipt.
        p99_ms: the 99th percentile of that latency.
        resident_mib: the broker's resident memory at the end.
        lost: the number of lost copies.
    """

    cpu_s: float
    rate: float
    p50_ms: float
    p99_ms: float
    resident_mib: float
    lost: int


def median(runs: list[Run]) -> Run:
    """Return a run with the median of each figure."""
    return Run(
        cpu_s=statistics.median(run.cpu_s for run in runs),
        rate=statistics.median(run.rate for run in runs),
        p50_ms=statistics.median(run.p50_ms for run in runs),
        p99_ms=statistics.median(run.p99_ms for run in runs),
        resident_mib=statistics.median(run.resident_mib for run in runs),
        lost=max(run.lost for run in runs),
    )


Medians = dict[tuple[str, int, str], Run]
"""Runs by the names of the scenario, QoS and broker."""
