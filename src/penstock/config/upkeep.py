"""The upkeep of a table: docs/tables.md, Upkeep."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from penstock.config.group import SettingsGroup

_NEW_NAMES: Final = {"compact_commits": "merge_files", "compact_bytes": "file_bytes"}


class UpkeepDefinition(SettingsGroup):
    """Upkeep that a table's job does between two commits: merging small files and removing old
    ones."""

    share: float = Field(default=0.2, ge=0, le=0.9)
    """Largest part of the job's time that upkeep takes: with 0.2 it waits four seconds after each
    second. 0 to 0.9; 0 is never."""

    merge_files: int = Field(default=10, ge=2, le=1000)
    """Number of files of about the same number of rows, in one partition, that are merged into one
    of the next size; also the number of commits between two checks for such files. 2 to 1000."""

    file_bytes: int = Field(default=128 * 2**20, ge=2**20, le=2**34)
    """Size of a merged file, in bytes; files of at least half of it stay as they are. 1048576 to
    17179869184."""

    versions_max: int = Field(default=20, ge=2, le=1_000_000)
    """Number of the newest versions of the table that can be read; of a Delta table up to 200 more.
    More versions make commits slower. 2 to 1000000."""

    leftovers_h: int = Field(default=6, ge=1, le=8760)
    """Time in hours after which files that the table does not refer to are removed: longer than a
    query of an earlier version takes, and than a batch takes to be written. 1 to 8760."""


def refuse_former_settings(values: Any) -> Any:
    """Return `values`; refuse settings that have moved into upkeep, and name their new place.

    Raises:
        ValueError: `values` has such a setting.
    """
    for former, now in _NEW_NAMES.items() if isinstance(values, dict) else ():
        if former in values:
            raise ValueError(f"{former} is now upkeep.{now}, as in upkeep = {{ {now} = … }}")
    return values
