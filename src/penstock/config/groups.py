"""The settings, in small frozen groups. The text under each field is its documentation.

Nothing here reads a file or the environment, so a `Settings` built in a test is just a value.
Names end in their unit; a limit is named after what it bounds. The limits on sessions and
packets are the engine's own (`penstock.engine.limits`), validated and explained here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    model_validator,
)

from penstock.config.address import Address
from penstock.engine.limits import NEVER_EXPIRES_S
from penstock.engine.topics import is_share_name, is_shared, is_topic_filter

TOPIC_LEVELS_MAX: Final = 1000

_STREAM_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def _address(value: object) -> object:
    return Address.parse(value) if isinstance(value, str) else value


def _topic_filter(value: str) -> str:
    if is_shared(value) or not is_topic_filter(value, TOPIC_LEVELS_MAX):
        raise ValueError("an MQTT topic filter, such as # or plant/+/temperature")
    return value


def _stream_name(value: str) -> str:
    if _STREAM_NAME.fullmatch(value) is None:
        raise ValueError("1 to 64 letters, digits and . _ - that start with a letter or digit")
    return value


def _share_name(value: str) -> str:
    if not is_share_name(value):
        raise ValueError("the name of a group of shared subscriptions, without / + and #")
    return value


BindAddress = Annotated[Address, BeforeValidator(_address), PlainSerializer(str)]
TopicFilter = Annotated[str, AfterValidator(_topic_filter)]
StreamName = Annotated[str, AfterValidator(_stream_name)]
ShareName = Annotated[str, AfterValidator(_share_name)]
SharingStrategy = Literal[
    "round_robin", "random", "sticky", "least_inflight", "hash_client", "hash_topic"
]


class Group(BaseModel):
    """What every group shares: no unknown settings, no change after loading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True
    )


class Listener(Group):
    """Where MQTT clients connect."""

    bind: BindAddress = Address("127.0.0.1", 1883)
    """Address for MQTT over TCP, HOST:PORT; port 0 takes any free port. An address that other
    machines can reach is refused while clients are not authenticated: see allow_anonymous."""

    allow_anonymous: bool = False
    """Let clients in without authentication on addresses that other machines can reach.
    On loopback addresses they always are."""

    connect_timeout_s: float = Field(default=10.0, gt=0, le=3600)
    """Time a new connection has to send CONNECT, in seconds, above 0 up to 3600."""

    max_connections: int = Field(default=10_000, ge=1, le=1_000_000)
    """Open connections; further ones are closed at once. 1 to 1000000."""

    write_buffer_bytes_max: int = Field(default=1_048_576, ge=4096, le=1_073_741_824)
    """Bytes waiting to be sent to one connection before its messages stay in the session's
    queue instead. 4096 to 1073741824."""


class Durability(Group):
    """What an acknowledgement promises, and where the promise is kept."""

    persistence: Literal["file", "memory"] = "file"
    """"file": acknowledgements leave after the message is synced to disk. "memory": nothing
    is kept on disk, and a restart forgets everything."""

    data_dir: Path = Path("penstock-data")
    """Directory of the log and of the sessions' state; created if missing. A relative path
    counts from the directory the broker is started in."""

    retention_s: int = Field(default=86_400, ge=0, le=10**10)
    """Messages older than this leave the log, in seconds; what a session still has to deliver
    stays. 0 to 10000000000; 0 is no limit by age."""

    retention_bytes_max: int = Field(default=10 * 1024**3, ge=0, le=2**62)
    """The oldest messages leave the log while it is larger than this, in bytes.
    0 to 4611686018427387904; 0 is no limit by size."""

    commit_bytes_max: int = Field(default=16 * 1024**2, ge=65_536, le=1024**3)
    """Bytes of messages waiting for one commit above which reading from their senders pauses.
    65536 to 1073741824."""


class Limits(Group):
    """Bounds on what clients may ask for and on what is kept for them."""

    max_inflight: int = Field(default=32, ge=0, le=65535)
    """In-flight window: QoS 1 and 2 messages sent to a client and not yet acknowledged.
    0 to 65535; 0 leaves the limit to the client's receive maximum."""

    max_mqueue_len: int = Field(default=1000, ge=0, le=100_000_000)
    """Message queue: messages waiting for the window or for an offline client.
    0 to 100000000; 0 is no limit."""

    max_mqueue_bytes: int = Field(default=0, ge=0, le=2**40)
    """Message queue: bytes of the messages in it, with topics and properties.
    0 to 1099511627776; 0 is no limit."""

    mqueue_overflow: Literal["drop_oldest", "drop_newest", "reject", "spill"] = "drop_oldest"
    """What a full message queue does. "drop_oldest": QoS 0 goes first, then the oldest message.
    "drop_newest": the new message goes. "reject": the publisher is refused (0x97; before MQTT 5
    it gets no acknowledgement until there is room), and nobody gets the message. "spill": the
    queue of a session that outlives its connection has no limit, for the log holds it."""

    mqueue_priorities: dict[TopicFilter, Annotated[int, Field(ge=1, le=255)]] = Field(
        default={}, max_length=1000
    )
    """Priority in the message queue by topic filter, 1 to 255, higher first; the first filter
    that matches a topic counts. At most 1000."""

    mqueue_default_priority: int = Field(default=0, ge=0, le=255)
    """Priority of topics that no filter of mqueue_priorities matches. 0 to 255."""

    mqueue_store_qos0: bool = True
    """Queue QoS 0 messages too while their client is offline."""

    receive_maximum: int = Field(default=1000, ge=1, le=65535)
    """QoS 1 and 2 messages a client may send before they are acknowledged. 1 to 65535."""

    max_packet_size_bytes: int = Field(default=1_048_576, ge=256, le=268_435_460)
    """Largest packet accepted, in bytes. 256 to 268435460."""

    topic_alias_maximum: int = Field(default=16, ge=0, le=65535)
    """Topic aliases an MQTT 5 client may define. 0 to 65535; 0 turns them off."""

    topic_alias_outbound_max: int = Field(default=16, ge=0, le=65535)
    """Topic aliases the broker defines for an MQTT 5 client that takes any, as far as it does.
    0 to 65535; 0 turns them off."""

    session_expiry_s_max: int = Field(default=NEVER_EXPIRES_S, ge=0, le=NEVER_EXPIRES_S)
    """Longest time a session is kept after its client left, in seconds. 0 to 4294967295;
    4294967295 keeps it for ever."""

    keep_alive_s_max: int = Field(default=0, ge=0, le=65535)
    """Longest keep alive granted, in seconds; MQTT 5 clients that ask for more are told.
    0 to 65535; 0 grants any."""

    retained_messages_max: int = Field(default=1_000_000, ge=0, le=100_000_000)
    """Retained messages kept. 0 to 100000000."""

    sessions_max: int = Field(default=1_000_000, ge=1, le=100_000_000)
    """Sessions kept, of clients connected or away. 1 to 100000000."""

    subscriptions_per_session_max: int = Field(default=10_000, ge=1, le=1_000_000)
    """Subscriptions of one session. 1 to 1000000."""

    topic_levels_max: int = Field(default=128, ge=1, le=TOPIC_LEVELS_MAX)
    """Levels of a topic name or filter, counted between slashes. 1 to 1000."""


