"""The interface of every table in which messages land, whatever its format, and its terms.

    not landed ──commit──▶ landed
         │ ▲                  ▲
         │ └─conflict: reload─┤        another writer came first: reload, then try again
         └────error───────────┴──?──▶ unknown: the commit may or may not have happened

A commit that failed and a commit whose outcome is unknown are different errors. Neither deletes a
file: if the commit did happen, its files are part of the table. On restart Spark replays the batch
and the table itself says whether it is there.
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
"""The names, within a pass over messages, of the tables that it fills."""


class TableError(PenstockError):
    """Raised when the table cannot carry out an operation.

    Args:
        sentence: the reason; quoted text of a library may have several lines.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(one_line(sentence))


class TableCommitFailed(TableError):
    """Raised when the batch was not committed. It is safe to try again."""


class TableCommitUnknown(TableError):
    """Raised when it is unknown whether the batch was committed; the table tells, once readable."""


class Outcome(Enum):
    """The outcome of a commit that ended without an error."""

    LANDED = "the batch is in the table, by this commit"
    REPLAYED = "the batch was in the table before"
    OVERTAKEN = "another job has landed some of the batch's offsets: leave those rows out"


@dataclass(frozen=True, slots=True)
class Selection:
    """The messages that a table holds: those of a stream, or some topics of it, of one epoch.

    Attributes:
        epoch: the epoch of the log.
        stream: name of the stream.
        topics: MQTT topic filters; empty: every message of the stream.
        derivation: the computation on the messages, in words; empty: a row of each.
    """

    epoch: str
    stream: str
    topics: tuple[str, ...] = ()
    derivation: str = ""

    @property
    def transaction_id(self) -> str:
        """The name under which the table stores the landed offsets."""
        return f"penstock-log:{self.epoch}/{self.stream}/{self.topics_text}"

    @property
    def start_id(self) -> str:
        """The name under which the table stores the first landed offset."""
        return f"penstock-start:{self.epoch}/{self.stream}/{self.topics_text}"

    @property
    def description(self) -> str:
        """The table's description of itself; the same for every epoch."""
        return f"MQTT messages of stream {self.stream}, topics {self.topics_text}{self.derivation}"

    @property
    def topics_text(self) -> str:
        """The topic filters as one word."""
        return topics_text(sorted(self.topics)) or "#"


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of one Spark query."""

    query_id: str
    batch_id: int
    selection: Selection

    @property
    def transaction_id(self) -> str:
        """The name of the query in the table. Its id is in the checkpoint and survives restarts."""
        return f"penstock-query:{self.query_id}"


@dataclass(frozen=True, slots=True)
class Span:
    """A range of landed offsets: `start` up to, not including, `end`, of one epoch."""

    epoch: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a table.

    Attributes:
        version: the version of the table; every commit makes one.
        changed_at: when the last one was made (UTC).
        rows: the number of rows.
        files: the number of Parquet files.
        size_bytes: their total size.
        description: the messages that it holds, in words.
        epoch: the epoch of the newest row, or None if there is none.
        landed_end: offset after the newest row, or None.
        oldest_at: when the oldest version that can be read was made (UTC); None if the format has
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
    """The layout of its rows in files."""

    def prepare(self, selection: Selection, *, add: bool = True) -> None:
        """Refuse a table of other messages; add missing columns, and widen columns that are
        narrower.

        Args:
            selection: the messages that will land.
            add: False only refuses.

        Raises:
            ConfigError: it holds other messages, or a column has another type.
        """

    def columns(self) -> pa.Schema | None:
        """Return the columns of the table; None if it does not exist."""

    def widens(self, present: pa.Field, wanted: pa.Field) -> bool:
        """Return whether a present column, with its rows, may get the type of `wanted`."""

    def has_landed(self, batch: Batch) -> bool:
        """Return whether the batch is in the table, on disk."""

    def landed_end(self, selection: Selection) -> int:
        """Return the offset after the last that landed and is on disk; 0 if none did."""

    def landed_start(self, selection: Selection) -> int | None:
        """Return the first offset that landed; None if none has, or the table does not tell.

        All messages from it up to `landed_end` have landed.
        """

    def commit(
        self, batch: Batch, files: Sequence[NewFile], seen: int, end: int, start: int | None = None
    ) -> Outcome:
        """Make `files` part of the table, in one step, unless the batch is in it already.

        Args:
            batch: their batch.
            files: may be empty: then only the offsets are stored.
            seen: `landed_end` before the files were written; if it is more by now, they
                may have rows that are in the table.
            end: `landed_end` afterwards.
            start: the first offset of the batch, even if it is in another table; None: that of
                the files.

        Raises:
            ConfigError: another job has created the table, for other messages.
            TableCommitFailed: it did not happen.
            TableCommitUnknown: it may have happened.
        """

    def replace(
        self, span: Span, files: Sequence[NewFile], selection: Selection | None = None
    ) -> None:
        """Replace the rows of `span` by the rows of `files`, in one step.

        Args:
            span: may be empty: then no rows are removed.
            files: may be empty.
            selection: the selection of the files: from now on it has landed at least from the
                span on.

        Raises:
            TableCommitFailed: another writer came in between; nothing has changed.
        """

    def live_files(self) -> list[LiveFile] | None:
        """Return the files that may be merged; None if there is no table.

        There are none for a format whose readers would see a merge half done.
        """

    def compact(self, groups: Sequence[Sequence[str]], versions_max: int) -> bool:
        """Merge the files of each group, and expire earlier versions of the table.

        Readers of these versions keep the files: `remove_orphans` removes them when they are old.

        Returns:
            Whether it was done. False: another writer came first, and nothing has changed.

        Args:
            groups: paths of `live_files`; may be empty.
            versions_max: at least so many of the last versions stay.
        """

    def contents(self) -> Contents | None:
        """Return the contents of the table; None if it does not exist."""

    def recent_files(self, within: timedelta) -> list[Path]:
        """Return present files that may have rows received within this time before the newest.

        All of them for `timedelta.max`, even if the table has no `received_at`.
        """

    def remove_orphans(self, older_than_h: int, *, remove: bool) -> list[str]:
        """Remove files that are no longer, or never were, part of the table; return their names.

        Args:
            older_than_h: spare files younger than this, in hours: a batch that is being written
                has files that no commit names yet.
            remove: False only lists them.
        """
