"""The options of a client with their defaults, units and ranges, and the status of a client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol, TypedDict

from penstock.engine.values.limits import NEVER_EXPIRES_S
from penstock.errors import ConfigError
from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import Will
from penstock.transport.dialling import TlsFiles

Version = Literal["3.1", "3.1.1", "5"]
Overflow = Literal["wait", "raise", "drop_oldest", "drop_newest"]

VERSIONS: Final[dict[str, int]] = {"3.1": V31, "3.1.1": V311, "5": V5}

_DEFAULT_SESSION_EXPIRY_S: Final = (
    3600  # the session of a client that does not say how long to keep it
)


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a client's connection to its server.

    Attributes:
        state: "dialling", "connected", "waiting" for the next attempt, "failed" if the outbox
            failed for good, or "closed".
        url: the address of the latest attempt.
        attempt: the number of attempts since the last connection; 0 while connected.
        pause_s: length of the whole pause before the next attempt while "waiting", seconds; else 0.
        error: the reason why the client is not connected; empty while connected.
        reason_code: the server's reason code for ``error``; 0 if it gave none.
        next_url: the address of the next attempt while "waiting"; else empty.
    """

    state: str
    url: str
    attempt: int
    pause_s: float
    error: str
    reason_code: int
    next_url: str = ""


class Authentication(Protocol):
    """A method of enhanced authentication (MQTT 5 §4.12); implemented by the program."""

    method: str
    """The Authentication Method, as the server names it."""

    def first(self) -> bytes | None:
        """Return the Authentication Data of CONNECT, None for none; called for each connection."""

    def next(self, data: bytes | None) -> bytes | None:
        """Return the answer to the server's Authentication Data; None rejects the server."""


