"""The requests of the admin process: the broker's health, and all metrics at once.

Both requests only read, and are cheap. The meaning of each metric is in
``control.metric_families``.
"""

from __future__ import annotations

import msgspec


class ReadHealth(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="health", tag_field="do"
):
    """Read the health of the broker; ``done`` is ``Health``."""


class Health(msgspec.Struct, frozen=True):
    """The health of a broker. An answer at all means that its event loop runs.

    Attributes:
        store_failure: why the store cannot write, a sentence; empty while it works.
        commit_waits_s: how long the commit in progress has taken until now, in seconds; 0 without
            one.
        draining: whether the broker is being emptied, and accepts no clients.
        shutting_down: whether the broker is ending.
        role: its role in its cluster; empty without a cluster.
        lag: number of log entries that its view lacks, compared with the primary's last heartbeat.
        primary: the name of the primary of the cluster; empty while none is known.
        member_problem: the problem of this member of a cluster, a sentence; empty without one.
        stream_failure: a sentence about the stream service while it hangs; else empty.
        starting: whether the broker waits at its start, and has no listener yet.
        stream: the URL of the stream service, grpc://HOST:PORT or grpc+tls://HOST:PORT; empty if
            there is none.
    """

    store_failure: str
    commit_waits_s: float
    draining: bool
    shutting_down: bool
    role: str = ""
    lag: int = 0
    primary: str = ""
    member_problem: str = ""
    stream_failure: str = ""
    starting: bool = False
    stream: str = ""


class ReadMetrics(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="metrics", tag_field="do"
):
    """Return the values of all metrics; ``done`` is ``Metrics``."""


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """One value of a family.

    Attributes:
        labels: a value for each label of the family, in the same order.
        value: the number.
    """

    labels: tuple[str, ...]
    value: float


class Distribution(msgspec.Struct, frozen=True, array_like=True):
    """The buckets of a histogram; see ``telemetry.histogram``.

    Attributes:
        bounds: the upper bounds of the buckets.
        counts: number of values in each bucket, and at last of those above all bounds.
        total: the sum of all values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Metrics(msgspec.Struct, frozen=True):
    """All metrics of a broker, by the name of the family.

    Attributes:
        samples: counters, gauges and information.
        distributions: histograms.
    """

    samples: dict[str, list[Sample]]
    distributions: dict[str, Distribution]


MetricRequest = ReadHealth | ReadMetrics
