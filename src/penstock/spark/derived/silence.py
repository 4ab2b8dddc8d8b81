"""Detects keys that fall silent, and that come back: a processor with a timer for each key.

                     a row                         a row, within the limit
    unknown ────────────────────▶ heard: timer ──────────────┐
                                    │   ▲  ▲─────────────────┘
         the timer, nothing since:  │   │
                      row `silent`  ▼   │  a row: row `back`
                                   silent

The timer is one of processing time, because silence must be reported when no message comes. It must
not report a key whose messages are in the log but were not read yet, after the query was away.
So each batch reads to the end of the log; Spark processes a batch's rows before its timers.

A key keeps its timer when rows come, because that costs nothing; when it expires it is set
again. A silence that is already over when its rows are read is detected from the rows:
both rows are written then, so that the table has the same rows however late the query is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from penstock.config.derived import RECEIVED_AT, DerivedDefinition
from penstock.spark.arrow_maps import without_pandas
from penstock.spark.derived.aggregation import quoted
from penstock.spark.derived.source_rows import SourceRows
from penstock.spark.tables.declared import DeclaredTable

SILENT: Final = "silent"
BACK: Final = "back"

SLACK_MS: Final = 1000
"""A timer expires so much later than the limit: a message that was received while a batch was
planned comes with the next one."""

_AT: Final = "_at_us"
_TIMES: Final = ("at", "last_seen")
_STATE_DDL: Final = "at_us LONG, epoch STRING, offset LONG, is_silent BOOLEAN"
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


class _Last(NamedTuple):
    """The state of a key: its last row, and whether it was reported as silent."""

    at_us: int
    epoch: str
    offset: int
    is_silent: bool


class Silence:
    """The derivation of kind `silent`."""

    def __init__(self, definition: DerivedDefinition, source: DeclaredTable) -> None:
        assert definition.limit_s is not None
        self._keys = definition.keys
        self._limit_us = round(definition.limit_s * 1_000_000)
        keys = [source.schema.field(key).remove_metadata() for key in self._keys]
        self.schema = pa.schema(
            [
                source.schema.field("epoch"),
                source.schema.field("offset"),
                pa.field("at", _TIMESTAMP),
                *keys,
                pa.field("state", pa.string()),
                pa.field("last_seen", _TIMESTAMP),
                pa.field("silent_s", pa.float64()),
            ]
        )
        columns = dict.fromkeys(["epoch", "offset", RECEIVED_AT, *self._keys])
        self._rows = SourceRows(source, [*columns], TurningPoints(self._keys, self._limit_us))
        self._output = pa.schema(
            [pa.field(it.name, pa.int64()) if it.name in _TIMES else it for it in self.schema]
        )

    @property
    def wording(self) -> str:
        """The computation in words, without the limit, which may change."""
        return f"silence by {', '.join(self._keys)}"

    def derive(self, messages: DataFrame) -> DataFrame:
        """Return a stream of the keys that fell silent or came back, of a stream of messages."""
        numbered = {key: f"_key{place}" for place, key in enumerate(self._keys)}
        rows = self._rows.of(messages).select(  # names without dots, which Spark would look into
            "epoch",
            "offset",
            F.unix_micros(RECEIVED_AT).alias(_AT),
            *(quoted(key).alias(name) for key, name in numbered.items()),
        )
        output = [field.with_name(numbered.get(field.name, field.name)) for field in self._output]
        with without_pandas():
            found = rows.groupBy(*numbered.values()).transformWithState(
                SilenceProcessor((*numbered.values(),), self._limit_us),
                from_arrow_schema(pa.schema(output)),
                "append",
                "ProcessingTime",
            )
        return found.select(
            *(
                (F.timestamp_micros(one.name) if one.name in _TIMES else F.col(one.name)).alias(
                    name
                )
                for one, name in zip(output, self.schema.names, strict=True)
            )
        )


class TurningPoints:
    """Leaves out rows between which their key was silent for no longer than the limit.

    Args:
        keys: the columns of the key.
        limit_us: the limit.
    """

    def __init__(self, keys: tuple[str, ...], limit_us: int) -> None:
        self._keys = keys
        self._limit_us = limit_us

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Return the first and last row of each key, and the rows before and after a silence."""
        if rows.num_rows < 3:
            return rows
        by = [*self._keys, RECEIVED_AT, "offset"]
        rows = rows.sort_by([(name, "ascending") for name in by]).combine_chunks()
        at = rows.column(RECEIVED_AT).cast(pa.int64()).chunk(0)
        is_turn = pc.greater(pc.subtract(at[1:], at[:-1]), self._limit_us)
        for key in self._keys:
            values = rows.column(key).chunk(0)
            one, other = values[:-1], values[1:]
            is_equal = pc.coalesce(pc.equal(one, other), pc.and_(one.is_null(), other.is_null()))
            is_turn = pc.or_(is_turn, pc.invert(is_equal))
        edge = pa.array([True])
        begins = pa.concat_arrays([edge, is_turn])  # after a turn, or the first
        ends = pa.concat_arrays([is_turn, edge])
        return rows.filter(pc.or_(begins, ends))


