"""The requests of the admin process: the broker's health, and all metrics at once.

Both are read only and cheap. What each metric means stands in ``control.metric_families``.
"""

from __future__ import annotations

import msgspec


class ReadHealth(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="health", tag_field="do"
):
    """Read the health of the broker; ``done`` is ``Health``."""


class Health(msgspec.Struct, frozen=True):
    """The state of a broker whose loop turns, for it answered.

    Attributes:
        store_failure: why the store cannot write, a sentence; empty while it works.
        commit_waits_s: how long the commit under way has taken until now, seconds; 0 without one.
        draining: whether it is being emptied, and accepts no clients.
        shutting_down: whether it is ending.
        role: the role of a member of a cluster; empty without a cluster.
        lag: entries that its view is behind that of the primary, as far as it has heard.
        primary: the name of the primary of the cluster; empty while none is known.
    """

    store_failure: str
    commit_waits_s: float
    draining: bool
    shutting_down: bool
    role: str = ""
    lag: int = 0
    primary: str = ""


class ReadMetrics(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="metrics", tag_field="do"
):
    """Return the values of all metrics; ``done`` is ``Metrics``."""


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """One value of a family.

    Attributes:
        labels: a value for each label of the family.
        value: the value.
    """

    labels: tuple[str, ...]
    value: float


class Distribution(msgspec.Struct, frozen=True, array_like=True):
    """The buckets of a histogram; see ``engine.reporting.histogram``.

    Attributes:
        bounds: the upper bounds of the buckets.
        counts: values in each bucket, and last those above all bounds.
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
