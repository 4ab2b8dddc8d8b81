"""The options of `format("penstock")`, all checked before anything runs.

Names are those of Spark's Kafka source where the meaning is the same. Spark ignores the
case of option names, and so does this. `declared_options` explains each to its users.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.control.reader_requests import check_group
from penstock.errors import ConfigError
from penstock.spark.declared_options import SOURCE_OPTIONS
from penstock.spark.groups import LEASE_S
from penstock.spark.offsets import ONLY
from penstock.spark.option_values import SERVER, OptionReader, address, addresses
from penstock.spark.range_limits import AtTime, RangeLimit, moves, parse_offsets, parse_time
from penstock.spark.topics import parse_topics
from penstock.stream.client import CONNECT_TIMEOUT_S
from penstock.stream.credentials import Credentials

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
        servers: the address of each log, by its name in positions: of option `server`, `ONLY`,
            HOST:PORT of each replica, separated by commas; of `servers` HOST:PORT, the same text.
        stream: name of the stream.
        topics: MQTT topic filters; empty: every message of the stream.
        starting: the begin of a new query, by server.
        ending: the end of a batch query, by server.
        offsets_per_trigger_max: most offsets of one micro-batch, or None for no limit.
        partitions_min: the approximate number of parts into which a batch is split.
        partition_offsets_max: most offsets of one part, or None for no limit.
        fail_on_data_loss: whether rows that were removed before they were read are an error.
        include_properties: whether the column `properties` exists.
        connect_timeout_s: how long a service may be away.
        checkpoint: location of the query's checkpoint, in which its begin is remembered.
        credentials: the credentials for the services.
        group: the name of a streaming query as a registered reader, or None.
        group_lease_s: how long the broker keeps messages for it while it is away.
        batch_at_start: whether a streaming query always runs a batch when it starts.
        given: the given options, as `OPTION_NAMES` spells them.
    """

    servers: Mapping[str, str]
    stream: str
    topics: tuple[str, ...]
    starting: Mapping[str, RangeLimit]
    ending: Mapping[str, RangeLimit]
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
    given: frozenset[str]

    def check_batch(self) -> None:
        """Refuse options that have no meaning for `spark.read`."""
        if "maxOffsetsPerTrigger" in self.given:
            raise ConfigError(
                "option maxOffsetsPerTrigger is for spark.readStream; spark.read reads one range"
            )
        if self.group is not None:
            raise ConfigError("option groupId is for spark.readStream; spark.read reads once")
        if self.batch_at_start:
            raise ConfigError("option batchAtStart is for spark.readStream; spark.read reads once")
        if "latest" in self.starting.values():
            raise ConfigError(
                'option startingOffsets: "latest" is for spark.readStream; spark.read would find'
                " nothing there"
            )

    def check_stream(self) -> None:
        """Refuse options that have no meaning for `spark.readStream`."""
        for name in ("endingOffsets", "endingTimestamp"):
            if name in self.given:
                raise ConfigError(f"option {name} is for spark.read; a stream has no end")
        if self.checkpoint or self.group:
            return
        if any(moves(wanted) for wanted in self.starting.values()):
            name = "startingOffsets"
            if "startingTimestamp" in self.given:
                name = "startingOffsetsByTimestampStrategy"
            raise ConfigError(
                f'{name} "latest" must mean the same after a restart: give readStream a groupId,'
                " and the brokers remember it, or the query's checkpointLocation too"
            )


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of a source; raise ConfigError with one sentence about the first mistake."""
    given = OptionReader(options, OPTION_NAMES, "source")
    servers, tls = _servers(given)
    return SourceOptions(
        servers=servers,
        stream=given.text("stream", "messages"),
        topics=parse_topics(given.text("topics", "")),
        starting=_starting(given, servers),
        ending=_ending(given, servers),
        offsets_per_trigger_max=given.whole_number("maxOffsetsPerTrigger", 1, _COUNT_MAX, None),
        partitions_min=given.whole_number("minPartitions", 1, PARTITIONS_MAX, _cores()),
        partition_offsets_max=given.whole_number("maxRecordsPerPartition", 1, _COUNT_MAX, None),
        fail_on_data_loss=given.truth("failOnDataLoss", default=True),
        include_properties=given.truth("includeProperties", default=True),
        connect_timeout_s=given.seconds("connectTimeoutSeconds", CONNECT_TIMEOUT_S),
        checkpoint=given.text("checkpointLocation", "") or None,
        credentials=given.credentials(tls=tls),
        group_lease_s=given.seconds("groupLeaseSeconds", LEASE_S, 1, 100_000_000),
        group=_group(given),
        batch_at_start=given.truth("batchAtStart", default=False),
        given=given.names,
    )


def service_options(server: str, credentials: Credentials) -> dict[str, str]:
    """Return the options for reaching a stream service; a token only by its file."""
    options = {"server": server, "tls": str(credentials.tls)}
    if credentials.ca_file:
        options["tlsCaFile"] = credentials.ca_file
    if credentials.token_file:
        options["tokenFile"] = credentials.token_file
    if credentials.certificate_file:
        options["tlsCertFile"] = credentials.certificate_file
        options["tlsKeyFile"] = credentials.key_file
    return options


def _servers(given: OptionReader) -> tuple[dict[str, str], bool]:
    """Return the addresses by their names in positions, and whether they ask for TLS."""
    given.check_exclusive("server", "servers")
    if "servers" not in given.names:
        only, tls = addresses("server", given.text("server", SERVER))
        return {ONLY: only}, tls
    texts = [part.strip() for part in given.text("servers", "").split(",")]
    if len(texts) > SERVERS_MAX:
        raise ConfigError(f"option servers may name {SERVERS_MAX} brokers, not {len(texts)}")
    found = [address("servers", text) for text in texts]
    if len({tls for _, tls in found}) > 1:
        raise ConfigError("option servers: TLS is spoken with all of them or none")
    names = [name for name, _ in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"option servers names {name} twice")
    return {name: name for name in names}, found[0][1]


def _starting(given: OptionReader, servers: Iterable[str]) -> dict[str, RangeLimit]:
    given.check_exclusive("startingOffsets", "startingTimestamp")
    option = "startingTimestamp"
    strategy = given.text("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise ConfigError(
            f"option startingOffsetsByTimestampStrategy must be error or latest, not {strategy!r}"
        )
    if option in given.names:
        time_us = parse_time(option, given.text(option, ""))
        return dict.fromkeys(servers, AtTime(option, time_us, strategy == "latest"))
    if "startingOffsetsByTimestampStrategy" in given.names:
        raise ConfigError(
            "option startingOffsetsByTimestampStrategy says what startingTimestamp means and needs"
            " one"
        )
    option = "startingOffsets"
    return parse_offsets(option, given.text(option, "earliest"), list(servers))


def _ending(given: OptionReader, servers: Iterable[str]) -> dict[str, RangeLimit]:
    given.check_exclusive("endingOffsets", "endingTimestamp")
    option = "endingTimestamp"
    if option in given.names:
        time_us = parse_time(option, given.text(option, ""))
        return dict.fromkeys(servers, AtTime(option, time_us, or_latest=True))
    option = "endingOffsets"
    ending = parse_offsets(option, given.text(option, "latest"), list(servers))
    if "earliest" in ending.values():
        raise ConfigError(f'option {option}: "earliest" would leave nothing to read')
    return ending


def _group(given: OptionReader) -> str | None:
    text = given.text("groupId", None)
    if text is None and "groupLeaseSeconds" in given.names:
        raise ConfigError("option groupLeaseSeconds needs groupId: whose lease it is")
    try:
        return None if text is None else check_group(text)
    except ConfigError as error:
        raise ConfigError(f"option groupId: {error}") from None


def _cores() -> int:
    return len(os.sched_getaffinity(0))
