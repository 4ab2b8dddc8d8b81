"""The interface of tables of all formats in which messages land, and the types of its arguments.

    not landed ──commit──▶ landed
         │ ▲                  ▲
         │ └─conflict: reload─┤        another writer has committed: reload, then try again
         └────error───────────┴──?──▶ unknown: the commit may or may not have happened

A commit that failed and a commit whose outcome is unknown are different errors. After neither are
files deleted: if the commit did happen, they are part of the table. After a restart Spark replays
the batch, and `LandedTable.has_landed` tells whether the table has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.spark.parquet_files import Layout, NewFile
from penstock.spark.tables.tiers import LiveFile
from penstock.spark.topics import topics_text
from penstock.telemetry.logs import one_line

ROWS: Final = "rows"
DEAD_LETTERS: Final = "dead_letters"
"""The names of a declaration's two tables, in mappings and in `NewFile.table`."""


class TableError(PenstockError):
    """Raised when a table cannot carry out an operation.

    Args:
        sentence: the reason; its lines are joined, because quoted texts may have several.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(one_line(sentence))


class TableCommitFailed(TableError):
    """Raised when a batch was not committed; it is safe to try again."""


class TableCommitUnknown(TableError):
    """Raised when it is unknown whether a batch was committed; `has_landed` tells later."""


class Outcome(Enum):
    """The outcome of a commit that ended without an error."""

    LANDED = "the batch is in the table, by this commit"
    REPLAYED = "the batch was in the table before"
    OVERTAKEN = "another job has landed some of the batch's offsets: write the batch without them"


@dataclass(frozen=True, slots=True)
class Selection:
    """The messages of a table: those of a stream, or of some of its topics, of one epoch.

    Attributes:
        epoch: the epoch of the log.
        stream: name of the stream.
        topics: MQTT topic filters; empty: every message of the stream.
        derivation: the computation on the messages, in words; empty if they land unchanged or
            decoded.
    """

    epoch: str
    stream: str
    topics: tuple[str, ...] = ()
    derivation: str = ""

    @property
    def transaction_id(self) -> str:
        """The key under which the table stores the landed end."""
        return f"penstock-log:{self.epoch}/{self.stream}/{self.topics_text}"

    @property
    def start_id(self) -> str:
        """The key under which the table stores the first landed offset."""
        return f"penstock-start:{self.epoch}/{self.stream}/{self.topics_text}"

    @property
    def description(self) -> str:
        """The selection in words, without the epoch, which the table stores as its description."""
        return f"MQTT messages of stream {self.stream}, topics {self.topics_text}{self.derivation}"

    @property
    def topics_text(self) -> str:
        """The topic filters as one text without spaces between them; # for all topics."""
        return topics_text(sorted(self.topics)) or "#"


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of one Spark query."""

    query_id: str
    batch_id: int
    selection: Selection

    @property
    def transaction_id(self) -> str:
        """The key under which the table stores the query's last batch.

        The id of the query is in its checkpoint, and stays the same after a restart.
        """
        return f"penstock-query:{self.query_id}"


@dataclass(frozen=True, slots=True)
class Span:
    """A range of landed offsets, `start` to `end` (excluded), of one epoch."""

    epoch: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a table.

    Attributes:
        version: the version of the table; each commit increases it.
        changed_at: the time of the last commit (UTC).
        rows: the number of rows.
        files: the number of Parquet files.
        size_bytes: the total size of the files.
        description: the selection, in words.
        epoch: the epoch of the newest row; None without rows.
        landed_end: the offset after the newest row; None without rows.
        oldest_at: the time of the oldest version that can be read (UTC); None if the format has
            only the newest.
    """

    version: int
    changed_at: datetime
    rows: int
    files: int
    size_bytes: int
    description: str
    epoch: str | None
    landed_end: int | None
    oldest_at: datetime | None = None


class LandedTable(Protocol):
    """A table, which need not exist yet. For one thread at a time."""

    path: Path

    layout: Layout
    """The layout of the table's rows in files."""

    def prepare(self, selection: Selection, *, add: bool = True) -> None:
        """Check an existing table; add missing columns, and widen columns that are narrower.

        Args:
            selection: the messages that will land.
            add: False to check without changing the table.

        Raises:
            ConfigError: the table has another selection or partitions, or a column of another type.
        """

    def columns(self) -> pa.Schema | None:
        """Return the columns of the table; None if it does not exist."""

    def can_widen(self, present: pa.Field, wanted: pa.Field) -> bool:
        """Return whether the format can change a present column to the type of ``wanted``."""

    def has_landed(self, batch: Batch) -> bool:
        """Return whether the batch is in the table, on disk."""

    def landed_end(self, selection: Selection) -> int:
        """Return the offset after the last landed message, on disk; 0 if none has landed."""

    def landed_start(self, selection: Selection) -> int | None:
        """Return the first landed offset; None if none has landed, or an old table lacks it.

        All messages from it up to `landed_end` have landed.
        """

    def commit(
        self, batch: Batch, files: Sequence[NewFile], seen: int, end: int, start: int | None = None
    ) -> Outcome:
        """Make files part of the table in one atomic commit, unless the batch has landed already.

        Args:
            batch: the batch of the files.
            files: the files; if there are none, only the offsets are stored.
            seen: `landed_end` before the files were written. If it has increased since, the files
                may have rows that the table has: the outcome is OVERTAKEN.
            end: `landed_end` after the commit.
            start: the first offset of the batch, even if it is in another table; None for the first
                one of the files.

        Raises:
            ConfigError: another job has created the table, with another selection.
            TableCommitFailed: the commit did not happen.
            TableCommitUnknown: the commit may have happened.
        """

    def replace(
        self, span: Span, files: Sequence[NewFile], selection: Selection | None = None
    ) -> None:
        """Replace the rows of a span by the rows of files, in one atomic commit.

        Args:
            span: the span; if it is empty, no rows are removed.
            files: the files; there may be none.
            selection: the selection of the files, whose `landed_start` becomes the start of the
                span, if that is lower.

        Raises:
            TableCommitFailed: other writers committed first; nothing has changed.
        """

    def live_files(self) -> list[LiveFile] | None:
        """Return the files that may be merged; None if there is no table.

        The list is empty for a format whose readers could see an unfinished merge.
        """

    def compact(self, groups: Sequence[Sequence[str]], versions_max: int) -> bool:
        """Merge the files of each group, and expire earlier versions of the table.

        The files stay for readers of earlier versions, until `remove_orphans` removes them by age.

        Args:
            groups: paths of `live_files` to merge; there may be no group.
            versions_max: the number of last versions that stay at least.

        Returns:
            True if it was done. False if another writer committed first: nothing has changed.
        """

    def contents(self) -> Contents | None:
        """Return the contents of the table; None if it does not exist."""

    def recent_files(self, within: timedelta) -> list[Path]:
        """Return the files with rows that were received within this time before the newest row.

        Files without statistics are included; for `timedelta.max` all files are returned, even if
        the table has no column `received_at`.
        """

    def remove_orphans(self, older_than_h: int, *, remove: bool) -> list[str]:
        """Remove files that belong to no version of the table; return their names.

        Args:
            older_than_h: the least age of the files, in hours: a batch that is being written has
                files that no commit names yet.
            remove: False to return the names without removing the files.
        """
