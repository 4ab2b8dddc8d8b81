"""Rows under construction: columns, the message of each row, and the broken messages.

A batch is decoded in portions, so that the Python objects of only some thousand payloads exist at a
time. A portion that becomes too many values is halved, until a message that does so is alone; one
that raises an unforeseen error is decoded once more, message by message. The message at fault is
broken, because one payload must never stop a table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decoding.broken import Broken
from penstock.decoding.decoded import DecodedBatch, DecodingPostponed
from penstock.decoding.repeated import exceeds_repetition_limit

_PORTION_MESSAGES: Final = 8192
_PORTION_MESSAGES_MIN: Final = 256
_PORTION_BYTES: Final = 16 * 2**20
_PORTION_VALUES: Final = 2**24


class TooManyValues(Exception):
    """Raised when a portion becomes more values than allowed."""


class Rows:
    """The result of one portion.

    ``values_max`` is the most values that a message may become, ``longest`` the most bytes of one.
    """

    def __init__(self, values_max: int = _PORTION_VALUES, longest: int = 0) -> None:
        self.values_max = values_max
        self.longest = longest
        self.sources: list[int] = []
        self.columns: list[pa.Array] = []
        self.broken: dict[int, str] = {}

    def empty_copy(self) -> Rows:
        """Return empty rows with the same limits, for a part of the portion."""
        return Rows(self.values_max, self.longest)

    def mark_broken(self, source: int, reason: str) -> None:
        """Mark a message as broken; the first reason counts."""
        self.broken.setdefault(source, reason)

    def check_message(self, values: int) -> None:
        """Raise Broken if this number of values is more than a message may become."""
        if values > self.values_max:
            raise Broken(_too_many(self.values_max))

    def check_rows(self, values: int) -> None:
        """Raise TooManyValues if a portion has too many; a single message that was checked may."""
        if values > max(self.values_max, _PORTION_VALUES):
            raise TooManyValues

    def check_lists(self, values: int) -> None:
        """Raise TooManyValues if lists of the portion have more values than a message may have.

        The message at fault is found when it is alone.
        """
        if values > self.values_max:
            raise TooManyValues

    def add(self, column: pa.Array, reasons: dict[int, str]) -> None:
        """Add the next column, for the rows of `sources`; reasons are by row."""
        self.columns.append(column)
        for row, reason in reasons.items():
            self.mark_broken(self.sources[row], reason)

    def add_repeated(
        self, name: str, column: pa.Array, reasons: dict[int, str], payloads: list[bytes]
    ) -> None:
        """Add the next column, where all rows of a message have the same value.

        Args:
            name: the name of the column.
            column: a value for each message that has rows.
            reasons: reasons by position in it.
            payloads: the payloads of the portion.
        """
        counts = Counter(self.sources)
        messages = list(counts)
        for place, reason in reasons.items():
            self.mark_broken(messages[place], reason)
        lengths = _lengths(column)
        if lengths:
            large = [
                place
                for place, (source, length) in enumerate(zip(messages, lengths, strict=True))
                if exceeds_repetition_limit(length * counts[source], len(payloads[source]))
            ]
            for place in large:
                self.mark_broken(
                    messages[place],
                    f"Column {name} has {lengths[place]} bytes, and {counts[messages[place]]} rows"
                    " would repeat them.",
                )
            if large:
                is_large = pc.is_in(pa.array(range(len(column))), pa.array(large))
                column = pc.if_else(is_large, pa.scalar(None, column.type), column)
        places = dict(zip(messages, range(len(messages)), strict=True))
        self.columns.append(
            column.take(pa.array([places[one] for one in self.sources], pa.int64()))
        )

    def finish(self, schema: pa.Schema, first: int) -> DecodedBatch:
        """Return the result; messages are counted from `first`."""
        table = pa.Table.from_arrays(self.columns, schema=schema)
        sources = pa.array(self.sources, pa.int64())
        broken = pa.array(sorted(self.broken), pa.int64())
        reasons = pa.array([self.broken[one] for one in sorted(self.broken)], pa.string())
        if len(broken) and len(sources):
            is_whole = pc.invert(pc.is_in(sources, value_set=broken))
            table, sources = table.filter(is_whole), sources.filter(is_whole)
        return DecodedBatch(table, pc.add(sources, first), pc.add(broken, first), reasons)


Portion = Callable[[list[bytes], Rows], None]


def _lengths(column: pa.Array) -> list[int]:
    """Return the bytes of each value; nothing for a type of fixed length."""
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        found: list[int] = pc.fill_null(pc.binary_length(column), 0).to_pylist()
        return found
    if pa.types.is_nested(column.type):
        return [column.slice(place, 1).nbytes for place in range(len(column))]
    return []


def decode_in_portions(
    schema: pa.Schema, payloads: pa.BinaryArray, decode: Portion, values_max: int = _PORTION_VALUES
) -> DecodedBatch:
    """Decode a batch by portions; a message that becomes more than values_max values is broken."""
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
        found = _decoded(schema, messages, first, decode, Rows(values_max, longest))
        if len(found) > 1:  # expect the next portion to be like this one
            count = max(_PORTION_MESSAGES_MIN, count // 2)
        parts += found
        first += len(messages)
    return joined(schema, parts)


def _decoded(
    schema: pa.Schema, messages: list[bytes], first: int, decode: Portion, rows: Rows
) -> list[DecodedBatch]:
    """Decode a portion into empty ``rows``; return it in parts if it had to be halved."""
    try:
        decode(messages, rows)
        return [rows.finish(schema, first)]
    except DecodingPostponed:
        raise
    except Exception as error:
        if len(messages) > 1:
            size = (len(messages) + 1) // 2 if isinstance(error, TooManyValues) else 1
            return [
                part
                for at in range(0, len(messages), size)
                for part in _decoded(
                    schema, messages[at : at + size], first + at, decode, rows.empty_copy()
                )
            ]
        rows = rows.empty_copy()
        rows.columns = [pa.array([], field.type) for field in schema]
        rows.mark_broken(0, _error_text(error, rows.values_max))
        return [rows.finish(schema, first)]


def _too_many(values_max: int) -> str:
    return f"The payload becomes more values than values_max allows ({values_max})."


def _error_text(error: Exception, values_max: int) -> str:
    if isinstance(error, TooManyValues):
        return _too_many(values_max)
    return f"The payload could not be decoded ({type(error).__name__})."


def joined(schema: pa.Schema, parts: list[DecodedBatch]) -> DecodedBatch:
    """Return the parts of a batch as one."""
    if len(parts) == 1:
        return parts[0]
    return DecodedBatch(
        pa.concat_tables([part.rows for part in parts] or [schema.empty_table()]),
        pa.concat_arrays([pa.array([], pa.int64()), *(part.sources for part in parts)]),
        pa.concat_arrays([pa.array([], pa.int64()), *(part.broken for part in parts)]),
        pa.concat_arrays([pa.array([], pa.string()), *(part.reasons for part in parts)]),
    )
