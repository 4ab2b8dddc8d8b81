"""How a table looks after itself: docs/tables.md, Upkeep."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from penstock.config.group import Group

_FORMER: Final = {"compact_commits": "merge_files", "compact_bytes": "file_bytes"}


class UpkeepDefinition(Group):
    """What the job that fills a table does for it between two commits."""

    share: float = Field(default=0.2, ge=0, le=0.9)
    """The most of the job's time that it takes: after it took a second, 0.2 lets it wait for four.
    0 to 0.9; 0 is never."""

    merge_files: int = Field(default=10, ge=2, le=1000)
    """So many files of about as many rows, of one partition, become one of the next size. It looks
    for them after so many commits. 2 to 1000."""

    file_bytes: int = Field(default=128 * 2**20, ge=2**20, le=2**34)
    """The size of file to reach for, in bytes; those of half of it or more stay as they are.
    1048576 to 17179869184."""

    versions_max: int = Field(default=20, ge=2, le=1_000_000)
    """So many of the last versions of the table can be asked for; of a Delta table up to 200 more.
    A commit takes the longer the more there are. 2 to 1000000."""

    leftovers_h: int = Field(default=6, ge=1, le=8760)
    """How long files stay that the table names no longer, or never did, in hours: longer than a
    query takes that reads an earlier version, and than a batch takes to be written. 1 to 8760."""


def refuse_former_settings(values: Any) -> Any:
    """Say what has become of settings that tables had before upkeep.

    Raises:
        ValueError: one of them is there.
    """
    for former, now in _FORMER.items() if isinstance(values, dict) else ():
        if former in values:
            raise ValueError(f"{former} is now upkeep.{now}, as in upkeep = {{ {now} = … }}")
    return values
