"""The options of a client, each with its default, its unit and its range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol, TypedDict

from penstock.engine.limits import NEVER_EXPIRES_S
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
        state: "dialling", "connected", "waiting" for the next attempt, or "closed".
        url: the address of the latest attempt.
        attempt: the number of attempts since the last connection; 0 while connected.
        pause_s: while waiting: the length of the whole pause, seconds.
        error: why there is no connection; empty while connected.
        reason_code: the server's reason code for that, 0 if it gave none.
        next_url: while waiting: the address of the next attempt; else empty.
    """

    state: str
    url: str
    attempt: int
    pause_s: float
    error: str
    reason_code: int
    next_url: str = ""


class Authentication(Protocol):
    """A method of enhanced authentication (MQTT 5 §4.12), in the order of its calls."""

    method: str
    """Its name, as the server knows it."""

    def first(self) -> bytes | None:
        """Return the data of CONNECT; called for each connection."""

    def next(self, data: bytes | None) -> bytes | None:
        """Return the answer to the server's data; None if the server did not prove itself."""


class Settings(TypedDict, total=False):
    """The keywords of ``Client`` and ``BlockingClient``: see ``Options``."""

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
        client_id: client identifier; empty takes one that nobody else has.
        version: the version of MQTT.
        username: user name.
        password: password, text or bytes.
        clean_start: begin a new session with the first connection. None: unless
            ``session_expiry_s`` or ``outbox`` says that it outlives this program.
        session_expiry_s: how long the server keeps the session after the client is closed, seconds,
            0 to 4294967295 (for ever). None: not at all, but through broken connections; with
            an ``outbox`` for ever. MQTT 3.1 and 3.1.1 have only two kinds: not 0 is for ever.
        keep_alive_s: a ping leaves every three quarters of this, and a server silent for one and a
            half is given up. 0 to 65535 seconds; 0 = never.
        will: the message that the server publishes when the client is lost.
        user_properties: in CONNECT, MQTT 5.
        authentication: enhanced authentication, MQTT 5.
        tls: files for ``mqtts`` and ``wss``; None takes the authorities of the system.
        headers: additional headers of the upgrade to WebSocket, such as ("Authorization", "…").
        max_inflight: QoS 1 and 2 messages sent and not acknowledged, 1 to 65000; the server's
            Receive Maximum may bound it further.
        receive_maximum: QoS 1 and 2 messages that the server may send before we acknowledge, 1
            to 65535, MQTT 5.
        inbox_messages_max: received messages that wait for the program before nothing more is
            read, 1 or more.
        inbox_bytes_max: bytes of those before nothing more is read.
        packet_bytes_max: largest packet accepted, bytes.
        outbox: directory that keeps QoS 1 and 2 messages until the server has them, through crashes
            of program and machine.
        queue_messages_max: QoS 1 and 2 messages that were not acknowledged yet, 1 or more.
        queue_bytes_max: bytes of those that wait to be sent; 0 = no limit.
        age_s_max: a message that waits for so long is given up, seconds; 0 = never.
        overflow: the treatment of one more: "wait" for room, "raise" ``QueueFull``, or drop the
            oldest or the newest, which ``PublishFailed`` tells who awaits it.
        connect_timeout_s: for each step of connecting, seconds.
        follow_references: connect to another server that the server names (Server Reference,
            MQTT 5), with the same login and the same kind of connection, also where that is none
            of the client's own URLs; one of those is followed in any case.
        quota_retry_s: ``publish`` tries again, with growing pauses, for so long where the server
            has no room for the message (0x97), seconds; 0 = not at all.
        reconnect_s_min: pause when each address has failed once, doubled after each further round,
            give or take a quarter.
        reconnect_s_max: the longest such pause, and the one after a refused login.
        redeliver_s: a message whose processing failed is handed over again after this, twice as
            long each further time, seconds.
        retry_interval_s: MQTT 3.1 only: unacknowledged packets are sent again after this, within a
            connection, too; 0 = never. Later versions forbid it [MQTT-4.4.0-1].
        drain_s: how long ``close`` waits for missing acknowledgements, seconds.
        waits_for_connection: ``async with`` waits for the first connection, and fails with it.
            None: unless there is an outbox.
        status_changed: called with each new status.
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
        """Refuse a combination of values that makes no sense.

        Raises:
            ConfigError: the message names the option and what it must be.
        """
        for name, least, most in _RANGES:
            value = getattr(self, name)
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
        """The protocol level, 3 to 5."""
        return VERSIONS[self.version]

    @property
    def keeps_session(self) -> bool:
        """True if the session outlives the client."""
        if self.outbox is not None or self.clean_start is False:
            return True
        return bool(self.session_expiry_s)

    @property
    def begins_clean(self) -> bool:
        """True if the first connection starts clean."""
        return not self.keeps_session if self.clean_start is None else self.clean_start

    @property
    def while_connected_s(self) -> int:
        """The session expiry interval in CONNECT, seconds."""
        if self.session_expiry_s is not None:
            return self.session_expiry_s
        return NEVER_EXPIRES_S if self.outbox is not None else _DEFAULT_SESSION_EXPIRY_S


_OVERFLOWS: Final = ("wait", "raise", "drop_oldest", "drop_newest")

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
