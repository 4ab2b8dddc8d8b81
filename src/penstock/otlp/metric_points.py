"""Converts the broker's metrics to those of OpenTelemetry's SDK.

::

      counter          sum, monotonic, cumulative since the broker started
      gauge            gauge
      information      gauge of 1, with the information in its attributes
      histogram        histogram, cumulative
      gauge histogram  gauges NAME_bucket, NAME_gcount and NAME_gsum, for OTLP has no such kind

A name is that of Prometheus without the suffixes ``_total`` and ``_info``: a collector that exports
to Prometheus appends them, so that both ways lead to the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource

from penstock.control.metric_families import (
    COUNTER,
    FAMILIES,
    GAUGE_HISTOGRAM,
    INFO,
    PREFIX,
    Family,
)
from penstock.control.metric_requests import Distribution, Metrics, Sample
from penstock.otlp.sdk_spans import SCOPE

_UNITS: Final = {"seconds": "s", "bytes": "By", "": "1"}
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


def metrics_data(
    found: Metrics,
    own: Iterable[tuple[Family, float]],
    resource: Resource,
    started_ns: int,
    now_ns: int,
) -> MetricsData:
    """Return all metrics of a broker and of this process.

    Args:
        found: the metrics of the broker.
        own: the metrics of this process.
        resource: the resource that the metrics describe.
        started_ns: the time at which the broker started, ns since the Unix epoch.
        now_ns: the time at which the values were read, ns since the Unix epoch.
    """
    metrics: list[Metric] = []
    for family in FAMILIES.values():
        samples = found.samples.get(family.name)
        distribution = found.distributions.get(family.name)
        if samples:
            metrics.append(_metric(family, samples, started_ns, now_ns))
        elif distribution is not None and family.kind == GAUGE_HISTOGRAM:
            metrics += _gauges(family, distribution, now_ns)
        elif distribution is not None:
            metrics.append(_histogram(family, distribution, started_ns, now_ns))
    metrics += [_metric(family, [Sample((), value)], started_ns, now_ns) for family, value in own]
    scope = ScopeMetrics(SCOPE, metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def name_of(family: Family) -> str:
    """Return the name under which a family is sent."""
    return family.full_name if family.kind == INFO else PREFIX + family.name


def _metric(family: Family, samples: Sequence[Sample], started_ns: int, now_ns: int) -> Metric:
    points = [
        NumberDataPoint(
            dict(zip(family.labels, sample.labels, strict=True)), started_ns, now_ns, sample.value
        )
        for sample in samples
    ]
    if family.kind == COUNTER:
        return _make_metric(family, Sum(points, _CUMULATIVE, is_monotonic=True))
    return _make_metric(family, Gauge(points))


def _histogram(family: Family, distribution: Distribution, started_ns: int, now_ns: int) -> Metric:
    point = HistogramDataPoint(
        {},
        started_ns,
        now_ns,
        count=sum(distribution.counts),
        sum=distribution.total,
        bucket_counts=distribution.counts,
        explicit_bounds=distribution.bounds,
        min=None,  # type: ignore[arg-type]  # not known, and optional in OTLP
        max=None,  # type: ignore[arg-type]
    )
    return _make_metric(family, Histogram([point], _CUMULATIVE))


def _gauges(family: Family, distribution: Distribution, now_ns: int) -> Iterator[Metric]:
    count = 0
    buckets = []
    for bound, values in zip((*distribution.bounds, None), distribution.counts, strict=True):
        count += values
        at_most = "+Inf" if bound is None else repr(bound)
        buckets.append(NumberDataPoint({"le": at_most}, now_ns, now_ns, count))
    name = name_of(family)
    yield Metric(f"{name}_bucket", family.text, "1", Gauge(buckets))
    for suffix, value in (("gcount", count), ("gsum", distribution.total)):
        point = NumberDataPoint({}, now_ns, now_ns, value)
        yield Metric(f"{name}_{suffix}", family.text, "1", Gauge([point]))


def _make_metric(family: Family, data: Sum | Gauge | Histogram) -> Metric:
    return Metric(name_of(family), family.text, _UNITS[family.unit], data)
