"""What a user may say to `format("penstock")`, checked word by word before anything runs.

Names are those of Spark's Kafka source where the meaning is the same. Spark does not care about the
case of option names, and neither does this. docs/spark.md explains each option to its users.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.auth.tokens import FORM, is_token
from penstock.errors import ConfigError
from penstock.spark.offsets import ONLY
from penstock.spark.wanted import AtTime, Wanted, moves, parse_offsets, parse_time
from penstock.stream.client import CONNECT_TIMEOUT_S
from penstock.stream.credentials import Credentials
from penstock.stream.requests import bad_filter

OPTION_NAMES: Final = (
    "server",
    "servers",
    "stream",
    "topics",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeProperties",
    "connectTimeoutSeconds",
    "checkpointLocation",
    "tls",
    "tlsCaFile",
    "token",
    "tokenFile",
)

SERVER: Final = "127.0.0.1:8815"
"""Where the stream service of a broker on this machine listens, unless told otherwise."""

SERVERS_MAX: Final = 1000
"""Most brokers of one query."""

PARTITIONS_MAX: Final = 100_000
"""Most that `minPartitions` may be."""

_COUNT_MAX: Final = 2**63 - 1

_NOT_TOGETHER: Final = (
    ("server", "servers"),
    ("startingOffsets", "startingTimestamp"),
    ("endingOffsets", "endingTimestamp"),
    ("token", "tokenFile"),
)


@dataclass(frozen=True)
class SourceOptions:
    """The options of one source, validated.

    Attributes:
        servers: HOST:PORT of each stream service, by its name in positions: `ONLY` for the one of
            option `server`, else the same text.
        stream: name of the stream.
        topics: MQTT topic filters; empty: every message of the stream.
        starting: where a new query begins, by server.
        ending: where a batch query ends, by server.
        offsets_per_trigger_max: most offsets of one micro-batch, or None for no limit.
        partitions_min: parts that the ranges of a batch are split into, about.
        partition_offsets_max: most offsets of one part, or None for no limit.
        fail_on_data_loss: whether rows that are gone before they were read are an error.
        include_properties: whether there is the column `properties`.
        connect_timeout_s: how long a service may be away.
        checkpoint: location of the query's checkpoint, to remember where the query began.
        credentials: what the services ask for.
        given: options that were given, as `OPTION_NAMES` spells them.
    """

    servers: Mapping[str, str]
    stream: str
    topics: tuple[str, ...]
    starting: Mapping[str, Wanted]
    ending: Mapping[str, Wanted]
    offsets_per_trigger_max: int | None
    partitions_min: int
    partition_offsets_max: int | None
    fail_on_data_loss: bool
    include_properties: bool
    connect_timeout_s: float
    checkpoint: str | None
    credentials: Credentials
    given: frozenset[str]

    def check_batch(self) -> None:
        """Refuse what means nothing to `spark.read`."""
        if "maxOffsetsPerTrigger" in self.given:
            raise ConfigError(
                "option maxOffsetsPerTrigger is for spark.readStream; spark.read reads one range"
            )
        if "latest" in self.starting.values():
            raise ConfigError(
                'option startingOffsets: "latest" is for spark.readStream; spark.read would find'
                " nothing there"
            )

    def check_stream(self) -> None:
        """Refuse what means nothing to `spark.readStream`."""
        for name in ("endingOffsets", "endingTimestamp"):
            if name in self.given:
                raise ConfigError(f"option {name} is for spark.read; a stream has no end")
        if self.checkpoint is None and any(moves(wanted) for wanted in self.starting.values()):
            name = "startingOffsets"
            if "startingTimestamp" in self.given:
                name = "startingOffsetsByTimestampStrategy"
            raise ConfigError(
                f'{name} "latest" must mean the same after a restart: give readStream the query\'s'
                " checkpointLocation too, so that it can be remembered there"
            )


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of a source; ConfigError names the first mistake in one sentence."""
    given = _Given(options)
    servers, tls = _servers(given)
    return SourceOptions(
        servers=servers,
        stream=given.text("stream", "messages"),
        topics=parse_topics(given.text("topics", "")),
        starting=_starting(given, servers),
        ending=_ending(given, servers),
        offsets_per_trigger_max=given.whole_number("maxOffsetsPerTrigger", _COUNT_MAX),
        partitions_min=given.whole_number("minPartitions", PARTITIONS_MAX) or _cores(),
        partition_offsets_max=given.whole_number("maxRecordsPerPartition", _COUNT_MAX),
        fail_on_data_loss=given.truth("failOnDataLoss", default=True),
        include_properties=given.truth("includeProperties", default=True),
        connect_timeout_s=given.seconds("connectTimeoutSeconds", CONNECT_TIMEOUT_S),
        checkpoint=given.text("checkpointLocation", "") or None,
        credentials=_credentials(given, tls=tls),
        given=given.names,
    )


def service_options(server: str, credentials: Credentials) -> dict[str, str]:
    """The options that say how to reach a stream service; a token is told by its file."""
    options = {"server": server, "tls": str(credentials.tls)}
    if credentials.ca_file:
        options["tlsCaFile"] = credentials.ca_file
    if credentials.token_file:
        options["tokenFile"] = credentials.token_file
    return options


