"""The broker's metrics as OpenTelemetry's: kinds, names, units, and sums that fit."""

from typing import Any

from opentelemetry.sdk.metrics.export import Gauge, Histogram, Metric, Sum
from opentelemetry.sdk.resources import Resource

from penstock.control.metric_families import FAMILIES
from penstock.control.metric_requests import Distribution, Metrics, Sample
from penstock.otlp.metric_points import metrics_data


def points(metric: Metric) -> list[Any]:
    return list(metric.data.data_points)


def test_each_kind_has_its_form() -> None:
    found = Metrics(
        {
            "messages_received": [Sample(("1",), 7.0), Sample(("2",), 8.0)],
            "uptime_seconds": [Sample((), 5.0)],
            "build": [Sample(("0.1", "compiled", "3.11"), 1.0)],
        },
        {
            "commit_size_bytes": Distribution((1.0, 10.0), (2, 3, 4), 55.0),
            "client_queue_messages": Distribution((0.0, 1.0), (5, 2, 1), 9.0),
        },
    )
    data = metrics_data(found, [(FAMILIES["bans"], 3.0)], Resource({}), 100, 200)
    metrics = {one.name: one for one in data.resource_metrics[0].scope_metrics[0].metrics}
    received = metrics["penstock_messages_received"].data
    assert isinstance(received, Sum)
    assert received.is_monotonic
    assert [(point.attributes, point.value) for point in received.data_points] == [
        ({"qos": "1"}, 7.0),
        ({"qos": "2"}, 8.0),
    ]
    assert {(point.start_time_unix_nano, point.time_unix_nano) for point in received.data_points}
    assert metrics["penstock_uptime_seconds"].unit == "s"
    assert isinstance(metrics["penstock_uptime_seconds"].data, Gauge)
    assert points(metrics["penstock_build_info"])[0].value == 1
    size = metrics["penstock_commit_size_bytes"]
    assert isinstance(size.data, Histogram)
    (point,) = size.data.data_points
    assert (size.unit, point.count, point.sum) == ("By", 9, 55.0)
    assert (point.bucket_counts, point.explicit_bounds) == ((2, 3, 4), (1.0, 10.0))
    buckets = points(metrics["penstock_client_queue_messages_bucket"])
    assert [(one.attributes, one.value) for one in buckets] == [
        ({"le": "0.0"}, 5),
        ({"le": "1.0"}, 7),
        ({"le": "+Inf"}, 8),
    ]
    assert points(metrics["penstock_client_queue_messages_gcount"])[0].value == 8
    assert points(metrics["penstock_bans"])[0].value == 3.0
