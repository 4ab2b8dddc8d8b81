"""Forks of the log: a new epoch from an offset on, where a reader has another history.

A data directory that is put back from an older copy goes on with the same epoch and the same
offsets for other messages (``store.history``). A reader that has the lost ones comes back::

      stream service ─ ForkLog(epoch, offset, mark) ─▶ judged ─ they part at N ─▶ new epoch from N
      penstock store fork ─ ForkLog(at) ─────────────────────────────────────────────╯

The second reader that comes finds that its position is of a former epoch, and no fork is needed.
Nothing of the log is moved or removed. Only a position of the present epoch asks for a fork, with a
mark by which the log knows where they part; every other position is refused in a sentence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import final

from penstock.control.history_requests import ForkLog, LogForked
from penstock.control.metric_families import MetricSample
from penstock.engine.api import Server
from penstock.engine.values.event_kinds import LOG_FORKED
from penstock.errors import ConfigError, EpochMismatch, OffsetOutOfRange
from penstock.store.history import parted_in_words
from penstock.store.mark import parse_mark
from penstock.store.port import Store
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)


@final
class LogForks:
    """Begins new epochs of one broker's log.

    Args:
        server: the engine, which writes the event.
        store: the store with the log.
    """

    def __init__(self, server: Server, store: Store) -> None:
        self._server = server
        self._store = store
        self._count = 0
        self._one_at_a_time = asyncio.Lock()

    async def fork(self, request: ForkLog) -> LogForked:
        """Begin a new epoch, or tell what it would be.

        Raises:
            ConfigError: the mark is none.
            EpochMismatch: the position is of this log's history, or it is not known where they
                part.
            OffsetOutOfRange: the log does not reach the offset.
            StoreUnavailable: the epoch could not be written.
        """
        loop = asyncio.get_running_loop()
        async with self._one_at_a_time:
            former, end = self._store.epoch, self._store.log_extent().end
            at = request.at
            if at is None:
                at = await loop.run_in_executor(None, self._parting, request)
            if not 0 <= at <= end:
                raise OffsetOutOfRange(f"the log has no offset {at}: it ends at {end}")
            if request.is_dry_run:
                return LogForked(former, former, at, end)
            epoch = await loop.run_in_executor(None, self._store.fork, at)
            self._server.epoch = epoch
            self._count += 1
        why = "an operator asked for it"
        if request.at is None:
            why = (
                f"a reader has messages of the epoch {former} from there on that this log does not"
                " have (was an older copy of the data directory put back?)"
            )
        logger.warning(
            "the log goes on under the new epoch %s from offset %d on: %s", epoch, at, why
        )
        events = self._server.context.events
        if events is not None:
            events.note(LOG_FORKED, {"epoch": epoch, "former_epoch": former, "offset": at})
        return LogForked(epoch, former, at, end)

    def _parting(self, request: ForkLog) -> int:
        try:
            mark = parse_mark(request.mark)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        verdict = self._store.judge(request.epoch, request.offset, mark)
        if verdict.parts_at is None or request.epoch != self._store.epoch:
            raise EpochMismatch(
                f"offset {request.offset} of epoch {request.epoch} needs no fork of the log, which"
                f" is of epoch {self._store.epoch}, or it is not known where they part"
            )
        logger.warning("%s", parted_in_words(request.epoch, request.offset, verdict))
        return verdict.parts_at

    def metrics(self) -> Iterable[MetricSample]:
        """Yield the number of forks for a scrape."""
        yield "log_forks", (), self._count
