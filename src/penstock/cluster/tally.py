"""The counts of a member since its start, over all its roles, for metrics and heartbeats."""

from __future__ import annotations

from typing import Final, final

from penstock.engine.reporting.histogram import Histogram

APPEND_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Bounds of the buckets of the time that an append takes, seconds."""


@final
class Tally:
    """Counts of one member; each is counted by one thread at a time.

    Attributes:
        claims: terms that it claimed and got.
        skipped: records behind the claim of a newer term, which were not applied.
        damaged: damaged or missing entries that a replica of the log gave.
        seedings: times that it took another member's view.
        append_s: time in seconds that the log took for each entry that this member appended.
    """

    def __init__(self) -> None:
        self.claims = 0
        self.skipped = 0
        self.damaged = 0
        self.seedings = 0
        self.append_s = Histogram(APPEND_S)
