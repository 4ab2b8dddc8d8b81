"""Run a broker, alone or in a cluster: check the settings, open the store, serve until a signal.

::

    users, access list ─▶ open the store ─▶ broker (``running``)
                       │      ╰── the disk is full: ``waiting``
                       ╰▶ member of a cluster (``membership``): standby ⇄ broker,
                          with the NATS server of this machine around it
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Final, NoReturn

import uvloop

from penstock.app.children import Children
from penstock.app.composing import user_files
from penstock.app.membership import RunningMember
from penstock.app.reloading import Source, configure_logs
from penstock.app.running import EXIT_OK, BrokerParts, RunningBroker
from penstock.app.waiting import open_patiently
from penstock.bridge.plan import check_packets, context_of
from penstock.config.available_memory import available_memory
from penstock.config.memory import budget_mistake, fit_to_memory
from penstock.config.settings import Settings
from penstock.errors import ConfigError, HistoryMismatch, StoreCorrupt, StoreError, StoreUnavailable
from penstock.services.certificates import CertificateWatch
from penstock.services.nats_server import nats_server_running
from penstock.services.service_manager import ServiceManager
from penstock.store.diagnosis import corrupt_view
from penstock.store.identity import new_epoch
from penstock.store.memory import MemoryStore
from penstock.store.permissions import make_private, private_umask, warn_of_world_readable
from penstock.store.port import Store
from penstock.store.replacing import finish_replacement
from penstock.store.rocks import RocksStore
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

SWITCH_S: Final = 0.0005
"""Longest time in seconds for which the event loop of a cluster's member computes on while another
thread waits for the interpreter's lock. Python's own, ten times as long, is longer than an append
takes, and the committer waits for the lock after each system call of one."""


@private_umask()
def serve(requested: Settings, reread_settings: Callable[[], Settings] | None = None) -> int:
    """Run a broker until SIGTERM or SIGINT; return the exit code.

    Prints one line with ``ready`` and the addresses when connections are accepted.

    Args:
        requested: the settings as they were read, before limits are fitted to the memory.
        reread_settings: reads the settings again for a reload; None: a reload changes nothing.

    Raises:
        ConfigError: a port is taken, or the data directory or a file cannot be used.
        StoreCorrupt: a file of the store is damaged or missing.
        StoreUnavailable: the disk was full, or failed, for ``durability.store_retry_s_max``.
        HistoryMismatch: the store holds less than was acknowledged.
    """
    signal.signal(signal.SIGTERM, _stop_while_starting)
    memory = available_memory()
    settings = fit_to_memory(requested, memory)
    configure_logs(settings)
    refused = budget_mistake(settings)
    if refused:
        raise ConfigError(refused)
    data_dir = settings.durability.data_dir
    if not data_dir.is_absolute():
        logger.info(
            "durability.data_dir is the relative path %s, here %s: commands that are run in another"
            " directory need the whole path",
            data_dir,
            data_dir.absolute(),
        )
    access = user_files(settings)
    warn_of_world_readable(
        ("password file", settings.access.password_file),
        ("token file", settings.stream.token_file),
        ("token file", settings.http_login.token_file),
        ("key", settings.stream.key),
        ("token file", settings.cluster.seed_token_file),
        ("token file", settings.admin.token_file),
        ("key", settings.admin.key),
        ("headers file", settings.opentelemetry.headers_file),
        ("key", settings.opentelemetry.key),
        *(("key", remote.key) for remote in settings.bridge.remotes),
        *(
            ("key", key)
            for listener in settings.listener.enabled_listeners()
            for key in listener.key_files
        ),
    )
    for remote in settings.bridge.remotes:
        check_packets(remote)
    contexts = [context_of(remote) for remote in settings.bridge.remotes]
    manager = ServiceManager(os.environ, os.getpid())
    source = Source(requested, reread_settings or (lambda: requested), memory)
    certificates = CertificateWatch()
    certificates.use(settings, at_start=True)
    parts = BrokerParts(access, contexts, source, manager, certificates)
    if settings.cluster.enabled:
        sys.setswitchinterval(SWITCH_S)
        settings.durability.data_dir.mkdir(parents=True, exist_ok=True)
        make_private(settings.durability.data_dir)
        with nats_server_running(settings) as server:
            try:
                return uvloop.run(RunningMember(settings, parts, server).run())
            except StoreCorrupt as error:
                if not error.part:
                    raise
                raise corrupt_view(settings.durability.data_dir, error) from error
    opened: Store | StoreUnavailable
    with manager.extending_timeout("opening the store"):
        try:
            opened = _open_store(settings)
        except StoreUnavailable as error:
            opened = error
    return uvloop.run(_serve_alone(settings, opened, parts))


async def _serve_alone(
    settings: Settings, opened: Store | StoreUnavailable, parts: BrokerParts
) -> int:
    """Run a broker that is no member of a cluster; return the exit code.

    Args:
        settings: the settings.
        opened: the store, which is closed at the end; or why it could not be opened.
        parts: the parts of the broker.
    """
    children = Children(settings)
    watching = asyncio.create_task(parts.certificates.run())
    store = None if isinstance(opened, StoreUnavailable) else opened
    try:
        await children.prepare()
        if isinstance(opened, StoreUnavailable):
            again = partial(_open_store, settings)
            store = await open_patiently(again, opened, settings, parts, children)
        if store is None:
            return EXIT_OK
        return await RunningBroker(settings, store, parts, children).run()
    finally:
        watching.cancel()
        await children.stop()
        if store is not None:
            store.close()


def _stop_while_starting(number: int, frame: FrameType | None) -> NoReturn:
    """Exit on SIGTERM until the event loop runs and handles signals itself.

    Process 1 of a container ignores a signal that it has no handler for.
    """
    del number, frame
    raise SystemExit(0)


def _open_store(settings: Settings) -> Store:
    if settings.durability.persistence == "memory":
        return MemoryStore(new_epoch())
    try:
        make_private(settings.durability.data_dir)
        finish_replacement(settings.durability.data_dir)  # a copy from a cluster that it was in
        return RocksStore(settings.durability.data_dir, settings.streams)
    except (StoreCorrupt, HistoryMismatch, StoreUnavailable):
        raise
    except StoreError as error:
        raise ConfigError(str(error)) from error
