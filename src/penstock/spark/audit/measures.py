"""Computes the numbers of the report: small aggregates of tables of any length.

Spark computes them; the results in the driver have at most `NAMES_MAX` clients or topics and about
`BUCKETS_MAX` points in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock.spark.audit.tables import MOVED, NO_SUBSCRIBER, STATES, UNACCOUNTED

NAMES_MAX: Final = 15
"""Most clients or topics of one table or plot: those with the largest values."""

SERIES_MAX: Final = 6
"""Most lines of one plot."""

BUCKETS_MAX: Final = 120
"""Most points of one line."""

_WIDTHS_S: Final = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21_600, 86_400)
_ACCURACY: Final = 1000  # of percentiles: the rank of a result is off by at most 1/1000

STEPS: Final = {
    "committed": "committed_at",
    "sent": "sent_at",
    "acknowledged": "acknowledged_at",
    "in the table": "landed_at",
}
"""The ends of latencies that begin at `received_at`, and their columns."""

Point = tuple[datetime, float]


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of the time from receipt of a PUBLISH to a step, in milliseconds.

    Attributes:
        name: the step, topic, client or start of a bucket whose deliveries are measured.
        step: the step, a key of `STEPS`.
        count: the number of deliveries.
    """

    name: str
    step: str
    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class Flow:
    """The use of a client's in-flight window and queue, over all samples (events of kind flow).

    Attributes:
        client: the client identifier.
        samples: the number of samples.
        full_share: the share of samples in which the window was full, 0 to 1.
        window_size: the largest size of the window, in messages.
        queue_max: the most messages in the queue.
        queue_bytes_max: the most bytes in the queue.
    """

    client: str
    samples: int
    full_share: float
    window_size: int
    queue_max: int
    queue_bytes_max: int


@dataclass(frozen=True, slots=True)
class Reconnects:
    """The connections of one client, and the minute with most attempts, refused ones included."""

    client: str
    connections: int
    refused: int
    per_minute_max: int
    worst_minute: datetime


@dataclass(frozen=True, slots=True)
class Measures:
    """All measures that a report shows. Lists of points are in order of time.

    Attributes:
        first: the time of the first event; None without events.
        last: the time of the last event; None without events.
        bucket_s: the distance of two points in time, in seconds.
        epochs: the epochs of the log.
        starts: the number of starts of the broker.
        kinds: the number of events by kind.
        messages: the number of followed messages.
        deliveries: the number of expected deliveries: one for each session that `received` counts.
        states: the number of deliveries by outcome.
        unknown_deliveries: deliveries of messages whose `received` is not among the events.
        latencies: the latency of each step.
        by_topic: the latency of the last step for the topics with most deliveries.
        by_client: the latency to acknowledgement for the clients with most deliveries.
        latency_p50: the median latency to acknowledgement, in ms.
        latency_p99: its 99th percentile, in ms.
        flows: the use of windows and queues, of the clients with the fullest windows.
        window: the largest share of the window in use, by client.
        queue: the longest queue, by client.
        drops_by_reason: the number of dropped messages by reason.
        drops_by_client: client, reason and number of dropped messages.
        drops: the number of dropped messages over time, by reason.
        resends_by_client: client, and number of messages that were sent again.
        resends: the number of messages that were sent again, over time.
        connections: the number of accepted connections.
        connected: the number of accepted connections, over time.
        refused: the number of refused connections, over time.
        reconnects: the clients with most connections within a minute.
        ends: the number of ended connections by initiator and reason.
    """

    first: datetime | None
    last: datetime | None
    bucket_s: int
    epochs: tuple[str, ...]
    starts: int
    kinds: dict[str, int]
    messages: int
    deliveries: int
    states: dict[str, int]
    unknown_deliveries: int
    latencies: list[Latency]
    by_topic: list[Latency]
    by_client: list[Latency]
    latency_p50: list[Point]
    latency_p99: list[Point]
    flows: list[Flow]
    window: dict[str, list[Point]]
    queue: dict[str, list[Point]]
    drops_by_reason: dict[str, int]
    drops_by_client: list[tuple[str, str, int]]
    drops: dict[str, list[Point]]
    resends_by_client: list[tuple[str, int]]
    resends: list[Point]
    connections: int
    connected: list[Point]
    refused: list[Point]
    reconnects: list[Reconnects]
    ends: list[tuple[str, str, int]]


