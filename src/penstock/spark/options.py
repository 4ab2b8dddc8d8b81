"""The options of `format("penstock")`, all checked before anything runs.

Names are those of Spark's Kafka source if the meaning is the same. Spark ignores the case of option
names, and so does this module. `declared_options` explains each option to its users.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.control.reader_requests import check_group
from penstock.errors import ConfigError
from penstock.spark.declared_options import SOURCE_OPTIONS
from penstock.spark.groups import LEASE_S
from penstock.spark.offsets import SINGLE_SERVER
from penstock.spark.option_values import (
    SERVER,
    OptionReader,
    parse_address,
    parse_service_addresses,
)
from penstock.spark.range_limits import AtTime, RangeLimit, is_moving, parse_offsets, parse_time
from penstock.spark.schema import SPARK_SCHEMA
from penstock.spark.topics import parse_topics
from penstock.stream.client import CONNECT_TIMEOUT_S
from penstock.stream.credentials import Credentials

if TYPE_CHECKING:  # it is imported where the option is given: a planner must start soon
    from penstock.decoding.topic_pattern import TopicPattern

OPTION_NAMES: Final = tuple(option.name for option in SOURCE_OPTIONS)

SERVERS_MAX: Final = 1000
"""Most brokers of one query."""

PARTITIONS_MAX: Final = 100_000
"""The largest `minPartitions`."""

_COUNT_MAX: Final = 2**63 - 1


@dataclass(frozen=True)
class SourceOptions:
    """The validated options of one source.

    Attributes:
        servers: the address of each log, by its key in positions. For option `server` the key is
            `SINGLE_SERVER`, and the address has HOST:PORT of each replica, separated by commas; for
            `servers` key and address are HOST:PORT.
        stream: name of the stream.
        topics: MQTT topic filters; empty: every message of the stream.
        pattern: the topics with named levels, which are columns; None for no such columns.
        starting_limits: the start of a new query, by server.
        ending_limits: the end of a batch query, by server.
        offsets_per_trigger_max: most offsets of one micro-batch, or None for no limit.
        partitions_min: the approximate number of parts into which a batch is split.
        partition_offsets_max: most offsets of one part, or None for no limit.
        fail_on_data_loss: whether the loss of unread messages is an error.
        include_properties: whether the column `properties` exists.
        connect_timeout_s: seconds for which a service may be unreachable.
        checkpoint: location of the query's checkpoint, in which its first position is stored.
        credentials: the credentials for the services.
        group: the name of a streaming query as a registered reader, or None.
        group_lease_s: seconds for which the broker keeps messages after the reader's last renewal.
        batch_at_start: whether a streaming query always runs a batch when it starts.
        given_names: the names of the given options, spelled as in `OPTION_NAMES`.
    """

    servers: Mapping[str, str]
    stream: str
    topics: tuple[str, ...]
    pattern: TopicPattern | None
    starting_limits: Mapping[str, RangeLimit]
    ending_limits: Mapping[str, RangeLimit]
    offsets_per_trigger_max: int | None
    partitions_min: int
    partition_offsets_max: int | None
    fail_on_data_loss: bool
    include_properties: bool
    connect_timeout_s: float
    checkpoint: str | None
    credentials: Credentials
    group: str | None
    group_lease_s: float
    batch_at_start: bool
    given_names: frozenset[str]

    def check_batch(self) -> None:
        """Raise ConfigError for options that have no meaning for `spark.read`."""
        if "maxOffsetsPerTrigger" in self.given_names:
            raise ConfigError(
                "option maxOffsetsPerTrigger is for spark.readStream; spark.read reads one range"
            )
        if self.group is not None:
            raise ConfigError("option groupId is for spark.readStream; spark.read reads once")
        if self.batch_at_start:
            raise ConfigError("option batchAtStart is for spark.readStream; spark.read reads once")
        if "latest" in self.starting_limits.values():
            raise ConfigError(
                'option startingOffsets: "latest" is for spark.readStream; spark.read would find'
                " nothing there"
            )

    def check_stream(self) -> None:
        """Raise ConfigError for options that have no meaning for `spark.readStream`."""
        for name in ("endingOffsets", "endingTimestamp"):
            if name in self.given_names:
                raise ConfigError(f"option {name} is for spark.read; a stream has no end")
        if self.checkpoint or self.group:
            return
        if any(is_moving(limit) for limit in self.starting_limits.values()):
            name = "startingOffsets"
            if "startingTimestamp" in self.given_names:
                name = "startingOffsetsByTimestampStrategy"
            raise ConfigError(
                f'{name} "latest" must mean the same after a restart: give readStream a groupId,'
                " then the brokers store the position, or also the query's checkpointLocation"
            )


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the options of a source.

    Raises:
        ConfigError: one sentence about the first mistake.
    """
    reader = OptionReader(options, OPTION_NAMES, "source")
    servers, tls = _servers(reader)
    pattern = _pattern(reader)
    topics = parse_topics(reader.text("topics", ""))
    return SourceOptions(
        servers=servers,
        stream=reader.text("stream", "messages"),
        topics=topics if pattern is None else (pattern.topic_filter,),
        pattern=pattern,
        starting_limits=_starting_limits(reader, servers),
        ending_limits=_ending_limits(reader, servers),
        offsets_per_trigger_max=reader.whole_number("maxOffsetsPerTrigger", 1, _COUNT_MAX, None),
        partitions_min=reader.whole_number("minPartitions", 1, PARTITIONS_MAX, _cores()),
        partition_offsets_max=reader.whole_number("maxRecordsPerPartition", 1, _COUNT_MAX, None),
        fail_on_data_loss=reader.boolean("failOnDataLoss", default=True),
        include_properties=reader.boolean("includeProperties", default=True),
        connect_timeout_s=reader.seconds("connectTimeoutSeconds", CONNECT_TIMEOUT_S),
        checkpoint=reader.text("checkpointLocation", "") or None,
        credentials=reader.credentials(tls=tls),
        group_lease_s=reader.seconds("groupLeaseSeconds", LEASE_S, 1, 100_000_000),
        group=_group(reader),
        batch_at_start=reader.boolean("batchAtStart", default=False),
        given_names=reader.names,
    )


