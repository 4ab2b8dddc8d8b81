"""Collects the rows of a batch: columns, the message of each row, and the broken messages.

A batch is decoded in portions, so that the Python objects of only some thousand payloads exist at a
time. A portion that becomes too many values is halved, until the message at fault is alone; a
portion that raises an unforeseen error is decoded again, message by message. The message at fault
is marked as broken, because one payload must never stop a table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.decoder import DecodedBatch, DecodingPostponed
from penstock.decoding.repetition_limit import exceeds_repetition_limit

_PORTION_MESSAGES: Final = 8192
_PORTION_MESSAGES_MIN: Final = 256
_PORTION_BYTES: Final = 16 * 2**20
_PORTION_VALUES: Final = 2**24


class TooManyValues(Exception):
    """Raised when a portion becomes more values than allowed; its halves are then decoded."""


class Rows:
    """The result of one portion.

    Attributes:
        values_max: the most values that one message may become.
        longest: the length of the longest payload, in bytes.
        first: the position in the batch of the portion's first message.
        sources: for each row, the position of its message in the portion, ascending.
        columns: the columns added so far, each with a value for each row.
        broken: a sentence for each broken message, by its position in the portion.
    """

    def __init__(self, values_max: int = _PORTION_VALUES, longest: int = 0, first: int = 0) -> None:
        self.values_max = values_max
        self.longest = longest
        self.first = first
        self.sources: list[int] = []
        self.columns: list[pa.Array] = []
        self.broken: dict[int, str] = {}

    def empty_copy(self, start: int = 0) -> Rows:
        """Return empty rows with the same limits, for the part of the portion from ``start`` on."""
        return Rows(self.values_max, self.longest, self.first + start)

    def mark_broken(self, source: int, reason: str) -> None:
        """Mark a message as broken; of several reasons the first one is kept."""
        self.broken.setdefault(source, reason)

    def check_message(self, values: int) -> None:
        """Raise BrokenPayload if this number of values is more than a message may become."""
        if values > self.values_max:
            raise BrokenPayload(_too_many_values_text(self.values_max))

    def check_rows(self, values: int) -> None:
        """Raise TooManyValues if a portion becomes more values than 2**24 and than `values_max`."""
        if values > max(self.values_max, _PORTION_VALUES):
            raise TooManyValues

    def check_lists(self, values: int) -> None:
        """Raise TooManyValues if the lists of a portion have more values than a message may have.

        Then the portion is halved, until the message at fault is alone.
        """
        if values > self.values_max:
            raise TooManyValues

    def add(self, column: pa.Array, reasons: dict[int, str]) -> None:
        """Add the next column, and mark the messages of rows with a reason as broken.

        Args:
            column: a value for each row in `sources`.
            reasons: a sentence, by row, for each value that does not fit.
        """
        self.columns.append(column)
        for row, reason in reasons.items():
            self.mark_broken(self.sources[row], reason)

    def add_repeated(
        self, name: str, column: pa.Array, reasons: dict[int, str], payloads: list[bytes]
    ) -> None:
        """Add the next column, in which all rows of a message have the same value.

        Messages whose rows would repeat too many bytes are marked as broken.

        Args:
            name: the name of the column, for reasons.
            column: a value for each message that has rows.
            reasons: a sentence, by position in ``column``, for each value that does not fit.
            payloads: the payloads of the portion.
        """
        counts = Counter(self.sources)
        messages = list(counts)
        for position, reason in reasons.items():
            self.mark_broken(messages[position], reason)
        lengths = _lengths(column)
        if lengths:
            large = [
                position
                for position, (source, length) in enumerate(zip(messages, lengths, strict=True))
                if exceeds_repetition_limit(length * counts[source], len(payloads[source]))
            ]
            for position in large:
                self.mark_broken(
                    messages[position],
                    f"Column {name} has {lengths[position]} bytes, and"
                    f" {counts[messages[position]]} rows would repeat them.",
                )
            if large:
                is_large = pc.is_in(pa.array(range(len(column))), pa.array(large))
                column = pc.if_else(is_large, pa.scalar(None, column.type), column)
        positions = dict(zip(messages, range(len(messages)), strict=True))
        self.columns.append(
            column.take(pa.array([positions[one] for one in self.sources], pa.int64()))
        )

    def finish(self, schema: pa.Schema) -> DecodedBatch:
        """Return the result, without rows of broken messages.

        Args:
            schema: the names and types of the columns.
        """
        table = pa.Table.from_arrays(self.columns, schema=schema)
        sources = pa.array(self.sources, pa.int64())
        broken = pa.array(sorted(self.broken), pa.int64())
        reasons = pa.array([self.broken[one] for one in sorted(self.broken)], pa.string())
        if len(broken) and len(sources):
            is_whole = pc.invert(pc.is_in(sources, value_set=broken))
            table, sources = table.filter(is_whole), sources.filter(is_whole)
        return DecodedBatch(table, pc.add(sources, self.first), pc.add(broken, self.first), reasons)


DecodePortion = Callable[[list[bytes], Rows], None]
"""Decodes the payloads of a portion into empty Rows."""


def _lengths(column: pa.Array) -> list[int]:
    """Return the length of each value in bytes; [] for a type of fixed length."""
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        found: list[int] = pc.fill_null(pc.binary_length(column), 0).to_pylist()
        return found
    if pa.types.is_nested(column.type):
        return [column.slice(position, 1).nbytes for position in range(len(column))]
    return []


def decode_in_portions(
    schema: pa.Schema,
    payloads: pa.BinaryArray,
    decode: DecodePortion,
    values_max: int = _PORTION_VALUES,
) -> DecodedBatch:
    """Decode a batch portion by portion.

    Args:
        schema: the columns that ``decode`` adds.
        payloads: the payloads of the batch.
        decode: decodes a portion.
        values_max: a message that becomes more values is broken.

    Raises:
        DecodingPostponed: ``decode`` raised it.
    """
    parts = []
    first = 0
    count = _PORTION_MESSAGES
    while first < len(payloads):
        portion = payloads.slice(first, count)
        if portion.nbytes > _PORTION_BYTES and len(portion) > 1:
            mean = portion.nbytes // len(portion) + 1
            portion = portion.slice(0, max(1, _PORTION_BYTES // mean))
        messages = pc.fill_null(portion, b"").to_pylist()
        longest = pc.max(pc.binary_length(portion)).as_py() or 0
        found = _decode_portion(schema, messages, decode, Rows(values_max, longest, first))
        if len(found) > 1:  # expect the next portion to be like this one
            count = max(_PORTION_MESSAGES_MIN, count // 2)
        parts += found
        first += len(messages)
    return join_batches(schema, parts)


def _decode_portion(
    schema: pa.Schema, messages: list[bytes], decode: DecodePortion, rows: Rows
) -> list[DecodedBatch]:
    """Decode a portion into the empty ``rows``; return its parts in order."""
    try:
        decode(messages, rows)
        return [rows.finish(schema)]
    except DecodingPostponed:
        raise
    except Exception as error:
        if len(messages) > 1:
            size = (len(messages) + 1) // 2 if isinstance(error, TooManyValues) else 1
            return [
                part
                for start in range(0, len(messages), size)
                for part in _decode_portion(
                    schema, messages[start : start + size], decode, rows.empty_copy(start)
                )
            ]
        rows = rows.empty_copy()
        rows.columns = [pa.array([], field.type) for field in schema]
        rows.mark_broken(0, _error_text(error, rows.values_max))
        return [rows.finish(schema)]


def _too_many_values_text(values_max: int) -> str:
    return f"The payload becomes more values than values_max allows ({values_max})."


def _error_text(error: Exception, values_max: int) -> str:
    if isinstance(error, TooManyValues):
        return _too_many_values_text(values_max)
    return f"The payload could not be decoded ({type(error).__name__})."


def join_batches(schema: pa.Schema, parts: list[DecodedBatch]) -> DecodedBatch:
    """Return one batch with the rows and broken messages of all parts."""
    if len(parts) == 1:
        return parts[0]
    return DecodedBatch(
        pa.concat_tables([part.rows for part in parts] or [schema.empty_table()]),
        pa.concat_arrays([pa.array([], pa.int64()), *(part.sources for part in parts)]),
        pa.concat_arrays([pa.array([], pa.int64()), *(part.broken for part in parts)]),
        pa.concat_arrays([pa.array([], pa.string()), *(part.reasons for part in parts)]),
    )
