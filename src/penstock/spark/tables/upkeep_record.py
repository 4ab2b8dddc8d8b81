"""What upkeep did to a table last, kept beside it for people who ask.

    TABLE/_penstock/upkeep.json

Readers of tables pass over names that begin with an underscore. Nothing depends on it: a file that
is not there or damaged means that nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

_PLACE: Final = Path("_penstock", "upkeep.json")


class Upkept(msgspec.Struct, frozen=True):
    """What was done last. Times are seconds since the Unix epoch; 0 for never.

    Attributes:
        merged_at_s: when files were put together.
        merged_files: how many.
        merged_into: what became of them.
        merged_bytes: how long they were.
        merged_in_s: how long it took.
        swept_at_s: when leftovers were looked for.
        swept_files: how many were removed.
        failed_at_s: when something went wrong.
        failures: how often in a row; 0 as soon as it went well.
        failure: what it was.
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
        """What is to be told, a line each."""
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


def read_upkept(table: Path) -> Upkept:
    """What is known of the table in this directory."""
    with suppress(OSError, msgspec.DecodeError):  # of the latter is a ValidationError, too
        return msgspec.json.decode((table / _PLACE).read_bytes(), type=Upkept)
    return Upkept()


def write_upkept(table: Path, upkept: Upkept) -> None:
    """Keep it; not synced, for nothing depends on it."""
    place = table / _PLACE
    place.parent.mkdir(exist_ok=True)
    unfinished = place.with_name(f".{place.name}.new")
    unfinished.write_bytes(msgspec.json.encode(upkept))
    unfinished.replace(place)


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
