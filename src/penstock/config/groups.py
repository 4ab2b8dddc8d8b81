"""The settings, in small frozen groups. The text under each field is its documentation.

Nothing here reads a file or the environment, so a `Settings` built in a test is just a value.
Names end in their unit; a limit is named after what it bounds. The limits on sessions and
packets are the engine's own (`penstock.engine.limits`), validated and explained here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
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

from penstock.config.address import Address, SocketFile, parse_place
from penstock.engine.limits import NEVER_EXPIRES_S
from penstock.engine.topics import is_share_name, is_shared, is_topic_filter, is_topic_name

TOPIC_LEVELS_MAX: Final = 1000

MAIN_LISTENER: Final = "main"
BROKER_LIMITS: Final = frozenset({"retained_messages_max", "sessions_max", "topic_levels_max"})
"""Those of `Limits` that hold for the whole broker and cannot differ by listener."""

_FILE_MODE: Final = re.compile(r"[0-7]{3}")
_HTTP_PATH: Final = re.compile(r"/[!-~]{0,1023}")
_STREAM_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def _address(value: object) -> object:
    return Address.parse(value) if isinstance(value, str) else value


def _topic_filter(value: str) -> str:
    if is_shared(value) or not is_topic_filter(value, TOPIC_LEVELS_MAX):
        raise ValueError("an MQTT topic filter, such as # or plant/+/temperature")
    return value


def _dead_letter_topic(value: str) -> str:
    if value and (not is_topic_name(value, TOPIC_LEVELS_MAX) or value.startswith("$")):
        raise ValueError("a topic name without wildcards that does not start with $, or nothing")
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
DeadLetterTopic = Annotated[str, AfterValidator(_dead_letter_topic)]
StreamName = Annotated[str, AfterValidator(_stream_name)]
ShareName = Annotated[str, AfterValidator(_share_name)]
SharingStrategy = Literal[
    "round_robin", "random", "sticky", "least_inflight", "hash_client", "hash_topic"
]
ListenerName = Annotated[str, AfterValidator(_stream_name)]


def _place(value: object) -> object:
    return parse_place(value) if isinstance(value, str) else value


def _network(value: str) -> str:
    try:
        return str(ipaddress.ip_network(value))
    except ValueError:
        raise ValueError("a network such as 10.0.0.0/8, 192.0.2.7 or fd00::/8") from None


def _mode(value: str) -> str:
    if _FILE_MODE.fullmatch(value) is None:
        raise ValueError('three octal digits for owner, group and others, such as "660"')
    return value


def _path(value: str) -> str:
    if _HTTP_PATH.fullmatch(value) is None:
        raise ValueError("a path that starts with a slash, such as /mqtt")
    return value


Place = Annotated[Address | SocketFile, BeforeValidator(_place), PlainSerializer(str)]
Network = Annotated[str, AfterValidator(_network)]
FileMode = Annotated[str, AfterValidator(_mode)]
HttpPath = Annotated[str, AfterValidator(_path)]


class Group(BaseModel):
    """What every group shares: no unknown settings, no change after loading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True
    )


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

    retry_interval_s: float = Field(default=20.0, ge=0, le=86_400)
    """MQTT 3.1 clients get again, marked as a duplicate, what they have not acknowledged for this
    long, in seconds, 0 to 86400; 0 never. Later versions forbid it: they get it again when they
    reconnect."""

    max_awaiting_rel: int = Field(default=0, ge=0, le=65535)
    """QoS 2 messages of one client that it has not released (PUBREL) yet, also from earlier
    connections. Above it MQTT 5 clients get 0x97, others no acknowledgement until they release
    one. 0 to 65535; 0 is no limit but receive_maximum."""

    await_rel_timeout_s: float = Field(default=300.0, ge=0, le=10**7)
    """A QoS 2 message whose client is connected and has not released it for this long is taken
    for finished, in seconds: if the client sends it once more after that, it counts as a new one.
    0 to 10000000; 0 waits for ever."""

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

    messages_per_s_max: int = Field(default=0, ge=0, le=10_000_000)
    """Messages a client may publish a second, after as many at once; reading from one that
    sends more pauses, nothing is dropped. 0 to 10000000; 0 is no limit."""

    bytes_per_s_max: int = Field(default=0, ge=0, le=2**40)
    """Bytes a client may send a second, after as many at once; reading from one that sends more
    pauses, nothing is dropped. 0 to 1099511627776; 0 is no limit."""

    topic_levels_max: int = Field(default=128, ge=1, le=TOPIC_LEVELS_MAX)
    """Levels of a topic name or filter, counted between slashes. 1 to 1000."""


