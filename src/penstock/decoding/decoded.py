"""The interface of decoders: payloads in, rows out, and a reason for each broken message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.errors import PenstockError


class DecodingPostponed(PenstockError):
    """Raised when a batch cannot be decoded now, for a passing reason outside of its messages."""


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """The result of decoding a batch of messages.

    Each message is in `sources` (once for each row) or in `broken`, unless its payload has no rows,
    as an empty csv has.

    Attributes:
        rows: the decoded columns only.
        sources: for each row, the message of the batch from which it came, ascending.
        broken: the messages that cannot be decoded, ascending; none of their rows are in ``rows``.
        reasons: a sentence for each of those.
    """

    rows: pa.Table
    sources: pa.Int64Array
    broken: pa.Int64Array
    reasons: pa.StringArray


class Decoder(Protocol):
    """Decodes payloads to rows. ``schema`` has the columns, all nullable."""

    schema: pa.Schema

    def decode(self, payloads: pa.BinaryArray, topics: pa.StringArray) -> DecodedBatch:
        """Decode a batch. It never raises for the contents of a payload.

        Raises:
            DecodingPostponed: the whole batch has to be tried again later.
        """
        ...
