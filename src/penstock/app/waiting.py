"""A broker whose disk is full when it starts waits for room, as one that runs does.

::

    opening the store ── works ─▶ the broker
       ▲    ╰── the disk is full, or fails ─▶ admin process and control socket tell it: not ready
       ╰── ``probe`` finds room ◀── a pause ──╯╰── SIGTERM ─▶ the end
                                                ╰── store_retry_s_max is over ─▶ StoreUnavailable

Ending would be no better: each attempt to open a store on a full disk leaves files behind, and a
service manager gives up after some of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, final

from penstock.app.children import Children
from penstock.app.running import BrokerParts
from penstock.config.settings import Settings
from penstock.control.metric_families import MetricSample
from penstock.control.metric_requests import Health, Metrics, ReadHealth, ReadMetrics, Sample
from penstock.errors import StoreUnavailable
from penstock.runtime.committer import RETRY_S_FIRST, RETRY_S_LAST
from penstock.services.control import Control
from penstock.store.database import STORE_DIRECTORY
from penstock.store.faults import probe
from penstock.store.port import Store
from penstock.telemetry.logs import Sentence, get_logger
from penstock.version import __version__, build_kind

logger = get_logger(__name__)


STEADY_S: Final = 60.0
"""Seconds after which an attempt has succeeded, if nothing failed until then."""


@final
class DiskWait:
    """Waits until a store that could not be opened or written may be tried again.

    Args:
        data_dir: the data directory.
        wait_s_max: how long to wait in all, in seconds.

    A failure within ``STEADY_S`` of an attempt belongs to the outage before; a later one begins
    another, which has the whole time again.

    Attributes:
        failure: a sentence with the fault and the remedy while it waits; else empty.
    """

    def __init__(self, data_dir: Path, wait_s_max: float) -> None:
        self.failure = ""
        self._data_dir = data_dir
        self._wait_s_max = wait_s_max
        self._tried_s = float("-inf")  # when the last attempt began
        self._ends_s = 0.0
        self._pause_s = RETRY_S_FIRST
        self._told = ""
        self._stopped = asyncio.Event()

    @property
    def is_stopped(self) -> bool:
        """Return whether ``stop`` was called."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Make the waiting return False."""
        self._stopped.set()

    def find_fault(self) -> StoreUnavailable | None:
        """Return why the disk cannot be written now; None if it can. This blocks."""
        try:
            probe(self._data_dir, self._data_dir / STORE_DIRECTORY)
        except StoreUnavailable as error:
            return error
        return None

    async def wait(self, failure: StoreUnavailable) -> bool:
        """Wait until another attempt may succeed; return False after ``stop``.

        Args:
            failure: the failure of the last attempt.

        Raises:
            StoreUnavailable: the time is over; ``failure`` itself.
        """
        loop = asyncio.get_running_loop()
        if time.monotonic() > self._tried_s + STEADY_S:
            self._ends_s = time.monotonic() + self._wait_s_max
            self._pause_s, self._told = RETRY_S_FIRST, ""
        has_paused = False
        while True:
            fault = await loop.run_in_executor(None, self.find_fault)
            if fault is None and has_paused:
                self.failure, self._tried_s = "", time.monotonic()
                return True
            self._tell(str(fault or failure))
            if time.monotonic() >= self._ends_s:
                raise failure
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), self._pause_s)
            if self._stopped.is_set():
                return False
            self._pause_s = min(2 * self._pause_s, RETRY_S_LAST)
            has_paused = True

    def _tell(self, failure: str) -> None:
        self.failure = failure
        if failure != self._told:
            self._told = failure
            logger.error("%s. Until then no client is served", Sentence(failure))


async def open_patiently(
    open_store: Callable[[], Store],
    failure: StoreUnavailable,
    settings: Settings,
    parts: BrokerParts,
    children: Children,
) -> Store | None:
    """Wait until the store of a broker can be opened; return it, or None after SIGTERM or SIGINT.

    Args:
        open_store: opens the store, in another thread.
        failure: the failure of the first attempt.
        settings: the settings.
        parts: the parts of the broker.
        children: the child processes, prepared; the admin process is started.

    Raises:
        StoreUnavailable: the store could not be opened within ``durability.store_retry_s_max``.
        StoreError: the store is damaged.
    """
    durability = settings.durability
    waiting = DiskWait(durability.data_dir, durability.store_retry_s_max)
    if not durability.store_retry_s_max:
        raise failure
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, waiting.stop)
    loop.add_signal_handler(signal.SIGHUP, logger.info, "SIGHUP: the settings are read at a start")
    control = Control(durability.data_dir, lambda: f"the broker has not started: {waiting.failure}")
    _Answers(waiting, (children.samples, parts.certificates.samples)).serve_on(control)
    await control.open()
    children.start_admin()
    store: Store | None = None
    try:
        with parts.manager.extending_timeout("waiting for the disk"):
            while store is None and await waiting.wait(failure):
                try:
                    store = await loop.run_in_executor(None, open_store)
                except StoreUnavailable as error:
                    failure = error
    finally:
        await control.close()
    if store is None:
        return None
    if waiting.is_stopped:  # while the store was opened
        store.close()
        return None
    logger.warning("the store can be opened: no acknowledged message was lost")
    return store


@final
class _Answers:
    """Answers health checks and scrapes while there is no broker."""

    def __init__(
        self, waiting: DiskWait, sources: Iterable[Callable[[], Iterable[MetricSample]]]
    ) -> None:
        self._waiting = waiting
        self._sources = tuple(sources)
        self._started_s: Final = time.monotonic()

    def serve_on(self, control: Control) -> None:
        """Answer requests on ``control``."""
        control.on(ReadHealth, self.health)
        control.on(ReadMetrics, self.read)

    async def health(self, request: ReadHealth) -> Health:
        """Return that the store cannot write, and why."""
        del request
        return Health(self._waiting.failure, 0.0, False, False, starting=True)

    async def read(self, request: ReadMetrics) -> Metrics:
        """Return the metrics that need no store."""
        del request
        samples: dict[str, list[Sample]] = {}
        for name, labels, value in self._samples():
            samples.setdefault(name, []).append(Sample(labels, float(value)))
        return Metrics(samples, {})

    def _samples(self) -> Iterable[MetricSample]:
        yield "build", (__version__, build_kind(), platform.python_version()), 1
        yield "uptime_seconds", (), time.monotonic() - self._started_s
        yield "store_works", (), 0
        for source in self._sources:
            yield from source()
