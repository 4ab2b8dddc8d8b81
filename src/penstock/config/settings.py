"""All settings of a broker, and the rules between the groups.

Nothing here reads a file or the environment, so a `Settings` built in a test is just a value.
"""

from __future__ import annotations

from pydantic import model_validator

from penstock.config.access import Access
from penstock.config.admin import Admin
from penstock.config.bridge import Bridge, RemoteBroker
from penstock.config.cluster import Cluster
from penstock.config.dead_letters import DeadLetters
from penstock.config.durability import Durability
from penstock.config.events import STREAM_FILTER, STREAM_NAME, Events
from penstock.config.group import SettingsGroup
from penstock.config.http_login import HttpLogin
from penstock.config.jwt_login import JwtLogin
from penstock.config.limits import Limits, Memory
from penstock.config.listener import Listener, MainListener, bind_setting, has_any_port
from penstock.config.metrics import Metrics
from penstock.config.mqtt5 import Mqtt5
from penstock.config.opentelemetry import OpenTelemetry
from penstock.config.sharing import Sharing
from penstock.config.status import Log, Status
from penstock.config.stream import Stream, StreamDefinition
from penstock.config.table import Tables


class Settings(SettingsGroup):
    """All settings of a broker."""

    listener: MainListener = MainListener()
    durability: Durability = Durability()
    cluster: Cluster = Cluster()
    dead_letters: DeadLetters = DeadLetters()
    memory: Memory = Memory()
    limits: Limits = Limits()
    sharing: Sharing = Sharing()
    mqtt5: Mqtt5 = Mqtt5()
    bridge: Bridge = Bridge()
    stream: Stream = Stream()
    events: Events = Events()
    tables: Tables = Tables()
    status: Status = Status()
    access: Access = Access()
    http_login: HttpLogin = HttpLogin()
    jwt_login: JwtLogin = JwtLogin()
    admin: Admin = Admin()
    metrics: Metrics = Metrics()
    opentelemetry: OpenTelemetry = OpenTelemetry()
    log: Log = Log()

    @model_validator(mode="after")
    def _open_addresses_are_asked_for(self) -> Settings:
        """Refuse an address that is open to everyone, unless the settings ask for it by name."""
        has_users = self.authenticates_users
        for listener in self.listener.enabled_listeners():
            if listener.is_open and not (has_users or listener.allow_anonymous):
                raise ValueError(
                    f"{bind_setting(listener)} is {listener.bind}, which other machines can reach,"
                    " and clients are not authenticated: bind to 127.0.0.1, or name the users in"
                    " access.password_file, or let everyone in with --allow-anonymous"
                    " (listener.allow_anonymous = true)"
                )
        stream = self.stream
        authenticates = stream.token_file or stream.client_ca
        is_allowed = stream.allow_anonymous or (self.listener.allow_anonymous and not has_users)
        if stream.enabled and not (stream.bind.is_loopback or authenticates or is_allowed):
            raise ValueError(
                f"stream.bind is {stream.bind}, which other machines can reach, and readers of"
                " streams are not authenticated: bind to 127.0.0.1, or ask for a token with"
                " stream.token_file, or for a certificate with stream.client_ca, or let everyone"
                " read with stream.allow_anonymous = true"
            )
        return self

    @model_validator(mode="after")
    def _a_listener_asks_for_certificates(self) -> Settings:
        """Refuse user names from certificates where no listener asks for certificates: no client
        would have the user that the access list names."""
        listeners = self.listener.enabled_listeners()
        asking = any(listener.client_ca or listener.psk_file for listener in listeners)
        if self.access.identity_from_certificate and not asking:
            raise ValueError(
                "access.identity_from_certificate takes user names from certificates, and no"
                " listener asks for one: give it client_ca, or psk_file"
            )
        return self

    @model_validator(mode="after")
    def _events_have_their_stream(self) -> Settings:
        """Refuse events that no reader could get, or not under the stream name that readers
        expect."""
        if not self.events.enabled:
            return self
        if not self.stream.enabled or self.durability.persistence != "file":
            raise ValueError(
                'events.enabled needs the log and its service: durability.persistence = "file" and'
                " stream.enabled = true"
            )
        for stream in self.stream.streams:
            if stream.name == STREAM_NAME and STREAM_FILTER not in stream.topic_filters:
                raise ValueError(
                    f"with events.enabled the stream {STREAM_NAME!r} is that of the broker's"
                    f" events: give it the topic filter {STREAM_FILTER}, or another name"
                )
        return self

    @model_validator(mode="after")
    def _admin_process_can_ask(self) -> Settings:
        """Refuse an admin process that could not ask the broker, or that takes the port of another
        listener."""
        bind = self.admin.bind
        if not bind:
            return self
        if self.durability.persistence != "file":
            raise ValueError(
                'admin.bind needs durability.persistence = "file": the admin process asks the'
                " broker over the control socket in its data directory"
            )
        if self.admin.users and not (
            self.access.password_file or self.jwt_login.keys or self.http_login.url
        ):
            raise ValueError(
                "admin.users are users of the broker, and there is nothing to check their"
                " passwords with: set access.password_file, jwt_login.keys or http_login.url"
            )
        taken = {
            bind_setting(listener): listener.bind for listener in self.listener.enabled_listeners()
        }
        if self.stream.enabled:
            taken["stream.bind"] = self.stream.bind
        for setting, other in taken.items():
            if bind.port and bind == other:
                raise ValueError(
                    f"admin.bind and {setting} are both {bind}; give each its own port"
                )
        return self

    @model_validator(mode="after")
    def _opentelemetry_process_can_ask(self) -> Settings:
        """Refuse an OpenTelemetry process that could not ask the broker."""
        if not self.opentelemetry.endpoint:
            return self
        if self.sends_traces and self.stream.client_ca:
            raise ValueError(
                "the OpenTelemetry process reads events from the stream service, and has no"
                " certificate to show that stream.client_ca asks for: use stream.token_file"
                " instead, or send no traces with opentelemetry.trace_ratio = 0"
            )
        if self.durability.persistence != "file":
            raise ValueError(
                'opentelemetry.endpoint needs durability.persistence = "file": its process asks for'
                " metrics over the control socket in the data directory"
            )
        return self

    @model_validator(mode="after")
    def _client_groups_name_listeners(self) -> Settings:
        """Refuse a client group of a listener that is not there: no client would be in it."""
        names = [listener.name for listener in self.listener.enabled_listeners()]
        for group in self.metrics.client_groups:
            if group.listener and group.listener not in names:
                raise ValueError(
                    f"the client group {group.name!r} names the listener {group.listener!r}, which"
                    f" is not there: the listeners are {', '.join(names)}"
                )
        return self

    @property
    def streams(self) -> tuple[StreamDefinition, ...]:
        """All streams that readers can use: those of the settings, and the stream of events if it
        is enabled."""
        offered = self.stream.streams
        if not self.events.enabled or any(stream.name == STREAM_NAME for stream in offered):
            return offered
        return (*offered, StreamDefinition(name=STREAM_NAME, topic_filters=(STREAM_FILTER,)))

    @property
    def sends_traces(self) -> bool:
        """Return whether traces of messages are sent to an OpenTelemetry collector."""
        return bool(
            self.opentelemetry.endpoint
            and self.opentelemetry.trace_ratio > 0
            and self.events.enabled
        )

    @property
    def authenticates_users(self) -> bool:
        """Return whether the broker checks user names, with passwords or tokens."""
        return bool(self.access.password_file or self.http_login.url or self.jwt_login.keys)

    def allows_anonymous(self, listener: Listener) -> bool:
        """Return whether clients without a user name may connect to this listener."""
        is_private = not listener.is_open and not self.authenticates_users
        return listener.allow_anonymous or is_private

    def requires_stream_token(self) -> bool:
        """Return whether every use of the stream service needs a token."""
        stream = self.stream
        has_rules = self.authenticates_users or bool(self.access.acl_file)
        is_open = stream.allow_anonymous or stream.client_ca
        return bool(stream.token_file) or (has_rules and not is_open)

    def allows_stream_publishing(self) -> bool:
        """Return whether programs may publish rows through the stream service, which knows no
        users."""
        has_rules = self.authenticates_users or bool(self.access.acl_file)
        return self.stream.allow_publish or (self.stream.bind.is_loopback and not has_rules)

    @model_validator(mode="after")
    def _addresses_differ(self) -> Settings:
        for listener in self.listener.enabled_listeners():
            bind = listener.bind
            taken = self.stream.enabled and bind == self.stream.bind
            if taken and not has_any_port(listener):
                raise ValueError(
                    f"{bind_setting(listener)} and stream.bind are both {bind}; give each its own"
                    " port"
                )
        return self

    def limits_of(self, listener: Listener) -> Limits:
        """Return the limits of a listener's clients: its own where it has any, else the
        broker's."""
        set_here = {
            name: getattr(listener.limits, name) for name in listener.limits.model_fields_set
        }
        return self.limits.model_copy(update=set_here)

    def limits_of_bridge(self, remote: RemoteBroker) -> Limits:
        """Return the limits of a bridge's session: its own where it has any, a queue without a
        limit, and else the broker's."""
        own: dict[str, object] = {
            "max_mqueue_len": 0,
            "max_mqueue_bytes": 0,
            "mqueue_overflow": "spill",
        }
        own |= {name: getattr(remote.limits, name) for name in remote.limits.model_fields_set}
        return self.limits.model_copy(update=own)
