"""Make the engine from the settings (its limits and options) and the state that the store
recovered.

Each setting that the engine needs is passed to it here, once, by name.
"""

from __future__ import annotations

import secrets
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.auth.admin_tokens import read_admin_grants
from penstock.auth.external import FirstOf, Method
from penstock.auth.files import UserFiles, load_user_files
from penstock.auth.header_file import read_headers
from penstock.auth.tokens import read_tokens
from penstock.bridge.plan import VERSIONS
from penstock.config.admin import Admin
from penstock.config.bridge import RemoteBroker
from penstock.config.http_login import HttpLogin
from penstock.config.jwt_login import JwtLogin
from penstock.config.listener import MainListener, OtherListener
from penstock.config.opentelemetry import OpenTelemetry
from penstock.config.settings import Settings
from penstock.config.stream import Stream
from penstock.engine.api import Authenticate, PreparedSessions, Server
from penstock.engine.values.access import Authorize
from penstock.engine.values.client_groups import ClientGroup, ClientGroups
from penstock.engine.values.declared_limits import limits_in
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.options import EventOptions, Offers, ServerOptions, SharingOptions
from penstock.errors import ConfigError
from penstock.regular_file import read_regular
from penstock.runtime.dialler import with_established_mark
from penstock.runtime.machine_clock import MachineClock
from penstock.store.port import Store
from penstock.telemetry.logs import get_logger
from penstock.transport.tls import read_authorities, read_pair

_ADMIN_PACKAGES: Final = ("starlette", "uvicorn", "prometheus_client")
_OTEL_PACKAGES: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_BRIDGE_WINDOW_MAX: Final = 60_000  # leaves packet identifiers to SUBSCRIBE

logger = get_logger(__name__)


def has_streams(settings: Settings) -> bool:
    """Return whether readers may read streams: the stream service is enabled and the log is on
    disk."""
    return settings.stream.enabled and settings.durability.persistence == "file"


def check_stream_files(stream: Stream) -> None:
    """Read the files that the stream service will read, so that a mistake is reported before it
    starts.

    Raises:
        ConfigError: a file cannot be read, or the key does not belong to the certificate.
    """
    if stream.certificate:
        read_pair(Path(stream.certificate), Path(stream.key))
    if stream.client_ca:
        read_authorities(Path(stream.client_ca))
    if stream.token_file:
        read_tokens(Path(stream.token_file))


def check_admin(admin: Admin) -> None:
    """Check the requirements of the admin process and read its files, so that a mistake is reported
    before it starts.

    Raises:
        ConfigError: packages are missing, a file cannot be read, or the key does not belong to the
            certificate.
    """
    for package in _ADMIN_PACKAGES:
        if find_spec(package) is None:
            raise ConfigError(
                "admin.bind needs Starlette, uvicorn and prometheus-client: install them with"
                ' `pip install "penstock[admin]"`.'
            )
    if admin.certificate:
        read_pair(Path(admin.certificate), Path(admin.key))
    if admin.token_file:
        read_admin_grants(Path(admin.token_file))


def check_opentelemetry(settings: OpenTelemetry) -> None:
    """Check the requirements of the OpenTelemetry process and read its files, so that a mistake is
    reported before it starts.

    Raises:
        ConfigError: packages are missing, a file cannot be read, or the key does not belong to the
            certificate.
    """
    if not has_opentelemetry():
        raise ConfigError(
            "opentelemetry.endpoint needs OpenTelemetry's SDK and its exporter for OTLP: install"
            ' them with `pip install "penstock[otel]"`.'
        )
    if settings.certificate:
        read_pair(Path(settings.certificate), Path(settings.key))
    for file in (settings.ca_file, settings.stream_ca_file):
        if file:
            read_authorities(Path(file))
    if settings.headers_file:
        read_headers(Path(settings.headers_file))


