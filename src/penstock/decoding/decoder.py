"""The interface of decoders: payloads in, rows out, and a reason for each broken message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import pyarrow as pa

from penstock.errors import PenstockError

T = TypeVar("T", bound="Sliceable")
Result = TypeVar("Result")


class DecodingPostponed(PenstockError):
    """Raised when a batch cannot be decoded now, for a passing reason outside of its messages."""


class TooMuchAtOnce(PenstockError):
    """Raised when messages are too large together once they are expanded; never for one message."""


class Sliceable(Protocol):
    """A batch or table of messages."""

    num_rows: int

    def slice(self, offset: int = 0, length: int | None = None) -> Self:
        """Return a part."""


def in_parts(make: Callable[[T], Result], messages: T) -> Iterator[Result]:
    """Yield the result of ``make`` for messages; of their halves, in order, where they are too much
    at once. Use up each result before the next one, so that memory stays bounded."""
    try:
        whole = make(messages)
    except TooMuchAtOnce:
        middle = messages.num_rows // 2
        assert middle, "one message is never too much"
        for half in (messages.slice(0, middle), messages.slice(middle)):
            yield from in_parts(make, half)
        return
    yield whole


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """The result of decoding a batch of messages.

    The position of each message is in `sources` (once for each row) or in `broken`; in neither if
    its payload has no rows: a list without items, or an empty payload, which is no document.

    Attributes:
        rows: the rows, with the decoded columns only.
        sources: for each row, the position in the batch of its message, ascending.
        broken: the positions of the messages that cannot be decoded, ascending; ``rows`` has no row
            of such a message.
        reasons: a sentence for each broken message.
    """

    rows: pa.Table
    sources: pa.Int64Array
    broken: pa.Int64Array
    reasons: pa.StringArray


@dataclass(frozen=True, slots=True)
class Messages:
    """A batch of messages to decode, in order of offset."""

    payloads: pa.BinaryArray
    topics: pa.StringArray
    offsets: pa.Int64Array

    def take(self, positions: pa.Int64Array) -> Messages:
        """Return the messages at these positions."""
        found = (one.take(positions) for one in (self.payloads, self.topics, self.offsets))
        return Messages(*found)


class Decoder(Protocol):
    """Decodes payloads to rows. ``schema`` has the columns of the rows, all nullable."""

    schema: pa.Schema

    def decode(self, messages: Messages) -> DecodedBatch:
        """Decode a batch of messages. No contents of a payload make it raise.

        Raises:
            DecodingPostponed: the caller must decode the whole batch again later.
            TooMuchAtOnce: the caller must decode parts of the batch (`in_parts`).
        """
        ...
