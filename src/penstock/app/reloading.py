"""Reload the settings of a running broker: read them again, and apply them to its parts.

::

      SIGHUP, or `penstock reload`
        ─▶ read: file, environment, command line ─╮
        ─▶ compare with the settings in use       ├─ a mistake: refused, nothing changes
        ─▶ users, access list, certificates,      │
           files of the stream service, log file ─╯
        ─▶ apply the settings that need no restart ─▶ answer, log lines, an event

A reload happens in one turn of the event loop: no client is served with a part of the new settings.
Each setting declares whether it needs a restart (``engine.values.change_effects``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol, final

from penstock.app.composing import (
    check_admin,
    check_opentelemetry,
    check_stream_files,
    client_groups,
    engine_limits,
    event_options,
    server_options,
    user_files,
)
from penstock.auth.files import UserFiles
from penstock.config.available_memory import AvailableMemory
from penstock.config.changes import Change, Comparison, compare
from penstock.config.listener import MainListener, OtherListener
from penstock.config.memory import budget_mistake, fit_to_memory
from penstock.config.settings import Settings
from penstock.control.admin_requests import Changed, Reload, Reloaded
from penstock.engine.api import Server
from penstock.engine.values.change_effects import RESTART
from penstock.errors import ConfigError
from penstock.operators.admin_actions import note_action
from penstock.runtime.driver import Driver
from penstock.services.admin_process import file_versions
from penstock.services.authentication import Authentication
from penstock.services.certificates import CertificateWatch
from penstock.services.child_process import ChildProcess
from penstock.services.landed_tables import LandedTables
from penstock.services.operator_logins import OperatorLogins
from penstock.services.reader_leases import ReaderLeases
from penstock.services.retention import RetentionLimits
from penstock.services.service_manager import ServiceManager
from penstock.services.status import StatusReports
from penstock.telemetry.logs import Sentence, configure_broker_logs, get_logger
from penstock.transport.listener import OpenListener
from penstock.transport.tls import certificates_of
from penstock.transport.wire import Accept

logger = get_logger(__name__)

LINES_MAX: Final = 100
"""Largest number of changes that are logged, a line each."""

Arguments = tuple[str, ...]
"""The arguments of a child process that a reload may change."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source of the settings.

    Attributes:
        settings: the settings as they were read, before limits were fitted to the memory.
        reread_settings: reads the settings again from where they came; it may raise ConfigError.
        memory: the memory that the process may use.
    """

    settings: Settings
    reread_settings: Callable[[], Settings]
    memory: AvailableMemory


@dataclass(frozen=True, slots=True)
class ReloadedSettings:
    """Settings that were read again, and are without a mistake.

    Attributes:
        comparison: the changes, and the settings with those changes that need no restart.
        settings: the settings to be used from now on, fitted to the memory.
        access: users and access list.
    """

    comparison: Comparison
    settings: Settings
    access: UserFiles


def reread(source: Source) -> ReloadedSettings:
    """Read all settings again, with the password file and the access list that they name.

    Args:
        source: the source, with the settings that are in use.

    Raises:
        ConfigError: there is a mistake in the settings, or in a file that they name.
    """
    read = source.reread_settings()
    comparison = compare(source.settings, read)
    settings = fit_to_memory(comparison.merged, source.memory)
    for either in (settings, fit_to_memory(read, source.memory)):  # now, and at the next start
        refused = budget_mistake(either)
        if refused:
            raise ConfigError(refused)
    return ReloadedSettings(comparison, settings, user_files(settings))


class Processes(Protocol):
    """The child processes of a broker."""

    @property
    def stream(self) -> ChildProcess | None:
        """The stream service; None if it is switched off."""

    @property
    def admin(self) -> ChildProcess | None:
        """The admin process; None if it is switched off."""

    @property
    def otlp(self) -> ChildProcess | None:
        """The OpenTelemetry process; None if it is switched off."""


def check_files(settings: Settings, processes: Processes) -> None:
    """Read the files that the processes read.

    Raises:
        ConfigError: a file is missing, or cannot be used.
    """
    if processes.stream is not None:
        check_stream_files(settings.stream)
    if processes.admin is not None:
        check_admin(settings.admin)
    if processes.otlp is not None:
        check_opentelemetry(settings.opentelemetry)


def outcome(read: ReloadedSettings, processes: Processes, warnings: list[str]) -> Reloaded:
    """Return the answer to a reload: changed settings, settings that wait for a restart, the files
    that were read again, and ``warnings`` about them."""
    changes = read.comparison.changes
    return Reloaded(
        [_changed_entry(change) for change in changes if change.is_effective],
        [_changed_entry(change) for change in changes if change.effect is RESTART],
        _file_names(read.settings, processes),
        warnings,
    )


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a running broker that a reload changes.

    Attributes:
        server: the engine.
        driver: the driver that runs the engine.
        authentication: checks logins.
        listeners: the open listeners.
        retention_limits: the largest age and size of the log.
        reports: the broker's reports on itself.
        stream: the stream service; None if it is switched off.
        leases: the registered readers; None without streams.
        tables: the tables that report their position; None without streams.
        admin: the admin process; None if it is switched off.
        otlp: the OpenTelemetry process; None if it is switched off.
        logins: checks the logins of operators.
    """

    server: Server
    driver: Driver
    authentication: Authentication
    listeners: list[OpenListener]
    retention_limits: RetentionLimits
    reports: StatusReports
    stream: ChildProcess | None
    leases: ReaderLeases | None
    tables: LandedTables | None
    admin: ChildProcess | None
    otlp: ChildProcess | None
    logins: OperatorLogins