class ShareGroupStrategy(Group):
    """The strategy of one group."""

    group: ShareName
    """Name of the group, as in $share/GROUP/FILTER; whatever the filter."""

    strategy: SharingStrategy
    """As sharing.strategy."""


class Sharing(Group):
    """Shared subscriptions, $share/GROUP/FILTER: each message goes to one member of the group."""

    enabled: bool = True
    """Grant shared subscriptions. Otherwise they are refused with reason code 0x9E."""

    before_mqtt5: bool = True
    """Grant them to MQTT 3.1 and 3.1.1 clients too, whose specifications do not know them."""

    strategy: SharingStrategy = "round_robin"
    """Which connected member gets a message: "round_robin" one after the other; "random";
    "sticky" the same one while it can take more; "least_inflight" the one with the fewest messages
    in flight and waiting; "hash_client" the same one for each publishing client; "hash_topic" the
    same one for each topic. A member that can take no more is passed over."""

    groups: tuple[ShareGroupStrategy, ...] = Field(default=(), max_length=1000)
    """Other strategies by group, at most 1000."""

    @model_validator(mode="after")
    def _groups_differ(self) -> Sharing:
        names = [group.group for group in self.groups]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"sharing.groups names {name!r} twice; give each one strategy")
        return self


class StreamDefinition(Group):
    """A named part of the log that Spark and other readers can read."""

    name: StreamName
    """Its name for readers: 1 to 64 letters, digits and . _ - that start with a letter or digit."""

    topic_filters: tuple[TopicFilter, ...] = Field(min_length=1, max_length=1000)
    """Messages whose topic matches any of these belong to the stream; 1 to 1000 MQTT filters.
    A leading wildcard leaves out topics that start with $."""


class Stream(Group):
    """The stream service, from which Spark reads the log (Arrow Flight, a process of its own)."""

    enabled: bool = True
    """Start the service. With persistence "memory" there is no log to read, and it stays off."""

    bind: BindAddress = Address("127.0.0.1", 8815)
    """Address of the service, HOST:PORT; port 0 takes any free port. The same rule as for
    listener.bind holds for addresses that other machines can reach."""

    streams: tuple[StreamDefinition, ...] = Field(
        default=(StreamDefinition(name="messages", topic_filters=("#",)),),
        min_length=1,
        max_length=100,
    )
    """Streams offered, 1 to 100. Every message that belongs to one is kept in the log."""

    @model_validator(mode="after")
    def _names_differ(self) -> Stream:
        names = [stream.name for stream in self.streams]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"stream.streams names {name!r} twice; give each its own name")
        return self


class Status(Group):
    """What the broker tells about itself: the topics under $SYS (docs/sys_topics.md)."""

    sys_interval_s: float = Field(default=10.0, ge=0, le=86_400)
    """Time between two updates of the $SYS topics, in seconds; only values that changed are
    sent. 0 to 86400; 0 turns the topics off."""


class Log(Group):
    """What the broker writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe messages shown: "debug", "info", "warning" or "error"."""


class Settings(Group):
    """All settings of a broker."""

    listener: Listener = Listener()
    durability: Durability = Durability()
    limits: Limits = Limits()
    sharing: Sharing = Sharing()
    stream: Stream = Stream()
    status: Status = Status()
    log: Log = Log()

    @model_validator(mode="after")
    def _nobody_unknown_gets_in(self) -> Settings:
        """There is no authentication yet, so an open address must be asked for by name."""
        binds = {"listener.bind": self.listener.bind}
        if self.stream.enabled:
            binds["stream.bind"] = self.stream.bind
        for name, bind in binds.items():
            if not bind.is_loopback and not self.listener.allow_anonymous:
                raise ValueError(
                    f"{name} is {bind}, which other machines can reach, and clients are not"
                    " authenticated: bind to 127.0.0.1, or let everyone in with"
                    " --allow-anonymous (listener.allow_anonymous = true)"
                )
        return self

    @model_validator(mode="after")
    def _addresses_differ(self) -> Settings:
        bind = self.listener.bind
        if self.stream.enabled and bind.port and bind == self.stream.bind:
            raise ValueError(
                f"listener.bind and stream.bind are both {bind}; give each its own port"
            )
        return self