def measure(
    events: DataFrame, deliveries: DataFrame, connections: DataFrame, drops: DataFrame
) -> Measures:
    """Return all measures. Each frame is read several times, so the caller should `persist` it."""
    spans = events.groupBy("epoch", "kind").agg(
        F.count("*").alias("count"), F.min("at").alias("first"), F.max("at").alias("last")
    )
    found = spans.orderBy("kind", "epoch").collect()
    kinds: dict[str, int] = {}
    for row in found:
        kinds[row.kind] = kinds.get(row.kind, 0) + row["count"]
    first = min((_utc(row.first) for row in found), default=None)
    last = max((_utc(row.last) for row in found), default=None)
    bucket_s = _bucket_s(first, last)
    known = deliveries.where("received_at IS NOT NULL")
    messages, expected, states, unknown_deliveries = _delivery_counts(deliveries)
    latencies = _latencies(known, bucket_s)
    over_time = sorted(latencies["time"], key=lambda latency: latency.name)
    series = _series(events, connections, drops, bucket_s)
    reasons = drops.groupBy("reason").agg(F.sum("messages").alias("sum"))
    return Measures(
        first=first,
        last=last,
        bucket_s=bucket_s,
        epochs=tuple(sorted({row.epoch for row in found})),
        starts=kinds.get("started", 0),
        kinds=kinds,
        messages=messages,
        deliveries=expected,
        states=states,
        unknown_deliveries=unknown_deliveries,
        latencies=latencies["all"],
        by_topic=latencies["topic"],
        by_client=latencies["client"],
        latency_p50=[(_from_unix_s(latency.name), latency.p50_ms) for latency in over_time],
        latency_p99=[(_from_unix_s(latency.name), latency.p99_ms) for latency in over_time],
        flows=_flows(events),
        window=series["window"],
        queue=series["queue"],
        drops_by_reason={
            row.reason: row["sum"] for row in reasons.orderBy(F.desc("sum"), "reason").collect()
        },
        drops_by_client=[
            (row.client, row.reason, row.messages)
            for row in drops.groupBy("client", "reason")
            .agg(F.sum("messages").alias("messages"))
            .orderBy(F.desc("messages"), "client", "reason")
            .limit(NAMES_MAX)
            .collect()
        ],
        drops=series["drops"],
        resends_by_client=[
            (row.receiver, row["sum"])
            for row in known.where("resent > 0")
            .groupBy("receiver")
            .agg(F.sum("resent").alias("sum"))
            .orderBy(F.desc("sum"), "receiver")
            .limit(NAMES_MAX)
            .collect()
        ],
        resends=series["resends"].get("sent again", []),
        connections=kinds.get("connected", 0),
        connected=series["connections"].get("connected", []),
        refused=series["connections"].get("refused", []),
        reconnects=_reconnects(connections),
        ends=[
            (row.ended_by, row.ended_because, row.connections)
            for row in connections.where("ended_at IS NOT NULL")
            .groupBy("ended_by", "ended_because")
            .agg(F.count("*").alias("connections"))
            .orderBy(F.desc("connections"), "ended_by", "ended_because")
            .limit(NAMES_MAX)
            .collect()
        ],
    )