def has_opentelemetry() -> bool:
    """Return whether the packages of the extra `otel` are installed."""
    try:
        return all(find_spec(package) is not None for package in _OTEL_PACKAGES)
    except ModuleNotFoundError:  # the parent package is missing
        return False


def login_method(settings: Settings) -> Method | None:
    """Return the login method for users whom the password file does not name; None if none is set.

    Raises:
        ConfigError: a file of the method cannot be used, or a package is missing.
    """
    methods: list[Method] = []
    if settings.jwt_login.keys:
        methods.append(_token_method(settings.jwt_login))
    if settings.http_login.url:
        methods.append(_http_method(settings.http_login))
    return FirstOf(methods) if methods else None


def user_files(settings: Settings) -> UserFiles:
    """Return the password file and the access list of the settings.

    Raises:
        ConfigError: as ``load_user_files``.
    """
    return load_user_files(
        settings.access.password_file,
        settings.access.acl_file,
        bool(settings.access.identity_from_certificate),
        bool(settings.jwt_login.keys or settings.http_login.url),
    )


def _token_method(login: JwtLogin) -> Method:
    try:
        from penstock.auth.json_web_tokens import KeySet, TokenMethod
    except ImportError:
        raise ConfigError(
            'jwt_login.keys needs PyJWT: install it with `pip install "penstock[jwt]"`.'
        ) from None
    return TokenMethod(
        KeySet(login.keys, login.refresh_s),
        login.algorithms,
        login.audience,
        login.issuer,
        login.user_claim,
        login.acl_claim,
    )


def _http_method(login: HttpLogin) -> Method:
    from penstock.auth.http_requests import HttpMethod  # loads the HTTP client

    token = ""
    setting = f"http_login.token_file {login.token_file}"
    try:
        if login.token_file:
            token = read_regular(login.token_file).decode().strip()
        setting = f"http_login.ca_file {login.ca_file}"
        return HttpMethod(
            login.url, login.timeout_s, login.cache_s, login.ca_file, token, login.requests_max
        )
    except OSError as error:
        raise ConfigError(f"{setting} cannot be used: {error.strerror or error}.") from None
    except ValueError as error:
        raise ConfigError(f"{setting} cannot be used: {error}.") from None


def prepared_sessions(settings: Settings) -> PreparedSessions:
    """Return an empty ``PreparedSessions`` for an engine that is made later with these settings.

    A standby fills it from its store and applies each change (``store.stored_sessions``). After a
    change of the settings the standby needs a new one.
    """
    limits = engine_limits(settings, settings.listener)
    by_name = {other.name: engine_limits(settings, other) for other in settings.listener.others}
    by_name[limits.name] = limits
    for remote in settings.bridge.remotes:
        of_bridge = bridge_limits(settings, remote)
        by_name[of_bridge.name] = of_bridge
        by_name[with_established_mark(of_bridge.name)] = of_bridge
    return PreparedSessions(
        limits, _streamed_filters(settings), _sharing_options(settings), by_name
    )


def make_engine(
    settings: Settings,
    store: Store,
    authenticate: Authenticate,
    authorize: Authorize,
    prepared: PreparedSessions | None = None,
) -> tuple[Server, MachineClock]:
    """Return the broker's engine with everything the store recovered, and its clock.

    Args:
        settings: the settings.
        store: the store, opened.
        authenticate: checks credentials.
        authorize: returns the permissions of clients.
        prepared: the sessions of this store, made with these settings; the engine takes them over.
            None: the sessions are built now.
    """
    recovered = store.recover(subscriptions=prepared is None)
    if prepared is not None and not prepared.covers(recovered.sessions):
        logger.error("the prepared sessions are not those of the store: all are read again")
        prepared, recovered = None, store.recover()
    if prepared is None:
        prepared = prepared_sessions(settings)
    clock = MachineClock(recovered.clock, recovered.next_offset)
    if recovered.sessions or recovered.next_offset:
        logger.info(
            "recovered %d sessions, %d retained messages, a log of epoch %s up to offset %d",
            recovered.session_count,
            len(recovered.retained),
            recovered.epoch,
            recovered.next_offset,
        )
    server = Server(
        prepared.limits,
        recovered,
        _streamed_filters(settings),
        store.acknowledged_when,
        clock.now(),
        _sharing_options(settings),
        authenticate,
        authorize,
        server_options(settings),
        settings.dead_letters.topic,
        settings.dead_letters.qos0,
        prepared.limits_by_name,
        event_options(settings),
        client_groups(settings),
        settings.events.recorded_clients,
        prepared,
    )
    return server, clock


