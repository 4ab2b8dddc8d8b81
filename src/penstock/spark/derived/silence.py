"""Detects keys that fall silent, and that come back: a processor with a timer for each key.

                     a row                         a row, within the limit
    unknown ────────────────────▶ active: timer ─────────────┐
                                    │   ▲  ▲─────────────────┘
          the timer expires:        │   │
             writes row `silent`    ▼   │  a row: writes row `back`
                                   silent

The timers are of processing time, because silence must be reported when no message arrives. After
the query was stopped, a timer must not report a key whose messages are in the log but unread. So
each batch reads to the end of the log; Spark processes a batch's rows before its timers.

A new row does not move the timer of its key, which would cost time for each row; a timer that
expires within the limit of the last row is set again. A silence that is already over when its rows
are read is detected from the rows, and both rows, `silent` and `back`, are written: so the table
has the same rows however late the query is.
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
from penstock.spark.arrow_maps import without_pandas_warning
from penstock.spark.derived.aggregation import column_named
from penstock.spark.derived.source_rows import SourceRows
from penstock.spark.tables.declared import DeclaredTable

SILENT: Final = "silent"
BACK: Final = "back"

SLACK_MS: Final = 1000
"""Time in ms from the limit to the timer: a message that is received while a batch is planned is
read by the next batch."""

_RECEIPT_TIME: Final = "_at_us"
_TIMES: Final = ("at", "last_seen")
_STATE_DDL: Final = "at_us LONG, epoch STRING, offset LONG, is_silent BOOLEAN"
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


class _KeyState(NamedTuple):
    """The state of a key: time, epoch and offset of its last row, and whether it is silent."""

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
        self._rows = SourceRows(source, [*columns], SilenceBoundaries(self._keys, self._limit_us))
        self._output = pa.schema(
            [
                pa.field(field.name, pa.int64()) if field.name in _TIMES else field
                for field in self.schema
            ]
        )

    @property
    def description(self) -> str:
        """The computation in words, without the limit, which may change."""
        return f"silence by {', '.join(self._keys)}"

    def derive(self, messages: DataFrame) -> DataFrame:
        """Return a stream with a row for each key that falls silent or comes back."""
        spark_names = {key: f"_key{index}" for index, key in enumerate(self._keys)}
        rows = self._rows.decode(messages).select(  # without dots in names, which Spark would parse
            "epoch",
            "offset",
            F.unix_micros(RECEIVED_AT).alias(_RECEIPT_TIME),
            *(column_named(key).alias(name) for key, name in spark_names.items()),
        )
        output = [
            field.with_name(spark_names.get(field.name, field.name)) for field in self._output
        ]
        with without_pandas_warning():
            found = rows.groupBy(*spark_names.values()).transformWithState(
                SilenceProcessor((*spark_names.values(),), self._limit_us),
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


class SilenceBoundaries:
    """Reduces rows to those that matter for silence, before they are shuffled.

    Args:
        keys: the columns of the key.
        limit_us: the longest time between two rows of a key that is no silence, in µs.
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
        is_boundary = pc.greater(pc.subtract(at[1:], at[:-1]), self._limit_us)
        for key in self._keys:
            values = rows.column(key).chunk(0)
            one, other = values[:-1], values[1:]
            is_equal = pc.coalesce(pc.equal(one, other), pc.and_(one.is_null(), other.is_null()))
            is_boundary = pc.or_(is_boundary, pc.invert(is_equal))
        edge = pa.array([True])
        begins = pa.concat_arrays(
            [edge, is_boundary]
        )  # the first row, or the first after a boundary
        ends = pa.concat_arrays([is_boundary, edge])
        return rows.filter(pc.or_(begins, ends))


class SilenceProcessor(StatefulProcessor):
    """Spark's stateful processor, which keeps the last row and a timer of each key.

    Args:
        keys: the names of the columns of the key.
        limit_us: the time without rows after which a key is silent, in µs.
    """

    def __init__(self, keys: tuple[str, ...], limit_us: int) -> None:
        self._keys = keys
        self._limit_us = limit_us

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state; Spark calls this once in each task."""
        self._handle = handle
        self._state = handle.getValueState("last", _STATE_DDL)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Any,
        timerValues: TimerValues,  # noqa: N803, ARG002
    ) -> Iterator[Row]:
        """Process the rows of one key in one batch, in any order; yield rows `silent` and
        `back`."""
        last = self._read_state()
        for row in sorted(rows, key=lambda row: (row.offset, row[_RECEIPT_TIME])):
            at_us = row[_RECEIPT_TIME]
            if last is not None and (last.is_silent or at_us - last.at_us > self._limit_us):
                if not last.is_silent:
                    yield self._silent_row(key, last)
                yield self._row(
                    key, row.epoch, row.offset, at_us, BACK, last.at_us, at_us - last.at_us
                )
            if last is None or last.is_silent:
                self._set_timer(at_us)
            newest_us = at_us if last is None else max(at_us, last.at_us)
            last = _KeyState(newest_us, row.epoch, row.offset, is_silent=False)
        if last is not None:
            self._state.update(last)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803, ARG002
    ) -> Iterator[Row]:
        """Yield row `silent` for a key whose timer expired; or set the timer again after new
        rows."""
        last = self._read_state()
        assert last is not None, "a timer is set when there is a row"
        if self._timer_ms(last.at_us) > timerValues.getCurrentProcessingTimeInMs():
            self._set_timer(last.at_us)
            return
        self._state.update(last._replace(is_silent=True))
        yield self._silent_row(key, last)

    def _read_state(self) -> _KeyState | None:
        found = self._state.get()
        return None if found is None else _KeyState(*found)

    def _set_timer(self, at_us: int) -> None:
        self._handle.registerTimer(self._timer_ms(at_us))

    def _timer_ms(self, at_us: int) -> int:
        return (at_us + self._limit_us) // 1000 + SLACK_MS

    def _silent_row(self, key: Any, last: _KeyState) -> Row:
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
