"""Splits messages into rows and dead letters: each message becomes one or the other.

message ──topic levels──▶ cast? ──payload──▶ decodes? ──▶ rows? ──▶ landed before? ──▶ row(s)
                           no │            no │        none │            yes │
                              └──── broken ───┘          empty           repeated
                                          └───────── dead letters ────────┘

A message for which the split raises an unexpected error becomes a dead letter, too (``poison``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.table import TableDefinition
from penstock.decoding.abbreviation import abbreviate
from penstock.decoding.decoder import DecodingPostponed, in_parts
from penstock.decoding.factory import Births, DecodedBatch, Decoder, Messages, make_decoder
from penstock.decoding.repetition_limit import exceeds_repetition_limit
from penstock.decoding.topic_pattern import TopicPattern
from penstock.spark.parquet_files import (
    PARTITION_NAME_LENGTH_MAX,
    check_writable,
    partition_name,
)
from penstock.spark.tables.columns import DEAD_LETTER_SCHEMA
from penstock.spark.tables.landed_table import DEAD_LETTERS, ROWS
from penstock.spark.tables.poison import make_in_parts, reason_of
from penstock.spark.tables.splits import with_date
from penstock.stream.birth_store import LoggedBirths
from penstock.stream.rows import STREAM_SCHEMA

MESSAGE_ID: Final = "message_id"
"""The column with the id of a message, if that is a user property."""

SEEN_AT: Final = "seen_at"
"""The column with the time of receipt of the last row of the table that has the message's id; null
if there is none."""

_NO_ROWS: Final = "the payload has no rows"

EMPTY_PAYLOAD: Final = "the payload is empty, as one that removes a retained message"
"""The reason of a dead letter for a message with which nothing is wrong."""


class DecodingSplit:
    """The split of a declared table. It is pickled for the executors, which make the decoder.

    Args:
        table: the declaration.
        schema: the columns of its rows.

    Attributes:
        births: returns the births of Sparkplug nodes; None if those in a batch are all, or the
            decoder needs none. It is set before the split is used, and called in the executors.
    """

    def __init__(self, table: TableDefinition, schema: pa.Schema) -> None:
        self._table = table
        self._schema = schema
        self.births: Callable[[], LoggedBirths] | None = None
        self._landed_at: dict[str, int] = {}
        """The time of receipt, in µs, of the last row of each id that this object has made."""

    @property
    def columns(self) -> list[str]:
        """The columns of messages that the split reads, without those for repeats."""
        wanted = {*DEAD_LETTER_SCHEMA.names, *self._table.metadata}
        return [name for name in STREAM_SCHEMA.names if name in wanted]

    @property
    def _repeated_columns(self) -> list[str]:
        """The text columns of a message that are repeated in each of its rows."""
        return ["topic", *(name for name in ("client_id",) if name in self._schema.names)]

    @cached_property
    def _births(self) -> LoggedBirths | None:
        return None if self.births is None else self.births()

    @cached_property
    def _decoder(self) -> Decoder:
        found = self._births
        births = None if found is None else Births(found.tables, found.gaps, found.end)
        return make_decoder(self._table.decoder, births)

    @cached_property
    def _pattern(self) -> TopicPattern:
        return TopicPattern.parse(self._table.topics)

    def __call__(self, messages: pa.Table) -> dict[str, pa.Table]:
        """Return the rows and dead letters of a batch of messages, by the name of the table."""
        if not messages.num_rows:
            return {}
        _ = (
            self._decoder,
            self._pattern,
        )  # made here, because an error of making them is not due to a message
        found: dict[str, list[pa.Table]] = {}
        for part in make_in_parts(with_date(messages), self._split_all, _as_dead_letter):
            for name, rows in part.items():
                found.setdefault(name, []).append(rows)
        return {name: pa.concat_tables(tables) for name, tables in found.items()}

    def _split_all(self, messages: pa.Table) -> dict[str, pa.Table]:
        """Return the rows and dead letters of messages; an error leaves this object unchanged."""
        messages = messages.combine_chunks()
        levels, misfits, misfit_reasons = self._pattern.columns(_array(messages, "topic"))
        fitting = _other_positions(messages.num_rows, misfits)
        decoded = self._decode(messages.take(fitting) if len(misfits) else messages)
        sources = fitting.take(decoded.sources)
        broken = fitting.take(decoded.broken)
        excessive = _find_excessive_repetition(messages, sources, self._repeated_columns)
        empty = _empty_reasons(messages, _find_empty(fitting, sources, broken))
        found, sources = _without_messages(decoded.rows, sources, excessive)
        rows = self._rows(messages, levels, sources, found)
        too_long = self._too_long_for_directory(rows, sources)
        rows, sources = _without_messages(rows, sources, too_long)
        repeats, landed_at = self._repeats(messages, sources)
        rows, _ = _without_messages(rows, sources, repeats)
        reasons: dict[int, tuple[str, str]] = {
            **empty,
            **dict(_with_kind("broken", misfits, misfit_reasons)),
            **dict(_with_kind("broken", broken, decoded.reasons)),
            **{index: ("broken", reason) for index, reason in (excessive | too_long).items()},
            **{index: ("repeated", reason) for index, reason in repeats.items()},
        }
        parts = {ROWS: rows, DEAD_LETTERS: _dead_letters(messages, reasons)}
        check_writable(rows, self._table.partition_by)
        self._landed_at |= landed_at
        return parts

    def message_ids(self, messages: pa.Table) -> pa.Array:
        """Return the id of each message, from its first row or its user properties; else null."""
        repeats = self._table.repeats
        assert repeats is not None
        if repeats.user_property:
            return pa.array(
                [_user_property(value, repeats.user_property) for value in
                 messages.column("properties").to_pylist()],
                pa.string(),
            )  # fmt: skip
        _ = self._decoder  # as in `__call__`

        def ids(part: pa.Table) -> list[str | None]:
            return [name for found in make_in_parts(part, self._ids, _no_id) for name in found]

        return pa.array([name for part in in_parts(ids, messages) for name in part], pa.string())

    def _ids(self, messages: pa.Table) -> list[str | None]:
        assert self._table.repeats is not None
        decoded = self._decode(messages)
        ids = decoded.rows.column(self._table.repeats.column).cast(pa.string()).to_pylist()
        found: dict[int, str | None] = {}
        for source, value in zip(decoded.sources.to_pylist(), ids, strict=True):
            found.setdefault(source, value)
        return [found.get(index) for index in range(messages.num_rows)]

    def _decode(self, messages: pa.Table) -> DecodedBatch:
        self._check_epoch(messages)
        columns = (_array(messages, name) for name in ("payload", "topic", "offset"))
        return self._decoder.decode(Messages(*columns))

    def _check_epoch(self, messages: pa.Table) -> None:
        if self._births is None or not messages.num_rows:
            return
        epoch, last = (messages.column(name)[-1].as_py() for name in ("epoch", "offset"))
        if not self._births.fit(epoch, last):
            raise DecodingPostponed(
                f"the births of Sparkplug nodes are those of epoch {self._births.epoch}, and the"
                f" messages are of epoch {epoch}"
            )

    def _rows(
        self, messages: pa.Table, levels: pa.Table, sources: pa.Array, decoded: pa.Table
    ) -> pa.Table:
        message_columns = [name for name in messages.column_names if name in self._schema.names]
        found: dict[str, pa.ChunkedArray] = {}
        parts = messages.select(message_columns), levels
        if not sources.equals(
            pa.arange(0, messages.num_rows)
        ):  # some message has no row, or several
            parts = parts[0].take(sources), parts[1].take(sources)
        for part in (*parts, decoded):
            found |= zip(part.column_names, part.columns, strict=True)
        columns = [found[field.name].cast(field.type) for field in self._schema]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _too_long_for_directory(self, rows: pa.Table, sources: pa.Array) -> dict[int, str]:
        """Return a reason for each message with a value that is too long to name a directory."""
        found: dict[int, str] = {}
        for name in self._table.partition_by:
            if name not in rows.column_names:  # a transform, whose value is a number
                continue
            column = rows.column(name)
            if not pa.types.is_string(column.type):
                continue
            longest = pc.max(pc.binary_length(column)).as_py() or 0
            if 3 * longest <= PARTITION_NAME_LENGTH_MAX:  # at most %xx for each byte
                continue
            too_long_values = [
                value
                for value in pc.unique(column).drop_null().to_pylist()
                if len(partition_name(value)) > PARTITION_NAME_LENGTH_MAX
            ]
            is_too_long = pc.is_in(column, pa.array(too_long_values, pa.string()))
            messages_there = sources.filter(is_too_long.combine_chunks()).to_pylist()
            for index, value in zip(
                messages_there, column.filter(is_too_long).to_pylist(), strict=True
            ):
                reason = f"Column {name} is {abbreviate(value)}, which is too long for a partition."
                found.setdefault(index, reason)
        return found

    def _repeats(
        self, messages: pa.Table, sources: pa.Array
    ) -> tuple[dict[int, str], dict[str, int]]:
        """Find repeats among messages, which are in order of offset.

        Returns:
            A reason for each repeat, by its position, and the time of receipt of the other
            messages in µs, by id.
        """
        if self._table.repeats is None or MESSAGE_ID not in messages.column_names:
            return {}, {}
        within_us = self._table.repeats.within_s * 1_000_000
        chosen = pc.unique(sources)
        columns = messages.select([MESSAGE_ID, SEEN_AT, "received_at"]).take(chosen)
        found: dict[int, str] = {}
        landed_at: dict[str, int] = {}
        for index, name, seen_at, at in zip(
            chosen.to_pylist(),
            columns.column(MESSAGE_ID).to_pylist(),
            *(
                columns.column(time).cast(pa.int64()).to_pylist()
                for time in (SEEN_AT, "received_at")
            ),
            strict=True,
        ):
            if name is None:
                continue
            before = landed_at.get(name, self._landed_at.get(name, seen_at))
            if before is not None and at - before <= within_us:
                found[index] = f"a message with the id {name} landed before"
            else:
                landed_at[name] = at
        return found, landed_at


def _no_id(_message: pa.Table, _error: Exception) -> list[str | None]:
    return [None]


def _as_dead_letter(message: pa.Table, error: Exception) -> dict[str, pa.Table]:
    """Return the dead letter for one message whose split raised this error."""
    return {DEAD_LETTERS: _dead_letters(message, {0: ("broken", reason_of(error))})}


def _array(messages: pa.Table, name: str) -> pa.Array:
    return messages.column(name).combine_chunks()


def _other_positions(count: int, indices: pa.Array) -> pa.Array:
    every = pa.arange(0, count)
    return every.filter(pc.invert(pc.is_in(every, indices))) if len(indices) else every


def _find_excessive_repetition(
    messages: pa.Table, sources: pa.Array, repeated_columns: list[str]
) -> dict[int, str]:
    """Return a reason for each message whose rows would repeat too many bytes of these columns."""
    if len(sources) <= messages.num_rows:  # hardly any message has several rows
        return {}
    counted = pc.value_counts(sources)
    indices, counts = counted.field("values"), counted.field("counts")
    of_message = messages.take(indices)
    lengths = [_lengths(of_message, name) for name in repeated_columns]
    found = {}
    for index, count, repeated, payload in zip(
        indices.to_pylist(),
        counts.to_pylist(),
        map(sum, zip(*lengths, strict=True)),
        _lengths(of_message, "payload"),
        strict=True,
    ):
        if exceeds_repetition_limit(count * repeated, repeated + payload):
            what = " and the ".join(repeated_columns)
            found[index] = f"{count} rows would repeat the {what}, {repeated} bytes."
    return found


def _lengths(messages: pa.Table, name: str) -> list[int]:
    """Return the length of each text of a column, in bytes."""
    found: list[int] = pc.fill_null(pc.binary_length(messages.column(name)), 0).to_pylist()
    return found


def _without_messages(
    rows: pa.Table, sources: pa.Array, messages: Collection[int]
) -> tuple[pa.Table, pa.Array]:
    """Return the rows of all other messages, and the position of the message of each row."""
    if not messages:
        return rows, sources
    is_kept = pc.invert(pc.is_in(sources, pa.array(list(messages), pa.int64())))
    return rows.filter(is_kept), sources.filter(is_kept)


def _empty_reasons(messages: pa.Table, positions: list[int]) -> dict[int, tuple[str, str]]:
    """Return kind and reason of messages without rows, by their positions."""
    payloads = messages.column("payload")
    return {
        position: ("empty", _NO_ROWS if payloads[position].as_py() else EMPTY_PAYLOAD)
        for position in positions
    }


def _find_empty(every: pa.Array, sources: pa.Array, broken: pa.Array) -> list[int]:
    """Return the positions of messages that have no rows and are not broken.

    Usually there are none; then counting is enough.
    """
    repeated = pc.sum(pc.equal(sources[1:], sources[:-1])).as_py() or 0  # they ascend
    if len(every) == len(sources) - repeated + len(broken):
        return []
    for indices in (sources, broken):
        every = every.filter(pc.invert(pc.is_in(every, indices)))
    found: list[int] = every.to_pylist()
    return found


def _with_kind(
    kind: str, indices: pa.Array, reasons: pa.Array
) -> Iterator[tuple[int, tuple[str, str]]]:
    for index, reason in zip(indices.to_pylist(), reasons.to_pylist(), strict=True):
        yield index, (kind, reason)


def _dead_letters(messages: pa.Table, reasons: dict[int, tuple[str, str]]) -> pa.Table:
    indices = sorted(reasons)
    dead = messages.take(pa.array(indices, pa.int64()))
    for position, name in enumerate(("kind", "reason")):
        values = [reasons[index][position] for index in indices]
        dead = dead.append_column(name, pa.array(values, pa.string()))
    return dead.select(DEAD_LETTER_SCHEMA.names).cast(DEAD_LETTER_SCHEMA)


def _user_property(properties: dict[str, Any] | None, key: str) -> str | None:
    for pair in (properties or {}).get("user_properties") or ():
        if pair["key"] == key:
            return str(pair["value"])
    return None
