"""The interface of tables of all formats in which messages land, and the types of its arguments.

    not landed ──commit──▶ landed
         │ ▲                  ▲
         │ └─conflict: reload─┤        another writer has committed: reload, then try again
         └────error───────────┴──?──▶ unknown: the commit may or may not have happened

The table is the only truth about what has landed in it. Each commit moves its landed end from one
offset of the log to a later one, and happens only if the table still ends at the first. So each
message lands once, whoever lands it and whatever that job remembers: with its state lost, older
than the table, or that of another table, and with several jobs at once.

A commit that failed and a commit whose outcome is unknown are different errors. After neither are
files deleted: if the commit did happen, they are part of the table. The next look at the table
tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, Protocol

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.spark.parquet_files import Layout, NewFile
from penstock.spark.storage.location import Location
from penstock.spark.tables.stored_marks import (
    EPOCHS,
    epoch_numbers,
    mark_numbers,
    stored_epochs,
    stored_mark,
)
from penstock.spark.tables.tiers import LiveFile
from penstock.spark.topics import topics_text
from penstock.store.mark import NO_MARK, Mark
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
    """Raised when it is unknown whether a batch was committed; the table tells later."""


class Outcome(Enum):
    """The outcome of a commit that ended without an error."""

    LANDED = "the batch is in the table, by this commit"
    REPLAYED = "the micro-batch was in the table before"
    OVERTAKEN = "the table no longer ends where the batch begins: plan it again"


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
        return self.key("log")

    def key(self, name: str) -> str:
        """Return the key under which the table stores a number about the selection."""
        return f"penstock-{name}:{self.epoch}/{self.stream}/{self.topics_text}"

    @property
    def description(self) -> str:
        """The selection in words, without the epoch, which the table stores as its description."""
        return f"MQTT messages of stream {self.stream}, topics {self.topics_text}{self.derivation}"

    @property
    def topics_text(self) -> str:
        """The topic filters as one text without spaces between them; # for all topics."""
        return topics_text(sorted(self.topics)) or "#"


_NOWHERE: Final = 2**62

PartitionValues = Mapping[str, str | None]
"""The values of partition columns, as text."""

FindNumber = Callable[[str], int | None]
"""Finds a number that a table stores, by its key; None without one."""


@dataclass(frozen=True, slots=True)
class Landed:
    """The range of a selection that a table has landed, as its own transactions say.

    Attributes:
        start: the offset at which landing began; None for a table of an old version that lacks it.
            Each message of the selection from it up to `end` has landed.
        end: the offset after the last one that has landed.
        mark: the history of the log before `end`; empty in a table of an old version.
        dead_letters_end: the landed end of the table of dead letters at that time; 0 if there is
            none.
        generation: the number of epochs that the table has received, one after another.
        parts_at: the offset from which on the rows are of a history that the log no longer has;
            None if it has all.
    """

    start: int | None
    end: int
    mark: Mark = NO_MARK
    dead_letters_end: int = 0
    generation: int = field(default=0, compare=False)
    parts_at: int | None = None

    @classmethod
    def stored(cls, find: FindNumber, selection: Selection) -> Landed | None:
        """Return what the numbers of a table say; None if landing has not begun."""
        end = find(selection.transaction_id)
        if end is None:
            return None
        parts_at = find(selection.key("parts-at"))
        return cls(
            find(selection.key("start")),
            end,
            stored_mark(lambda name: find(selection.key(name))),
            find(selection.key("dead-letters")) or 0,
            find(EPOCHS) or 0,
            None if parts_at == _NOWHERE else parts_at,
        )


@dataclass(frozen=True, slots=True)
class Former:
    """An epoch of the log in which a table has landed before it goes on in another one.

    Attributes:
        selection: the selection in that epoch.
        end: the landed end in it.
        parts_at: the offset at which it and the present log part; None if the log has all of it.
    """

    selection: Selection
    end: int
    parts_at: int | None = None


