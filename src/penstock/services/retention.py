"""Retention: old chunks leave the log, in whole ranges, off the event loop.

Messages that a stream keeps longer move into its archive then (``store.archive``), which is trimmed
afterwards.

Messages that a session still needs stay: its queue holds offsets, not bodies. To find the lowest
such offset every session is asked, some at a time, so that the loop is not held up::

      begin: the log ends at E ─▶ a few sessions ─▶ a few sessions ─▶ … ─▶ lowest, at most E

Messages that a session comes to need after it was asked are at E or above, except those it takes
over from another session; these are noted (``Batch.moved``).

Messages that a registered reader holds (``services.readers``) stay as well, up to a size. The
leases are looked at just before each part is removed, and none is granted meanwhile.

A log in memory has no readers but the sessions, and is gone after a crash: messages that no session
needs leave at once, whatever their age (``trim_memory_log``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from penstock.engine.clock import Now
from penstock.engine.server.server import Server
from penstock.errors import StoreError
from penstock.services.reader_leases import ReaderLeases
from penstock.store.api import NOTHING_LEASED, Store
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

INTERVAL_S: Final = 30.0
IN_MEMORY_S: Final = 0.25
ASKING_SHARE: Final = 0.05  # of the time goes to asking sessions, however many there are
SLICE_S: Final = 0.002  # of asking sessions before clients have their turn
_MICROSECONDS: Final = 1_000_000
_NO_LIMIT: Final = 2**63


@dataclass(slots=True)
class RetentionLimits:
    """The age and size above which messages leave the log; a change counts at the next look.

    Attributes:
        age_s: messages older than this go; 0 = no limit by age.
        bytes_max: the oldest go while the log is larger; 0 = no limit by size.
    """

    age_s: int
    bytes_max: int


async def trim_log_periodically(
    server: Server,
    store: Store,
    limits: RetentionLimits,
    now: Callable[[], Now],
    leases: ReaderLeases | None = None,
) -> None:
    """Trim the log every 30 seconds until cancelled.

    Args:
        server: the engine with the sessions that hold the log back.
        store: the store with the log.
        limits: age and size above which messages leave it.
        now: returns the time of the clocks; ages are those of the steady clock.
        leases: leases of the readers, which hold the log back, too.
    """
    loop = asyncio.get_running_loop()
    earliest = 0
    while True:
        # What is needed now: by the time of trimming it is durable that the rest is not.
        keep_from = await needed_from(server)
        await asyncio.sleep(INTERVAL_S)
        now_us = now().steady_us
        older_than_us = now_us - limits.age_s * _MICROSECONDS if limits.age_s else 0
        starts_at = earliest
        with _log_failures("the log could not be trimmed"):
            starts_at = await _trim(store, older_than_us, limits.bytes_max, keep_from, leases)
        if starts_at > earliest:
            logger.info("retention: the log starts at offset %d now", starts_at)
        earliest = starts_at
        with _log_failures("what streams keep longer could not be trimmed"):
            await loop.run_in_executor(None, store.trim_archives, now_us)


async def trim_memory_log(server: Server, store: Store) -> None:
    """Remove messages that no session needs from a log in memory, four times a second until
    cancelled.

    Less often where there are so many sessions that asking them takes longer than its share.

    Args:
        server: the engine with the sessions that hold the log back.
        store: the store with the log, one that forgets everything with the process.
    """
    while True:
        asking_s = 0.0
        extent = store.log_extent()
        if extent.earliest < extent.end:
            began_s = time.monotonic()
            keep_from = await needed_from(server)
            asking_s = time.monotonic() - began_s
            with _log_failures("the log could not be trimmed"):
                await _trim(store, _NO_LIMIT, 0, keep_from, None)
        await asyncio.sleep(max(IN_MEMORY_S, asking_s / ASKING_SHARE))


async def _trim(
    store: Store, older_than_us: int, bytes_max: int, keep_from: int, leases: ReaderLeases | None
) -> int:
    """Trim the log, a bounded part in each call, until there is no more to remove."""
    leased_bytes_max = 0
    if leases is not None and leases.hold_bytes_max:  # never less than without a reader
        leased_bytes_max = max(leases.hold_bytes_max, bytes_max)
    starts_at = -1
    while True:
        former = starts_at
        if leases is None:
            starts_at = await _trim_part(store, older_than_us, bytes_max or _NO_LIMIT, keep_from)
        else:
            async with leases.trimming:
                before = store.log_extent().earliest
                starts_at = await _trim_part(
                    store,
                    older_than_us,
                    bytes_max or _NO_LIMIT,
                    keep_from,
                    leases.leased_from(),
                    leased_bytes_max,
                )
                leases.trimmed(before, starts_at)
        if starts_at == former:
            return starts_at


async def _trim_part(
    store: Store,
    older_than_us: int,
    bytes_max: int,
    keep_from: int,
    leased_from: int = NOTHING_LEASED,
    leased_bytes_max: int = 0,
) -> int:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(
        None, store.trim_log, older_than_us, bytes_max, keep_from, leased_from, leased_bytes_max
    )


@contextmanager
def _log_failures(what: str) -> Iterator[None]:
    """Log a failure, whatever it is, and go on: else the disk would fill."""
    try:
        yield
    except StoreError as error:
        logger.error("%s: %s", what, error)
    except Exception:  # a defect must not end retention for good
        logger.exception(what)


async def needed_from(server: Server) -> int:
    """Return the lowest log offset that a session still needs, or the end of the log as it was at
    first."""
    end = server.context.batch.next_offset
    search = server.registry.search_lowest_offset(end)
    ends_s = time.monotonic() + SLICE_S
    while not search.step():
        if time.monotonic() >= ends_s:
            await asyncio.sleep(0)
            ends_s = time.monotonic() + SLICE_S
    assert search.lowest <= end, "what came after the first question is needed anyway"
    return search.lowest
