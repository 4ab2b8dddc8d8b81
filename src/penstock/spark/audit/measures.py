"""The numbers of the report: small aggregates of tables that may have any length.

Spark computes all of them; the results in the driver have at most `NAMES_MAX` clients or topics
and `BUCKETS_MAX` points in time.
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

_WIDTHS_S: Final = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21_600, 86_400)
_ACCURACY: Final = 1000  # of approximate percentiles: the rank of a result is off by 1/1000 at most

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
    """Percentiles from publish to one step, in milliseconds."""

    name: str
    step: str
    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class Flow:
    """The use of a client's window, over all times at which it was asked."""

    client: str
    asked: int
    full: float
    """Share of the times at which no place was free."""
    window_size: int
    queue_max: int
    queue_bytes_max: int


@dataclass(frozen=True, slots=True)
class Reconnects:
    """The number of a client's connections, and the most within one minute."""

    client: str
    connections: int
    refused: int
    per_minute_max: int
    worst_minute: datetime


@dataclass(frozen=True, slots=True)
class Measures:
    """All measures that a report shows."""

    first: datetime | None
    last: datetime | None
    bucket_s: int
    epochs: tuple[str, ...]
    starts: int
    kinds: dict[str, int]
    messages: int
    deliveries: int
    """The deliveries that are owed: one for each session that `received` counts."""
    states: dict[str, int]
    unknown_deliveries: int
    """Deliveries of messages that were received before the range, or of unknown topics."""
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
    """Compute all measures. The frames are read several times: cache them (`persist`)."""
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
        latency_p50=[(_of_seconds(latency.name), latency.p50_ms) for latency in over_time],
        latency_p99=[(_of_seconds(latency.name), latency.p99_ms) for latency in over_time],
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
    """Return the number of messages, of their expected deliveries, of deliveries in each state, and
    of deliveries of unknown messages.

    A message has as many expected deliveries as sessions; those without any event are unaccounted.
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
    counted: dict[str, int] = {}
    unknown_deliveries = 0
    for row in deliveries.groupBy(is_known.alias("known"), "state").count().collect():
        if row.known:
            counted[row.state] = row["count"]
        else:
            unknown_deliveries += row["count"]
    counted[UNACCOUNTED] = int(sums[2] or 0)
    states = {state: counted[state] for state in STATES if counted.get(state)}
    return int(sums[0]), int(sums[1] or 0), states, unknown_deliveries


def _latencies(known: DataFrame, bucket_s: int) -> dict[str, list[Latency]]:
    """Return percentiles of each step ("all"), and of one step by topic, by client and over time.

    All in one pass: each delivery takes part in several groups.
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
    picked = F.percentile_approx("ms", F.array(*map(F.lit, (0.5, 0.9, 0.99))), _ACCURACY)
    most = Window.partitionBy("group").orderBy(F.desc("count"), "name")
    rows = (
        known.select(F.explode(F.array(*groups)).alias("sample"))
        .select("sample.*")
        .where("ms IS NOT NULL AND name IS NOT NULL")
        .groupBy("group", "name", "step")
        .agg(F.count("*").alias("count"), picked.alias("picked"), F.max("ms").alias("max"))
        .withColumn("place", F.row_number().over(most))
        .where((F.col("group") == "time") | (F.col("place") <= NAMES_MAX))
        .orderBy("group", "place")
        .collect()
    )
    found: dict[str, list[Latency]] = {"all": [], "topic": [], "client": [], "time": []}
    for row in rows:
        p50, p90, p99 = row.picked
        latency = Latency(row.name, row.step, row["count"], p50, p90, p99, row.max)
        found[row.group].append(latency)
    order = list(steps)
    found["all"].sort(key=lambda latency: order.index(latency.step))
    return found


