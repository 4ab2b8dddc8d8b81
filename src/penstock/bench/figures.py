"""The results of a run: total counts, rates and latencies without the warm-up, a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.bench.histogram import Histogram
from penstock.bench.load import Counts
from penstock.bench.plan import Plan
from penstock.protocol import reasons

QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}

_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The results of one run.

    Attributes:
        plan: the parameters of the run.
        url: the broker's address.
        counts: totals of the whole run, the warm-up included.
        refused: the number of refused messages by reason code.
        unsent: messages that were due and not sent, because windows were full or the load
            generator was too slow.
        reconnections: how often clients connected again, over all clients.
        keeps_sessions: whether the broker kept the sessions of disconnected clients.
        seconds: the length of the measured part, which is the run without its warm-up.
        sent_per_s: messages sent a second in the measured part.
        acknowledged_per_s: messages acknowledged a second in the measured part.
        received_per_s: copies received a second in the measured part.
        cores: processor time of this process in the measured part, in cores.
        acknowledgement_latencies: from when a message was due until it was acknowledged.
        end_to_end_latencies: from when a message was due until a subscriber received it.
        is_interrupted: whether a signal ended the run.
        failure: why the run ended early, in words; empty if it did not.
    """

    plan: Plan
    url: str
    counts: Counts
    refused: dict[int, int]
    unsent: int
    reconnections: int
    keeps_sessions: bool
    seconds: float
    sent_per_s: float
    acknowledged_per_s: float
    received_per_s: float
    cores: float
    acknowledgement_latencies: Histogram
    end_to_end_latencies: Histogram
    is_interrupted: bool
    failure: str

    @property
    def unacknowledged(self) -> int:
        """Number of messages sent with QoS 1 or 2 and never answered, which the broker need not
        deliver."""
        counts = self.counts
        return counts.sent - counts.acknowledged - counts.refused if self.plan.qos else 0

    @property
    def qos_violation(self) -> str:
        """The guarantee of QoS 1 or 2 that the broker violated, in words; empty without a
        violation.

        Where sessions end with their connections, no guarantee survives a reconnection [MQTT 5
        §4.1].
        """
        if self.reconnections > 0 and not self.keeps_sessions:
            return ""
        qos, counts = self.plan.qos, self.counts
        problems = [
            f"{count:,} {effect}"
            for count, effect, is_forbidden in (
                (counts.lost, "lost", qos >= 1),
                (counts.duplicated, "duplicated", qos == 2),
            )
            if count and is_forbidden
        ]
        return f"{' and '.join(problems)} with QoS {qos}, which forbids it" if problems else ""

    @property
    def problems(self) -> list[str]:
        """A sentence for each problem of the run; with any, the command fails."""
        sentences = [self.failure, self.qos_violation]
        if self.unacknowledged:
            sentences.append(f"{self.unacknowledged:,} messages were not acknowledged")
        return [sentence for sentence in sentences if sentence]

    def as_json(self) -> dict[str, Any]:
        """Return the results as one JSON object, as docs/bench.md describes it."""
        plan, counts = self.plan, self.counts
        return {
            "url": self.url,
            "plan": {name: getattr(plan, name) for name in plan.__dataclass_fields__},
            "seconds": round(self.seconds, 6),
            "per_s": {
                "sent": round(self.sent_per_s, 1),
                "acknowledged": round(self.acknowledged_per_s, 1),
                "received": round(self.received_per_s, 1),
            },
            "messages": {
                "sent": counts.sent,
                "unsent": self.unsent,
                "acknowledged": counts.acknowledged,
                "unacknowledged": self.unacknowledged,
                "refused": {reasons.name_of(code): n for code, n in self.refused.items()},
            },
            "copies": {
                "expected": counts.expected,
                "received": counts.received,
                "lost": counts.lost,
                "duplicated": counts.duplicated,
                "out_of_order": counts.out_of_order,
                "foreign": counts.foreign,
            },
            "payload_bytes": {
                "sent": counts.sent * plan.payload_bytes,
                "received": counts.received_bytes,
            },
            "latency_ms": {
                "acknowledgement": latencies_ms(self.acknowledgement_latencies),
                "end_to_end": latencies_ms(self.end_to_end_latencies),
            },
            "reconnections": self.reconnections,
            "cores": round(self.cores, 3),
            "interrupted": self.is_interrupted,
            "failure": self.failure,
            "broken": self.qos_violation,
        }


def latencies_ms(histogram: Histogram) -> dict[str, float] | None:
    """Return mean, quantiles and maximum in milliseconds; None where nothing was measured."""
    if histogram.count == 0:
        return None
    quantiles = {
        name: histogram.quantile_ns(fraction) / _NS_PER_MS for name, fraction in QUANTILES.items()
    }
    return {
        "mean": round(histogram.mean_ns / _NS_PER_MS, 6),
        **quantiles,
        "max": histogram.max_ns / _NS_PER_MS,
    }
