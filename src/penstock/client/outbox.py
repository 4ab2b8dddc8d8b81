"""The outbox: a client's store on disk, the same as a broker's.

::

      publish ─▶ log, queue of the session ── one synced write ─▶ accepted
                    ╰── sent, acknowledged ─▶ its chunk leaves the log ─▶ disk is free again

It belongs to one client identifier: the packet identifiers in it mean something only to the
session that a server keeps under it.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from penstock.client.client_engine import ClientEngine
from penstock.engine.batch.records import RecoveredState
from penstock.errors import ConfigError, StoreError
from penstock.store.api import Store
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

INTERVAL_S: Final = 2.0
_ALL_US: Final = 2**62  # older than every message
_ALL_BYTES: Final = 2**62


async def open_outbox(path: Path) -> tuple[Store, RecoveredState]:
    """Open or create the outbox at ``path``; return the store and its contents.

    A thread does it, which cannot be stopped: a caller that is cancelled waits until the outbox is
    closed again.

    Raises:
        StoreError: another process has it open, it is damaged, of another format, or cannot be
            written.
    """
    opening = asyncio.get_running_loop().run_in_executor(None, _open_outbox, path)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        while not opening.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((opening,))
        if opening.exception() is None:
            opening.result()[0].close()
        raise


def _open_outbox(path: Path) -> tuple[Store, RecoveredState]:
    from penstock.store.rocks import RocksStore  # who has no outbox need not load RocksDB

    store = RocksStore(path)
    try:
        return store, store.recover()
    except BaseException:
        store.close()
        raise


def client_id_in(recovered: RecoveredState, path: Path, wanted: str) -> str:
    """Return the client identifier that owns the outbox; ``wanted`` if it is new.

    Raises:
        ConfigError: it is the outbox of another client than ``wanted``.
    """
    known = [record.client_id for record in recovered.sessions]
    if not known:
        return wanted
    if wanted and wanted not in known:
        raise ConfigError(
            f"{path} is the outbox of client {known[0]!r}, not of {wanted!r}: each client needs"
            " its own"
        )
    return wanted or known[0]


async def trim_until(stopped: asyncio.Event, engine: ClientEngine) -> None:
    """Remove delivered and given up messages from the log of the outbox, until stopped.

    Args:
        stopped: set to end it; a removal that has begun is completed.
        engine: the engine of the client.
    """
    trimmed_to = -1
    while not await _is_set_within(stopped, INTERVAL_S):
        try:
            needed = engine.session.lowest_offset()
            keep_from = engine.server.context.batch.next_offset if needed < 0 else needed
            if keep_from > trimmed_to:
                await engine.driver.wait_durable()  # the record that they are not needed any more
                await _trim(engine.store, keep_from)
                trimmed_to = keep_from
        except StoreError as error:
            logger.error("the outbox could not be trimmed: %s", error)
        except Exception:  # a defect must not end trimming for good: the disk would fill
            logger.exception("the outbox could not be trimmed")


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _trim(store: Store, keep_from: int) -> None:
    """Remove messages before ``keep_from``, a bounded part in each call of the store."""
    loop = asyncio.get_running_loop()
    begins_at, before = 0, -1
    while begins_at != before:
        before = begins_at
        begins_at = await loop.run_in_executor(None, store.trim_log, _ALL_US, _ALL_BYTES, keep_from)
