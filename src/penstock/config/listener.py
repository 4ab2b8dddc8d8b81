"""Listeners: addresses, transports, certificates, load balancers, zones.

The main listener is the group `[listener]`; the others have the same settings and a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from penstock.config.address import Address, SocketFile
from penstock.config.group import SettingsGroup
from penstock.config.limits import BROKER_LIMITS, Limits
from penstock.config.values import (
    FileMode,
    HttpPath,
    IdPrefix,
    ListenAddress,
    ListenerName,
    MountPoint,
    Network,
)
from penstock.engine.values.change_effects import (
    AT_ONCE,
    BY_PART,
    NEW_CONNECTIONS,
    RESTART,
    takes_effect,
)
from penstock.engine.values.declared_limits import ConnectionLimits

MAIN_LISTENER: Final = "main"


class Certificate(SettingsGroup):
    """A certificate and its key, for one host name."""

    certificate: str = Field(min_length=1)
    """PEM file of the certificate and its intermediate certificates."""

    key: str = Field(min_length=1)
    """PEM file of the private key, without a password."""


class Endpoint(SettingsGroup):
    """The transport and address of a listener, and whether clients need a user name there."""

    kind: Literal["tcp", "tls", "ws", "wss", "unix"] = "tcp"
    """Transport: "tcp"; "tls" (TLS 1.2 or newer over TCP); "ws" (WebSocket); "wss" (WebSocket
    over TLS); "unix" (a socket file)."""

    bind: ListenAddress = Address("127.0.0.1", 1883)
    """Address, HOST:PORT, such as 127.0.0.1:1883 or [::1]:1883; port 0 takes any free port. For
    kind "unix" the path of the socket file. An address that other machines can reach is refused
    while clients are not authenticated: see access.password_file and allow_anonymous."""

    allow_anonymous: Annotated[bool, NEW_CONNECTIONS] = False
    """Let clients in without a user name: on addresses that other machines can reach, and where
    there is an access.password_file. On loopback addresses, on Unix sockets, with a required client
    certificate and with a pre-shared key they are let in anyway while there is no password file."""


@takes_effect(NEW_CONNECTIONS)
class Listener(ConnectionLimits, Endpoint):
    """The settings of every listener: an address, the kind of transport, and limits of its own."""

    max_connections: int = Field(default=10_000, ge=1, le=1_000_000)
    """Most open connections; a further one is closed, unless another ends within a second. 1 to
    1000000. The limit of open files bounds all listeners together, see docs/listeners.md. If it is
    not set and memory.budget_bytes has no room for 416 KiB of each, it is lowered, to 400 at
    least."""

    connections_per_address_max: int = Field(default=0, ge=0, le=1_000_000)
    """Most open connections from one source address, or from one IPv6 network of 64 bits; a further
    one is closed, unless another ends within a second. With proxy_protocol the address is the one
    that the load balancer reports. 0 to 1000000; 0 is no limit."""

    connections_per_address_exempt: tuple[Network, ...] = Field(
        default=("127.0.0.0/8", "::1"), max_length=1000
    )
    """Networks, such as 10.0.0.0/8, whose connections connections_per_address_max does not
    count: gateways, and networks behind one address."""

    connections_per_s_max: int = Field(default=0, ge=0, le=1_000_000)
    """New connections per second, after as many at once; further ones wait in the system's
    queue until it is their turn. 0 to 1000000; 0 is no limit."""

    maximum_qos: int = Field(default=2, ge=0, le=2)
    """Highest QoS of this listener's clients, 0 to 2: a subscription is granted this QoS at most,
    and a client that publishes with a higher one is disconnected (0x9B); CONNACK tells MQTT 5
    clients."""

    retain_available: bool = True
    """Let this listener's clients publish retained messages; with false, a client that does is
    disconnected (0x9A); CONNACK tells MQTT 5 clients."""

    mount_point: MountPoint = ""
    """Prefix of all topics of this listener's clients, invisible to them: with tenant/7/ they see
    and reach only topics below it, without the prefix. It ends with a slash; empty for none. Access
    lists name the whole topics."""

    accept_protocol_versions: tuple[Literal["3.1", "3.1.1", "5"], ...] = Field(
        default=("3.1", "3.1.1", "5"), min_length=1, max_length=3
    )
    """Versions of MQTT that the listener accepts; clients with another one are refused (0x84,
    return code 1)."""

    auto_id_prefix: IdPrefix = Field(default="auto-", max_length=128)
    """Prefix of client identifiers that the broker assigns to clients without one; at most 128
    characters, the first of them not $."""

    path: HttpPath = "/mqtt"
    """Path of the WebSocket, for kinds "ws" and "wss"; a slash at its end makes no difference. *
    admits any path."""

    ws_ping_s: float = Field(default=30.0, ge=0, le=86_400)
    """Longest time without a frame to a client, in seconds, for kinds "ws" and "wss": then it gets
    a WebSocket ping, so that a proxy that cuts silent connections, many do after 60 s, leaves it
    alone. 0 to 86400; 0 sends none."""

    origins: tuple[str, ...] = Field(default=(), max_length=1000)
    """Web pages that may connect, for kinds "ws" and "wss": values of the Origin header, such as
    "https://dashboard.example". Empty admits all; a client that sends no Origin is no web page, and
    is admitted."""

    certificate: str = ""
    """PEM file of the certificate and its intermediate certificates, for kinds "tls" and "wss".
    Read again when it has changed on disk and at a reload, as are the key, client_ca, crl and sni;
    where the new files are wrong, the old stay in use."""

    key: str = ""
    """PEM file of the certificate's private key, without a password."""

    client_ca: str = ""
    """PEM file of the authorities that sign client certificates; empty asks for none."""

    crl: str = ""
    """PEM file of the revocation lists of client_ca: clients whose certificate is on one are
    refused, and all are once the list of their authority has expired. Empty for none."""

    psk_file: str = ""
    """File with the pre-shared keys of this listener's clients (TLS-PSK), for kinds "tls" and "wss"
    and instead of certificates: a line identity:key for each client, the key in hexadecimal digits.
    Needs Python 3.13. With access.identity_from_certificate = "common_name" the identity is the
    user name. Empty for none."""

    certificates_check_s: Annotated[float, AT_ONCE] = Field(default=10.0, ge=0, le=86_400)
    """How often to look whether certificates, keys and revocation lists have changed on disk, in
    seconds. They are read when two looks found the same files. 0 to 86400; 0 waits for a
    reload."""

    require_client_certificate: bool = False
    """Refuse clients without a certificate signed by client_ca."""

    sni: dict[str, Certificate] = Field(default={}, max_length=1000)
    """Certificates by host name, for clients that name the host they want (SNI); others get
    `certificate`."""

    proxy_protocol: Annotated[Literal["off", "v1", "v2", "any"], RESTART] = "off"
    """The load balancer in front sends the client's address first, in this version of the PROXY
    protocol: "v1", "v2" or "any" of them. A connection without it is closed."""

    proxy_networks: tuple[Network, ...] = Field(default=(), max_length=1000)
    """Networks of the load balancers, and of the machines of a cluster that relay; with
    proxy_protocol, connections from elsewhere are closed, unless proxy_networks_only is false."""

    proxy_networks_only: bool = True
    """Close connections from outside proxy_networks; with false, clients may come directly from
    there, without a PROXY header. From proxy_networks the header is needed either way."""

    mode: Annotated[FileMode, RESTART] = "660"
    """Permissions of the socket file, for kind "unix": three octal digits."""

    limits: Annotated[Limits, BY_PART] = Limits()
    """Limits of this listener's clients where they differ from [limits] (its zone), such as {
    max_inflight = 128, max_mqueue_len = 10000 }. Limits of the whole broker (retained_messages_max,
    sessions_max, sessions_per_user_max, topic_levels_max) cannot differ."""

    @model_validator(mode="after")
    def _parts_fit(self) -> Listener:
        for mistake in self._mistakes():
            raise ValueError(f"a listener at {self.bind} {mistake}")
        return self

    def _mistakes(self) -> Iterator[str]:
        if (self.kind == "unix") != isinstance(self.bind, SocketFile):
            yield f'has kind "{self.kind}"; HOST:PORT is for the others, a path for "unix"'
        has_files = self.certificate or self.key or self.client_ca or self.sni
        if self.psk_file and (has_files or not self.is_encrypted):
            yield 'has a psk_file, which is for kinds "tls" and "wss" without certificates'
        if self.is_encrypted and not ((self.certificate and self.key) or self.psk_file):
            yield f'of kind "{self.kind}" needs certificate and key, two PEM files'
        if not self.is_encrypted and has_files:
            yield f'of kind "{self.kind}" has a certificate, which only "tls" and "wss" use'
        if self.require_client_certificate and not self.client_ca:
            yield "requires client certificates and needs client_ca, the authorities that sign them"
        if self.crl and not self.client_ca:
            yield "has a crl and needs client_ca, whose certificates it revokes"
        if self.proxy_protocol != "off" and self.kind != "unix" and not self.proxy_networks:
            yield "has proxy_protocol and needs proxy_networks, from where it is believed"
        if shared := sorted(BROKER_LIMITS & self.limits.model_fields_set):
            yield f"has limits.{shared[0]}, which bounds the whole broker: set it in [limits]"

    @property
    def key_files(self) -> tuple[str, ...]:
        """The paths of the files with private keys; one is empty where no key is set."""
        return (self.key, self.psk_file, *(one.key for one in self.sni.values()))

    @property
    def is_encrypted(self) -> bool:
        """Return whether the listener speaks TLS."""
        return self.kind in ("tls", "wss")

    @property
    def is_open(self) -> bool:
        """Return whether other machines can use the listener without proving an identity."""
        return not (self.bind.is_loopback or self.require_client_certificate or self.psk_file)


