"""A record of the last upkeep of a table, beside it, for people.

    TABLE/_penstock/upkeep.json

Readers of tables ignore names that begin with an underscore. Nothing depends on it: a file that
is missing or damaged means that nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

_PLACE: Final = Path("_penstock", "upkeep.json")


class UpkeepRecord(msgspec.Struct, frozen=True):
    """The last upkeep of a table. Times are seconds since the Unix epoch; 0 for never.

    Attributes:
        merged_at_s: when files were merged.
        merged_files: how many files were merged.
        merged_into: how many files they became.
        merged_bytes: their size before.
        merged_in_s: how long the merge took.
        swept_at_s: when orphans were searched for.
        swept_files: how many were removed.
        failed_at_s: when upkeep failed.
        failures: failures in a row; 0 as soon as it succeeds.
        failure: the latest error.
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
        """Yield sentences about it, a line each."""
        if self.failures:
            yield (
                f"{_time(self.failed_at_s)}: failed {self.failures} times in a row, and goes on"
                f" trying: {self.failure}"
            )
        if self.merged_at_s:
            yield (
                f"{_time(self.merged_at_s)}: put {self.merged_files:,} files"
                f" ({self.merged_bytes:,} bytes) together as {self.merged_into:,}, in"
                f" {self.merged_in_s:.2f} s"
            )
        if self.swept_at_s:
            yield f"{_time(self.swept_at_s)}: removed {self.swept_files:,} leftovers"
        if not (self.failures or self.merged_at_s or self.swept_at_s):
            yield "nothing yet"


def read_upkeep_record(table: Path) -> UpkeepRecord:
    """Return the record of the table in this directory; an empty one if there is none."""
    with suppress(OSError, msgspec.DecodeError):  # of the latter is a ValidationError, too
        return msgspec.json.decode((table / _PLACE).read_bytes(), type=UpkeepRecord)
    return UpkeepRecord()


def write_upkeep_record(table: Path, record: UpkeepRecord) -> None:
    """Write the record; not synced, because nothing depends on it."""
    place = table / _PLACE
    place.parent.mkdir(exist_ok=True)
    unfinished = place.with_name(f".{place.name}.new")
    unfinished.write_bytes(msgspec.json.encode(record))
    unfinished.replace(place)


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