@final
class Reloading:
    """Reloads the settings of one broker.

    Args:
        source: the source of the settings.
        parts: the parts of the broker to which changed settings are applied.
        manager: the service manager, which is notified of reloads.
        certificates: watches the certificates in use.
        use: called with the settings in use from now on, before the parts get them.
        accept: returns the function that a listener calls with each connection.
        stream_arguments: returns the arguments of the stream service.
        admin_arguments: returns the arguments of the admin process.
        otlp_arguments: returns the arguments of the OpenTelemetry process.

    Attributes:
        source: the source of the settings, as of the last reload.
        access: users and access list of the last reload; None before the first.
    """

    def __init__(
        self,
        source: Source,
        parts: Parts,
        manager: ServiceManager,
        certificates: CertificateWatch,
        use: Callable[[Settings], None],
        accept: Callable[[MainListener | OtherListener], Accept],
        stream_arguments: Callable[[], Arguments],
        admin_arguments: Callable[[], Arguments],
        otlp_arguments: Callable[[], Arguments],
    ) -> None:
        self.source = source
        self.access: UserFiles | None = None
        self._parts = parts
        self._manager = manager
        self._certificates = certificates
        self._use = use
        self._accept = accept
        self._stream_arguments = stream_arguments
        self._admin_arguments = admin_arguments
        self._otlp_arguments = otlp_arguments
        self._admin_files = file_versions(source.settings.admin)

    async def answer(self, request: Reload) -> Reloaded:
        """Reload the settings for a request on the control socket; return the outcome."""
        return self.reload(
            f"reload by {request.by}" if request.by else "penstock reload", request.by
        )

    def reload(self, why: str, by: str = "") -> Reloaded:
        """Read all settings again and apply those that need no restart; return the outcome.

        Args:
            why: the name of the signal or command that asked for the reload, for the log.
            by: the name of the operator who asked for the reload, for the event; empty for none.

        Raises:
            ConfigError: the settings or a file that they name have a mistake; nothing changed.
        """
        self._manager.notify_reloading()
        status = "a reload failed: the log says why"
        try:
            reloaded = self._reload(why, by)
            status = "reloaded"
            return reloaded
        except ConfigError as error:
            mistakes = "; ".join(str(error).splitlines())
            status = f"a reload was refused, nothing was changed: {mistakes}"
            logger.error("%s: nothing was changed: %s", why, Sentence(mistakes))
            raise
        finally:
            self._manager.notify_ready(status)

    def _reload(self, why: str, by: str) -> Reloaded:
        parts = self._parts
        read = reread(self.source)
        settings = read.settings
        listeners = [
            (opened, listener, certificates_of(listener.name, listener))
            for opened, listener in zip(
                parts.listeners, settings.listener.enabled_listeners(), strict=True
            )
        ]
        check_files(settings, parts)
        if settings.log != self.source.settings.log:
            configure_logs(settings)
        # From here on nothing can fail.
        before = self._stream_arguments()
        admin_before = self._admin_arguments()
        otlp_before = self._otlp_arguments()
        self.source = replace(self.source, settings=read.comparison.merged)
        self.access = read.access
        self._use(settings)
        for opened, listener, certificates in listeners:
            opened.apply_settings(listener, self._accept(listener), certificates)
        self._use_in_engine(settings)
        parts.authentication.apply_settings(settings.access)
        revoked = parts.authentication.reload(read.access)
        parts.server.set_authorize(read.access, revoked, parts.driver.now())
        self._use_in_services(settings)
        arguments = self._stream_arguments()
        if parts.stream is not None and (arguments != before or settings.stream.file_options):
            parts.stream.restart(arguments)
        arguments = self._admin_arguments()
        files_before, self._admin_files = self._admin_files, file_versions(settings.admin)
        is_same = arguments == admin_before and self._admin_files == files_before
        if parts.admin is not None and not is_same:
            parts.admin.restart(arguments)
        arguments = self._otlp_arguments()
        if parts.otlp is not None and (
            arguments != otlp_before or settings.opentelemetry.file_options
        ):
            parts.otlp.restart(arguments)
        self._certificates.use(settings)
        reloaded = outcome(read, parts, self._certificates.warnings())
        report(why, reloaded)
        note_action(
            parts.server,
            "reload",
            {
                "changed": [change.setting for change in reloaded.changed],
                "waiting": [change.setting for change in reloaded.waiting],
            },
            by,
        )
        parts.driver.end_turn_soon()
        return reloaded

    def _use_in_engine(self, settings: Settings) -> None:
        self._parts.server.apply_settings(
            engine_limits(settings, settings.listener),
            server_options(settings),
            event_options(settings),
            client_groups(settings),
        )
        self._parts.driver.set_store_retry(settings.durability.store_retry_s_max)

    def _use_in_services(self, settings: Settings) -> None:
        parts = self._parts
        parts.retention_limits.age_s = settings.durability.retention_s
        parts.retention_limits.bytes_max = settings.durability.retention_bytes_max
        parts.reports.apply_settings(settings.status)
        parts.logins.roles = settings.admin.users
        if parts.leases is not None:
            parts.leases.apply_settings(settings.stream)
        if parts.tables is not None:
            parts.tables.tables_max = settings.stream.tables_max


