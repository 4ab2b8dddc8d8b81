"""Metrics for Prometheus, in OpenMetrics or the older text format, by the ``Accept`` header.

The values come from the broker in one answer; those of its process are read from ``/proc``, without
a request to the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, cast, final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector

from penstock.admin.broker import BrokerAnswer
from penstock.control.metric_families import (
    COUNTER,
    FAMILIES,
    GAUGE_HISTOGRAM,
    HISTOGRAM,
    INFO,
    PREFIX,
    Family,
)
from penstock.control.metric_requests import Distribution, Metrics, Sample

_HISTOGRAMS: Final = (HISTOGRAM, GAUGE_HISTOGRAM)


@final
class Exposition:
    """Encodes the metrics of one broker.

    Args:
        broker_pid: identifier of the broker's process.
    """

    def __init__(self, broker_pid: int) -> None:
        self._processes = (
            ProcessCollector(pid=lambda: broker_pid, registry=None),
            ProcessCollector(namespace=f"{PREFIX}admin", registry=None),
        )

    def text(self, found: BrokerAnswer[Metrics], accept: str) -> tuple[bytes, str]:
        """Encode all metrics in the format that a scraper's ``Accept`` header prefers.

        Returns:
            The encoded metrics, and their content type.
        """
        encode, content_type = choose_encoder(accept)
        return encode(cast(Any, _FamilyCollector(self._families(found)))), content_type

    def _families(self, found: BrokerAnswer[Metrics]) -> Iterator[Metric]:
        samples = found.answer.samples | {"scrape_duration_seconds": [Sample((), found.took_s)]}
        for family in FAMILIES.values():
            if family.kind in _HISTOGRAMS:
                distribution = found.answer.distributions.get(family.name)
                if distribution is not None:
                    yield _histogram_family(family, distribution)
            elif family.name in samples:
                yield _simple_family(family, samples[family.name])
        for process in self._processes:
            yield from process.collect()


@final
class _FamilyCollector:
    """A collector for the encoders of prometheus_client, over families collected already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return the collected families."""
        return self._families


def _simple_family(family: Family, samples: list[Sample]) -> Metric:
    name = PREFIX + family.name
    if family.kind == INFO:
        info = InfoMetricFamily(name, family.text)
        for sample in samples:
            info.add_metric((), dict(zip(family.labels, sample.labels, strict=True)))
        return info
    kind = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
    made = kind(name, family.text, labels=family.labels, unit=family.unit)
    for sample in samples:
        made.add_metric(sample.labels, sample.value)
    return made


def _histogram_family(family: Family, found: Distribution) -> Metric:
    name = PREFIX + family.name
    buckets: list[tuple[str, float]] = []
    count = 0
    for bound, values in zip((*found.bounds, float("inf")), found.counts, strict=True):
        count += values
        buckets.append(("+Inf" if bound == float("inf") else repr(bound), count))
    if family.kind == GAUGE_HISTOGRAM:
        return GaugeHistogramMetricFamily(
            name, family.text, buckets=buckets, gsum_value=found.total, unit=family.unit
        )
    return HistogramMetricFamily(
        name, family.text, buckets=buckets, sum_value=found.total, unit=family.unit
    )