class Memory(Group):
    """The memory that clients may make the broker hold."""

    budget_bytes: int = Field(default=0, ge=0, le=2**60)
    """The broker does not start when its listeners and limits allow clients more than this in the
    worst case, which it logs at every start; see docs/flow.md. 0 to 1152921504606846976 bytes; 0
    refuses nothing."""


class DeadLetters(Group):
    """Messages that were dropped on their way to a session, published once more."""

    topic: DeadLetterTopic = ""
    """Topic name they are published to, such as penstock/dead-letters, with the reason, the client
    identifier and the original topic as user properties; "" publishes none. A stream can take them
    into a table."""

    qos0: bool = False
    """Also those of QoS 0."""


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


class Certificate(Group):
    """A certificate and its key, for one host name."""

    certificate: str = Field(min_length=1)
    """PEM file of the certificate and those between it and its authority."""

    key: str = Field(min_length=1)
    """PEM file of the private key, without a password."""


class Listener(Group):
    """What every listener has: an address, the kind of transport, and bounds of its own."""

    kind: Literal["tcp", "tls", "ws", "wss", "unix"] = "tcp"
    """Transport: "tcp"; "tls" (TLS 1.2 or newer over TCP); "ws" (WebSocket); "wss" (WebSocket
    over TLS); "unix" (a socket file)."""

    bind: Place = Address("127.0.0.1", 1883)
    """Address, HOST:PORT, such as 127.0.0.1:1883 or [::1]:1883; port 0 takes any free port. For
    kind "unix" the path of the socket file. An address that other machines can reach is refused
    while clients are not authenticated: see access.password_file and allow_anonymous."""

    allow_anonymous: bool = False
    """Let clients in without a user name: on addresses that other machines can reach, and where
    there is an access.password_file. On loopback addresses, on Unix sockets and with a required
    client certificate they always are while there is none."""

    connect_timeout_s: float = Field(default=10.0, gt=0, le=3600)
    """Time a new connection has for each of its first steps (PROXY header and TLS handshake
    together, WebSocket upgrade, CONNECT), in seconds, above 0 up to 3600."""

    max_connections: int = Field(default=10_000, ge=1, le=1_000_000)
    """Open connections; further ones are closed at once. 1 to 1000000. The limit of open files
    bounds all listeners together, see docs/listeners.md."""

    connections_per_s_max: int = Field(default=0, ge=0, le=1_000_000)
    """New connections per second, after as many at once; further ones wait in the system's
    queue until it is their turn. 0 to 1000000; 0 is no limit."""

    write_buffer_bytes_max: int = Field(default=1_048_576, ge=4096, le=1_073_741_824)
    """Bytes waiting to be sent to one connection before its messages stay in the session's
    queue instead, QoS 0 is dropped for it, and, at as many again, its own packets are no longer
    read. 4096 to 1073741824."""

    slow_peer_timeout_s: float = Field(default=60.0, ge=0, le=86_400)
    """A client whose write buffer is full and that reads nothing for this long is disconnected,
    in seconds, 0 to 86400; 0 waits for ever."""

    path: HttpPath = "/mqtt"
    """Path of the WebSocket, for kinds "ws" and "wss"."""

    origins: tuple[str, ...] = Field(default=(), max_length=1000)
    """Web pages that may connect, for kinds "ws" and "wss": values of the Origin header, such
    as "https://dashboard.example". Empty admits all; who sends no Origin is no web page."""

    certificate: str = ""
    """PEM file of the certificate and those between it and its authority, for kinds "tls" and
    "wss". Read again at SIGHUP, as are the key, client_ca and sni."""

    key: str = ""
    """PEM file of the certificate's private key, without a password."""

    client_ca: str = ""
    """PEM file of the authorities that sign client certificates; empty asks for none."""

    require_client_certificate: bool = False
    """Refuse clients without a certificate signed by client_ca."""

    sni: dict[str, Certificate] = Field(default={}, max_length=1000)
    """Certificates by host name, for clients that name the host they want (SNI); others get
    `certificate`."""

    proxy_protocol: Literal["off", "v1", "v2", "any"] = "off"
    """The load balancer in front sends the client's address first, in this version of the PROXY
    protocol: "v1", "v2" or "any" of them. A connection without it is closed."""

    proxy_networks: tuple[Network, ...] = Field(default=(), max_length=1000)
    """Networks of the load balancers; with proxy_protocol, connections from elsewhere are
    closed."""

    mode: FileMode = "660"
    """Permissions of the socket file, for kind "unix": three octal digits."""

    limits: Limits = Limits()
    """Limits of this listener's clients where they differ from [limits] (its zone), such as
    { max_inflight = 128, max_mqueue_len = 10000 }. Those that bound the whole broker
    (retained_messages_max, sessions_max, topic_levels_max) cannot differ."""

    @model_validator(mode="after")
    def _parts_fit(self) -> Listener:
        for mistake in self._mistakes():
            raise ValueError(f"a listener at {self.bind} {mistake}")
        return self

    def _mistakes(self) -> Iterator[str]:
        if (self.kind == "unix") != isinstance(self.bind, SocketFile):
            yield f'has kind "{self.kind}"; HOST:PORT is for the others, a path for "unix"'
        if self.is_encrypted and not (self.certificate and self.key):
            yield f'of kind "{self.kind}" needs certificate and key, two PEM files'
        if not self.is_encrypted and (self.certificate or self.key or self.client_ca or self.sni):
            yield f'of kind "{self.kind}" has a certificate, which only "tls" and "wss" use'
        if self.require_client_certificate and not self.client_ca:
            yield "requires client certificates and needs client_ca, who signs them"
        if self.proxy_protocol != "off" and self.kind != "unix" and not self.proxy_networks:
            yield "has proxy_protocol and needs proxy_networks, from where it is believed"
        if shared := sorted(BROKER_LIMITS & self.limits.model_fields_set):
            yield f"has limits.{shared[0]}, which bounds the whole broker: set it in [limits]"

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is spoken."""
        return self.kind in ("tls", "wss")

    @property
    def is_open(self) -> bool:
        """Whether other machines can reach it without proving who they are."""
        return not (self.bind.is_loopback or self.require_client_certificate)


class OtherListener(Listener):
    """A listener beside the main one."""

    name: ListenerName
    """Its name in logs: 1 to 64 letters, digits and . _ - that start with a letter or digit."""

    bind: Place
    """Address, HOST:PORT, or for kind "unix" the path of the socket file."""


class MainListener(Listener):
    """Where MQTT clients connect. Further listeners are [[listener.others]] tables with the same
    settings and a name, see docs/listeners.md."""

    enabled: bool = True
    """Listen at listener.bind; turn it off where listener.others are all you want."""

    others: tuple[OtherListener, ...] = Field(default=(), max_length=1000)
    """Further listeners, 0 to 1000, each with a name, a bind and any setting of this group."""

    @property
    def name(self) -> str:
        """Its name in logs."""
        return MAIN_LISTENER

    @model_validator(mode="after")
    def _listeners_differ(self) -> MainListener:
        if not self.enabled and not self.others:
            raise ValueError(
                "listener.enabled is false and there are no listener.others: nobody could connect"
            )
        names = [MAIN_LISTENER, *(other.name for other in self.others)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two listeners are named {name!r}; give each its own name")
        binds = [str(listener.bind) for listener in self.open_ones() if not _is_any_port(listener)]
        for bind in binds:
            if binds.count(bind) > 1:
                raise ValueError(f"two listeners have the address {bind}; give each its own")
        return self

    def open_ones(self) -> tuple[MainListener | OtherListener, ...]:
        """All listeners that are to be opened, the main one first."""
        return (self, *self.others) if self.enabled else self.others


def _is_any_port(listener: Listener) -> bool:
    return isinstance(listener.bind, Address) and listener.bind.port == 0


class Mqtt5(Group):
    """What MQTT 5 lets a server tell its clients, or check for them."""

    response_information: str = Field(default="", max_length=1000)
    """Beginning of the topics a client gets answers on, such as "answers/%c/", told to clients
    that ask for it. %c stands for the client identifier, %u for the user name. Empty tells none."""

    check_payload_format: bool = True
    """Refuse messages (and wills) that say their payload is UTF-8 text when it is not, with reason
    code 0x99: QoS 1 and 2 by their acknowledgement, QoS 0 by ending the connection."""

    redirect: Literal["none", "temporary", "permanent"] = "none"
    """Send clients elsewhere instead of serving them: "temporary" (reason code 0x9C) or "permanent"
    (0x9D), with server_reference; clients before MQTT 5 get return code 3."""

    server_reference: str = Field(default="", max_length=1000)
    """Where clients find another server, such as "other.example:1883", also told to MQTT 5 clients
    when this broker stops. Several are separated by spaces. Empty tells none."""

    @model_validator(mode="after")
    def _says_where(self) -> Mqtt5:
        if self.redirect != "none" and not self.server_reference:
            raise ValueError(
                f"mqtt5.redirect is {self.redirect!r}; say in mqtt5.server_reference where to"
            )
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
    """Address of the service, HOST:PORT; port 0 takes any free port. An address that other
    machines can reach is refused unless allow_anonymous, for readers are not authenticated."""

    allow_anonymous: bool = False
    """Let everyone read the streams on addresses that other machines can reach. Without an
    access.password_file, listener.allow_anonymous says so too."""

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
    """What the broker tells about itself, to clients and in its log."""

    sys_interval_s: float = Field(default=10.0, ge=0, le=86_400)
    """Time between two updates of the $SYS topics, in seconds; only values that changed are
    sent. 0 to 86400; 0 turns the topics off, and those under $penstock/flow with them."""

    limit_warning_s: float = Field(default=30.0, ge=0, le=86_400)
    """How long a client may stay at a limit (its window full with messages waiting, its socket
    not read, its inbound quota used up) before the log names it, in seconds. 0 to 86400; 0 is
    no warning."""


class Access(Group):
    """Who may connect, and what they may do there. SIGHUP reads both files again."""

    password_file: str = ""
    """File with the users and their passwords, written by `penstock passwd`; empty for none.
    With one, only its users get in, and clients without a user name by allow_anonymous."""

    acl_file: str = ""
    """File with the access list: who may publish and subscribe where, see docs/security.md.
    Empty for none: everyone who got in may do everything."""

    checks_waiting_max: int = Field(default=1000, ge=1, le=1_000_000)
    """Clients whose password is being checked or waits for it; further ones are refused as the
    server is busy. A check costs some 20 ms of a core. 1 to 1000000."""

    verified_s: int = Field(default=300, ge=0, le=86_400)
    """How long a password that was right need not be checked again, in seconds: a client that
    reconnects costs nothing then. 0 to 86400; 0 checks every time."""


class Log(Group):
    """What the broker writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe messages shown: "debug", "info", "warning" or "error"."""


class Settings(Group):
    """All settings of a broker."""

    listener: MainListener = MainListener()
    durability: Durability = Durability()
    dead_letters: DeadLetters = DeadLetters()
    memory: Memory = Memory()
    limits: Limits = Limits()
    sharing: Sharing = Sharing()
    mqtt5: Mqtt5 = Mqtt5()
    stream: Stream = Stream()
    status: Status = Status()
    access: Access = Access()
    log: Log = Log()

    @model_validator(mode="after")
    def _nobody_unknown_gets_in(self) -> Settings:
        """An address open to everyone must be asked for by name; streams know no users yet."""
        has_users = bool(self.access.password_file)
        for listener in self.listener.open_ones():
            if listener.is_open and not (has_users or listener.allow_anonymous):
                raise ValueError(
                    f"{setting_of(listener)} is {listener.bind}, which other machines can reach,"
                    " and clients are not authenticated: bind to 127.0.0.1, or name the users in"
                    " access.password_file, or let everyone in with --allow-anonymous"
                    " (listener.allow_anonymous = true)"
                )
        is_asked_for = self.stream.allow_anonymous or (
            self.listener.allow_anonymous and not has_users
        )
        if self.stream.enabled and not (self.stream.bind.is_loopback or is_asked_for):
            raise ValueError(
                f"stream.bind is {self.stream.bind}, which other machines can reach, and readers"
                " of streams are not authenticated: bind to 127.0.0.1, or let everyone read with"
                " stream.allow_anonymous = true"
            )
        return self

    def lets_anonymous_in(self, listener: Listener) -> bool:
        """Whether clients without a user name get in through this listener."""
        is_private = not listener.is_open and not self.access.password_file
        return listener.allow_anonymous or is_private

    @model_validator(mode="after")
    def _addresses_differ(self) -> Settings:
        for listener in self.listener.open_ones():
            bind = listener.bind
            taken = self.stream.enabled and bind == self.stream.bind
            if taken and not _is_any_port(listener):
                raise ValueError(
                    f"{setting_of(listener)} and stream.bind are both {bind}; give each its own"
                    " port"
                )
        return self

    def limits_of(self, listener: Listener) -> Limits:
        """The limits of a listener's clients: its own where it has any, else the broker's."""
        own = {name: getattr(listener.limits, name) for name in listener.limits.model_fields_set}
        return self.limits.model_copy(update=own)


def setting_of(listener: MainListener | OtherListener) -> str:
    """Where a listener's address is set, for messages."""
    if isinstance(listener, MainListener):
        return "listener.bind"
    return f"the bind of listener.others {listener.name!r}"