def report(why: str, reloaded: Reloaded) -> None:
    """Log the outcome of a reload; ``why`` names the signal or command that asked for it."""
    for change in reloaded.changed[:LINES_MAX]:
        logger.info(
            "%s: %s: %s → %s", why, change.setting, Sentence(change.old), Sentence(change.new)
        )
    for change in reloaded.waiting[:LINES_MAX]:
        logger.warning(
            "%s: %s needs a restart: %s → %s",
            why,
            change.setting,
            Sentence(change.old),
            Sentence(change.new),
        )
    logger.info(
        "%s: %d settings changed, %d wait for a restart; read again: %s",
        why,
        len(reloaded.changed),
        len(reloaded.waiting),
        Sentence(", ".join(reloaded.read) or "no files"),
    )


def configure_logs(settings: Settings) -> None:
    """Configure logging as the settings say.

    Raises:
        ConfigError: the log file cannot be written; logging stays as it was.
    """
    log = settings.log
    try:
        configure_broker_logs(log.level, log.format, log.file, log.file_bytes_max, log.files_max)
    except OSError as error:
        raise ConfigError(
            f"log.file {log.file} cannot be written: {error.strerror or error}"
        ) from error


def _file_names(settings: Settings, processes: Processes) -> list[str]:
    """Return descriptions of the files that were read again, such as "the access list"."""
    found = []
    if settings.access.password_file:
        found.append("users")
    if settings.access.acl_file:
        found.append("the access list")
    found += [
        f"the certificates of listener {listener.name}"
        for listener in settings.listener.enabled_listeners()
        if listener.is_encrypted
    ]
    if processes.stream is not None and settings.stream.file_options:
        found.append("the files of the stream service")
    if processes.admin is not None and settings.admin.file_options:
        found.append("the files of the admin process")
    if processes.otlp is not None and settings.opentelemetry.file_options:
        found.append("the files of the OpenTelemetry process")
    return found


def _changed_entry(change: Change) -> Changed:
    return Changed(change.setting, change.old, change.new, change.effect.name)
