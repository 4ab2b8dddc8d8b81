"""The lag of a reader behind the log: in messages, and the age of its oldest unread message."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from penstock.engine.values.clock import Now
from penstock.store.port import Store

_MICROSECONDS = 1_000_000


class Lag(NamedTuple):
    """The lag of a reader; ``seconds`` is None if its oldest unread message has left the log."""

    messages: int
    seconds: float | None


async def lags(store: Store, offsets: Iterable[int], now: Now) -> dict[int, Lag]:
    """Return the lag of a reader at each of ``offsets``, by offset; ages are by the steady clock.

    Raises:
        StoreError: the log cannot be read.
    """
    log = store.log_extent()
    wanted = set(offsets)
    first = {offset: max(offset, log.earliest) for offset in wanted}
    loop = asyncio.get_running_loop()
    oldest = await loop.run_in_executor(
        None, store.read, [at for at in set(first.values()) if at < log.end]
    )
    found = {}
    for offset, at in first.items():
        message = oldest.get(at)
        seconds: float | None = None
        if at >= log.end:
            seconds = 0.0
        elif message is not None:
            seconds = max(0.0, (now.steady_us - message.steady_us) / _MICROSECONDS)
        found[offset] = Lag(max(0, log.end - at), seconds)
    return found