class OtherListener(Listener):
    """A listener beside the main one."""

    name: ListenerName
    """Name of the listener in logs: 1 to 64 letters, digits and . _ - that start with a letter or
    digit."""

    bind: ListenAddress
    """Address, HOST:PORT, or for kind "unix" the path of the socket file."""


class MainListener(Listener):
    """The listener for MQTT clients. Further listeners are [[listener.others]] tables with the same
    settings and a name, see docs/listeners.md."""

    enabled: bool = True
    """Listen at listener.bind; false opens only listener.others."""

    others: Annotated[tuple[OtherListener, ...], BY_PART] = Field(default=(), max_length=1000)
    """Further listeners, 0 to 1000, each with a name, a bind and any setting of this group."""

    @property
    def name(self) -> str:
        """The name of the main listener in logs."""
        return MAIN_LISTENER

    @model_validator(mode="after")
    def _listeners_differ(self) -> MainListener:
        if not self.enabled and not self.others:
            raise ValueError(
                "listener.enabled is false and there are no listener.others: no client could"
                " connect"
            )
        names = [MAIN_LISTENER, *(other.name for other in self.others)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two listeners are named {name!r}; give each its own name")
        binds = [
            str(listener.bind)
            for listener in self.enabled_listeners()
            if not has_any_port(listener)
        ]
        for bind in binds:
            if binds.count(bind) > 1:
                raise ValueError(f"two listeners have the address {bind}; give each its own")
        return self

    def enabled_listeners(self) -> tuple[MainListener | OtherListener, ...]:
        """Return the listeners to open: the main one first, if it is enabled, then the others."""
        return (self, *self.others) if self.enabled else self.others


def bind_setting(listener: MainListener | OtherListener) -> str:
    """Return the name of the setting with a listener's address, for error messages."""
    if isinstance(listener, MainListener):
        return "listener.bind"
    return f"the bind of listener.others {listener.name!r}"


def has_any_port(listener: Listener) -> bool:
    """Return whether the system chooses the listener's port, so that no two listeners can clash."""
    return isinstance(listener.bind, Address) and listener.bind.port == 0
