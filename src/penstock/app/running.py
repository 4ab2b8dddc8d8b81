"""A broker from an open store to its end.

::

    engine ─▶ driver ─▶ listeners ─▶ stream service ─▶ control socket ─▶ "penstock ready"

    SIGHUP, `penstock reload`: all settings are read again (``reloading``)
    SIGTERM, SIGINT, a store that failed: all parts are closed, listeners first, the store last
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import ssl
from collections.abc import Callable, Iterable
from functools import partial
from random import SystemRandom
from typing import Final, NamedTuple, NoReturn, final

from penstock.app.children import Children
from penstock.app.composing import (
    bridge_limits,
    engine_limits,
    has_streams,
    login_method,
    make_engine,
)
from penstock.app.reloading import Parts, Reloading, Source
from penstock.auth.files import UserFiles
from penstock.bridge.bridge import Bridge
from penstock.config.available_memory import available_memory
from penstock.config.listener import MainListener, OtherListener
from penstock.config.memory import report_memory, share_note
from penstock.config.settings import Settings
from penstock.control.admin_requests import Reload
from penstock.control.client import Abandon, Backup, Publish
from penstock.control.history_requests import ForkLog
from penstock.control.landed_requests import ForgetTable, ListTables, ReportProgress
from penstock.control.metric_families import MetricSample
from penstock.control.reader_requests import Lease, ListReaders, Release
from penstock.engine.api import PreparedSessions, Server
from penstock.errors import ConfigError, StoreError, StoreUnavailable
from penstock.operators.admin_actions import ban_source
from penstock.runtime.driver import Driver
from penstock.services.administration import Administration
from penstock.services.authentication import Authentication
from penstock.services.certificates import CertificateWatch
from penstock.services.cluster_metrics import ClusterMetrics
from penstock.services.control import BackupWriter, Control
from penstock.services.flow_topics import FlowTopics
from penstock.services.garbage import collect_if_due, collect_in_portions, freezing
from penstock.services.landed_tables import LandedTables
from penstock.services.limit_warnings import LimitWarnings
from penstock.services.log_forks import LogForks
from penstock.services.metrics import MetricSource, MetricsReader
from penstock.services.operator_logins import OperatorLogins
from penstock.services.own_secrets import SECRET_BYTES, login_secret
from penstock.services.rankings import Rankings
from penstock.services.reader_leases import ReaderLeases
from penstock.services.receipts import Receipts
from penstock.services.retention import RetentionLimits, trim_log_periodically, trim_memory_log
from penstock.services.service_manager import ServiceManager
from penstock.services.slowness_warnings import SlownessWarnings
from penstock.services.staged_copies import StagedCopies
from penstock.services.staged_rows import StagedRowsPublisher
from penstock.services.status import StatusReports
from penstock.services.sys_topics import SysTopics
from penstock.services.watchdog import Watchdog
from penstock.store.port import Store
from penstock.store.rocks import RocksStore
from penstock.store.staging import Staging
from penstock.telemetry.logs import Sentence, get_logger
from penstock.telemetry.terminal import print_line
from penstock.transport.descriptors import prepare_descriptors
from penstock.transport.listener import ListeningSockets, OpenListener, open_listener
from penstock.transport.tls import identity
from penstock.transport.wire import Accept, Wire
from penstock.version import __version__, build_kind

logger = get_logger(__name__)

READERS_S: Final = 10.0
"""Longest time in seconds between two checks of the readers' leases."""

EXIT_OK: Final = 0
EXIT_STORE_FAILED: Final = 1


class BrokerParts(NamedTuple):
    """The parts of a broker that are made from its settings before the store is opened.

    Attributes:
        access: users and access list.
        contexts: the TLS contexts of the bridges.
        source: the source of the settings, for a reload.
        manager: the service manager.
        certificates: watches the certificates in use.
    """

    access: UserFiles
    contexts: list[ssl.SSLContext | None]
    source: Source
    manager: ServiceManager
    certificates: CertificateWatch


class Takeover(NamedTuple):
    """The parts that a standby passes to the broker when it becomes the primary.

    Attributes:
        serve_more: adds request handlers to the control socket.
        metrics: the metrics of the member.
        prepared: the prepared sessions of the store; None: the broker builds them.
        sockets: the listening sockets, by listener; the broker removes those that it uses.
        hand_over: called at a signal to end: lets a standby take over, and returns the references
            to it, as for ``end``; None if no standby can.
    """

    serve_more: Callable[[Control], None]
    metrics: ClusterMetrics
    prepared: PreparedSessions | None
    sockets: dict[str, ListeningSockets]
    hand_over: Callable[[], dict[str, str] | None]


