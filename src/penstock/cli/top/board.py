"""The figures of a broker that `penstock top` shows: its last sample, rates, and the last minute.

Totals of a broker only grow. One that is less than before began anew: the broker was restarted, and
the sample counts as a first one, which has no rates.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, final

from penstock.cli.top.figures import quantile, since
from penstock.cli.top.poller import BrokerSample
from penstock.control.metric_requests import Distribution, Metrics

HISTORY_LEN: Final = 60
"""Samples that a sparkline is drawn of: a minute, at one a second."""

RATE_S_MIN: Final = 0.3
"""The shortest time that rates are computed of, seconds: those of a shorter one would be noise."""

QOS: Final = ("0", "1", "2")
_NOTHING: Final = Distribution((), (), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Messages and bytes a second, in one direction."""

    messages_per_s: float
    bytes_per_s: float
    by_qos: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Events and latencies between two samples.

    Attributes:
        received, sent: traffic of all clients.
        dropped_per_s: messages dropped a second.
        drops: messages dropped in between, by reason; those of which there were none are left out.
        commits_per_s: commits a second.
        commit_p50_s, commit_p99_s: how long they took, seconds; None: there were none.
        loop_lag_p99_s: how late the event loop was, seconds.
        logins_failed_per_s: logins with a wrong password a second.
    """

    received: Traffic
    sent: Traffic
    dropped_per_s: float
    drops: dict[str, int]
    commits_per_s: float
    commit_p50_s: float | None
    commit_p99_s: float | None
    loop_lag_p99_s: float | None
    logins_failed_per_s: float


def value(metrics: Metrics, name: str, *labels: str) -> float:
    """Return one value; 0 where the broker does not tell it."""
    for sample in metrics.samples.get(name, ()):
        if sample.labels == labels:
            return sample.value
    return 0.0


def by_label(metrics: Metrics, name: str) -> dict[str, float]:
    """Return the values of a family with one label."""
    return {sample.labels[0]: sample.value for sample in metrics.samples.get(name, ())}


def rates_between(then: BrokerSample, now: BrokerSample) -> Rates | None:
    """Return the rates between two samples; None where the broker began anew in between."""
    passed_s = now.at_s - then.at_s
    old, new = then.metrics, now.metrics
    if passed_s <= 0 or value(new, "uptime_seconds") < value(old, "uptime_seconds"):
        return None

    def per_s(name: str, *labels: str) -> float:
        return max(0.0, value(new, name, *labels) - value(old, name, *labels)) / passed_s

    def traffic(direction: str) -> Traffic:
        by_qos = tuple(per_s(f"messages_{direction}", qos) for qos in QOS)
        return Traffic(
            messages_per_s=sum(by_qos), bytes_per_s=per_s(f"{direction}_bytes"), by_qos=by_qos
        )

    def between(name: str) -> Distribution:
        return since(new.distributions.get(name, _NOTHING), old.distributions.get(name, _NOTHING))

    before = by_label(old, "messages_dropped")
    drops = {
        reason: int(number - before.get(reason, 0.0))
        for reason, number in by_label(new, "messages_dropped").items()
        if number > before.get(reason, 0.0)
    }
    commits = between("commit_duration_seconds")
    return Rates(
        received=traffic("received"),
        sent=traffic("sent"),
        dropped_per_s=sum(drops.values()) / passed_s,
        drops=drops,
        commits_per_s=per_s("commits"),
        commit_p50_s=quantile(commits, 0.5),
        commit_p99_s=quantile(commits, 0.99),
        loop_lag_p99_s=quantile(between("loop_lag_seconds"), 0.99),
        logins_failed_per_s=per_s("logins_failed"),
    )


@final
class Board:
    """The last sample, its rates, and the last minute.

    Attributes:
        sample: the last sample; None before the first.
        rates: traffic and latencies since an earlier sample; None: there was none.
        received, sent: messages a second, of the last ``HISTORY_LEN`` samples with rates.
        why: the error of the last poll, one sentence; empty: it had an answer.
        silent_since_s: the time of the last sample, or of the first failure before any, monotonic
            seconds.
    """

    def __init__(self) -> None:
        self.sample: BrokerSample | None = None
        self.rates: Rates | None = None
        self.received: deque[float] = deque(maxlen=HISTORY_LEN)
        self.sent: deque[float] = deque(maxlen=HISTORY_LEN)
        self.why = ""
        self.silent_since_s = 0.0
        self._before: BrokerSample | None = None  # the next rates count from it

    def add_sample(self, sample: BrokerSample) -> None:
        """Store a sample; compute the rates if ``RATE_S_MIN`` has passed since the last ones."""
        self.why = ""
        self.sample = sample
        before = self._before
        if before is not None and 0 <= sample.at_s - before.at_s < RATE_S_MIN:
            return
        self._before = sample
        self.rates = None if before is None else rates_between(before, sample)
        if self.rates is not None:
            self.received.append(self.rates.received.messages_per_s)
            self.sent.append(self.rates.sent.messages_per_s)

    def add_failure(self, why: str, now_s: float) -> None:
        """Note that a poll failed, and why; ``now_s`` is the moment, monotonic seconds."""
        if not self.why:
            self.silent_since_s = now_s if self.sample is None else self.sample.at_s
        self.why = why