def _delivery_counts(deliveries: DataFrame) -> tuple[int, int, dict[str, int], int]:
    """Return the numbers of messages, expected deliveries, deliveries by outcome, and deliveries of
    unknown messages.

    A message has one expected delivery for each session; one without any event is unaccounted.
    """
    is_known = F.col("received_at").isNotNull()
    delivered = ~F.col("state").isin(MOVED, NO_SUBSCRIBER, UNACCOUNTED)
    by_message = (
        deliveries.where(is_known)
        .groupBy("epoch", "offset")
        .agg(F.max("sessions").alias("sessions"), F.count_if(delivered).alias("delivered"))
    )
    sums = by_message.agg(
        F.count("*"),
        F.sum(F.greatest("sessions", "delivered")),
        F.sum(F.greatest(F.col("sessions") - F.col("delivered"), F.lit(0))),
    ).collect()[0]
    counts: dict[str, int] = {}
    unknown_deliveries = 0
    for row in deliveries.groupBy(is_known.alias("known"), "state").count().collect():
        if row.known:
            counts[row.state] = row["count"]
        else:
            unknown_deliveries += row["count"]
    counts[UNACCOUNTED] = int(sums[2] or 0)
    states = {state: counts[state] for state in STATES if counts.get(state)}
    return int(sums[0]), int(sums[1] or 0), states, unknown_deliveries


def _latencies(known: DataFrame, bucket_s: int) -> dict[str, list[Latency]]:
    """Return latencies by group: of each step ("all"), and of one step by topic, client and time.

    Spark computes them in one pass, in which each delivery belongs to several groups.
    """
    steps = {name: column for name, column in STEPS.items() if column in known.columns}
    landed = "in the table"
    final = landed if landed in steps else "acknowledged"
    acknowledged = "acknowledged"
    bucket = _bucket("received_at", bucket_s).cast("string")
    groups = [
        *(_sample("all", F.lit(name), name, column) for name, column in steps.items()),
        _sample("topic", F.col("topic"), final, steps[final]),
        _sample("client", F.col("receiver"), acknowledged, steps[acknowledged]),
        _sample("time", bucket, acknowledged, steps[acknowledged]),
    ]
    percentiles = F.percentile_approx("ms", F.array(*map(F.lit, (0.5, 0.9, 0.99))), _ACCURACY)
    by_count = Window.partitionBy("group").orderBy(F.desc("count"), "name")
    rows = (
        known.select(F.explode(F.array(*groups)).alias("sample"))
        .select("sample.*")
        .where("ms IS NOT NULL AND name IS NOT NULL")
        .groupBy("group", "name", "step")
        .agg(
            F.count("*").alias("count"), percentiles.alias("percentiles"), F.max("ms").alias("max")
        )
        .withColumn("rank", F.row_number().over(by_count))
        .where((F.col("group") == "time") | (F.col("rank") <= NAMES_MAX))
        .orderBy("group", "rank")
        .collect()
    )
    found: dict[str, list[Latency]] = {"all": [], "topic": [], "client": [], "time": []}
    for row in rows:
        p50, p90, p99 = row.percentiles
        latency = Latency(row.name, row.step, row["count"], p50, p90, p99, row.max)
        found[row.group].append(latency)
    order = list(steps)
    found["all"].sort(key=lambda latency: order.index(latency.step))
    return found


def _sample(group: str, name: Column, step: str, column: str) -> Column:
    """Return a column with the sample of a delivery in a group: the ms from receipt to a step."""
    elapsed_us = F.unix_micros(F.col(column)) - F.unix_micros("received_at")
    elapsed_us = F.when(elapsed_us < 0, 0).otherwise(
        elapsed_us
    )  # a table's commits have timestamps in ms
    return F.struct(
        F.lit(group).alias("group"),
        name.alias("name"),
        F.lit(step).alias("step"),
        (elapsed_us / 1000).alias("ms"),
    )


