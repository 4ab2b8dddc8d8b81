"""Retention: old chunks leave the log, in whole ranges, off the event loop.

Messages that a stream keeps longer than the log move into the stream's archive at that time
(``store.archive``); the archives are trimmed afterwards.

Messages that a session still needs stay: its queue has offsets, not bodies. The search for the
lowest such offset visits every session, a few at a time, so that the event loop serves clients
between them::

      begin: the log ends at E ─▶ a few sessions ─▶ a few sessions ─▶ … ─▶ lowest, at most E

Messages that a session comes to need after it was visited are at E or above, except messages that
it takes over from another session; the batch notes these (``Batch.note_moved``).

Messages that a registered reader has leased (``services.readers``) stay as well, up to a size. The
leases are read just before each part is removed, and none is granted meanwhile.

A log in memory has no readers but the sessions, and is gone after a crash: messages that no session
needs are removed at once, whatever their age (``trim_memory_log``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from penstock.engine.api import Server
from penstock.engine.values.clock import Now
from penstock.errors import StoreError
from penstock.services.reader_leases import ReaderLeases
from penstock.store.port import NOTHING_LEASED, Store
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

INTERVAL_S: Final = 30.0
"""Time in seconds between two trims of a log on disk."""

MEMORY_INTERVAL_S: Final = 0.25
"""Time in seconds between two trims of a log in memory, at least."""

SEARCH_SHARE: Final = 0.05
"""Share of the time that the search for needed offsets in a log in memory may take."""

SLICE_S: Final = 0.002
"""Time in seconds that the search takes before clients are served again."""

_MICROSECONDS: Final = 1_000_000
_NO_LIMIT: Final = 2**63


@dataclass(slots=True)
class RetentionLimits:
    """The age and size above which messages leave the log; a change counts at the next trim.

    Attributes:
        age_s: age in seconds above which messages are removed; 0 = no limit by age.
        bytes_max: size of the log in bytes above which its oldest messages are removed; 0 = no
            limit by size.
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
        server: the engine with the sessions, whose messages stay in the log.
        store: the store with the log.
        limits: the age and size above which messages are removed.
        now: returns the time of the clocks; ages are by the steady clock.
        leases: the leases of readers, whose messages stay in the log as well; None without readers.
    """
    loop = asyncio.get_running_loop()
    earliest = 0
    while True:
        # Searched before the pause: when the log is trimmed, it is durable that no session needs
        # the messages below.
        keep_from = await lowest_needed_offset(server)
        await asyncio.sleep(INTERVAL_S)
        now_us = now().steady_us
        older_than_us = now_us - limits.age_s * _MICROSECONDS if limits.age_s else 0
        starts_at = earliest
        with _log_failures("the log could not be trimmed"):
            starts_at = await _trim(store, older_than_us, limits.bytes_max, keep_from, leases)
        if starts_at > earliest:
            logger.info("retention: the log starts at offset %d now", starts_at)
        earliest = starts_at
        with _log_failures("the archives of streams could not be trimmed"):
            await loop.run_in_executor(None, store.trim_archives, now_us)


async def trim_memory_log(server: Server, store: Store) -> None:
    """Remove messages that no session needs from a log in memory, four times a second until
    cancelled.

    With very many sessions it is trimmed less often, so that the search takes at most
    ``SEARCH_SHARE`` of the time.

    Args:
        server: the engine with the sessions, whose messages stay in the log.
        store: the store with the log in memory.
    """
    while True:
        search_s = 0.0
        extent = store.log_extent()
        if extent.earliest < extent.end:
            began_s = time.monotonic()
            keep_from = await lowest_needed_offset(server)
            search_s = time.monotonic() - began_s
            with _log_failures("the log could not be trimmed"):
                await _trim(store, _NO_LIMIT, 0, keep_from, None)
        await asyncio.sleep(max(MEMORY_INTERVAL_S, search_s / SEARCH_SHARE))


async def _trim(
    store: Store, older_than_us: int, bytes_max: int, keep_from: int, leases: ReaderLeases | None
) -> int:
    """Trim the log, part by part, until there is no more to remove; return its first offset."""
    leased_bytes_max = 0
    if leases is not None and leases.hold_bytes_max:  # never less than without a reader
        leased_bytes_max = max(leases.hold_bytes_max, bytes_max)
    starts_at = -1
    while True:
        former = starts_at
        if leases is None:
            starts_at = await _trim_part(store, older_than_us, bytes_max or _NO_LIMIT, keep_from)
        else:
            async with leases.trim_lock:
                before = store.log_extent().earliest
                starts_at = await _trim_part(
                    store,
                    older_than_us,
                    bytes_max or _NO_LIMIT,
                    keep_from,
                    leases.lowest_leased_offset(),
                    leased_bytes_max,
                )
                leases.count_losses(before, starts_at)
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
def _log_failures(message: str) -> Iterator[None]:
    """Log any failure in the block, and continue: without retention the disk would fill."""
    try:
        yield
    except StoreError as error:
        logger.error("%s: %s", message, error)
    except Exception:  # a defect must not end retention for good
        logger.exception(message)


async def lowest_needed_offset(server: Server) -> int:
    """Return the lowest log offset that a session still needs, or the end of the log at the start
    of the search if no session needs a message."""
    end = server.context.log_end
    search = server.registry.search_lowest_offset(end)
    ends_s = time.monotonic() + SLICE_S
    while not search.step():
        if time.monotonic() >= ends_s:
            await asyncio.sleep(0)
            ends_s = time.monotonic() + SLICE_S
    assert search.lowest <= end, "messages after the start of the search stay in the log"
    return search.lowest
