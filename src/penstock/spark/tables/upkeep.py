"""Maintains a table: in the job that fills it, between two commits, within a budget of time.

    commit ──▶ is it time? ──▶ merge files (tiers) ──▶ expire earlier versions
                                                   ──▶ once an hour: remove orphans
               └─ merge_files commits since the last upkeep, and its share of time is not exceeded

Each step is one atomic commit of the table's format: if it is killed, no row is lost or duplicated,
and the next upkeep repeats it. Files are removed only when no version names them and they are old
(`LandedTable.remove_orphans`), so that readers of earlier versions can still read theirs.

A failure of upkeep does not end the landing: it is logged, reported in `tables status`, and upkeep
is tried again later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from penstock.config.upkeep import UpkeepDefinition
from penstock.spark.tables.landed_table import LandedTable
from penstock.spark.tables.tiers import LiveFile, groups_to_merge
from penstock.spark.tables.upkeep_record import read_upkeep_record, write_upkeep_record
from penstock.telemetry.logs import get_logger

SWEEP_S: Final = 3600.0
"""Seconds between two searches for orphans, each of which lists the whole directory."""

RETRY_S: Final = 5.0
"""Pause after a failure, in seconds; each further failure in a row doubles it."""

RETRY_S_MAX: Final = 600.0

logger = get_logger(__name__)


class Upkeep:
    """Maintains the tables that a job fills, in the thread that commits to them.

    Args:
        tables: the tables.
        definition: the settings of upkeep.
        now_s: returns the time in seconds since the Unix epoch.
        clock_s: returns the seconds of a monotonic clock.
    """

    def __init__(
        self,
        tables: Iterable[LandedTable],
        definition: UpkeepDefinition,
        now_s: Callable[[], float] = time.time,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tables = [*tables]
        self._definition = definition
        self._now_s = now_s
        self._clock_s = clock_s
        self._commits = definition.merge_files - 1  # so that a single commit triggers upkeep
        self._next_upkeep_s = clock_s()
        self._failures = 0

    def after_commit(self) -> None:
        """Count a commit, and maintain the tables if it is time. Errors are logged, not raised."""
        self._commits += 1
        share = self._definition.share
        is_time = self._commits >= self._definition.merge_files
        if not share or not is_time or self._clock_s() < self._next_upkeep_s:
            return
        self._commits = 0
        started_s = self._clock_s()
        succeeded = [self._maintain(table) for table in self._tables]
        duration_s = self._clock_s() - started_s
        pause_s = duration_s * (1 - share) / share
        self._failures = 0 if all(succeeded) else self._failures + 1
        if self._failures:
            pause_s = max(pause_s, min(RETRY_S * 2 ** (self._failures - 1), RETRY_S_MAX))
        self._next_upkeep_s = self._clock_s() + pause_s

    def _maintain(self, table: LandedTable) -> bool:
        """Merge files of one table and remove orphans; return whether this succeeded.

        A failure is recorded and logged.
        """
        try:
            files = table.live_files()
            if files is not None:
                self._merge(table, files)
                self._remove_orphans(table)
                record = read_upkeep_record(table.location)
                if record.failures:
                    write_upkeep_record(table.location, replace(record, failures=0, failure=""))
        except Exception as error:
            logger.warning(
                "upkeep of %s failed, and is tried again later: %s", table.location, error
            )
            with suppress(OSError):
                record = read_upkeep_record(table.location)
                failed = replace(
                    record,
                    failed_at_s=self._now_s(),
                    failures=record.failures + 1,
                    failure=str(error),
                )
                write_upkeep_record(table.location, failed)
            return False
        return True

    def _merge(self, table: LandedTable, files: Sequence[LiveFile]) -> None:
        started_s = self._clock_s()
        definition = self._definition
        due = groups_to_merge(files, definition.merge_files, definition.file_bytes, self._now_s())
        groups = _within_budget(due, definition.file_bytes)
        done = table.compact(
            [[file.path for file in group] for group in groups], definition.versions_max
        )
        if done and groups:
            merged = replace(
                read_upkeep_record(table.location),
                merged_at_s=self._now_s(),
                merged_files=sum(len(group) for group in groups),
                merged_into=len(groups),
                merged_bytes=sum(file.size_bytes for group in groups for file in group),
                merged_in_s=self._clock_s() - started_s,
            )
            write_upkeep_record(table.location, merged)

    def _remove_orphans(self, table: LandedTable) -> None:
        record = read_upkeep_record(table.location)
        if 0 <= self._now_s() - record.swept_at_s < SWEEP_S:
            return
        removed = table.remove_orphans(self._definition.leftovers_h, remove=True)
        swept = replace(record, swept_at_s=self._now_s(), swept_files=len(removed))
        write_upkeep_record(table.location, swept)


def _within_budget(groups: Sequence[list[LiveFile]], bytes_max: int) -> list[list[LiveFile]]:
    """Return the first groups that have at most `bytes_max` bytes together, at least one group."""
    chosen: list[list[LiveFile]] = []
    size = 0
    for group in groups:
        size += sum(file.size_bytes for file in group)
        if chosen and size > bytes_max:
            break
        chosen.append(group)
    return chosen
