"""The composition root: a validated configuration becomes a running broker.

Every part is made here and handed what it needs; no part looks another one up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import signal
import time
from functools import partial
from typing import Final, final

import uvloop

from penstock.broker.driver import Driver
from penstock.broker.retention import retain_forever
from penstock.broker.status import tell_forever
from penstock.broker.stream_process import StreamProcess, settle_port
from penstock.broker.sys_topics import SysTopics
from penstock.config import Listener, Settings
from penstock.engine.clock import Now
from penstock.engine.limits import EngineLimits
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
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        streamed = settings.stream.enabled and settings.durability.persistence == "file"
        server = self._server(streamed)
        driver = Driver(
            server,
            self._store,
            settings.durability.commit_bytes_max,
            self._failed,
        )
        stream = None
        interval_s = settings.status.sys_interval_s
        sys_topics = SysTopics(server, self._store, interval_s, driver.now())
        status = asyncio.create_task(tell_forever(driver, sys_topics))
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
            urls = " ".join(url for listener in self._listeners for url in listener.urls)
            print(f"penstock ready {urls}{stream_address}", flush=True)
            await self._stopped.wait()
        finally:
            retention.cancel()
            status.cancel()
            for listener in self._listeners:
                listener.close()
            await driver.stop()
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
            accept = partial(driver.accept, limits=_engine_limits(settings, listener))
            self._listeners.append(
                await open_listener(listener.name, listener, accept, descriptors)
            )

    def _reload(self) -> None:
        """SIGHUP: read again what is read from files; what cannot be read stays as it was."""
        for listener in self._listeners:
            try:
                listener.reload()
            except ConfigError as error:
                logger.error("the certificates in use stay in use: %s", error)
            else:
                logger.info("reloaded what listener %s reads from files", listener.name)

    def _server(self, streamed: bool) -> Server:
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
