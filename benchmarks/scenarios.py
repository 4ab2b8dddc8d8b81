"""What brokers are compared by: scenarios, and the figures of a run."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Final

OURS: Final = "Penstock"
MOSQUITTO: Final = "Mosquitto"
DURABLE: Final = "Penstock, fsync before PUBACK"


@dataclass(frozen=True)
class Scenario:
    """Who publishes to whom.

    Attributes:
        name: for people.
        options: of ``penstock bench``.
        levels: of QoS.
        brokers: who takes part.
    """

    name: str
    options: tuple[str, ...]
    levels: tuple[int, ...] = (0, 1, 2)
    brokers: tuple[str, ...] = (OURS, MOSQUITTO, "aedes", "amqtt")


SCENARIOS: Final = (
    Scenario("1 → 1", ("-P", "1", "-S", "1")),
    Scenario("10 → 10", ("-P", "10", "-S", "10")),
    Scenario("1 → 50", ("-P", "1", "-S", "50", "--end-to-end", "200")),
    Scenario("1 → 1, 2,000 messages/s", ("-r", "2000"), (0, 1, 2), (OURS, MOSQUITTO)),
    Scenario(
        "10 → 10, sessions that last", ("-P", "10", "-S", "10", "-c"), (1,), (DURABLE, MOSQUITTO)
    ),
)


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        cpu_s: of the broker, for a million copies received; 0 where nothing was.
        rate: copies received a second.
        p50_ms: from due to received.
        p99_ms: likewise.
        resident_mib: of the broker, at the end.
        lost: copies.
    """

    cpu_s: float
    rate: float
    p50_ms: float
    p99_ms: float
    resident_mib: float
    lost: int


def median(runs: list[Run]) -> Run:
    """The median of each figure."""
    return Run(
        cpu_s=statistics.median(run.cpu_s for run in runs),
        rate=statistics.median(run.rate for run in runs),
        p50_ms=statistics.median(run.p50_ms for run in runs),
        p99_ms=statistics.median(run.p99_ms for run in runs),
        resident_mib=statistics.median(run.resident_mib for run in runs),
        lost=max(run.lost for run in runs),
    )


Medians = dict[tuple[str, int, str], Run]
"""By scenario, QoS and broker."""
