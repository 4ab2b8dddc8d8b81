"""The counters of a member since its start, in all its roles, for metrics and heartbeats."""

from __future__ import annotations

from typing import Final, final

from penstock.telemetry.histogram import Histogram

APPEND_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Upper bounds of the histogram's buckets for the time of an append, seconds."""


@final
class Tally:
    """The counters of a member; each is changed by one thread at a time.

    Attributes:
        claims: number of successful claims.
        skipped: number of records behind the claim of a newer term, which were not applied.
        damaged: number of times that a replica of the log returned a wrong entry or lacked one.
        seedings: number of times that the member copied another member's view.
        append_s: histogram of the time that each of its appends took, seconds.
    """

    def __init__(self) -> None:
        self.claims = 0
        self.skipped = 0
        self.damaged = 0
        self.seedings = 0
        self.append_s = Histogram(APPEND_S)
