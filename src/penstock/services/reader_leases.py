"""The leases of registered readers in a running broker: granted, stored, expired, reported.

::

      control socket ─ lease ─▶ Readers ─ new, or moved back ─▶ readers.json, synced ─▶ granted
                                   │  ╰───── renewed ─────────────────────────────────▶ granted
                                   │                  (readers.json is written by the next ``tick``)
                                   ╰─ lowest_leased_offset ─▶ retention

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
from penstock.engine.values.clock import Now
from penstock.errors import StoreError
from penstock.services.histories import refuse_other_history
from penstock.services.lag import Lag, lags
from penstock.services.readers import Reader, Readers
from penstock.services.state_file import StateFile, storage_of
from penstock.store.port import Store
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

FILE_NAME: Final = "readers.json"

_LOSS_CONSEQUENCE: Final = (
    "without it, retention may remove messages that registered readers have not read, before"
    " readers that run register again"
)


@final
class ReaderLeases:
    """The registered readers of one broker.

    Args:
        data_dir: the directory of their state file.
        store: the store with the log that they read.
        settings: the limits of readers.
        now: returns the time of the clocks.

    Attributes:
        hold_bytes_max: the size of the log in bytes up to which leases keep messages; 0 = no limit.
        trim_lock: locked while messages leave the log, so that no lease is granted on a message
            that is being removed.

    Raises:
        StoreCorrupt: the state file is damaged.
        StoreError: the state file cannot be read.
    """

    def __init__(
        self,
        data_dir: Path,
        store: Store,
        settings: Stream,
        now: Callable[[], Now],
    ) -> None:
        self._store = store
        self._now = now
        self._file = StateFile(
            storage_of(data_dir, FILE_NAME, store), Reader, store, _LOSS_CONSEQUENCE
        )
        self._readers = Readers(
            store.epoch,
            settings.readers_max,
            settings.reader_lease_s_max,
            self._file.read(),
            time.monotonic(),
            settings.readers_per_token_max,
        )
        self._lags: dict[int, Lag] = {}
        self._unsaved_groups: set[str] = set()  # stored before their leases are granted
        self.hold_bytes_max = settings.readers_hold_bytes_max
        self.trim_lock = asyncio.Lock()

    def apply_settings(self, settings: Stream) -> None:
        """Use other limits for leases from now on."""
        self._readers.readers_max = settings.readers_max
        self._readers.lease_s_max = settings.reader_lease_s_max
        self._readers.per_owner_max = settings.readers_per_token_max
        self.hold_bytes_max = settings.readers_hold_bytes_max

    async def lease(self, request: Lease) -> LeaseGrant:
        """Register a reader or renew its lease; return the lease, which is stored where needed.

        Raises:
            EpochMismatch: the offset is of another history.
            PenstockError: the lease is not granted; see ``Readers.lease``.
        """
        await refuse_other_history(
            self._store, f"group {request.group}", request.epoch, request.offset, request.mark
        )
        async with self.trim_lock:
            self._readers.epoch = self._store.epoch
            granted, is_new = self._readers.lease(
                request, self._store.log_extent().end, time.monotonic()
            )
        if is_new:
            self._unsaved_groups.add(request.group)
            logger.info(
                "group %s holds the log from offset %d on, for %g s (%s)",
                request.group,
                granted.offset,
                granted.ttl_s,
                request.about or "without a description",
            )
        if request.group in self._unsaved_groups:  # also if an earlier write failed
            await self._file.write(self._readers.records)
            self._unsaved_groups.discard(request.group)
        else:
            self._file.has_changed = True
        return granted

    async def release(self, request: Release) -> bool:
        """Forget a group; return whether it was known."""
        was_known = self._readers.release(request.group, request.owner)
        self._unsaved_groups.discard(request.group)
        if was_known:
            logger.info("group %s was released", request.group)
            await self._file.write(self._readers.records)
        return was_known

    async def readers(self, request: ListReaders) -> list[ReaderState]:
        """Return the state of every group that the owner may see."""
        await self._measure_lags()
        now_s = time.monotonic()
        return [
            self._state(reader, now_s)
            for reader in self._readers.records()
            if request.owner in ("", reader.owner)
        ]

    def lowest_leased_offset(self) -> int:
        """Return the offset from which on retention must keep the log; ``NOTHING_LEASED`` without a
        lease."""
        return self._readers.lowest_leased_offset(time.monotonic())

    def count_losses(self, before: int, earliest: int) -> None:
        """Count and log the messages that readers lost to retention.

        Args:
            before: the first offset of the log before it was trimmed.
            earliest: the first offset of the log now.
        """
        for reader, lost in self._readers.count_losses(before, earliest, time.monotonic()):
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
        await self._measure_lags()
        await self.save()

    async def save(self) -> None:
        """Store the readers' positions if they changed since the last time."""
        if self._file.has_changed:
            try:
                await self._file.write(self._readers.records)
            except StoreError as error:
                logger.error("the positions of readers could not be stored, yet: %s", error)

    def status(self) -> list[tuple[str, object]]:
        """Return the values of readers for ``$SYS``, by topic below ``$SYS/broker/``."""
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

    async def _measure_lags(self) -> None:
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
            self._readers.remaining_s(reader.group, now_s),
            reader.lost,
            reader.about,
        )