class Settings(TypedDict, total=False):
    """The keyword arguments of ``Client`` and ``BlockingClient``; see ``Options``."""

    client_id: str
    version: Version
    username: str | None
    password: str | bytes | None
    clean_start: bool | None
    session_expiry_s: int | None
    keep_alive_s: int
    will: Will | None
    user_properties: list[tuple[str, str]]
    authentication: Authentication | None
    tls: TlsFiles | None
    headers: tuple[tuple[str, str], ...]
    max_inflight: int
    receive_maximum: int
    inbox_messages_max: int
    inbox_bytes_max: int
    packet_bytes_max: int
    outbox: str | Path | None
    queue_messages_max: int
    queue_bytes_max: int
    age_s_max: float
    overflow: Overflow
    connect_timeout_s: float
    follow_references: bool
    quota_retry_s: float
    reconnect_s_min: float
    reconnect_s_max: float
    redeliver_s: float
    retry_interval_s: float
    drain_s: float
    waits_for_connection: bool | None
    status_changed: Callable[[Status], None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings of a client.

    Attributes:
        client_id: client identifier; "" for a random one.
        version: the version of MQTT.
        username: user name; None for none.
        password: password, as text or bytes; None for none.
        clean_start: whether the first connection begins a new session. None: True, unless
            ``session_expiry_s`` or ``outbox`` makes the session outlive the program.
        session_expiry_s: time for which the server keeps the session after the client is closed,
            seconds, 0 to 4294967295 (for ever). None: for ever with an ``outbox``; else the session
            survives lost connections, and ends with the client. In MQTT 3.1 and 3.1.1 any value
            other than 0 means for ever.
        keep_alive_s: Keep Alive, 0 to 65535 seconds; 0 turns it off. The client pings after three
            quarters of it, and closes the connection to a server silent for one and a half times
            as long.
        will: the message that the server publishes when it loses the client; None for none.
        user_properties: user properties of CONNECT; MQTT 5.
        authentication: method of enhanced authentication, MQTT 5; None for none.
        tls: certificate files for ``mqtts`` and ``wss``; None for the system's authorities.
        headers: additional headers of the WebSocket upgrade, such as ("Authorization", "…").
        max_inflight: maximum of QoS 1 and 2 messages sent and not acknowledged, 1 to 65000; the
            server's Receive Maximum may lower it.
        receive_maximum: maximum of QoS 1 and 2 messages that the server may send before the client
            acknowledges, 1 to 65535; MQTT 5.
        inbox_messages_max: received messages not yet taken by the program at which the client stops
            reading, 1 or more.
        inbox_bytes_max: bytes of such messages at which the client stops reading, 1 or more.
        packet_bytes_max: size of the largest packet accepted, 2 to 268435460 bytes.
        outbox: directory that stores QoS 1 and 2 messages until the server has acknowledged them,
            also across crashes of program and machine; None to keep them in memory.
        queue_messages_max: maximum of unacknowledged QoS 1 and 2 messages, 1 or more.
        queue_bytes_max: maximum of the bytes of messages not yet sent; 0 for no limit.
        age_s_max: time after which a message not yet sent is dropped, seconds; 0 for no limit.
        overflow: behaviour of ``publish`` if the queue is full. "wait": it waits for room.
            "raise": it raises ``QueueFull``. "drop_oldest", "drop_newest": that message is dropped,
            and awaiting its publication raises ``PublishFailed``.
        connect_timeout_s: time limit of each step of connecting, 0.001 to 86400 seconds.
        follow_references: whether to connect to any server that a server refers to (Server
            Reference, MQTT 5), with the same login and kind of connection. References to one of the
            client's own URLs are always followed.
        quota_retry_s: time for which ``publish`` retries, with growing pauses, a message refused
            because a quota is exceeded (0x97), seconds; 0 to raise at once.
        reconnect_s_min: pause after all addresses have failed once, 0.001 to 86400 seconds; doubled
            after each further round, and varied at random by up to a quarter.
        reconnect_s_max: maximum of that pause, and the pause after a refused login, 0.001 to 86400
            seconds.
        redeliver_s: pause before a message whose processing failed is handed over again, 0 to 86400
            seconds; doubled each further time; never more than one minute.
        retry_interval_s: interval at which MQTT 3.1 sends unacknowledged packets again within a
            connection, 0 to 86400 seconds; 0 for never. Later versions forbid it [MQTT-4.4.0-1].
        drain_s: time for which ``close`` waits for missing acknowledgements, seconds, 0 or more.
        waits_for_connection: whether ``open`` waits for the first connection, and raises if it
            fails. None: True without an outbox, False with one.
        status_changed: called with each new status; None for no calls.
    """

    client_id: str = ""
    version: Version = "5"
    username: str | None = None
    password: str | bytes | None = field(default=None, repr=False)
    clean_start: bool | None = None
    session_expiry_s: int | None = None
    keep_alive_s: int = 60
    will: Will | None = None
    user_properties: list[tuple[str, str]] = field(default_factory=list)
    authentication: Authentication | None = None
    tls: TlsFiles | None = None
    headers: tuple[tuple[str, str], ...] = ()
    max_inflight: int = 100
    receive_maximum: int = 1000
    inbox_messages_max: int = 10_000
    inbox_bytes_max: int = 268_435_456
    packet_bytes_max: int = 268_435_460
    outbox: str | Path | None = None
    queue_messages_max: int = 100_000
    queue_bytes_max: int = 0
    age_s_max: float = 0.0
    overflow: Overflow = "wait"
    connect_timeout_s: float = 10.0
    follow_references: bool = False
    quota_retry_s: float = 30.0
    reconnect_s_min: float = 1.0
    reconnect_s_max: float = 120.0
    redeliver_s: float = 1.0
    retry_interval_s: float = 20.0
    drain_s: float = 10.0
    waits_for_connection: bool | None = None
    status_changed: Callable[[Status], None] | None = None

    def __post_init__(self) -> None:
        """Check the ranges of the values, and that they can be combined.

        Raises:
            ConfigError: a value is out of range, or two cannot be combined; the message names them.
        """
        for name, kind, form in _KINDS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"{name} is {value!r}, and must be {form}")
        for name, least, most in _RANGES:
            value = getattr(self, name)
            if value is not None and not isinstance(value, (int, float)):
                raise ConfigError(f"{name} is {value!r}, and must be a number")
            if value is not None and not least <= value <= most:
                raise ConfigError(f"{name} is {value}, and must be {least} to {most}")
        if self.version not in VERSIONS:
            raise ConfigError(f"version is {self.version!r}, and must be one of {list(VERSIONS)}")
        if self.overflow not in _OVERFLOWS:
            raise ConfigError(f"overflow is {self.overflow!r}, and must be one of {_OVERFLOWS}")
        if self.version != "5" and (self.authentication or self.user_properties):
            raise ConfigError("authentication and user_properties need version 5")
        if self.clean_start is False and not self.client_id and self.outbox is None:
            raise ConfigError("clean_start = False needs the client_id whose session is resumed")
        if self.session_expiry_s and not self.client_id and self.outbox is None:
            raise ConfigError("session_expiry_s needs a client_id, by which the session is found")
        for name, value in self.headers:
            if not f"{name}{value}".isascii() or not f"{name}{value}".isprintable():
                raise ConfigError(f"the header {name!r} must be printable ASCII")
        if self.outbox is not None and self.session_expiry_s == 0:
            raise ConfigError("an outbox needs a session that outlives a connection")

    @property
    def level(self) -> int:
        """The protocol level of ``version``, 3 to 5."""
        return VERSIONS[self.version]

    @property
    def keeps_session(self) -> bool:
        """True if the server keeps the session after the client is closed."""
        if self.outbox is not None or self.clean_start is False:
            return True
        return bool(self.session_expiry_s)

    @property
    def begins_clean(self) -> bool:
        """True if the first connection begins a new session."""
        return not self.keeps_session if self.clean_start is None else self.clean_start

    @property
    def while_connected_s(self) -> int:
        """The Session Expiry Interval of CONNECT, seconds; it holds while the client is open."""
        if self.session_expiry_s is not None:
            return self.session_expiry_s
        return NEVER_EXPIRES_S if self.outbox is not None else _DEFAULT_SESSION_EXPIRY_S


_OVERFLOWS: Final = ("wait", "raise", "drop_oldest", "drop_newest")

_KINDS: Final[tuple[tuple[str, type | tuple[type, ...], str], ...]] = (
    ("client_id", str, "text"),
    ("username", str, "text"),
    ("password", (str, bytes), "text or bytes"),
    ("will", Will, 'a Will, such as Will("topic", b"payload", qos=1)'),
    ("tls", TlsFiles, 'a TlsFiles, such as TlsFiles(ca="ca.pem")'),
    ("outbox", (str, Path), "the path of a directory"),
)

_RANGES: Final[tuple[tuple[str, float, float], ...]] = (
    ("session_expiry_s", 0, NEVER_EXPIRES_S),
    ("keep_alive_s", 0, 65_535),
    ("max_inflight", 1, 65_000),  # leaves packet identifiers to SUBSCRIBE
    ("receive_maximum", 1, 65_535),
    ("inbox_messages_max", 1, 2**31),
    ("inbox_bytes_max", 1, 2**40),
    ("packet_bytes_max", 2, 268_435_460),
    ("queue_messages_max", 1, 2**40),
    ("queue_bytes_max", 0, 2**60),
    ("age_s_max", 0, 2**31),
    ("connect_timeout_s", 0.001, 86_400),
    ("quota_retry_s", 0, 2**31),
    ("reconnect_s_min", 0.001, 86_400),
    ("reconnect_s_max", 0.001, 86_400),
    ("redeliver_s", 0, 86_400),
    ("retry_interval_s", 0, 86_400),
    ("drain_s", 0, 2**31),
)
