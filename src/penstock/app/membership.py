"""A member of a cluster: a standby until it becomes the primary, then a broker, then a standby.

::

      start ─▶ standby: listeners refer, the view follows the log ── claims ─▶ broker on the view
                  ▲                                                                  │
                  ╰──────────────── fenced, or handed over ──────────────────────────╯
      SIGTERM, SIGINT: the end, in both roles

The stream service and the admin process keep running when the role changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import signal
from dataclasses import replace
from typing import Final, final

from penstock.app.children import Children
from penstock.app.reloading import check_files, configure_logs, outcome, report, reread
from penstock.app.running import (
    EXIT_OK,
    EXIT_STORE_FAILED,
    BrokerParts,
    RunningBroker,
    Takeover,
)
from penstock.app.seeding import Seeding
from penstock.app.standby_listeners import StandbyListeners, references
from penstock.app.standby_sessions import StandbySessions
from penstock.app.waiting import DiskWait
from penstock.cluster.beats import Beat
from penstock.cluster.connecting import connector_for
from penstock.cluster.database import ViewOpener
from penstock.cluster.keeper import LocalServer, ServerKeeper
from penstock.cluster.log import EntriesTrimmed
from penstock.cluster.member import Member
from penstock.cluster.view import ForeignView, Superseded
from penstock.cluster.writer import Fenced
from penstock.config.cluster_addresses import address_problems
from penstock.config.settings import Settings
from penstock.control.admin_requests import Reloaded
from penstock.errors import ConfigError, StoreError, StoreUnavailable
from penstock.services.cluster_metrics import ClusterMetrics, StandbyMetrics
from penstock.services.standby import ClusterAnswers, StandbyControl, find_successor
from penstock.store.replacing import finish_replacement
from penstock.store.rocks import RocksStore
from penstock.telemetry.logs import Sentence, get_logger
from penstock.telemetry.terminal import print_line
from penstock.transport.listener import ListeningSockets
from penstock.version import __version__, build_kind

logger = get_logger(__name__)

SUCCESSOR_S_MAX: Final = 2.0
"""Seconds for which a primary that was told to end waits for the next one: until then it asks the
standby by heartbeat to claim."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@final
class RunningMember:
    """Runs one member.

    Args:
        settings: the settings, with a cluster.
        parts: the parts of the broker that the member runs while it is the primary.
        local_server: the server of the log, if this process runs it; None if not.
    """

    def __init__(
        self, settings: Settings, parts: BrokerParts, local_server: LocalServer | None = None
    ) -> None:
        self._settings = settings
        self._parts = parts
        self._children = Children(settings)
        self._standby_sessions = StandbySessions(settings)
        cluster = settings.cluster
        self._member = Member(
            cluster,
            settings.durability.data_dir,
            str(cluster.advertise or settings.listener.bind),
            str(cluster.stream_advertise or settings.stream.bind),
            connector_for(cluster),
            self._standby_sessions,
            ServerKeeper(cluster, local_server),
        )
        self._sockets: dict[str, ListeningSockets] = {}  # detached from listeners
        self._listeners: StandbyListeners | None = None  # while this member is a standby
        self._stop_signal = ""
        self._metrics = ClusterMetrics(self._member)
        durability = settings.durability
        self._disk = DiskWait(durability.data_dir, durability.store_retry_s_max)
        self._seeding = Seeding(settings, self._member, self._children.set_stream_paused)

    async def run(self) -> int:
        """Run the member until a signal, or until its store fails for good; return the exit code.

        Raises:
            ConfigError: a port is taken, or a file cannot be read.
            StoreError: the view cannot be opened, or is ahead of the log.
        """
        for problem in address_problems(self._settings):
            logger.warning("%s", Sentence(problem))
        finish_replacement(self._settings.durability.data_dir)
        self._member.start()
        watching = asyncio.create_task(self._parts.certificates.run())
        try:
            await self._children.prepare()
            self._children.start_stream()
            while True:
                opener = await self._stand_by()
                if opener is None:
                    return EXIT_STORE_FAILED if self._member.failure else EXIT_OK
                if self._stop_signal:  # it arrived during the claim
                    opener.close()
                    self._member.resign()
                    return EXIT_OK
                code = await self._lead(opener)
                if code is not None:
                    return code
        finally:
            watching.cancel()
            for listening in self._sockets.values():
                listening.close()
            await asyncio.get_running_loop().run_in_executor(None, self._member.stop)
            await self._children.stop()

    async def _stand_by(self) -> ViewOpener | None:
        """Run the standby's listeners and follow the log until this member is the primary; return
        the opener of its view, or None if the member is to stop."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        listeners = StandbyListeners(
            self._settings, self._primary_address, self._parts.certificates.use_listener
        )
        data_dir = self._settings.durability.data_dir
        metrics = StandbyMetrics(
            self._metrics,
            (__version__, build_kind(), platform.python_version()),
            (listeners.samples, self._children.samples, self._parts.certificates.samples),
            self._children.complete,
            lambda: self._disk.failure,
        )
        control = StandbyControl(data_dir, self._member, self._reload, metrics)
        following: asyncio.Future[ViewOpener | None] | None = None
        opener: ViewOpener | None = None
        try:
            sockets, self._sockets = self._sockets, {}
            await listeners.open(sockets)  # before it can claim: a primary must be reached
            self._listeners = listeners
            await control.open()
            following = asyncio.create_task(self._follow())
            self._children.start_admin()
            urls = " ".join(listeners.urls)
            self._parts.manager.notify_ready(f"standby on {urls}")
            print_line(f"penstock standby {urls}{self._children.urls}")
            opener = await following
            return opener
        finally:
            if following is not None and not following.done():
                self._disk.stop()
                self._seeding.stop()
                self._member.stop_following()
                with contextlib.suppress(Exception):
                    await following
            self._listeners = None
            if self._stop_signal and opener is None:
                await listeners.drain()
            self._sockets = listeners.detach()
            await control.close(wait=opener is None)

    async def _follow(self) -> ViewOpener | None:
        """Follow the log until this member is the primary, seed its view from another member where
        needed, and wait while the disk is full; return the opener of the view, or None if the
        member is to stop."""
        loop = asyncio.get_running_loop()
        while True:
            term, is_given_up = 0, False
            try:
                return await loop.run_in_executor(None, self._member.follow)
            except StoreUnavailable as error:
                if await loop.run_in_executor(None, self._disk.find_fault) is None:
                    raise
                if not await self._disk.wait(error):
                    return None
                continue
            except EntriesTrimmed as error:
                why = f"{error}, and its view ends before"
            except ForeignView as error:
                if not error.is_empty:
                    raise
                why, term = "the log begins on a store that another member has", error.term
            except Superseded as error:
                why, term, is_given_up = str(error), error.term, True
            if not await self._seeding.run(why, term, is_given_up):
                return None

    def _primary_address(self) -> str:
        """Return the primary's HOST:PORT for clients; empty while no primary is known."""
        primary = self._member.primary()
        return "" if primary is None else primary.address

    async def _lead(self, opener: ViewOpener) -> int | None:
        """Serve as the primary; return the exit code, or None to become a standby again."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        member = self._member
        try:
            store = RocksStore(settings.durability.data_dir, settings.streams, opener)
        except (Fenced, StoreUnavailable) as error:  # the second: for example no majority by now
            logger.warning("a standby again: %s", Sentence(str(error)))
            opener.close()
            member.resign()
            return None
        successor: list[Beat] = []

        def hand_over(standby: Beat) -> None:
            successor.append(standby)
            broker.end(f"{standby.node} takes over", references(settings, standby.address))

        def hand_over_at_stop() -> dict[str, str] | None:
            try:
                standby = find_successor(member)
            except StoreError as error:
                logger.info("ending without a successor: %s", Sentence(str(error)))
                return None
            successor.append(standby)
            return references(settings, standby.address)

        takeover = Takeover(
            ClusterAnswers(member, hand_over).serve_on,
            self._metrics,
            self._standby_sessions.take(settings),
            self._sockets,
            hand_over_at_stop,
        )
        broker = RunningBroker(settings, store, self._parts, self._children, takeover)

        def on_fence(why: str) -> None:
            loop.call_soon_threadsafe(broker.end, why)

        member.serve_as_primary(on_fence)
        try:
            code = await broker.run()
        finally:
            self._settings = self._standby_sessions.settings = broker.settings
            self._parts = broker.parts
            self._sockets.update(broker.sockets)
            await self._children.stop_otlp()
            await loop.run_in_executor(None, store.close)  # it waits for calls under way
            opener.close()
            member.resign()
        if successor and not code:
            member.hand_over_to(successor[0].node)
            if broker.stop_signal:
                await loop.run_in_executor(None, member.wait_for_successor, SUCCESSOR_S_MAX)
                return code
            logger.info("a standby again: handed over to %s", successor[0].node)
            return None
        if broker.stop_signal:
            return code
        if member.failure:
            return EXIT_STORE_FAILED
        writer = member.writer
        if writer is not None and writer.fenced_by:
            logger.warning("a standby again: %s", Sentence(writer.fenced_by))
            return None
        return code or EXIT_STORE_FAILED

    def _stop(self, number: signal.Signals) -> None:
        logger.info("stopping: %s", number.name)
        self._stop_signal = number.name
        self._disk.stop()
        self._seeding.stop()
        self._member.stop_following()

    def _on_hangup(self) -> None:
        with contextlib.suppress(ConfigError):  # it is logged
            self._reload(signal.SIGHUP.name)

    def _reload(self, why: str) -> Reloaded:
        """Read all settings again; use them in the standby and in the broker that it may become.

        Args:
            why: the name of the signal or command that asked for the reload, for the log.

        Raises:
            ConfigError: the settings or a file that they name have a mistake; nothing changed.
        """
        manager = self._parts.manager
        manager.notify_reloading()
        status = "a reload failed: the log says why"
        try:
            reloaded = self._read_and_apply()
            report(why, reloaded)
            status = "a standby, reloaded"
            return reloaded
        except ConfigError as error:
            mistakes = "; ".join(str(error).splitlines())
            status = f"a reload was refused, nothing was changed: {mistakes}"
            logger.error("%s: nothing was changed: %s", why, Sentence(mistakes))
            raise
        finally:
            manager.notify_ready(status)

    def _read_and_apply(self) -> Reloaded:
        source = self._parts.source
        read = reread(source)
        settings = read.settings
        check_files(settings, self._children)
        if settings.log != source.settings.log:
            configure_logs(settings)
        if self._listeners is not None:
            self._listeners.apply_settings(settings)
        # From here on nothing can fail.
        source = replace(source, settings=read.comparison.merged)
        self._parts = self._parts._replace(access=read.access, source=source)
        self._settings = self._standby_sessions.settings = settings
        self._children.apply_settings(settings)
        self._parts.certificates.use(settings)
        self._member.reload_mirror()
        return outcome(read, self._children, self._parts.certificates.warnings())