def engine_limits(settings: Settings, listener: MainListener | OtherListener) -> EngineLimits:
    """Return the limits of a listener's connections: the listener's own, else those of [limits]."""
    configured = settings.limits_of(listener)
    limits = EngineLimits(
        listener.name, **limits_in(configured), **limits_in(listener), **_shared_limits(settings)
    )
    limits.offers = Offers(
        listener.maximum_qos,
        listener.retain_available,
        tuple(VERSIONS[version] for version in listener.accept_protocol_versions),
        listener.auto_id_prefix,
        listener.mount_point,
    )
    return limits


def bridge_limits(settings: Settings, remote: RemoteBroker) -> EngineLimits:
    """Return the limits of a bridge's session and connections."""
    configured = settings.limits_of_bridge(remote)
    limits = EngineLimits(
        f"bridge {remote.name}",
        **limits_in(configured),
        **limits_in(settings.listener),
        **_shared_limits(settings),
    )
    limits.sent_packet_bytes_max = remote.max_packet_size_bytes
    limits.connect_timeout_s = remote.connect_timeout_s
    limits.await_rel_timeout_s = 0.0  # see ``ClientConnection``
    limits.max_inflight = min(limits.max_inflight or _BRIDGE_WINDOW_MAX, _BRIDGE_WINDOW_MAX)
    return limits


def _shared_limits(settings: Settings) -> dict[str, object]:
    """Return the limits that all listeners and bridges share, by name."""
    return limits_in(settings.memory) | limits_in(settings.durability)


def _streamed_filters(settings: Settings) -> tuple[str, ...]:
    """Return the topic filters of all streams: their messages enter the log even if no session
    needs them."""
    if not has_streams(settings):
        return ()
    return tuple(
        topic_filter for stream in settings.streams for topic_filter in stream.topic_filters
    )


def _sharing_options(settings: Settings) -> SharingOptions:
    sharing = settings.sharing
    return SharingOptions(
        sharing.enabled,
        sharing.strategy,
        {entry.group: entry.strategy for entry in sharing.groups},
        secrets.randbits(32),
        sharing.before_mqtt5,
    )


def event_options(settings: Settings) -> EventOptions | None:
    """Return the selection of events to write; None if events are switched off."""
    events = settings.events
    if not events.enabled:
        return None
    listeners = {settings.listener.name: settings.listener.kind}
    listeners |= {other.name: other.kind for other in settings.listener.others}
    return EventOptions(
        events.kinds,
        events.topic_filters,
        events.sample_one_in,
        events.flow_interval_s,
        dict(listeners),
    )


def client_groups(settings: Settings) -> ClientGroups:
    """Return the groups of clients for which metrics are counted."""
    groups = settings.metrics.client_groups
    return ClientGroups(
        tuple(ClientGroup(one.name, one.client, one.user, one.listener) for one in groups)
    )


def server_options(settings: Settings) -> ServerOptions:
    """Return the engine's options that are no limits."""
    mqtt5 = settings.mqtt5
    return ServerOptions(
        mqtt5.response_information,
        mqtt5.check_payload_format,
        mqtt5.redirect,
        mqtt5.server_reference,
        settings.durability.acknowledge_in_memory,
        settings.access.client_ids_shared,
    )