def _sample(group: str, name: Column, step: str, column: str) -> Column:
    """Return the sample of one delivery in a group: the ms from `received_at` to `column`."""
    since = F.unix_micros(F.col(column)) - F.unix_micros("received_at")
    since = F.when(since < 0, 0).otherwise(since)  # a table's commits have timestamps in ms
    return F.struct(
        F.lit(group).alias("group"),
        name.alias("name"),
        F.lit(step).alias("step"),
        (since / 1000).alias("ms"),
    )


def _series(
    events: DataFrame, connections: DataFrame, drops: DataFrame, bucket_s: int
) -> dict[str, dict[str, list[Point]]]:
    """Return values over time, by plot and name; a plot has the names with the largest sums.

    For a height (a queue, a window) the value is the largest of its bucket.
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
    heights = F.col("plot").isin("window", "queue")
    value = F.when(F.first(heights), F.max("value")).otherwise(F.sum("value"))
    of_name = Window.partitionBy("plot", "name")
    rows = (
        values.groupBy("plot", "name", _bucket("at", bucket_s).alias("bucket"))
        .agg(value.alias("value"))
        .withColumn("total", F.sum("value").over(of_name))
        .withColumn(
            "place",
            F.dense_rank().over(Window.partitionBy("plot").orderBy(F.desc("total"), "name")),
        )
        .where((F.col("place") <= SERIES_MAX) & (F.col("total") > 0))
        .orderBy("plot", "place", "bucket")
        .collect()
    )
    found: dict[str, dict[str, list[Point]]] = {
        plot: {} for plot in ("window", "queue", "resends", "drops", "connections")
    }
    for row in rows:
        line = found[row.plot].setdefault(row.name, [])
        line.append((_of_seconds(row.bucket), row.value))
    return found


def _flows(events: DataFrame) -> list[Flow]:
    full = F.avg(F.when(F.col("window") >= F.col("window_size"), 1.0).otherwise(0.0))
    rows = (
        events.where("kind = 'flow'")
        .groupBy("client")
        .agg(
            F.count("*").alias("asked"),
            full.alias("full"),
            F.max("window_size").alias("size"),
            F.max("queue").alias("queue"),
            F.max("queue_bytes").alias("bytes"),
        )
        .orderBy(F.desc("full"), F.desc("queue"), "client")
        .limit(NAMES_MAX)
        .collect()
    )
    return [Flow(r.client, r.asked, r.full, r["size"], r.queue, r.bytes) for r in rows]


def _reconnects(connections: DataFrame) -> list[Reconnects]:
    by_minute = connections.groupBy("client", F.date_trunc("minute", "began_at").alias("minute"))
    counted = by_minute.agg(
        F.count_if(~F.col("refused")).alias("let_in"),
        F.count_if("refused").alias("refused"),
        F.count("*").alias("came"),
    )
    rows = (
        counted.groupBy("client")
        .agg(
            F.sum("let_in").alias("connections"),
            F.sum("refused").alias("refused"),
            F.max("came").alias("most"),
            F.max_by("minute", "came").alias("worst"),
        )
        .orderBy(F.desc("most"), F.desc("connections"), "client")
        .limit(NAMES_MAX)
        .collect()
    )
    return [Reconnects(r.client, r.connections, r.refused, r.most, _utc(r.worst)) for r in rows]


def _bucket(at: str, bucket_s: int) -> Column:
    """Return the second at which the bucket of `at` begins."""
    return F.floor(F.unix_seconds(at) / bucket_s) * bucket_s


def _bucket_s(first: datetime | None, last: datetime | None) -> int:
    if first is None or last is None:
        return _WIDTHS_S[0]
    span_s = (last - first).total_seconds()
    fitting: Sequence[int] = [width for width in _WIDTHS_S if span_s / width <= BUCKETS_MAX]
    return fitting[0] if fitting else round(span_s / BUCKETS_MAX)


def _utc(moment: datetime) -> datetime:
    """Return a time of Spark, which is local without a time zone, in UTC."""
    return moment.astimezone(UTC)


def _of_seconds(seconds: int | str) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
