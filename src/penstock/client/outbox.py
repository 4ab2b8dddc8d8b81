"""The outbox: a client's store on disk, in the format of a broker's store.

::

      publish ─▶ log, queue of the session ── one synced write ─▶ accepted
                    ╰── sent, acknowledged ─▶ its chunk of the log is deleted

An outbox belongs to one client identifier: its packet identifiers are valid only in the session
that the server keeps for that identifier.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from penstock.client.client_engine import ClientEngine
from penstock.engine.values.records import RecoveredState
from penstock.errors import ConfigError, StoreError
from penstock.store.port import Store
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

INTERVAL_S: Final = 2.0
_ALL_US: Final = 2**62  # an age that no message reaches
_ALL_BYTES: Final = 2**62


async def open_outbox(path: Path) -> tuple[Store, RecoveredState]:
    """Open or create the outbox at ``path``; return the store and its recovered state.

    The store is opened in a thread, which cannot be stopped: a cancelled caller waits until the
    outbox is open, and closes it again.

    Raises:
        StoreError: another process has the outbox open, or it is damaged, has another format, or
            cannot be written.
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
    from penstock.store.rocks import RocksStore  # not needed without an outbox

    store = RocksStore(path)
    try:
        return store, store.recover()
    except BaseException:
        store.close()
        raise


def client_id_in(recovered: RecoveredState, path: Path, client_id: str) -> str:
    """Return the client identifier that owns the outbox; ``client_id`` if the outbox is new.

    Args:
        recovered: the recovered state of the outbox.
        path: the directory of the outbox, for the error message.
        client_id: the client identifier of the options; "" accepts any owner.

    Raises:
        ConfigError: the outbox belongs to another client identifier.
    """
    owners = [record.client_id for record in recovered.sessions]
    if not owners:
        return client_id
    if client_id and client_id not in owners:
        raise ConfigError(
            f"{path} is the outbox of client {owners[0]!r}, not of {client_id!r}: each client needs"
            " its own"
        )
    return client_id or owners[0]


async def trim_until(stop: asyncio.Event, engine: ClientEngine) -> None:
    """Delete delivered and dropped messages from the log of the outbox every ``INTERVAL_S``.

    Args:
        stop: set to end it; a removal that has begun is completed.
        engine: the engine of the client.
    """
    trimmed_to = -1
    while not await _is_set_within(stop, INTERVAL_S):
        try:
            needed = engine.session.lowest_offset()
            keep_from = engine.server.context.log_end if needed < 0 else needed
            if keep_from > trimmed_to:
                await engine.driver.wait_durable()  # the record of their delivery
                await _trim(engine.store, keep_from)
                trimmed_to = keep_from
        except StoreError as error:
            logger.error("the outbox could not be trimmed: %s", error)
        except Exception:  # trimming goes on: else the disk would fill
            logger.exception("the outbox could not be trimmed")


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _trim(store: Store, keep_from: int) -> None:
    """Delete messages below the offset ``keep_from``; each call of the store deletes some."""
    loop = asyncio.get_running_loop()
    begins_at, before = 0, -1
    while begins_at != before:
        before = begins_at
        begins_at = await loop.run_in_executor(None, store.trim_log, _ALL_US, _ALL_BYTES, keep_from)