def parse_topics(text: str) -> tuple[str, ...]:
    """Topic filters from comma-separated text; a comma cannot be part of one here."""
    filters = tuple(part for part in (part.strip() for part in text.split(",")) if part)
    wrong = bad_filter(filters)
    if wrong is not None:
        raise ConfigError(f"option topics: {wrong!r} is not an MQTT topic filter")
    return filters


class _Given:
    """The options as they were given."""

    def __init__(self, options: Mapping[str, str]) -> None:
        known = {name.lower(): name for name in OPTION_NAMES}
        self._values: dict[str, str] = {}
        for name, value in options.items():
            if name.lower() not in known:
                raise _unknown(name.lower(), known)
            self._values[known[name.lower()]] = value
        for one, other in _NOT_TOGETHER:
            if one in self._values and other in self._values:
                raise ConfigError(f"options {one} and {other} say the same thing: give one of them")

    @property
    def names(self) -> frozenset[str]:
        """Those given."""
        return frozenset(self._values)

    def text(self, name: str, default: str) -> str:
        """Any text."""
        return self._values.get(name, default)

    def whole_number(self, name: str, high: int) -> int | None:
        """From 1 up to `high`."""
        if name not in self._values:
            return None
        return int(self._in_range(name, int, 1, high, "a whole number"))

    def seconds(self, name: str, default: float) -> float:
        """Up to a day."""
        if name not in self._values:
            return default
        return self._in_range(name, float, 0, 86_400, "a number of seconds")

    def truth(self, name: str, *, default: bool) -> bool:
        """True or false."""
        text = self._values.get(name, str(default))
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"option {name} must be true or false, not {text!r}")
        return text.lower() == "true"

    def _in_range(
        self, name: str, kind: Callable[[str], float], low: float, high: float, what: str
    ) -> float:
        text = self._values[name]
        try:
            value = kind(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise ConfigError(f"option {name} must be {what} from {low} to {high}, not {text!r}")
        return value


def _unknown(name: str, known: Mapping[str, str]) -> ConfigError:
    close = difflib.get_close_matches(name, known, n=1)
    advice = f"did you mean {known[close[0]]}?" if close else f"there is {', '.join(OPTION_NAMES)}"
    return ConfigError(f"the penstock source has no option {name!r}; {advice}")


def _servers(given: _Given) -> tuple[dict[str, str], bool]:
    """The addresses by their names in positions, and whether they say that TLS is spoken."""
    if "servers" not in given.names:
        address, tls = _address("server", given.text("server", SERVER))
        return {ONLY: address}, tls
    texts = [part.strip() for part in given.text("servers", "").split(",")]
    if len(texts) > SERVERS_MAX:
        raise ConfigError(f"option servers may name {SERVERS_MAX} brokers, not {len(texts)}")
    found = [_address("servers", text) for text in texts]
    if len({tls for _, tls in found}) > 1:
        raise ConfigError("option servers: TLS is spoken with all of them or none")
    addresses = [address for address, _ in found]
    for address in addresses:
        if addresses.count(address) > 1:
            raise ConfigError(f"option servers names {address} twice")
    return {address: address for address in addresses}, found[0][1]


def _address(option: str, text: str) -> tuple[str, bool]:
    # Imported here because Spark's many Python processes would each pay for pydantic.
    from penstock.config.address import Address

    scheme, _, rest = text.rpartition("://")
    try:
        if scheme not in ("", "grpc", "grpc+tls"):
            raise ValueError("HOST:PORT, with grpc:// or grpc+tls:// in front if you like")
        address = Address.parse(rest.rstrip("/"))
    except ValueError as error:
        several = "; several brokers go into servers" if option == "server" and "," in text else ""
        raise ConfigError(f"option {option} must be {error}, not {text!r}{several}") from error
    if address.port == 0:
        raise ConfigError(f"option {option} needs the port the stream service listens on")
    return str(address), scheme == "grpc+tls"


def _starting(given: _Given, servers: Iterable[str]) -> dict[str, Wanted]:
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


def _ending(given: _Given, servers: Iterable[str]) -> dict[str, Wanted]:
    option = "endingTimestamp"
    if option in given.names:
        time_us = parse_time(option, given.text(option, ""))
        return dict.fromkeys(servers, AtTime(option, time_us, or_latest=True))
    option = "endingOffsets"
    ending = parse_offsets(option, given.text(option, "latest"), list(servers))
    if "earliest" in ending.values():
        raise ConfigError(f'option {option}: "earliest" would leave nothing to read')
    return ending


def _credentials(given: _Given, *, tls: bool) -> Credentials:
    ca_file = given.text("tlsCaFile", "")
    tls = tls or given.truth("tls", default=bool(ca_file))
    if ca_file and not tls:
        raise ConfigError("option tlsCaFile says whom to believe with TLS, and option tls is false")
    token = given.text("token", "")
    if "token" in given.names and not is_token(token):  # which is not told to anybody
        raise ConfigError(f"option token must be {FORM}")
    return Credentials(tls, ca_file, token, given.text("tokenFile", ""))


def _cores() -> int:
    return len(os.sched_getaffinity(0))