@final
class RunningBroker:
    """One broker, from its start on an open store to its end.

    Args:
        settings: the settings in use.
        store: the store, which the caller closes afterwards.
        parts: the parts that were made before the store was opened.
        children: the child processes, which the caller prepares and stops.
        takeover: the parts of the standby that becomes this broker; None if there was no standby.

    Attributes:
        settings: the settings in use; a reload replaces them.
        stop_signal: the name of the signal that ended the broker; empty if none did.
        sockets: after the broker's end, in a cluster, the sockets that still listen, by listener.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        parts: BrokerParts,
        children: Children,
        takeover: Takeover | None = None,
    ) -> None:
        self._takeover = takeover
        self._references: dict[str, str] | None = None  # see ``end``
        self.sockets: dict[str, ListeningSockets] = {}
        self.settings = settings
        self.stop_signal = ""
        self._parts = parts
        self._source = parts.source
        self._has_pending_reload = False  # SIGHUP arrived during the start
        self._manager = parts.manager
        self._reloading: Reloading | None = None
        self._contexts = parts.contexts
        self._bridge_list: list[Bridge] = []
        self._store = store
        self._access = parts.access
        self._login_method = login_method(settings)
        self._stopped = asyncio.Event()
        self._exit_code = EXIT_OK
        self._listeners: list[OpenListener] = []
        self._children = children
        self._control: Control | None = None
        self._metrics: MetricsReader | None = None
        self._authentication: Authentication | None = None
        self._forks: LogForks | None = None
        self._leases: ReaderLeases | None = None
        self._tables: LandedTables | None = None
        self._staged_rows: StagedRowsPublisher | None = None

    @property
    def parts(self) -> BrokerParts:
        """The parts as of the last reload, for the next broker of this process."""
        reloading = self._reloading
        if reloading is None or reloading.access is None:
            return self._parts
        return self._parts._replace(access=reloading.access, source=reloading.source)

    async def run(self) -> int:
        """Run the broker until a signal, or until its store fails for good; return the exit code.

        Raises:
            ConfigError: a port is taken, or a file cannot be read.
            StoreError: the stored state is damaged.
        """
        settings = self.settings
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        access = self._access
        authentication = Authentication(
            access,
            settings.access,
            self._login_secret(),
            self._login_method,
            settings.http_login.requests_max,
        )
        self._authentication = authentication
        collect_in_portions()
        status = "recovering sessions and retained messages"
        with freezing(), self._manager.extending_timeout(status):
            takeover = self._takeover
            sessions = None if takeover is None else takeover.prepared
            server, clock = make_engine(settings, self._store, authentication, access, sessions)
        driver = Driver(
            server,
            self._store,
            settings.durability.commit_bytes_max,
            self._on_store_failed,
            settings.durability.store_retry_s_max,
            collect_if_due,
            clock,
        )
        authentication.report_to(driver.deliver_verdict, partial(self._ban, server, driver))
        if isinstance(self._store, RocksStore):
            self._forks = LogForks(server, self._store)
        if has_streams(settings):
            try:
                self._restore_readers_and_tables(server, driver)
            except StoreError:
                await driver.stop()  # else its thread would use a closed store
                raise
        reports = self._reports(server, driver)
        retention_limits = RetentionLimits(
            settings.durability.retention_s, settings.durability.retention_bytes_max
        )
        tasks: tuple[asyncio.Task[None], ...] = (
            asyncio.create_task(self._trim_log(server, driver, retention_limits)),
            asyncio.create_task(reports.run()),
            asyncio.create_task(self._check_leases()),
            asyncio.create_task(Watchdog(self._manager, server, driver).run()),
            *self._bridges(server, driver),
        )
        try:
            await self._open(driver, server, reports, retention_limits)
            tasks += tuple(
                asyncio.create_task(one.watch(self._parts.certificates.use_listener))
                for one in self._listeners
            )
            await self._stopped.wait()
        finally:
            self._manager.notify_stopping("stopping")
            for task in tasks:
                task.cancel()
            for listener in self._listeners:
                if self._takeover is None or self.stop_signal:
                    listener.close()
                else:
                    self.sockets[listener.name] = listener.detach()
            authentication.close()
            if self._staged_rows is not None:
                await self._staged_rows.stop()
            append_s_max = settings.cluster.append_s_max if settings.cluster.enabled else 0.0
            if not await driver.stop(self._references, append_s_max):
                _exit_at_once(EXIT_STORE_FAILED)  # what follows would wait for the same disk
            if self._metrics is not None:
                self._metrics.stop()
            if self._control is not None:
                await self._control.close()
            if self._leases is not None:
                await self._leases.save()
            if self._tables is not None:
                await self._tables.save()
            for task in tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        return self._exit_code

    def _restore_readers_and_tables(self, server: Server, driver: Driver) -> None:
        """Read the stored state of stream readers and of tables.

        Raises:
            StoreCorrupt: the stored state is damaged.
        """
        settings = self.settings
        self._leases = ReaderLeases(
            settings.durability.data_dir, self._store, settings.stream, driver.now
        )
        self._tables = LandedTables(
            settings.durability.data_dir,
            self._store,
            Receipts(server, driver, self._store),
            settings.stream,
            driver.now,
        )

    def _login_secret(self) -> bytes:
        """Return the key of decoys for unknown user names; the same after each restart, unless the
        store is in memory."""
        durability = self.settings.durability
        if durability.persistence == "memory":
            return secrets.token_bytes(SECRET_BYTES)
        return login_secret(durability.data_dir)

    def _ban(self, server: Server, driver: Driver, source: str, why: str) -> None:
        """Ban a source that guessed passwords too often."""
        for_s = self.settings.access.ban_s
        ban_source(server, source, for_s, why, driver.now())
        logger.warning("banned %s for %d s: %s", source, for_s, Sentence(why))

    async def _trim_log(self, server: Server, driver: Driver, limits: RetentionLimits) -> None:
        """Trim the log until cancelled."""
        if self.settings.durability.persistence == "memory":
            await trim_memory_log(server, self._store)
            return
        await trim_log_periodically(server, self._store, limits, driver.now, self._leases)

    def _reports(self, server: Server, driver: Driver) -> StatusReports:
        """Return the broker's reports on itself."""
        status = self.settings.status
        return StatusReports(
            driver,
            SysTopics(
                server, self._store, status.sys_interval_s, driver.now(), self._further_status
            ),
            FlowTopics(server, status.sys_interval_s, driver.buffered_bytes),
            LimitWarnings(server.context, status.limit_warning_s),
            SlownessWarnings(
                driver,
                status.loop_warning_s,
                status.commit_warning_s,
                self._store.acknowledged_when == "quorum",
            ),
        )

    def _further_status(self) -> list[tuple[str, object]]:
        """Return the topics below ``$SYS/broker/`` of bridges, listeners, logins, readers and
        tables, with their values."""
        found = [value for bridge in self._bridge_list for value in bridge.status()]
        found.append(("sockets/refused", sum(listener.refused for listener in self._listeners)))
        for service in (self._authentication, self._leases, self._tables):
            if service is not None:
                found += service.status()
        return found

    async def _check_leases(self) -> None:
        """Check the leases of readers until cancelled, often enough for ``$SYS``."""
        while self._leases is not None and self._tables is not None:
            await self._leases.tick()
            await self._tables.tick()
            await asyncio.sleep(min(READERS_S, self.settings.status.sys_interval_s or READERS_S))

    def _bridges(self, server: Server, driver: Driver) -> tuple[asyncio.Task[None], ...]:
        """Create all bridges with their sessions; return the tasks that run them."""
        settings = self.settings
        self._bridge_list = [
            Bridge(
                remote,
                bridge_limits(settings, remote),
                context,
                server,
                driver,
                SystemRandom(),
            )
            for remote, context in zip(settings.bridge.remotes, self._contexts, strict=True)
        ]
        return tuple(asyncio.create_task(bridge.run()) for bridge in self._bridge_list)

    async def _open(
        self,
        driver: Driver,
        server: Server,
        reports: StatusReports,
        retention_limits: RetentionLimits,
    ) -> None:
        """Open listeners, control socket and child processes, then print ``ready``."""
        settings = self.settings
        if isinstance(self._store, RocksStore):
            staging = Staging(settings.durability.data_dir)
            is_replicated = self._store.acknowledged_when == "quorum"
            self._staged_rows = StagedRowsPublisher(
                server,
                driver,
                staging,
                settings.stream.staged_expiry_s,
                StagedCopies(self._store, staging) if is_replicated else None,
            )
            self._staged_rows.start()
        await self._open_listeners(driver)
        self._children.start_stream()
        assert self._authentication is not None
        logins = OperatorLogins(server, driver, self._authentication, settings.admin.users)
        self._reloading = Reloading(
            self._source,
            Parts(
                server,
                driver,
                self._authentication,
                self._listeners,
                retention_limits,
                reports,
                self._children.stream,
                self._leases,
                self._tables,
                self._children.admin,
                self._children.otlp,
                logins,
            ),
            self._manager,
            self._parts.certificates,
            self._use,
            partial(self._accept, driver),
            self._children.stream_arguments,
            self._children.admin_arguments,
            self._children.otlp_arguments,
        )
        if isinstance(self._store, RocksStore):
            self._control = Control(settings.durability.data_dir)
            self._control.on(Backup, BackupWriter(self._store))
            self._control.on(Reload, self._reloading.answer)
            if self._forks is not None:
                self._control.on(ForkLog, self._forks.fork)
            Administration(server, driver, logins.role_of).serve_on(self._control)
            Rankings(server, driver).serve_on(self._control)
            if self._leases is not None:
                self._control.on(Lease, self._leases.lease)
                self._control.on(Release, self._leases.release)
                self._control.on(ListReaders, self._leases.readers)
            if self._tables is not None:
                self._control.on(ReportProgress, self._tables.record_progress)
                self._control.on(ListTables, self._tables.tables)
                self._control.on(ForgetTable, self._tables.forget)
            if self._staged_rows is not None:
                self._control.on(Publish, self._staged_rows.publish)
                self._control.on(Abandon, self._staged_rows.abandon)
            self._metrics = MetricsReader(
                server,
                driver,
                self._store,
                [listener.name for listener in self._listeners],
                self._metric_sources(),
                self._children.complete,
                None if self._takeover is None else self._takeover.metrics,
            )
            self._metrics.serve_on(self._control)
            logins.serve_on(self._control)
            if self._takeover is not None:
                self._takeover.serve_more(self._control)
            await self._control.open()
        self._children.start_admin()
        self._children.start_otlp()
        if build_kind() == "compiled":
            logger.info("Penstock %s, compiled", __version__)
        else:
            logger.warning(
                "Penstock %s runs interpreted, several times slower than compiled: install a"
                " compiled wheel, or gcc and Python's headers before building it",
                __version__,
            )
        memory_report = report_memory(settings, available_memory())
        logger.info("%s", Sentence(memory_report.text))
        if memory_report.warning:
            logger.warning("%s", Sentence(memory_report.warning))
        if note := share_note(settings):
            logger.info("%s", Sentence(note))
        urls = " ".join(url for listener in self._listeners for url in listener.urls)
        self._manager.notify_ready(f"serving {urls}")
        print_line(f"penstock ready {urls}{self._children.urls}")
        if self._has_pending_reload:
            self._on_hangup()

    def _metric_sources(self) -> list[MetricSource]:
        """Return the sources of metrics besides engine, driver and store."""
        services = (
            *(self._authentication, self._leases, self._tables, self._forks),
            *self._bridge_list,
        )
        return [
            self._own_metrics,
            self._parts.certificates.samples,
            *(service.metrics for service in services if service is not None),
        ]

    def _own_metrics(self) -> Iterable[MetricSample]:
        """Yield the samples of listeners and child processes for a scrape."""
        for listener in self._listeners:
            yield "listener_connections", (listener.name,), listener.connections
            yield "listener_connections_refused", (listener.name,), listener.refused
        yield from self._children.samples()

    async def _open_listeners(self, driver: Driver) -> None:
        """Open all listeners, each with its own limits."""
        settings = self.settings
        descriptors = prepare_descriptors(settings)
        sockets = {} if self._takeover is None else self._takeover.sockets
        for listener in settings.listener.enabled_listeners():
            accept = self._accept(driver, listener)
            self._listeners.append(
                await open_listener(
                    listener.name,
                    listener,
                    accept,
                    descriptors,
                    inherited=sockets.pop(listener.name, None),
                )
            )

    def _accept(self, driver: Driver, listener: MainListener | OtherListener) -> Accept:
        """Return the function that takes each connection of a listener."""
        settings = self.settings
        return partial(
            driver.accept,
            limits=engine_limits(settings, listener),
            allows_anonymous=settings.allows_anonymous(listener),
            identity_of=self._identity_of,
        )

    def _identity_of(self, wire: Wire) -> str | None:
        return identity(self.settings.access.identity_from_certificate, wire.certificate)

    def _use(self, settings: Settings) -> None:
        self.settings = self._children.settings = settings

    def _on_hangup(self) -> None:
        if self._reloading is None:
            logger.info("SIGHUP: the settings are read again once this broker has started")
            self._has_pending_reload = True
            return
        with contextlib.suppress(ConfigError):  # it is logged
            self._reloading.reload(signal.SIGHUP.name)

    def _on_signal(self, number: signal.Signals) -> None:
        logger.info("stopping: %s", number.name)
        if self._takeover is not None and not self._stopped.is_set():
            self._references = self._takeover.hand_over()
        self.stop_signal = number.name
        self._stopped.set()

    def end(self, why: str, references: dict[str, str] | None = None) -> None:
        """End the broker as a signal would; in a cluster its sockets keep listening.

        Args:
            why: the reason, for the log.
            references: HOST:PORT of the server that takes over, by listener; see ``Driver.stop``.
                None if no server does.
        """
        self._references = references
        logger.info("stopping: %s", Sentence(why))
        self._stopped.set()

    def _on_store_failed(self, failure: StoreUnavailable) -> None:
        logger.error("stopping: %s", failure)
        self._exit_code = EXIT_STORE_FAILED
        self._stopped.set()


def _exit_at_once(exit_code: int) -> NoReturn:
    """End the process as a kill would, with its last log lines: the store hangs, and its thread
    with it."""
    logging.shutdown()
    os._exit(exit_code)
