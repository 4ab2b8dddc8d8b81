"""The figures that `penstock top` shows: the last sample of a broker, rates, and the last minute.

Totals of a broker only grow. A total that is less than before means that the broker was restarted;
the sample then counts as a first one, without rates.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, final

from penstock.cli.top.figures import quantile, subtract
from penstock.cli.top.poller import BrokerSample
from penstock.control.metric_requests import Distribution, Metrics

HISTORY_LEN: Final = 60
"""Most samples of a sparkline: a minute, at one sample a second."""

RATE_S_MIN: Final = 0.3
"""Shortest time between two samples for rates, in seconds: rates of a shorter time would be
noise."""

QOS: Final = ("0", "1", "2")
_EMPTY: Final = Distribution((), (), 0.0)


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
        drops: messages dropped between the samples, by reason; reasons without drops are left out.
        commits_per_s: commits a second.
        commit_p50_s, commit_p99_s: quantiles of the duration of a commit, in seconds; None: there
            was none.
        loop_lag_p99_s: quantile of the lateness of the event loop, in seconds; None: unknown.
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


def metric_value(metrics: Metrics, name: str, *labels: str) -> float:
    """Return one value of a metric; 0.0 if the sample lacks it."""
    for sample in metrics.samples.get(name, ()):
        if sample.labels == labels:
            return sample.value
    return 0.0


def metric_values(metrics: Metrics, name: str) -> dict[str, float]:
    """Return the values of a family that has one label, by the label's value."""
    return {sample.labels[0]: sample.value for sample in metrics.samples.get(name, ())}


def rates_between(then: BrokerSample, now: BrokerSample) -> Rates | None:
    """Return the rates between two samples; None if the broker was restarted between them."""
    passed_s = now.at_s - then.at_s
    old, new = then.metrics, now.metrics
    was_restarted = metric_value(new, "uptime_seconds") < metric_value(old, "uptime_seconds")
    if passed_s <= 0 or was_restarted:
        return None

    def per_s(name: str, *labels: str) -> float:
        grown = metric_value(new, name, *labels) - metric_value(old, name, *labels)
        return max(0.0, grown) / passed_s

    def traffic(direction: str) -> Traffic:
        by_qos = tuple(per_s(f"messages_{direction}", qos) for qos in QOS)
        return Traffic(
            messages_per_s=sum(by_qos), bytes_per_s=per_s(f"{direction}_bytes"), by_qos=by_qos
        )

    def growth(name: str) -> Distribution:
        return subtract(new.distributions.get(name, _EMPTY), old.distributions.get(name, _EMPTY))

    before = metric_values(old, "messages_dropped")
    drops = {
        reason: int(number - before.get(reason, 0.0))
        for reason, number in metric_values(new, "messages_dropped").items()
        if number > before.get(reason, 0.0)
    }
    commits = growth("commit_duration_seconds")
    return Rates(
        received=traffic("received"),
        sent=traffic("sent"),
        dropped_per_s=sum(drops.values()) / passed_s,
        drops=drops,
        commits_per_s=per_s("commits"),
        commit_p50_s=quantile(commits, 0.5),
        commit_p99_s=quantile(commits, 0.99),
        loop_lag_p99_s=quantile(growth("loop_lag_seconds"), 0.99),
        logins_failed_per_s=per_s("logins_failed"),
    )


@final
class Board:
    """The last sample, its rates, and the last minute.

    Attributes:
        sample: the last sample; None before the first.
        rates: traffic and latencies since an earlier sample; None without one.
        received, sent: messages a second, in the last ``HISTORY_LEN`` samples with rates.
        why: the error of the last poll, one sentence; empty if it had an answer.
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
        self._rates_from: BrokerSample | None = None  # the sample from which the next rates count

    def add_sample(self, sample: BrokerSample) -> None:
        """Store a sample; compute the rates if ``RATE_S_MIN`` has passed since the last ones."""
        self.why = ""
        self.sample = sample
        before = self._rates_from
        if before is not None and 0 <= sample.at_s - before.at_s < RATE_S_MIN:
            return
        self._rates_from = sample
        self.rates = None if before is None else rates_between(before, sample)
        if self.rates is not None:
            self.received.append(self.rates.received.messages_per_s)
            self.sent.append(self.rates.sent.messages_per_s)

    def add_failure(self, why: str, now_s: float) -> None:
        """Record that a poll failed, with the reason; ``now_s`` is the present time, monotonic
        seconds."""
        if not self.why:
            self.silent_since_s = now_s if self.sample is None else self.sample.at_s
        self.why = why
