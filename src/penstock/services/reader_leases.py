"""The leases of registered readers in a running broker: granted, stored, expired, reported.

::

      control socket ─ lease ─▶ Readers ─ new, or moved back ─▶ readers.json, synced ─▶ granted
                                   │  ╰───── renewed ─────────────────────────────────▶ granted
                                   │                  (readers.json follows at the next round)
                                   ╰─ leased_from ─▶ retention

The rules are those of ``services.readers``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, final

from penstock.config.stream import Stream
from penstock.control.metric_families import MetricSample
from penstock.control.reader_requests import Lease, LeaseGrant, ListReaders, ReaderState, Release
from penstock.engine.clock import Now
from penstock.errors import StoreError
from penstock.services.lag import Lag, lags
from penstock.services.readers import Reader, Readers
from penstock.services.state_file import StateFile, storage_of
from penstock.store.api import Store
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

FILE_NAME: Final = "readers.json"

_WITHOUT: Final = (
    "it says what registered readers have not read, and retention may remove that before those that"
    " run have registered again"
)


@final
class ReaderLeases:
    """The registered readers of one broker.

    Args:
        data_dir: the directory of their state file.
        epoch: the epoch of the log.
        store: the store with the log that they read.
        settings: their limits.
        now: returns the time of the clocks.

    Raises:
        StoreBroken: the file is damaged.
        StoreError: it cannot be read.
    """

    def __init__(
        self,
        data_dir: Path,
        epoch: str,
        store: Store,
        settings: Stream,
        now: Callable[[], Now],
    ) -> None:
        self._store = store
        self._now = now
        self._file = StateFile(storage_of(data_dir, FILE_NAME, store), Reader, epoch, _WITHOUT)
        self._readers = Readers(
            epoch,
            settings.readers_max,
            settings.reader_lease_s_max,
            self._file.read(),
            time.monotonic(),
            settings.readers_per_token_max,
        )
        self._lags: dict[int, Lag] = {}
        self._to_keep: set[str] = set()  # groups whose leases are stored before they are granted
        self.hold_bytes_max = settings.readers_hold_bytes_max
        self.trimming = asyncio.Lock()
        """Locked while messages leave the log: no lease is granted on a message that is leaving."""

    def apply_settings(self, settings: Stream) -> None:
        """Grant leases, and hold the log for them, by other settings from now on."""
        self._readers.readers_max = settings.readers_max
        self._readers.lease_s_max = settings.reader_lease_s_max
        self._readers.per_owner_max = settings.readers_per_token_max
        self.hold_bytes_max = settings.readers_hold_bytes_max

    async def lease(self, request: Lease) -> LeaseGrant:
        """Register a reader, or renew its lease; see ``Readers.lease``."""
        async with self.trimming:
            granted, is_new = self._readers.lease(
                request, self._store.log_extent().end, time.monotonic()
            )
        if is_new:
            self._to_keep.add(request.group)
            logger.info(
                "group %s holds the log from offset %d on, for %g s (%s)",
                request.group,
                granted.offset,
                granted.ttl_s,
                request.about or "without a description",
            )
        if request.group in self._to_keep:  # also when the answer was lost, or the file not written
            await self._file.write(self._readers.records)
            self._to_keep.discard(request.group)
        else:
            self._file.has_changed = True
        return granted

    async def release(self, request: Release) -> bool:
        """Forget a group; return whether it was known."""
        was_known = self._readers.release(request.group, request.owner)
        self._to_keep.discard(request.group)
        if was_known:
            logger.info("group %s was released", request.group)
            await self._file.write(self._readers.records)
        return was_known

    async def readers(self, request: ListReaders) -> list[ReaderState]:
        """Return the state of every group that the owner may see."""
        await self._measure()
        now_s = time.monotonic()
        return [
            self._state(reader, now_s)
            for reader in self._readers.records()
            if request.owner in ("", reader.owner)
        ]

    def leased_from(self) -> int:
        """Return the offset from which on retention must keep the log."""
        return self._readers.leased_from(time.monotonic())

    def trimmed(self, before: int, earliest: int) -> None:
        """Count messages that retention took from readers: the log began at ``before``, and begins
        at ``earliest`` now."""
        for reader, lost in self._readers.trimmed(before, earliest, time.monotonic()):
            self._file.has_changed = True
            logger.warning(
                "group %s lost %d messages: the log was larger than"
                " stream.readers_hold_bytes_max before it had read them",
                reader.group,
                lost,
            )

    async def tick(self) -> None:
        """End expired leases, measure the lag of each reader, and store changed positions."""
        for reader in self._readers.expire(time.monotonic()):
            self._file.has_changed = True
            logger.warning(
                "the lease of group %s has ended: it was not heard of for %g s, and what it has"
                " not read, from offset %d on, may leave the log",
                reader.group,
                reader.ttl_s,
                reader.offset,
            )
        await self._measure()
        await self.save()

    async def save(self) -> None:
        """Store the readers' positions if they changed since the last time."""
        if self._file.has_changed:
            try:
                await self._file.write(self._readers.records)
            except StoreError as error:
                logger.error("the positions of readers could not be stored, yet: %s", error)

    def status(self) -> list[tuple[str, object]]:
        """Return the values of readers for ``$SYS``."""
        now_s = time.monotonic()
        found: list[tuple[str, object]] = []
        for reader in self._readers.records():
            state = self._state(reader, now_s)
            topic = f"readers/{reader.group}"
            found += [
                (f"{topic}/offset", state.offset),
                (f"{topic}/lag/messages", state.lag_messages),
                (f"{topic}/lag/seconds", "" if state.lag_s is None else f"{state.lag_s:.0f}"),
                (f"{topic}/lease/seconds", f"{state.lease_left_s:.0f}"),
                (f"{topic}/lost", state.lost),
            ]
        return found

    def metrics(self) -> Iterable[MetricSample]:
        """Yield the values of readers for a scrape; lags are as of the last ``tick``."""
        now_s = time.monotonic()
        for reader in self._readers.records():
            state = self._state(reader, now_s)
            labels = (reader.group,)
            yield "reader_offset", labels, state.offset
            yield "reader_lag_messages", labels, state.lag_messages
            if state.lag_s is not None:
                yield "reader_lag_seconds", labels, state.lag_s
            yield "reader_lease_seconds", labels, state.lease_left_s
            yield "reader_lost_messages", labels, state.lost

    async def _measure(self) -> None:
        try:
            self._lags = await lags(
                self._store,
                [reader.offset for reader in self._readers.records()],
                self._now(),
            )
        except StoreError as error:
            logger.error("the lag of readers could not be measured: %s", error)

    def _state(self, reader: Reader, now_s: float) -> ReaderState:
        log = self._store.log_extent()
        lag = self._lags.get(reader.offset)
        return ReaderState(
            reader.group,
            reader.stream,
            reader.topics,
            reader.offset,
            max(0, log.end - max(reader.offset, log.earliest)),
            None if lag is None else lag.seconds,
            self._readers.left_s(reader.group, now_s),
            reader.lost,
            reader.about,
        )
