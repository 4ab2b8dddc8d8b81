"""What every table that messages land in can do, whatever its format, and the words for it.

    not landed ──commit──▶ landed
         │ ▲                  ▲
         │ └─conflict: reload─┤        another writer came first: look again, then try again
         └────error───────────┴──?──▶ unknown: the commit may or may not have happened

A commit that failed and a commit whose fate is unknown are different errors. Neither deletes a
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
"""The tables that one pass over messages fills, by their names in it."""


class TableError(PenstockError):
    """The table cannot do what was asked.

    Args:
        sentence: why; what it quotes of a library may have several lines.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(one_line(sentence))


class TableCommitFailed(TableError):
    """The batch was not committed. It is safe to try again."""


class TableCommitUnknown(TableError):
    """Nobody can tell now whether the batch was committed; the table will say, once readable."""


class Outcome(Enum):
    """What became of a commit that ended without an error."""

    LANDED = "the batch is in the table, by this commit"
    REPLAYED = "the batch was in the table before"
    OVERTAKEN = "another job has landed some of the batch's offsets: leave those rows out"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages a table holds: those of a stream, or of some topics of it, of one epoch.

    Attributes:
        epoch: of the log.
        stream: name of the stream.
        topics: MQTT topic filters; empty: every message of the stream.
        derivation: what was made of the messages, in words; empty: a row of each.
    """

    epoch: str
    stream: str
    topics: tuple[str, ...] = ()
    derivation: str = ""

    @property
    def transaction_id(self) -> str:
        """Names the landed offsets in the table."""
        return f"penstock-log:{self.epoch}/{self.stream}/{self.topics_text}"

    @property
    def start_id(self) -> str:
        """Names the first landed offset in the table."""
        return f"penstock-start:{self.epoch}/{self.stream}/{self.topics_text}"

    @property
    def description(self) -> str:
        """What the table says about itself; the same for every epoch."""
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
        """Names the query in the table. Its id is in the checkpoint and survives restarts."""
        return f"penstock-query:{self.query_id}"


@dataclass(frozen=True, slots=True)
class Span:
    """A part of what has landed: offsets `start` up to and without `end`, of one epoch."""

    epoch: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Contents:
    """What a table holds.

    Attributes:
        version: of the table; every commit makes one.
        changed_at: when the last one was made (UTC).
        rows: how many.
        files: how many Parquet files.
        size_bytes: their length.
        description: which messages they are.
        epoch: of the newest row, or None where there is none.
        landed_end: offset after the newest row, or None.
        oldest_at: when the oldest version was made that can be asked for (UTC); None where the
            format has the newest only.
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
    """How its rows lie in files."""

    def prepare(self, selection: Selection, *, add: bool = True) -> None:
        """Refuse a table of other messages; add columns that the table does not have yet, and widen
        those that it has narrower.

        Args:
            selection: the messages that will land.
            add: False only refuses.

        Raises:
            ConfigError: it holds other messages, or a column has another type.
        """

    def columns(self) -> pa.Schema | None:
        """The columns that it has; None while there is none."""

    def widens(self, present: pa.Field, wanted: pa.Field) -> bool:
        """Whether a column that is there may get the type of `wanted`, with the rows it has."""

    def has_landed(self, batch: Batch) -> bool:
        """Whether the batch is in the table, on disk."""

    def landed_end(self, selection: Selection) -> int:
        """The offset after what has landed, and is on disk; 0 when nothing has."""

    def landed_start(self, selection: Selection) -> int | None:
        """The first offset that landed: all messages from it up to `landed_end` have. None where
        nothing has landed, or the table does not tell."""

    def commit(
        self, batch: Batch, files: Sequence[NewFile], seen: int, end: int, start: int | None = None
    ) -> Outcome:
        """Make `files` part of the table, in one step, unless the batch is in it already.

        Args:
            batch: what they come from.
            files: may be none: then only the offsets are noted.
            seen: what `landed_end` was before the files were written; if it is more by now, they
                may have rows that are there.
            end: what it will be.
            start: the first offset of the batch, also where it is in another table; None: that of
                the files.

        Raises:
            ConfigError: another job has made the table, for other messages.
            TableCommitFailed: it did not happen.
            TableCommitUnknown: it may have happened.
        """

    def replace(
        self, span: Span, files: Sequence[NewFile], selection: Selection | None = None
    ) -> None:
        """Take the rows of `span` out and those of `files` in, in one step.

        Args:
            span: may be empty: then nothing is taken out.
            files: may be none.
            selection: what the files are of: from now on it has landed from the span on at least.

        Raises:
            TableCommitFailed: another writer came in between; nothing has changed.
        """

    def live_files(self) -> list[LiveFile] | None:
        """The files that may be put together, none for a format where readers would see that half
        done; None while there is no table."""

    def tend(self, groups: Sequence[Sequence[str]], versions_max: int) -> bool:
        """Put the files of each group together, and let go of earlier versions of the table.

        Readers of these keep the files: `remove_orphans` removes them when they are old.

        Returns:
            Whether it was done. False: another writer came first, and nothing has changed.

        Args:
            groups: paths of `live_files`; may be none.
            versions_max: so many of the last versions stay at least.
        """

    def contents(self) -> Contents | None:
        """What the table holds; None while there is none."""

    def recent_files(self, within: timedelta) -> list[Path]:
        """Its present files that may have rows received so long before its newest, or later.

        All of them for `timedelta.max`, also where the table has no `received_at`.
        """

    def remove_orphans(self, older_than_h: int, *, remove: bool) -> list[str]:
        """Remove files that are part of the table no longer, or never were; returns their names.

        Args:
            older_than_h: spare files younger than this, in hours: a batch that is being written
                has files that no commit names yet.
            remove: False only lists them.
        """
