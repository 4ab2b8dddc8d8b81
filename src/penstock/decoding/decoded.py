"""What a decoder is: payloads in, rows out, and a reason for each message that is broken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.errors import PenstockError


class DecodingPostponed(PenstockError):
    """A batch cannot be decoded now, for a reason that is none of its messages' and will pass."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of a batch of messages; each is in `sources` (once for each row) or in `broken`,
    unless its payload has no rows, as an empty csv has.

    rows has the decoded columns only. sources says for each row which message of the batch it came
    from, ascending. broken has the messages that do not decode, ascending (none of their rows are
    in rows), and reasons for each of them one sentence.
    """

    rows: pa.Table
    sources: pa.Int64Array
    broken: pa.Int64Array
    reasons: pa.StringArray


class Decoder(Protocol):
    """Turns payloads into rows. schema has the columns, all nullable."""

    schema: pa.Schema

    def decode(self, payloads: pa.BinaryArray, topics: pa.StringArray) -> Decoded:
        """Decode a batch. Never raises for what a payload holds.

        Raises:
            DecodingPostponed: it has to be tried again later, as a whole.
        """
        ...
