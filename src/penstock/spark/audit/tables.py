"""Joins events to tables of deliveries, connections and drops, and stores them.

deliveries   one row for each message and each client to which it was sent; a message without a
             subscriber has one row without a `receiver`
connections  one row for each connection, and for each refused CONNECT
drops        one row for each event about dropped or expired messages
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, convert_to_deltalake
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock.errors import ConfigError

TABLE_NAMES: Final = ("deliveries", "connections", "drops")

MARKER_NAME: Final = "_penstock_audit"
"""A file of this name marks a directory whose tables the next audit may overwrite."""

ACKNOWLEDGED: Final = "acknowledged"
BRIDGED: Final = "bridged"
SENT_QOS0: Final = "sent, QoS 0"
IN_FLIGHT: Final = "sent, not acknowledged"
QUEUED: Final = "queued"
DROPPED: Final = "dropped"
EXPIRED: Final = "expired"
MOVED: Final = "moved to another member"
NO_SUBSCRIBER: Final = "no subscriber"
UNACCOUNTED: Final = "unaccounted"

STATES: Final = (
    ACKNOWLEDGED, BRIDGED, SENT_QOS0, IN_FLIGHT, QUEUED, DROPPED, EXPIRED, MOVED, NO_SUBSCRIBER,
    UNACCOUNTED,
)  # fmt: skip
"""The possible outcomes of one delivery, according to the events."""

_STEPS: Final = (
    "queued", "sent", "resent", "acknowledged", "completed", "bridged", "dropped", "expired",
    "moved",
)  # fmt: skip


def join_deliveries(events: DataFrame) -> DataFrame:
    """Return a row for each followed message and each client to which it was sent."""
    messages = events.where("kind = 'received'").select(
        "epoch",
        "offset",
        F.col("client").alias("publisher"),
        "topic",
        F.col("qos").alias("published_qos"),
        "bytes",
        "sessions",
        F.col("at").alias("received_at"),
    )
    commits = (
        events.where("kind = 'committed'")
        .select("epoch", "at", F.explode("offsets").alias("offset"))
        .groupBy("epoch", "offset")
        .agg(F.min("at").alias("committed_at"))
    )
    steps = (
        events.where(F.col("kind").isin(*_STEPS) & F.col("offset").isNotNull())
        .groupBy("epoch", "offset", F.col("client").alias("receiver"))
        .agg(
            F.max("qos").alias("qos"),
            _first_time("queued", "queued_at"),
            _first_time("sent", "sent_at"),
            F.count_if(F.col("kind") == "resent").alias("resent"),
            F.min(F.when(F.col("kind").isin("acknowledged", "bridged"), F.col("at"))).alias(
                "acknowledged_at"
            ),
            _first_time("bridged", "bridged_at"),
            _first_time("completed", "completed_at"),
            F.min(F.when(F.col("kind").isin("dropped", "expired"), F.col("at"))).alias(
                "dropped_at"
            ),
            F.max(F.when(F.col("kind").isin("dropped", "expired"), F.col("reason"))).alias(
                "reason"
            ),
            F.max(F.when(F.col("kind") == "moved", F.col("at"))).alias("moved_at"),
        )
    )
    joined = messages.join(commits, ["epoch", "offset"], "left").join(
        steps, ["epoch", "offset"], "full"
    )
    return joined.withColumn("resent", F.coalesce("resent", F.lit(0))).withColumn(
        "state", _outcome()
    )


def join_connections(events: DataFrame) -> DataFrame:
    """Return a row for each connection and each refused CONNECT.

    The `ended_at` of a connection that is still open is null.
    """
    order = Window.partitionBy("epoch", "client").orderBy("at", "n")
    ends = F.lead("kind").over(order) == "disconnected"

    def end_column(name: str, alias: str) -> Column:
        return F.when(ends, F.lead(name).over(order)).alias(alias)

    with_ends = events.where(F.col("kind").isin("connected", "disconnected")).select(
        "*",
        end_column("at", "ended_at"),
        end_column("by", "ended_by"),
        end_column("reason", "ended_because"),
        end_column("code", "ended_with"),
        *(end_column(name, f"messages_{name}") for name in _COUNTERS),
    )
    began = with_ends.where("kind = 'connected'")
    refused = events.where("kind = 'refused'").select(
        "*",
        F.col("at").alias("ended_at"),
        F.lit("broker").alias("ended_by"),
        F.col("reason").alias("ended_because"),
        F.col("code").alias("ended_with"),
        *(F.lit(None).cast("bigint").alias(f"messages_{name}") for name in _COUNTERS),
    )
    return began.unionByName(refused).select(
        "epoch",
        "client",
        "user",
        (F.col("kind") == "refused").alias("refused"),
        "protocol",
        "listener",
        "transport",
        "clean_start",
        "session_present",
        "keep_alive_s",
        "receive_maximum",
        F.col("at").alias("began_at"),
        "ended_at",
        "ended_by",
        "ended_because",
        "ended_with",
        *(f"messages_{name}" for name in _COUNTERS),
    )


_COUNTERS: Final = ("received", "sent", "resent", "acknowledged", "dropped")


def select_drops(events: DataFrame) -> DataFrame:
    """Return a row for each event about dropped or expired messages.

    `messages` is their number; `offset` is that of a single message, else null.
    """
    return events.where(F.col("kind").isin("dropped", "expired")).select(
        "epoch", "at", "client", "reason", "messages", "topic", "offset"
    )


# -- when a message was in a table -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Landings:
    """The commits of a table, of one epoch: the landed end and the time of each, both ascending.

    Attributes:
        epoch: the epoch of the log.
        ends: the offset after the last landed message.
        at_us: the time of the commit, in µs since the Unix epoch.
    """

    epoch: str
    ends: tuple[int, ...]
    at_us: tuple[int, ...]


def read_landings(path: Path) -> list[Landings]:
    """Return the landings in the history of a Delta table, one for each epoch.

    Raises:
        ConfigError: there is no table in `path`, or no commit of it has landed messages.
    """
    if not (path / "_delta_log").is_dir():
        raise ConfigError(f"there is no table in {path}")
    found: dict[str, dict[int, int]] = {}
    for commit in DeltaTable(path).history():
        epoch, end = commit.get("penstock.epoch"), commit.get("penstock.endOffset")
        if epoch is not None and end is not None:
            ends = found.setdefault(str(epoch), {})
            at_us = int(commit["timestamp"]) * 1000
            ends[int(end)] = min(at_us, ends.get(int(end), at_us))
    if not found:
        raise ConfigError(
            f"no commit of the table in {path} has landed messages of a log of Penstock"
        )
    return [
        Landings(epoch, tuple(sorted(ends)), tuple(ends[end] for end in sorted(ends)))
        for epoch, ends in found.items()
    ]


def with_landings(frame: DataFrame, landings: Sequence[Landings]) -> DataFrame:
    """Return the frame with a column `landed_at`: when the message was in the table, or null.

    Args:
        frame: rows with the columns `epoch` and `offset`.
        landings: the commits of the table.
    """
    by_epoch = {
        landed.epoch: (np.array(landed.ends), np.array(landed.at_us)) for landed in landings
    }

    def look_up(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            offsets = batch.column("offset").to_numpy(zero_copy_only=False)
            epochs = np.array(batch.column("epoch").to_pylist(), dtype=object)
            found = np.zeros(batch.num_rows, dtype=np.int64)
            for epoch, (ends, at_us) in by_epoch.items():
                places = np.searchsorted(ends, offsets, side="right")
                landed = (epochs == epoch) & (places < len(ends))
                found[landed] = at_us[places[landed]]
            column = pa.array(found, pa.timestamp("us", "UTC"), mask=found == 0)
            yield batch.append_column("landed_at", column)

    names = ", ".join(f"`{name}` {kind}" for name, kind in frame.dtypes)
    return frame.mapInArrow(look_up, f"{names}, landed_at TIMESTAMP")


# -- on disk ---------------------------------------------------------------------------------------


def write_tables(directory: Path, frames: dict[str, DataFrame], table_format: str) -> None:
    """Write each frame as the table of its name, and replace that of an earlier audit.

    Raises:
        ConfigError: the directory has tables that no audit has written.
    """
    marker = directory / MARKER_NAME
    if not marker.exists() and any((directory / name).exists() for name in frames):
        raise ConfigError(
            f"{directory} has tables that no audit has written; give --tables another directory"
        )
    directory.mkdir(parents=True, exist_ok=True)
    marker.touch()
    for name, frame in frames.items():
        path = directory / name
        frame.write.mode("overwrite").parquet(str(path))
        if table_format == "delta":
            convert_to_deltalake(str(path))


def _first_time(kind: str, alias: str) -> Column:
    return F.min(F.when(F.col("kind") == kind, F.col("at"))).alias(alias)


def _outcome() -> Column:
    """Return the outcome of a delivery as a column; an acknowledgement overrides other events."""
    return (
        F.when(F.col("bridged_at").isNotNull(), BRIDGED)
        .when(F.col("acknowledged_at").isNotNull(), ACKNOWLEDGED)
        .when(F.col("reason") == "expired", EXPIRED)
        .when(F.col("dropped_at").isNotNull(), DROPPED)
        .when(F.col("moved_at") >= F.greatest("queued_at", "sent_at", "moved_at"), MOVED)
        .when(F.col("sent_at").isNotNull() & (F.col("qos") == 0), SENT_QOS0)
        .when(F.col("sent_at").isNotNull(), IN_FLIGHT)
        .when(F.col("queued_at").isNotNull(), QUEUED)
        .when(F.col("sessions") == 0, NO_SUBSCRIBER)
        .otherwise(UNACCOUNTED)
    )