def service_options(server: str, credentials: Credentials) -> dict[str, str]:
    """Return the options for reaching a stream service, without a token that is not in a file."""
    options = {"server": server, "tls": str(credentials.tls)}
    if credentials.ca_file:
        options["tlsCaFile"] = credentials.ca_file
    if credentials.token_file:
        options["tokenFile"] = credentials.token_file
    if credentials.certificate_file:
        options["tlsCertFile"] = credentials.certificate_file
        options["tlsKeyFile"] = credentials.key_file
    return options


def _servers(reader: OptionReader) -> tuple[dict[str, str], bool]:
    """Return the addresses by their keys in positions, and whether they ask for TLS."""
    reader.check_exclusive("server", "servers")
    if "servers" not in reader.names:
        only, tls = parse_service_addresses("server", reader.text("server", SERVER))
        return {SINGLE_SERVER: only}, tls
    texts = [part.strip() for part in reader.text("servers", "").split(",")]
    if len(texts) > SERVERS_MAX:
        raise ConfigError(f"option servers may name {SERVERS_MAX} brokers, not {len(texts)}")
    found = [parse_address("servers", text) for text in texts]
    if len({tls for _, tls in found}) > 1:
        raise ConfigError("option servers: use TLS for all addresses or none")
    names = [name for name, _ in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"option servers names {name} twice")
    return {name: name for name in names}, found[0][1]


def _pattern(reader: OptionReader) -> TopicPattern | None:
    reader.check_exclusive("topics", "topicPattern")
    text = reader.text("topicPattern", None)
    if text is None:
        return None
    from penstock.decoding.topic_pattern import TopicPattern

    pattern = TopicPattern.parse(text)
    for name in pattern.schema.names:
        if name.lower() in SPARK_SCHEMA.names:
            raise ConfigError(f"option topicPattern names a level {name}, as a column of messages")
    return pattern


def _starting_limits(reader: OptionReader, servers: Iterable[str]) -> dict[str, RangeLimit]:
    reader.check_exclusive("startingOffsets", "startingTimestamp")
    option = "startingTimestamp"
    strategy = reader.text("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise ConfigError(
            f"option startingOffsetsByTimestampStrategy must be error or latest, not {strategy!r}"
        )
    if option in reader.names:
        time_us = parse_time(option, reader.text(option, ""))
        return dict.fromkeys(servers, AtTime(option, time_us, strategy == "latest"))
    if "startingOffsetsByTimestampStrategy" in reader.names:
        raise ConfigError(
            "option startingOffsetsByTimestampStrategy says what startingTimestamp means and needs"
            " one"
        )
    option = "startingOffsets"
    return parse_offsets(option, reader.text(option, "earliest"), list(servers))


def _ending_limits(reader: OptionReader, servers: Iterable[str]) -> dict[str, RangeLimit]:
    reader.check_exclusive("endingOffsets", "endingTimestamp")
    option = "endingTimestamp"
    if option in reader.names:
        time_us = parse_time(option, reader.text(option, ""))
        return dict.fromkeys(servers, AtTime(option, time_us, or_latest=True))
    option = "endingOffsets"
    ending = parse_offsets(option, reader.text(option, "latest"), list(servers))
    if "earliest" in ending.values():
        raise ConfigError(f'option {option}: "earliest" would leave nothing to read')
    return ending


def _group(reader: OptionReader) -> str | None:
    text = reader.text("groupId", None)
    if text is None and "groupLeaseSeconds" in reader.names:
        raise ConfigError("option groupLeaseSeconds needs groupId, the group of the lease")
    try:
        return None if text is None else check_group(text)
    except ConfigError as error:
        raise ConfigError(f"option groupId: {error}") from None


def _cores() -> int:
    return len(os.sched_getaffinity(0))
