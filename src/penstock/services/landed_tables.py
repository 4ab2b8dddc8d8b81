"""The position of each table: the offset up to which receipts of its messages were published.

A job that writes a stream to a table (it "lands" messages) reports its offset after its commits and
when it starts. The stream service searches the messages up to that offset, range by range, for
messages whose publishers asked for a receipt; ``record_progress`` publishes the receipts::

      unknown ─ landed ─▶ position `since` ─ range [position, until) ─▶ receipts, durable
                              ▲                                            │
                              ╰──────────── position `until` ◀─────────────╯

Invariants:

1. A position moves only over a range whose receipts are durable. A range that is lost in a crash of
   job, service or broker is reported again: a receipt comes at least once.
2. A range begins at the table's position; for any other range the answer is that position. So two
   jobs that report at the same time do no harm, nor does one that repeats a report.
3. A table that reports an offset below its position was created anew, and so was a table that
   reports another stream or other topics: its position becomes the reported offset.
4. At most ``tables_max`` tables are known.

No acknowledgement (PUBACK, PUBREC) waits for a table.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, final

import msgspec

from penstock.config.stream import Stream
from penstock.control.landed_requests import (
    ForgetTable,
    ListTables,
    ReceiptPosition,
    ReportProgress,
    TableState,
    check_table,
)
from penstock.control.metric_families import MetricSample
from penstock.engine.values.clock import Now
from penstock.errors import ConfigError, OffsetOutOfRange, StoreError
from penstock.services.flow_topics import topic_level
from penstock.services.histories import refuse_other_history
from penstock.services.lag import Lag, lags
from penstock.services.readers import check_owner
from penstock.services.receipts import Receipts
from penstock.services.state_file import StateFile, storage_of
from penstock.store.port import Store
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

FILE_NAME: Final = "landed.json"

_LOSS_CONSEQUENCE: Final = (
    "without its positions, receipts that were published before would be published again"
)


class TableRecord(msgspec.Struct):
    """The stored state of a table; attributes as in ``TableState``."""

    table: str
    stream: str
    topics: tuple[str, ...]
    offset: int
    landed_at_us: int = 0
    receipts: int = 0
    refused: int = 0
    owner: str = ""
    mark: str = ""


@final
class LandedTables:
    """The tables that land messages of one broker.

    Args:
        data_dir: the directory of their state file.
        store: the store with the log that they land.
        receipts: publishes the receipts.
        settings: the limits of tables.
        now: returns the time of the clocks.

    Raises:
        StoreCorrupt: the state file is damaged.
        StoreError: the state file cannot be read.
    """

    def __init__(
        self,
        data_dir: Path,
        store: Store,
        receipts: Receipts,
        settings: Stream,
        now: Callable[[], Now],
    ) -> None:
        self._now = now
        self._store = store
        self._receipts = receipts
        self.tables_max = settings.tables_max
        self._file = StateFile(
            storage_of(data_dir, FILE_NAME, store), TableRecord, store, _LOSS_CONSEQUENCE
        )
        self._tables = {table.table: table for table in self._file.read()}
        self._lags: dict[int, Lag] = {}
        self._one_at_a_time = asyncio.Lock()

    async def record_progress(self, request: ReportProgress) -> ReceiptPosition:
        """Record a report, publish the receipts of its range, and return the table's position.

        Raises:
            PenstockError: the report was not recorded; the caller may try again.
        """
        self._check(request)
        await refuse_other_history(
            self._store, f"the table {request.table}", request.epoch, request.end, request.mark
        )
        async with self._one_at_a_time:
            table = await self._find_or_add(request)
            if request.until is None or request.begin != table.offset:
                return ReceiptPosition(table.offset)
            assert table.offset <= request.until, "an offset moves over the range that was searched"
            receipts = await self._receipts.publish(table.table, request.asking)
            assert table.offset == request.begin, "tables move one at a time"
            table.offset = request.until
            table.landed_at_us = time.time_ns() // 1000
            table.receipts += receipts.published
            table.refused += receipts.refused
            if request.asking:
                await self._file.write(self._records)
            else:
                self._file.has_changed = True
            return ReceiptPosition(table.offset)

    def _check(self, request: ReportProgress) -> None:
        check_table(request.table)
        end = self._store.log_extent().end
        if not 0 <= request.since <= request.end <= end:
            raise OffsetOutOfRange(
                f"the table {request.table} cannot have landed {request.since} to {request.end}:"
                f" the log ends at {end}"
            )
        until = request.begin if request.until is None else request.until
        if not request.begin <= until <= request.end or any(
            not request.begin <= offset < until for offset in request.asking
        ):
            raise ConfigError(f"the range {request.begin} to {until} is not of the table")

    async def _find_or_add(self, request: ReportProgress) -> TableRecord:
        """Return the table of a report; add it if it is unknown, and move its position if it was
        created anew."""
        table = self._tables.get(request.table)
        if table is not None:
            check_owner(f"table {request.table}", table.owner, request.owner)
        if table is None and len(self._tables) >= self.tables_max:
            raise StoreError(
                f"there is no place for the table {request.table}: {len(self._tables)} are known"
                " (stream.tables_max); 'penstock stream forget TABLE' gives one up"
            )
        if table is None or (table.stream, table.topics) != (request.stream, request.topics):
            owner = request.owner if table is None else table.owner
            table = TableRecord(
                request.table, request.stream, request.topics, request.since, owner=owner
            )
            self._tables[request.table] = table
            logger.info("table %s lands from offset %d on", request.table, table.offset)
            await self._file.write(self._records)
        elif request.end < table.offset:
            logger.warning(
                "table %s was at offset %d and is at %d now",
                request.table,
                table.offset,
                request.end,
            )
            table.offset = request.end
            await self._file.write(self._records)
        return table

    async def forget(self, request: ForgetTable) -> bool:
        """Forget a table; return whether it was known."""
        table = self._tables.get(request.table)
        if table is not None:
            check_owner(f"table {request.table}", table.owner, request.owner)
        was_known = self._tables.pop(request.table, None) is not None
        if was_known:
            await self._file.write(self._records)
        return was_known

    async def tables(self, request: ListTables) -> list[TableState]:
        """Return the state of every table that the owner may see."""
        await self._measure_lags()
        return [
            self._state(table)
            for table in self._tables.values()
            if request.owner in ("", table.owner)
        ]

    async def tick(self) -> None:
        """Measure the lag of each table, and store changed positions in the state file."""
        await self._measure_lags()
        await self.save()

    async def save(self) -> None:
        """Store the tables' positions if they changed since the last time."""
        if self._file.has_changed:
            try:
                await self._file.write(self._records)
            except StoreError as error:
                logger.error("the positions of tables could not be stored, yet: %s", error)

    def status(self) -> list[tuple[str, object]]:
        """Return the values of tables for ``$SYS``, by topic below ``$SYS/broker/``."""
        found: list[tuple[str, object]] = []
        for table in self._tables.values():
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

    def metrics(self) -> Iterable[MetricSample]:
        """Yield the values of tables for a scrape; lags are as of the last ``tick``."""
        for table in self._tables.values():
            state = self._state(table)
            labels = (table.table,)
            yield "table_offset", labels, state.offset
            yield "table_lag_messages", labels, state.lag_messages
            if state.lag_s is not None:
                yield "table_lag_seconds", labels, state.lag_s
            yield "table_receipts", labels, state.receipts
            yield "table_receipts_refused", labels, state.refused

    def _records(self) -> list[TableRecord]:
        return list(self._tables.values())

    async def _measure_lags(self) -> None:
        try:
            self._lags = await lags(
                self._store, [table.offset for table in self._tables.values()], self._now()
            )
        except StoreError as error:
            logger.error("the lag of tables could not be measured: %s", error)

    def _state(self, table: TableRecord) -> TableState:
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
