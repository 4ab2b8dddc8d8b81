"""The composition root: a validated configuration becomes a running broker.

Every part is made here and handed what it needs; no part looks another one up.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import secrets
import signal
import time
from functools import partial
from typing import Final, final

import uvloop

from penstock.auth.files import load_access
from penstock.broker.authentication import Authentication
from penstock.broker.control import Control
from penstock.broker.driver import Driver
from penstock.broker.flow_topics import FlowTopics
from penstock.broker.limit_warnings import LimitWarnings
from penstock.broker.retention import retain_forever
from penstock.broker.status import tell_forever
from penstock.broker.stream_process import StreamProcess, settle_port
from penstock.broker.sys_topics import SysTopics
from penstock.config import Listener, Settings
from penstock.config.memory import commitment, excess
from penstock.engine.access import Authenticate, Authorize
from penstock.engine.clock import Now
from penstock.engine.limits import EngineLimits
from penstock.engine.options import ServerOptions
from penstock.engine.server import Server
from penstock.engine.sharing import SharingOptions
from penstock.errors import ConfigError, StoreDamaged, StoreError, StoreFailed
from penstock.store.api import Store
from penstock.store.identity import new_epoch
from penstock.store.memory import MemoryStore
from penstock.store.rocks import RocksStore
from penstock.telemetry.logs import configure_logs
from penstock.transport.descriptors import prepared
from penstock.transport.listener import OpenListener, open_listener

logger = logging.getLogger(__name__)

EXIT_OK: Final = 0
EXIT_STORE_FAILED: Final = 1


def serve(settings: Settings) -> int:
    """Run a broker until SIGTERM or SIGINT; the exit code.

    Prints one line with ``ready`` and the addresses when connections are accepted.

    Raises:
        ConfigError: a port is taken, the data directory cannot be used.
        StoreDamaged: the store holds less than was acknowledged.
    """
    configure_logs(settings.log.level)
    refused = excess(settings)
    if refused:
        raise ConfigError(refused)
    logger.info("worst case of memory for clients: %s", commitment(settings))
    store = _open_store(settings)
    try:
        return uvloop.run(_Broker(settings, store).run())
    finally:
        store.close()


@final
class _Broker:
    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._stopped = asyncio.Event()
        self._exit_code = EXIT_OK
        self._listeners: list[OpenListener] = []

    async def run(self) -> int:
        settings = self._settings
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopped.set)
        access = load_access(settings.access.password_file, settings.access.acl_file)
        authentication = Authentication(
            access, settings.access.checks_waiting_max, settings.access.verified_s
        )
        streamed = settings.stream.enabled and settings.durability.persistence == "file"
        server = self._server(streamed, authentication, access)
        set_recovered_aside()
        driver = Driver(
            server,
            self._store,
            settings.durability.commit_bytes_max,
            self._failed,
        )
        authentication.report_to(driver.decided)
        loop.add_signal_handler(signal.SIGHUP, self._reload, server, authentication, driver)
        stream = None
        control = None
        interval_s = settings.status.sys_interval_s
        sys_topics = SysTopics(server, self._store, interval_s, driver.now())
        status = asyncio.create_task(
            tell_forever(
                driver,
                sys_topics,
                FlowTopics(server, interval_s),
                LimitWarnings(server.effects, settings.status.limit_warning_s),
            )
        )
        retention = asyncio.create_task(
            retain_forever(
                server,
                self._store,
                settings.durability.retention_s,
                settings.durability.retention_bytes_max,
            )
        )
        try:
            stream_address = ""
            if streamed:
                bind = settings.stream.bind
                port = await settle_port(bind.host, bind.port)
                stream = StreamProcess(
                    settings.durability.data_dir, bind.host, port, self._streams_json()
                )
                stream_address = f" stream grpc://{bind.host}:{port}"
            await self._open_listeners(driver)
            if stream is not None:
                stream.start()
            if isinstance(self._store, RocksStore):
                control = Control(self._store, settings.durability.data_dir)
                await control.open()
            urls = " ".join(url for listener in self._listeners for url in listener.urls)
            print(f"penstock ready {urls}{stream_address}", flush=True)
            await self._stopped.wait()
        finally:
            retention.cancel()
            status.cancel()
            for listener in self._listeners:
                listener.close()
            authentication.close()
            await driver.stop()
            if control is not None:
                await control.close()
            if stream is not None:
                await stream.stop()
            for task in (retention, status):
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        return self._exit_code

    async def _open_listeners(self, driver: Driver) -> None:
        """Open all listeners, each with the limits of its zone."""
        settings = self._settings
        descriptors = prepared(settings)
        for listener in settings.listener.open_ones():
            accept = partial(
                driver.accept,
                limits=_engine_limits(settings, listener),
                lets_anonymous_in=settings.lets_anonymous_in(listener),
            )
            self._listeners.append(
                await open_listener(listener.name, listener, accept, descriptors)
            )

    def _reload(self, server: Server, authentication: Authentication, driver: Driver) -> None:
        """SIGHUP: read again what is read from files; what cannot be read stays as it was."""
        for listener in self._listeners:
            try:
                if listener.reload():
                    logger.info("reloaded the certificates of listener %s", listener.name)
            except ConfigError as error:
                logger.error("the certificates in use stay in use: %s", error)
        files = self._settings.access
        try:
            access = load_access(files.password_file, files.acl_file)
        except ConfigError as error:
            logger.error("users and access list stay as they were: %s", error)
            return
        revoked = authentication.reload(access)
        server.authorize_anew(access, revoked, driver.now())
        driver.end_turn_soon()
        if files.password_file or files.acl_file:
            logger.info("reloaded users and access list")

    def _server(self, streamed: bool, authenticate: Authenticate, authorize: Authorize) -> Server:
        recovered = self._store.recover()
        if recovered.sessions or recovered.next_offset:
            logger.info(
                "recovered %d sessions, %d retained messages, a log of epoch %s up to offset %d",
                len(recovered.sessions),
                len(recovered.retained),
                recovered.epoch,
                recovered.next_offset,
            )
        filters: tuple[str, ...] = ()
        if streamed:
            filters = tuple(
                topic_filter
                for stream in self._settings.stream.streams
                for topic_filter in stream.topic_filters
            )
        return Server(
            _engine_limits(self._settings, self._settings.listener),
            recovered,
            filters,
            self._store.acknowledged_when,
            Now(time.monotonic(), time.time_ns() // 1000),
            _sharing_options(self._settings),
            authenticate,
            authorize,
            _server_options(self._settings),
            self._settings.dead_letters.topic,
            self._settings.dead_letters.qos0,
        )

    def _streams_json(self) -> str:
        return json.dumps(
            [
                {"name": stream.name, "topic_filters": list(stream.topic_filters)}
                for stream in self._settings.stream.streams
            ]
        )

    def _failed(self, failure: StoreFailed) -> None:
        logger.error("stopping: %s", failure)
        self._exit_code = EXIT_STORE_FAILED
        self._stopped.set()


def _open_store(settings: Settings) -> Store:
    if settings.durability.persistence == "memory":
        return MemoryStore(new_epoch())
    try:
        return RocksStore(settings.durability.data_dir)
    except StoreDamaged:
        raise
    except StoreError as error:
        raise ConfigError(str(error)) from error


def _engine_limits(settings: Settings, listener: Listener) -> EngineLimits:
    """The bounds of a listener's connections: its own limits, else those of [limits]."""
    limits = settings.limits_of(listener)
    return EngineLimits(
        max_inflight=limits.max_inflight,
        max_mqueue_len=limits.max_mqueue_len,
        max_mqueue_bytes=limits.max_mqueue_bytes,
        mqueue_overflow=limits.mqueue_overflow,
        mqueue_priorities=limits.mqueue_priorities,
        mqueue_default_priority=limits.mqueue_default_priority,
        retry_interval_s=limits.retry_interval_s,
        max_awaiting_rel=limits.max_awaiting_rel,
        await_rel_timeout_s=limits.await_rel_timeout_s,
        mqueue_store_qos0=limits.mqueue_store_qos0,
        receive_maximum=limits.receive_maximum,
        max_packet_size_bytes=limits.max_packet_size_bytes,
        topic_alias_maximum=limits.topic_alias_maximum,
        topic_alias_outbound_max=limits.topic_alias_outbound_max,
        session_expiry_s_max=limits.session_expiry_s_max,
        keep_alive_s_max=limits.keep_alive_s_max,
        retained_messages_max=limits.retained_messages_max,
        sessions_max=limits.sessions_max,
        subscriptions_per_session_max=limits.subscriptions_per_session_max,
        topic_levels_max=limits.topic_levels_max,
        connect_timeout_s=listener.connect_timeout_s,
        write_buffer_bytes_max=listener.write_buffer_bytes_max,
        slow_peer_timeout_s=listener.slow_peer_timeout_s,
        messages_per_s_max=limits.messages_per_s_max,
        bytes_per_s_max=limits.bytes_per_s_max,
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


def _server_options(settings: Settings) -> ServerOptions:
    mqtt5 = settings.mqtt5
    return ServerOptions(
        mqtt5.response_information,
        mqtt5.check_payload_format,
        mqtt5.redirect,
        mqtt5.server_reference,
    )


def set_recovered_aside() -> None:
    """Take what there is out of the garbage collector's sight, once, after the recovery.

    Sessions and subscriptions live long and are many: with a million subscriptions a full
    collection takes seconds, and the loop stands still meanwhile. What goes out of use is
    freed all the same, by its reference count.
    """
    gc.collect()
    gc.freeze()
