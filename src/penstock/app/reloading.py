"""Read the settings of a running broker again, and have its parts use them.

::

      SIGHUP, or `penstock reload`
        ─▶ read: file, environment, command line ─╮
        ─▶ compare with those in use              ├─ a mistake: refused whole, nothing changes
        ─▶ users, access list, certificates,      │
           files of the stream service, log file ─╯
        ─▶ every part takes the settings that count now ─▶ answer, log lines, an event

All of it happens in one turn of the loop: no client meets half of it. Which setting counts when is
declared beside it (``engine.change_effects``).
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
)
from penstock.auth.files import UserFiles, load_user_files
from penstock.config.available_memory import AvailableMemory
from penstock.config.changes import Change, Comparison, compare
from penstock.config.listener import MainListener, OtherListener
from penstock.config.memory import budget_mistake, fit_to_memory
from penstock.config.settings import Settings
from penstock.control.admin_requests import Changed, Reload, Reloaded
from penstock.engine.change_effects import RESTART
from penstock.engine.operating.admin_actions import note_action
from penstock.engine.server.server import Server
from penstock.errors import ConfigError
from penstock.runtime.driver import Driver
from penstock.services.admin_process import versions_of
from penstock.services.authentication import Authentication
from penstock.services.child_process import ChildProcess
from penstock.services.landed_tables import LandedTables
from penstock.services.operator_logins import OperatorLogins
from penstock.services.reader_leases import ReaderLeases
from penstock.services.retention import RetentionLimits
from penstock.services.service_manager import ServiceManager
from penstock.services.status import StatusReports
from penstock.telemetry.logs import Sentence, configure_broker_logs, get_logger
from penstock.transport.api import Accept
from penstock.transport.listener import OpenListener
from penstock.transport.tls import certificates_of

logger = get_logger(__name__)

LINES_MAX: Final = 100
"""Changes that have a log line each; of more, the number is logged."""

Arguments = tuple[str, ...]
"""The arguments of a process beside the broker that may change."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source of the settings.

    Attributes:
        settings: the settings as they were read, before limits were fitted to the memory.
        reread_settings: reads them anew; it raises ConfigError.
        memory: the memory that the process may use.
    """

    settings: Settings
    reread_settings: Callable[[], Settings]
    memory: AvailableMemory


@dataclass(frozen=True, slots=True)
class ReloadedSettings:
    """Settings that were read again, and are without a mistake.

    Attributes:
        compared: the changes, and the settings in use with those that count now.
        settings: the settings to be used, fitted to the memory.
        access: users and access list.
    """

    compared: Comparison
    settings: Settings
    access: UserFiles


def read_again(source: Source) -> ReloadedSettings:
    """Read all settings again, and the files of users that they name.

    Args:
        source: the source, with the settings that are in use.

    Raises:
        ConfigError: there is a mistake in them, or in a file that they name.
    """
    read = source.reread_settings()
    found = compare(source.settings, read)
    settings = fit_to_memory(found.merged, source.memory)
    for either in (settings, fit_to_memory(read, source.memory)):  # now, and at the next start
        refused = budget_mistake(either)
        if refused:
            raise ConfigError(refused)
    files = settings.access
    access = load_user_files(
        files.password_file, files.acl_file, bool(files.identity_from_certificate)
    )
    return ReloadedSettings(found, settings, access)


class Processes(Protocol):
    """The processes beside a broker; None for those that it has not."""

    @property
    def stream(self) -> ChildProcess | None:
        """Return the stream service's process."""

    @property
    def admin(self) -> ChildProcess | None:
        """Return the admin process."""

    @property
    def otlp(self) -> ChildProcess | None:
        """Return the OpenTelemetry process."""


def check_files(settings: Settings, processes: Processes) -> None:
    """Look for the files that the processes read.

    Raises:
        ConfigError: one is missing, or cannot be used.
    """
    if processes.stream is not None:
        check_stream_files(settings.stream)
    if processes.admin is not None:
        check_admin(settings.admin)
    if processes.otlp is not None:
        check_opentelemetry(settings.opentelemetry)