def _series(
    events: DataFrame, connections: DataFrame, drops: DataFrame, bucket_s: int
) -> dict[str, dict[str, list[Point]]]:
    """Return values over time, by plot and name; a plot has the names with the largest sums.

    The value of a bucket is the maximum of gauges (queue, window), and the sum of counts.
    """
    one = F.lit(1.0).alias("value")
    frames = [
        events.where("kind = 'flow' AND window_size > 0").select(
            F.lit("window").alias("plot"),
            F.col("client").alias("name"),
            "at",
            (F.col("window") / F.col("window_size")).alias("value"),
        ),
        events.where("kind IN ('flow', 'queued') AND queue > 0").select(
            F.lit("queue"), "client", "at", F.col("queue").cast("double")
        ),
        events.where("kind = 'resent'").select(F.lit("resends"), F.lit("sent again"), "at", one),
        drops.select(F.lit("drops"), "reason", "at", F.col("messages").cast("double")),
        connections.select(
            F.lit("connections"),
            F.when(F.col("refused"), "refused").otherwise("connected"),
            "began_at",
            one,
        ),
    ]
    values = frames[0]
    for frame in frames[1:]:
        values = values.union(frame)
    is_gauge = F.col("plot").isin("window", "queue")
    value = F.when(F.first(is_gauge), F.max("value")).otherwise(F.sum("value"))
    by_name = Window.partitionBy("plot", "name")
    rows = (
        values.groupBy("plot", "name", _bucket("at", bucket_s).alias("bucket"))
        .agg(value.alias("value"))
        .withColumn("total", F.sum("value").over(by_name))
        .withColumn(
            "rank",
            F.dense_rank().over(Window.partitionBy("plot").orderBy(F.desc("total"), "name")),
        )
        .where((F.col("rank") <= SERIES_MAX) & (F.col("total") > 0))
        .orderBy("plot", "rank", "bucket")
        .collect()
    )
    found: dict[str, dict[str, list[Point]]] = {
        plot: {} for plot in ("window", "queue", "resends", "drops", "connections")
    }
    for row in rows:
        line = found[row.plot].setdefault(row.name, [])
        line.append((_from_unix_s(row.bucket), row.value))
    return found


def _flows(events: DataFrame) -> list[Flow]:
    full = F.avg(F.when(F.col("window") >= F.col("window_size"), 1.0).otherwise(0.0))
    rows = (
        events.where("kind = 'flow'")
        .groupBy("client")
        .agg(
            F.count("*").alias("samples"),
            full.alias("full"),
            F.max("window_size").alias("size"),
            F.max("queue").alias("queue"),
            F.max("queue_bytes").alias("bytes"),
        )
        .orderBy(F.desc("full"), F.desc("queue"), "client")
        .limit(NAMES_MAX)
        .collect()
    )
    return [Flow(r.client, r.samples, r.full, r["size"], r.queue, r.bytes) for r in rows]


def _reconnects(connections: DataFrame) -> list[Reconnects]:
    by_minute = connections.groupBy("client", F.date_trunc("minute", "began_at").alias("minute"))
    counts = by_minute.agg(
        F.count_if(~F.col("refused")).alias("accepted"),
        F.count_if("refused").alias("refused"),
        F.count("*").alias("attempts"),
    )
    rows = (
        counts.groupBy("client")
        .agg(
            F.sum("accepted").alias("connections"),
            F.sum("refused").alias("refused"),
            F.max("attempts").alias("most"),
            F.max_by("minute", "attempts").alias("worst"),
        )
        .orderBy(F.desc("most"), F.desc("connections"), "client")
        .limit(NAMES_MAX)
        .collect()
    )
    return [Reconnects(r.client, r.connections, r.refused, r.most, _utc(r.worst)) for r in rows]


def _bucket(at: str, bucket_s: int) -> Column:
    """Return a column with the start of the bucket of a time, in seconds since the Unix epoch."""
    return F.floor(F.unix_seconds(at) / bucket_s) * bucket_s


def _bucket_s(first: datetime | None, last: datetime | None) -> int:
    if first is None or last is None:
        return _WIDTHS_S[0]
    span_s = (last - first).total_seconds()
    fitting: Sequence[int] = [width for width in _WIDTHS_S if span_s / width <= BUCKETS_MAX]
    return fitting[0] if fitting else round(span_s / BUCKETS_MAX)


def _utc(moment: datetime) -> datetime:
    """Return a local time without a zone, as Spark returns it, in UTC."""
    return moment.astimezone(UTC)


def _from_unix_s(seconds: int | str) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
