"""The lag of a reader behind the log: in messages, and for how long the oldest one has waited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from penstock.engine.clock import Now
from penstock.store.api import Store

_MICROSECONDS = 1_000_000


class Lag(NamedTuple):
    """The lag of a reader; ``seconds`` is None where its oldest message left the log already."""

    messages: int
    seconds: float | None


async def lags(store: Store, offsets: Iterable[int], now: Now) -> dict[int, Lag]:
    """Return the lag, by the steady clock, of readers that are at ``offsets``, by offset."""
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