def outcome(read: ReloadedSettings, processes: Processes) -> Reloaded:
    """Return what became of each setting that was read again."""
    changes = read.compared.changes
    return Reloaded(
        [_told(change) for change in changes if change.is_effective],
        [_told(change) for change in changes if change.effect is RESTART],
        _files_of(read.settings, processes),
    )


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a running broker that take other settings.

    Attributes:
        server: the engine.
        driver: runs it.
        authentication: checks logins.
        listeners: the open listeners.
        retention_limits: age and size of the log.
        reports: the broker's reports about itself.
        stream: the stream service's process; None without.
        leases: the registered readers; None without.
        tables: the tables that report; None without.
        admin: the admin process; None without.
        otlp: the OpenTelemetry process; None without.
        logins: lets operators in.
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
        parts: the parts of the broker that take other settings.
        manager: the service manager, which is told.
        use: called with the settings in use from now on, before the parts get them.
        accept: returns the function that a listener calls with each connection.
        stream_arguments: returns the arguments of the stream service.
        admin_arguments: returns those of the admin process.
        otlp_arguments: returns those of the OpenTelemetry process.

    Attributes:
        source: the source of the settings, with those that were reloaded.
        access: users and access list of the last reload; None before.
    """

    def __init__(
        self,
        source: Source,
        parts: Parts,
        manager: ServiceManager,
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
        self._use = use
        self._accept = accept
        self._stream_arguments = stream_arguments
        self._admin_arguments = admin_arguments
        self._otlp_arguments = otlp_arguments
        self._admin_files = versions_of(source.settings.admin)

    async def answer(self, request: Reload) -> Reloaded:
        """Reload for a request on the control socket."""
        return self.reload(
            f"reload by {request.by}" if request.by else "penstock reload", request.by
        )

    def reload(self, why: str, by: str = "") -> Reloaded:
        """Read all settings again and use the changeable ones; return the outcome for each.

        Args:
            why: the name of the signal or command that asked for it, for the log.
            by: name of the one that asked for it, for the event.

        Raises:
            ConfigError: there is a mistake in them, or in a file that they name; nothing changed.
        """
        self._manager.reloading()
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
            self._manager.ready(status)

    def _reload(self, why: str, by: str) -> Reloaded:
        parts = self._parts
        read = read_again(self.source)
        settings = read.settings
        listeners = [
            (opened, listener, certificates_of(listener.name, listener))
            for opened, listener in zip(
                parts.listeners, settings.listener.enabled_listeners(), strict=True
            )
        ]
        check_files(settings, parts)
        if settings.log != self.source.settings.log:
            use_log(settings)
        # From here on nothing can fail.
        before = self._stream_arguments()
        admin_before = self._admin_arguments()
        otlp_before = self._otlp_arguments()
        self.source = replace(self.source, settings=read.compared.merged)
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
        files_before, self._admin_files = self._admin_files, versions_of(settings.admin)
        is_same = arguments == admin_before and self._admin_files == files_before
        if parts.admin is not None and not is_same:
            parts.admin.restart(arguments)
        arguments = self._otlp_arguments()
        if parts.otlp is not None and (
            arguments != otlp_before or settings.opentelemetry.file_options
        ):
            parts.otlp.restart(arguments)
        reloaded = outcome(read, parts)
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
        self._parts.driver.retry_store_for(settings.durability.store_retry_s_max)

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
    """Log what became of each setting; ``why`` names the signal or command that asked for it."""
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


def use_log(settings: Settings) -> None:
    """Write log lines as the settings say.

    Raises:
        ConfigError: the file cannot be written; lines go where they went before.
    """
    log = settings.log
    try:
        configure_broker_logs(log.level, log.format, log.file, log.file_bytes_max, log.files_max)
    except OSError as error:
        raise ConfigError(
            f"log.file {log.file} cannot be written: {error.strerror or error}"
        ) from error


def _files_of(settings: Settings, processes: Processes) -> list[str]:
    """Return the names of the files that were read again, in words."""
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


def _told(change: Change) -> Changed:
    return Changed(change.setting, change.old, change.new, change.effect.name)