class SilenceProcessor(StatefulProcessor):
    """The processor that Spark runs for each key.

    Args:
        keys: names of the columns of the key.
        limit_us: a key without rows for longer is silent.
    """

    def __init__(self, keys: tuple[str, ...], limit_us: int) -> None:
        self._keys = keys
        self._limit_us = limit_us

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state; called once in each task."""
        self._handle = handle
        self._state = handle.getValueState("last", _STATE_DDL)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Any,
        timerValues: TimerValues,  # noqa: N803, ARG002
    ) -> Iterator[Row]:
        """Take the rows of one key in one batch, in any order."""
        before = self._last()
        for row in sorted(rows, key=lambda row: (row.offset, row[_AT])):
            at_us = row[_AT]
            if before is not None and (before.is_silent or at_us - before.at_us > self._limit_us):
                if not before.is_silent:
                    yield self._silent(key, before)
                yield self._row(
                    key, row.epoch, row.offset, at_us, BACK, before.at_us, at_us - before.at_us
                )
            if before is None or before.is_silent:
                self._set_timer(at_us)
            newest_us = at_us if before is None else max(at_us, before.at_us)
            before = _Last(newest_us, row.epoch, row.offset, is_silent=False)
        if before is not None:
            self._state.update(before)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803, ARG002
    ) -> Iterator[Row]:
        """Report a key as silent whose timer has expired, or set its timer again."""
        last = self._last()
        assert last is not None, "a timer is set when there is a row"
        if self._timer_ms(last.at_us) > timerValues.getCurrentProcessingTimeInMs():
            self._set_timer(last.at_us)
            return
        self._state.update(last._replace(is_silent=True))
        yield self._silent(key, last)

    def _last(self) -> _Last | None:
        found = self._state.get()
        return None if found is None else _Last(*found)

    def _set_timer(self, at_us: int) -> None:
        self._handle.registerTimer(self._timer_ms(at_us))

    def _timer_ms(self, at_us: int) -> int:
        return (at_us + self._limit_us) // 1000 + SLACK_MS

    def _silent(self, key: Any, last: _Last) -> Row:
        at_us = last.at_us + self._limit_us
        return self._row(key, last.epoch, last.offset, at_us, SILENT, last.at_us, None)

    def _row(
        self,
        key: Any,
        epoch: str,
        offset: int,
        at_us: int,
        state: str,
        last_seen_us: int,
        silent_us: int | None,
    ) -> Row:
        return Row(
            epoch=epoch,
            offset=offset,
            at=at_us,
            **dict(zip(self._keys, key, strict=True)),
            state=state,
            last_seen=last_seen_us,
            silent_s=None if silent_us is None else silent_us / 1_000_000,
        )
