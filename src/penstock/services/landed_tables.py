"""Tables: up to which offset each has committed its messages, and which publishers were told.

A job that lands a stream in a table says how far it is, after its commits and when it starts. The
stream service looks at the messages in between, range by range; their receipts are published here::

      unknown ─ landed ─▶ told up to `since` ─ range [told, until) ─▶ receipts, durable
                              ▲                                           │
                              ╰──────────── told up to `until` ◀──────────╯

Invariants:

1. An offset moves only over a range whose receipts are durable. What is lost in between, in a
   crash of job, service or broker, is asked for again: a receipt comes at least once.
2. A range begins at the table's offset; for any other range the answer is that offset. So two jobs
   that report at the same time do no harm, nor does one that repeats a report.
3. A table that has less than the broker knew was begun anew, and so was one with another
   selection: its own report counts.
4. At most ``tables_max`` are known.

An acknowledgement never waits for any of this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

import msgspec

from penstock.config.stream import Stream
from penstock.control.landed_requests import (
    ForgetTable,
    Landed,
    ListTables,
    TableState,
    Through,
    check_table,
)
from penstock.engine.clock import Now
from penstock.errors import ConfigError, EpochMismatch, OffsetOutOfRange, StoreError
from penstock.services.flow_topics import topic_level
from penstock.services.lag import Lag, lags
from penstock.services.readers import check_owner
from penstock.services.receipts import Receipts
from penstock.services.state_file import StateFile
from penstock.store.api import Store
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

FILE_NAME: Final = "landed.json"

_WITHOUT: Final = (
    "it says which publishers were told that their messages are in a table, and those of running"
    " jobs would be told again"
)


class LandedTable(msgspec.Struct):
    """The stored state of a table; attributes as in ``TableState``."""

    table: str
    stream: str
    topics: tuple[str, ...]
    offset: int
    landed_at_us: int = 0
    receipts: int = 0
    refused: int = 0
    owner: str = ""


@final
class LandedTables:
    """The tables that land messages of one broker.

    Args:
        data_dir: the directory of their state file.
        epoch: the epoch of the log.
        store: the store with the log that they land.
        receipts: tells publishers.
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
        receipts: Receipts,
        settings: Stream,
        now: Callable[[], Now],
    ) -> None:
        self._now = now
        self._epoch = epoch
        self._store = store
        self._receipts = receipts
        self._tables_max = settings.tables_max
        self._file = StateFile(data_dir / FILE_NAME, LandedTable, epoch, _WITHOUT)
        self._known = {table.table: table for table in self._file.read()}
        self._lags: dict[int, Lag] = {}
        self._one_at_a_time = asyncio.Lock()

    async def landed(self, asked: Landed) -> Through:
        """Take note that a table is at ``asked.end``; tell publishers of the range that was looked
        at.

        Raises:
            PenstockError: it failed; the caller may try again.
        """
        self._check(asked)
        async with self._one_at_a_time:
            table = await self._find(asked)
            if asked.until is None or asked.begin != table.offset:
                return Through(table.offset)
            assert table.offset <= asked.until, "an offset moves over the range that was looked at"
            told = await self._receipts.tell(table.table, asked.asking)
            assert table.offset == asked.begin, "tables move one at a time"
            table.offset = asked.until
            table.landed_at_us = time.time_ns() // 1000
            table.receipts += told.published
            table.refused += told.refused
            if asked.asking:
                await self._file.write(self._records)
            else:
                self._file.is_behind = True
            return Through(table.offset)

    def _check(self, asked: Landed) -> None:
        check_table(asked.table)
        end = self._store.log_extent().end
        if asked.epoch != self._epoch:
            raise EpochMismatch(
                f"the table {asked.table} is at an offset of epoch {asked.epoch}, and the log is"
                f" now of epoch {self._epoch}"
            )
        if not 0 <= asked.since <= asked.end <= end:
            raise OffsetOutOfRange(
                f"the table {asked.table} cannot have landed {asked.since} to {asked.end}: the log"
                f" ends at {end}"
            )
        until = asked.begin if asked.until is None else asked.until
        if not asked.begin <= until <= asked.end or any(
            not asked.begin <= offset < until for offset in asked.asking
        ):
            raise ConfigError(f"the range {asked.begin} to {until} is not of the table")

    async def _find(self, asked: Landed) -> LandedTable:
        """Return the table; one that was begun anew is where it says it is."""
        table = self._known.get(asked.table)
        if table is not None:
            check_owner(f"table {asked.table}", table.owner, asked.owner)
        if table is None and len(self._known) >= self._tables_max:
            raise StoreError(
                f"there is no place for the table {asked.table}: {len(self._known)} are known"
                " (stream.tables_max); 'penstock stream forget TABLE' gives one up"
            )
        if table is None or (table.stream, table.topics) != (asked.stream, asked.topics):
            owner = asked.owner if table is None else table.owner
            table = LandedTable(asked.table, asked.stream, asked.topics, asked.since, owner=owner)
            self._known[asked.table] = table
            logger.info("table %s lands from offset %d on", asked.table, table.offset)
            await self._file.write(self._records)
        elif asked.end < table.offset:
            logger.warning(
                "table %s was at offset %d and is at %d now", asked.table, table.offset, asked.end
            )
            table.offset = asked.end
            await self._file.write(self._records)
        return table

    async def forget(self, asked: ForgetTable) -> bool:
        """Forget a table; return whether it was known."""
        table = self._known.get(asked.table)
        if table is not None:
            check_owner(f"table {asked.table}", table.owner, asked.owner)
        was_known = self._known.pop(asked.table, None) is not None
        if was_known:
            await self._file.write(self._records)
        return was_known

    async def tables(self, asked: ListTables) -> list[TableState]:
        """Return the state of every table that the owner may see."""
        await self._measure()
        return [
            self._state(table) for table in self._known.values() if asked.owner in ("", table.owner)
        ]

    async def tick(self) -> None:
        """Store what moved, and measure how far each table is behind."""
        await self._measure()
        await self.save()

    async def save(self) -> None:
        """Store what moved since the last time."""
        if self._file.is_behind:
            try:
                await self._file.write(self._records)
            except StoreError as error:
                logger.error("tables are where they were after a restart: %s", error)

    def status(self) -> list[tuple[str, object]]:
        """Return the values of tables for ``$SYS``."""
        found: list[tuple[str, object]] = []
        for table in self._known.values():
            state = self._state(table)
            topic = f"tables/{topic_level(table.table)}"
            found += [
                (f"{topic}/offset", state.offset),
                (f"{topic}/lag/messages", state.lag_messages),
                (f"{topic}/lag/seconds", "" if state.lag_s is None else f"{state.lag_s:.0f}"),
                (f"{topic}/receipts", state.receipts),
                (f"{topic}/receipts/refused", state.refused),
            ]
        return found

    def _records(self) -> list[LandedTable]:
        return list(self._known.values())

    async def _measure(self) -> None:
        try:
            self._lags = await lags(
                self._store, [table.offset for table in self._known.values()], self._now()
            )
        except StoreError as error:
            logger.error("how far tables are behind is not known: %s", error)

    def _state(self, table: LandedTable) -> TableState:
        log = self._store.log_extent()
        lag = self._lags.get(table.offset)
        return TableState(
            table.table,
            table.stream,
            table.topics,
            table.offset,
            max(0, log.end - max(table.offset, log.earliest)),
            None if lag is None else lag.seconds,
            table.landed_at_us,
            table.receipts,
            table.refused,
        )
