"""Reads events as a DataFrame: one row for each event, with the columns of all kinds of events.

A row of the stream has many events (`penstock.engine.routing.event_log`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

STREAM: Final = "events"

FIELDS: Final = (
    "n BIGINT, at BIGINT, client STRING, user STRING, protocol INT, listener STRING,"
    " transport STRING, clean_start BOOLEAN, session_present BOOLEAN, session_expiry_s BIGINT,"
    " keep_alive_s BIGINT, receive_maximum INT, by STRING, reason STRING, code INT,"
    " duration_us BIGINT, received BIGINT, sent BIGINT, resent BIGINT, acknowledged BIGINT,"
    " dropped BIGINT, connected BOOLEAN, window INT, window_size INT, queue BIGINT,"
    " queue_bytes BIGINT, unsent_bytes BIGINT, filter STRING, topic STRING, messages BIGINT,"
    " sessions BIGINT, qos INT, bytes BIGINT, retain BOOLEAN, offset BIGINT,"
    " offsets ARRAY<BIGINT>"
)
"""The fields of all kinds of events (docs/audit.md); a field that an event lacks is null."""


def read_events(
    spark: SparkSession,
    service: Mapping[str, str],
    since: datetime | None = None,
    until: datetime | None = None,
    connect_timeout_s: float = 60.0,
) -> DataFrame:
    """Return the events from `since` on and before `until`, in UTC; all by default.

    Messages received before `since` are not read at all: an event happens before it is written.

    Args:
        spark: the session that reads the stream.
        service: options of the source for reaching the stream service.
        since: the time of the first events; None for no limit.
        until: the time from which events are left out; None for no limit.
        connect_timeout_s: seconds for which the stream service may be unreachable.
    """
    reader = (
        spark.read.format("penstock")
        .options(**service)
        .option("stream", STREAM)
        .option("connectTimeoutSeconds", str(connect_timeout_s))
        .schema("epoch STRING, topic STRING, payload BINARY")
    )
    if since is not None:
        reader = reader.option("startingTimestamp", since.astimezone(UTC).isoformat())
        reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
    events = explode_events(reader.load())
    if since is not None:
        events = events.where(F.col("at") >= F.lit(since))
    if until is not None:
        events = events.where(F.col("at") < F.lit(until))
    return events


def explode_events(rows: DataFrame) -> DataFrame:
    """Return the events in rows of the stream.

    Args:
        rows: rows with the columns `epoch`, `topic` and `payload`.

    Returns:
        A row for each event, with `epoch`, `kind`, `at` as a timestamp, and the other `FIELDS`.
    """
    payload = F.from_json(
        F.col("payload").cast("string"), f"v INT, events ARRAY<STRUCT<{_as_struct(FIELDS)}>>"
    )
    return (
        rows.select(
            "epoch",
            F.regexp_replace("topic", r"^\$events/", "").alias("kind"),
            F.explode(payload["events"]).alias("event"),
        )
        .select("epoch", "kind", "event.*")
        .withColumn("at", F.timestamp_micros("at"))
    )


def _as_struct(fields: str) -> str:
    """Return a list `name TYPE, …` in the notation of the fields of STRUCT<…>."""
    return ", ".join(
        f"`{name}`: {kind}" for name, kind in (field.split() for field in fields.split(", "))
    )