@dataclass(frozen=True, slots=True)
class QueryBatch:
    """One micro-batch of a query of Spark that has state.

    Such a table is recognised by batch too, because a batch without messages may have rows: windows
    that end by time.

    Attributes:
        query_id: the id of the query, which is in its checkpoint and stays the same after a
            restart.
        batch_id: the number of the batch.
    """

    query_id: str
    batch_id: int

    @property
    def transaction_id(self) -> str:
        """The key under which the table stores the query's last batch."""
        return f"penstock-query:{self.query_id}"


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A range of the log that one commit adds to a table.

    Attributes:
        selection: the messages that land.
        seen: the landed end of the table when the batch was planned; 0 if nothing had landed.
        end: the landed end after the commit.
        start: the offset at which landing begins, for the commit with which it does; None for all
            later ones.
        query: the micro-batch, for a table whose query has state.
        mark: the history of the log before `end`.
        dead_letters_end: the landed end of the table of dead letters.
        formers: the other epochs in which the table has landed, for the commit with which it goes
            on in this one.
        generation: the number of epochs that the table had received; None if that does not matter.
    """

    selection: Selection
    seen: int
    end: int
    start: int | None = None
    query: QueryBatch | None = None
    mark: Mark = NO_MARK
    dead_letters_end: int = 0
    formers: tuple[Former, ...] = ()
    generation: int | None = None

    @property
    def description(self) -> str:
        """The batch in words, for errors."""
        return f"the batch of offsets {self.seen} to {self.end}"

    def obstacle(self, find: FindNumber) -> Outcome | None:
        """Return why a table cannot take the batch, as the outcome of a commit; None if it can."""
        if self._is_repeated(find):
            return Outcome.REPLAYED
        if self.generation not in (None, find(EPOCHS) or 0):
            return Outcome.OVERTAKEN  # another job has begun to land another epoch
        if any(find(one.selection.transaction_id) != one.end for one in self.formers):
            return Outcome.OVERTAKEN
        end = find(self.selection.transaction_id)
        if self.start is not None:
            return None if end is None else Outcome.OVERTAKEN
        return None if self.seen == (end or 0) else Outcome.OVERTAKEN

    def is_in(self, find: FindNumber) -> bool:
        """Return whether the table has the batch, after a commit of unknown outcome; False if
        that cannot be told."""
        if self.query is not None:
            return self._is_repeated(find)
        end = find(self.selection.transaction_id)
        return end is not None and self.seen < self.end <= end

    def _is_repeated(self, find: FindNumber) -> bool:
        if self.query is None:
            return False
        last = find(self.query.transaction_id)
        return last is not None and last >= self.query.batch_id

    def numbers(self, find: FindNumber, files: Sequence[NewFile]) -> dict[str, int]:
        """Return the numbers that the commit changes in the table, by their keys."""
        selection = self.selection
        found = {selection.transaction_id: self.end}
        is_first = find(selection.transaction_id) is None
        if is_first:
            first = min((file.first_offset for file in files), default=self.end)
            found[selection.key("start")] = first if self.start is None else self.start
        if is_first or self.formers:
            found |= self._listed(stored_epochs(find))
        found |= {selection.key(name): n for name, n in mark_numbers(self.mark).items()}
        if self.dead_letters_end:
            found[selection.key("dead-letters")] = self.dead_letters_end
        if find(selection.key("parts-at")) is not None:
            found[selection.key("parts-at")] = _NOWHERE  # the log has that history again
        for former in self.formers:
            key = former.selection.key("parts-at")
            if former.parts_at is not None or find(key) is not None:
                found[key] = _NOWHERE if former.parts_at is None else former.parts_at
        if self.query is not None:
            found[self.query.transaction_id] = self.query.batch_id
        return {key: number for key, number in found.items() if find(key) != number}

    def _listed(self, listed: tuple[str, ...]) -> dict[str, int]:
        """Return the numbers that append the epoch to those that the table has received; a table of
        an old version has no list, and gets the former ones first."""
        former = (one.selection.epoch for one in self.formers)
        epochs = [*listed, *(epoch for epoch in former if epoch not in listed)]
        if epochs[-1:] != [self.selection.epoch]:
            epochs.append(self.selection.epoch)
        found = {EPOCHS: len(epochs)}
        for index in range(len(listed), len(epochs)):
            found |= epoch_numbers(index, epochs[index])
        return found


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
        epoch: the epoch of which the table has received messages last; None if of none.
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
    oldest_at: datetime | None = None


class LandedTable(Protocol):
    """A table, which need not exist yet. For one thread at a time."""

    location: Location
    """The directory of the table."""

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

    def landed(self, selection: Selection) -> Landed | None:
        """Return what has landed of a selection, on disk; None if landing has not begun."""

    def epochs(self) -> tuple[str, ...]:
        """Return the epochs of which the table has received messages, in that order.

        Their names do not tell it; of a table of an old version, which has no list of them, they
        are sorted.
        """

    def last_batch(self, query_id: str) -> int | None:
        """Return the number of the last micro-batch of a query in the table; None without one."""

    def commit(self, batch: PlannedBatch, files: Sequence[NewFile]) -> Outcome:
        """Make files part of the table in one atomic commit that moves its landed end.

        Args:
            batch: the range of the files. Unless the table's landed end is the batch's `seen`, the
                outcome is OVERTAKEN, and for a batch with `start` unless nothing has landed.
            files: the files; if there are none, only the offsets are stored.

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
            selection: the selection of the files, whose landed start becomes the start of the
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

    def recent_files(self, within: timedelta) -> list[Location]:
        """Return the files with rows that were received within this time before the newest row.

        Files without statistics are included; for `timedelta.max` all files are returned, even if
        the table has no column `received_at`.
        """

    def files(self) -> list[tuple[Location, PartitionValues]]:
        """Return the files, each with the values of partition columns that it may lack."""

    def remove_orphans(self, older_than_h: int, *, remove: bool) -> list[str]:
        """Remove files that belong to no version of the table; return their names.

        Args:
            older_than_h: the least age of the files, in hours: a batch that is being written has
                files that no commit names yet.
            remove: False to return the names without removing the files.
        """
