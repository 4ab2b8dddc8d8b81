"""What a user may say to `format("penstock")`, checked word by word before anything runs.

Names are those of Spark's Kafka source where the meaning is the same. Spark does not care about the
case of option names, and neither does this. docs/spark.md explains each option to its users.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from penstock.errors import ConfigError
from penstock.spark.groups import LEASE_S
from penstock.spark.offsets import WantedPosition
from penstock.spark.option_values import address, check_names, seconds, truth, whole_number
from penstock.store.reader_requests import check_group
from penstock.stream.client import CONNECT_TIMEOUT_S
from penstock.stream.requests import bad_filter

OPTION_NAMES: Final = (
    "server",
    "stream",
    "topics",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "connectTimeoutSeconds",
    "checkpointLocation",
    "groupId",
    "groupLeaseSeconds",
)

PARTITIONS_MAX: Final = 100_000
"""Most parts a range is split into."""

Edge = Literal["earliest", "latest"]


@dataclass(frozen=True)
class SourceOptions:
    """The options of one source, validated.

    Attributes:
        server: HOST:PORT of the stream service.
        stream: name of the stream.
        topics: MQTT topic filters; empty: every message of the stream.
        starting: where a new query begins.
        ending: where a batch query ends.
        offsets_per_trigger_max: most offsets of one micro-batch, or None for no limit.
        partitions_max: parts a range is split into.
        fail_on_data_loss: whether rows removed by retention before they were read are an error.
        connect_timeout_s: how long the service may be away.
        checkpoint: location of the query's checkpoint, to remember where the query began.
        group: the registered reader that a streaming query is, or None.
        group_lease_s: how long the log is kept for it when it is away.
    """

    server: str = "127.0.0.1:8815"
    stream: str = "messages"
    topics: tuple[str, ...] = ()
    starting: Edge | WantedPosition = "earliest"
    ending: Edge | WantedPosition = "latest"
    offsets_per_trigger_max: int | None = None
    partitions_max: int = 1
    fail_on_data_loss: bool = True
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    checkpoint: str | None = None
    group: str | None = None
    group_lease_s: float = LEASE_S


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of a source; ConfigError names the first mistake in one sentence."""
    given = {name.lower(): value for name, value in options.items()}
    check_names(given, OPTION_NAMES, "source")

    def number(name: str, low: int, high: int, default: int) -> int:
        text = given.get(name.lower())
        return default if text is None else whole_number(name, text, low, high)

    limit = given.get("maxoffsetspertrigger")
    return SourceOptions(
        server=address(given.get("server", SourceOptions.server)),
        stream=given.get("stream", SourceOptions.stream),
        topics=parse_topics(given.get("topics", "")),
        starting=_edge("startingOffsets", given.get("startingoffsets", "earliest")),
        ending=_edge("endingOffsets", given.get("endingoffsets", "latest")),
        offsets_per_trigger_max=None
        if limit is None
        else whole_number("maxOffsetsPerTrigger", limit, 1, 2**63 - 1),
        partitions_max=number("minPartitions", 1, PARTITIONS_MAX, _cores()),
        fail_on_data_loss=truth("failOnDataLoss", given.get("failondataloss", "true")),
        connect_timeout_s=seconds(
            "connectTimeoutSeconds", given.get("connecttimeoutseconds", str(CONNECT_TIMEOUT_S))
        ),
        checkpoint=given.get("checkpointlocation"),
        group=_group(given.get("groupid")),
        group_lease_s=seconds(
            "groupLeaseSeconds", given.get("groupleaseseconds", str(LEASE_S)), 1, 100_000_000
        ),
    )


def parse_topics(text: str) -> tuple[str, ...]:
    """Topic filters from comma-separated text; a comma cannot be part of one here."""
    filters = tuple(part for part in (part.strip() for part in text.split(",")) if part)
    wrong = bad_filter(filters)
    if wrong is not None:
        raise ConfigError(f"option topics: {wrong!r} is not an MQTT topic filter")
    return filters


def _group(text: str | None) -> str | None:
    try:
        return None if text is None else check_group(text)
    except ConfigError as error:
        raise ConfigError(f"option groupId: {error}") from None


def _edge(option: str, text: str) -> Edge | WantedPosition:
    word = text.strip().lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    if word.startswith("{"):
        return WantedPosition.parse(option, text)
    raise ConfigError(f"option {option} must be earliest, latest or a position, not {text!r}")


def _cores() -> int:
    return len(os.sched_getaffinity(0))
