"""Stores a record of the last upkeep of a table in its directory, for people.

    TABLE/_penstock/upkeep.json

Readers of tables ignore names that begin with an underscore. No decision depends on the record: a
missing or damaged file is read as an empty record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import msgspec

from penstock.spark.storage.location import Location

_RECORD_PATH: Final = "_penstock/upkeep.json"


class UpkeepRecord(msgspec.Struct, frozen=True):
    """The last upkeep of a table. Times are seconds since the Unix epoch; 0 for never.

    Attributes:
        merged_at_s: the time of the last merge.
        merged_files: the number of files before that merge.
        merged_into: the number of files after that merge.
        merged_bytes: the size of the files before that merge.
        merged_in_s: the duration of that merge, in seconds.
        swept_at_s: the time of the last search for orphans.
        swept_files: the number of orphans that it removed.
        failed_at_s: the time of the last failure.
        failures: the number of failures since the last success.
        failure: the latest error; empty after a success.
    """

    merged_at_s: float = 0.0
    merged_files: int = 0
    merged_into: int = 0
    merged_bytes: int = 0
    merged_in_s: float = 0.0
    swept_at_s: float = 0.0
    swept_files: int = 0
    failed_at_s: float = 0.0
    failures: int = 0
    failure: str = ""

    def sentences(self) -> Iterator[str]:
        """Yield the record as lines of text, one sentence each."""
        if self.failures:
            yield (
                f"{_time(self.failed_at_s)}: failed {self.failures} times in a row, and is tried"
                f" again: {self.failure}"
            )
        if self.merged_at_s:
            yield (
                f"{_time(self.merged_at_s)}: merged {self.merged_files:,} files"
                f" ({self.merged_bytes:,} bytes) into {self.merged_into:,}, in"
                f" {self.merged_in_s:.2f} s"
            )
        if self.swept_at_s:
            yield f"{_time(self.swept_at_s)}: removed {self.swept_files:,} leftovers"
        if not (self.failures or self.merged_at_s or self.swept_at_s):
            yield "nothing yet"


def read_upkeep_record(table: Location) -> UpkeepRecord:
    """Return the record of the table in this directory; an empty one if it cannot be read."""
    with suppress(OSError, msgspec.DecodeError):  # ValidationError is a DecodeError
        return msgspec.json.decode((table / _RECORD_PATH).read(), type=UpkeepRecord)
    return UpkeepRecord()


def write_upkeep_record(table: Location, record: UpkeepRecord) -> None:
    """Write the record of the table in this directory."""
    (table / _RECORD_PATH).write(msgspec.json.encode(record))


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
