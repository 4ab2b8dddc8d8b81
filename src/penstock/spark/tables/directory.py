"""Commits messages to a plain directory of Parquet files, each batch exactly once.

    TABLE/date=2026-11-22/part-….parquet      the rows; any reader of Parquet reads the directory
    TABLE/date=2026-11-22/.part-….parquet.new files of an attempt, hidden from readers
    TABLE/_penstock/00000000000000000007.json commit 7: its files, and what has landed so far

    write hidden files ──▶ write the commit ──▶ remove replaced files ──▶ rename hidden files
                           the point of commit  └─ repeated by the next writer, if interrupted

A commit is a file with a new name, which only one of two writers can create. It has the whole
state; earlier commits are only history, and the oldest are removed, in their order. So the name of
a removed one could be created again, by a writer that was paused since it looked at the table: a
writer carries out its commit only if the one before it is still what it had seen.

Other programs see the files of a commit appear one after another; with Delta or Iceberg they see
them all at once. Penstock's readers go by the last commit, and write nothing. An object store has
no renaming: there a file is copied.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from functools import lru_cache
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import ConfigError
from penstock.spark.parquet_files import (
    NULL_PARTITION,
    Layout,
    NewFile,
    hidden_name,
)
from penstock.spark.plain_types import read_rows
from penstock.spark.storage.leftovers import remove_leftovers
from penstock.spark.storage.location import FoundFile, Location
from penstock.spark.storage.opening import PathOrUrl, check_store, location_of
from penstock.spark.tables.columns import check_partitions, columns_to_add, is_declared_anew
from penstock.spark.tables.landed_table import (
    Contents,
    FindNumber,
    Landed,
    Outcome,
    PartitionValues,
    PlannedBatch,
    QueryBatch,
    Selection,
    Span,
    TableCommitFailed,
    TableCommitUnknown,
    TableError,
)
from penstock.spark.tables.rewriting import replacement_failed, rewrite_without, with_columns_of
from penstock.spark.tables.stored_marks import stored_epochs
from penstock.spark.tables.tiers import LiveFile

COMMITS_NAME: Final = "_penstock"
"""The directory of commits. Readers ignore names that begin with an underscore."""

COMMITS_KEPT: Final = 100
"""The number of last commits that stay; only the last two are needed."""

_COMMIT_NAME: Final = re.compile(r"[0-9]+\.json")

COMMIT_ATTEMPTS_MAX: Final = 10
"""Most attempts at a commit while other writers commit first."""


class _Commit(msgspec.Struct, frozen=True):
    """The state of the table after a commit, and the files that the commit changed.

    Attributes:
        description: the selection of the table, in words.
        partition_by: the columns with a directory for each value.
        columns: the schema, serialized by Arrow.
        landed: the landed end and start of each selection, and the last micro-batch of each query,
            by the keys of `Selection` and `QueryBatch`.
        added: paths of the files that the commit adds, after they are renamed.
        removed: paths of the files that the commit removes.
    """

    description: str
    partition_by: tuple[str, ...]
    columns: bytes
    landed: dict[str, int]
    added: list[str] = []
    removed: list[str] = []

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return pa.ipc.read_schema(pa.py_buffer(self.columns))


@dataclass(frozen=True, slots=True)
class _Look:
    """A look at the table.

    Attributes:
        numbers: the numbers of the commits that are there, in order; there is at least one.
        content: the last commit, as it was read.
        last: the last commit.
    """

    numbers: Sequence[int]
    content: bytes
    last: _Commit

    @property
    def version(self) -> int:
        """The number of the last commit."""
        return self.numbers[-1]


class ParquetDirectory:
    """A directory of Parquet files, which need not exist yet. For one thread at a time.

    Args:
        location: the directory: a path, a URL, or the place.
        schema: the columns of the table.
        partition_by: the columns with a directory for each value.
    """

    def __init__(
        self, location: PathOrUrl, schema: pa.Schema, partition_by: tuple[str, ...]
    ) -> None:
        self.location = location_of(location)
        self.layout = Layout(self.location, schema, partition_by, is_read_by_name=True)
        self._commits = self.location / COMMITS_NAME
        self._applied: _Commit | None = None  # the last one whose files have their names

    def prepare(self, selection: Selection, *, add: bool = True) -> None:
        """Check the table and add missing columns; see `LandedTable`."""
        if add:
            check_store(self.location)
        look = self._refresh() if add else self._look()
        if look is None:
            return
        last = look.last
        self._check_selection(last, selection)
        schema, partition_by = self.layout.schema, self.layout.partition_by
        if not is_declared_anew(last.schema, last.partition_by, self.layout) or self._files(look):
            check_partitions(self.location, last.partition_by, self.layout)
            added = columns_to_add(self.location, last.schema, schema)
            schema = pa.schema([*last.schema, *added])
        if add and schema != last.schema:
            commit_record = msgspec.structs.replace(
                last, columns=_serialize(schema), partition_by=partition_by, added=[], removed=[]
            )
            if not self._append(look, commit_record):
                raise TableCommitFailed(
                    f"another job changed the table in {self.location}; try again"
                )

    def columns(self) -> pa.Schema | None:
        """Return the columns of the table; None if it does not exist."""
        look = self._look()
        return None if look is None else look.last.schema

    def can_widen(self, _present: pa.Field, _wanted: pa.Field) -> bool:
        """Return False: readers take the types from each file, so all files must have the same."""
        return False

    def landed(self, selection: Selection) -> Landed | None:
        """Return what has landed of a selection, on disk; None if landing has not begun."""
        return Landed.stored(_finder(self._look()), selection)

    def epochs(self) -> tuple[str, ...]:
        """Return the epochs that the table has received, in that order; see `LandedTable`."""
        look = self._look()
        return () if look is None else self._epochs(look)

    def _epochs(self, look: _Look) -> tuple[str, ...]:
        listed = stored_epochs(_finder(look))
        if listed:
            return listed
        paths = self._files(look)
        names = {name for path in paths for name in _offsets(self.location / path)[:2]}
        return tuple(sorted(names))

    def last_batch(self, query_id: str) -> int | None:
        """Return the number of the last micro-batch of a query in the table; None without one."""
        return _finder(self._look())(QueryBatch(query_id, 0).transaction_id)

    def commit(self, batch: PlannedBatch, files: Sequence[NewFile]) -> Outcome:
        """Make files part of the table in one commit that moves its end; see `LandedTable`."""
        selection = batch.selection
        for _ in range(COMMIT_ATTEMPTS_MAX):
            look = self._refresh()
            last = None if look is None else look.last
            if last is not None:
                self._check_selection(last, selection)
            find = _finder(look)
            obstacle = batch.obstacle(find)
            if obstacle is not None:
                return obstacle
            landed = {} if last is None else last.landed
            commit_record = _Commit(
                selection.description,
                self.layout.partition_by,
                _serialize(self.layout.schema) if last is None else last.columns,
                {**landed, **batch.numbers(find, files)},
                [_visible_path(file.path) for file in files],
            )
            try:
                if self._append(look, commit_record):
                    return Outcome.LANDED
            except TableCommitUnknown:
                if self._has(batch):
                    return Outcome.LANDED
                raise
        raise TableCommitFailed(
            f"{batch.description} could not be committed to {self.location}: other jobs came first"
        )

    def _has(self, batch: PlannedBatch) -> bool:
        """Return whether the table has a batch; False if that cannot be told now, either."""
        with suppress(TableError):
            return batch.is_in(_finder(self._refresh()))
        return False

    def replace(
        self, span: Span, files: Sequence[NewFile], selection: Selection | None = None
    ) -> None:
        """Replace the rows of a span by the rows of files, in one commit."""
        rewritten_paths: list[str] | None = None
        kept_rows: list[NewFile] = []
        for _ in range(COMMIT_ATTEMPTS_MAX):
            look = self._refresh()
            assert look is not None, "there are rows to replace"
            last = look.last
            paths = self._files(look)
            overlapping = [path for path in paths if _overlaps(self.location / path, span)]
            if overlapping != rewritten_paths:  # else other jobs have only added files
                pairs = ((self.location / path, _values(path)) for path in overlapping)
                kept_rows = rewrite_without(span, pairs, with_columns_of(last.schema, self.layout))
                rewritten_paths = overlapping
            landed = last.landed
            if selection is not None and span.start < landed.get(selection.key("start"), 0):
                landed = {**landed, selection.key("start"): span.start}
            commit_record = msgspec.structs.replace(
                last,
                landed=landed,
                added=[_visible_path(file.path) for file in (*kept_rows, *files)],
                removed=overlapping,
            )
            if self._append(look, commit_record):
                return
        raise replacement_failed(span, self.location)

    def live_files(self) -> list[LiveFile] | None:
        """Return [], or None without a table: readers of a directory could see an unfinished
        merge."""
        return None if self._look() is None else []

    def compact(self, groups: Sequence[Sequence[str]], versions_max: int) -> bool:  # noqa: ARG002
        """Return True and do nothing: there is one version, and a commit removes old ones."""
        return True

    def contents(self) -> Contents | None:
        """Return the contents of the table; None if it does not exist."""
        look = self._look()
        if look is None:
            return None
        files = self._found_files(look)
        changed_at_s = self._commit_path(look.version).stat().modified_at_s
        return Contents(
            version=look.version,
            changed_at=datetime.fromtimestamp(changed_at_s, UTC),
            rows=sum(_rows(self.location / file.path) for file in files),
            files=len(files),
            size_bytes=sum(file.size_bytes for file in files),
            description=look.last.description,
            epoch=next(reversed(self._epochs(look)), None),
        )

    def recent_files(self, within: timedelta) -> list[Location]:
        """Return the files with rows that were received within this time before the newest row.

        A commit that was cut off is carried out before, because Spark reads no hidden files.
        """
        look = self._refresh()
        paths = [] if look is None else self._files(look)
        if within == timedelta.max:
            return [self.location / path for path in paths]
        received = {path: _received_at(self.location / path) for path in paths}
        newest = max(received.values(), default=None)
        return [
            self.location / path
            for path, at in received.items()
            if newest is not None and newest - at <= within
        ]

    def files(self) -> list[tuple[Location, PartitionValues]]:
        """Return the files, each with the values of its partition; see `LandedTable`."""
        look = self._look()
        paths = [] if look is None else self._files(look)
        return [(self.location / path, _values(path)) for path in paths]

    def remove_orphans(self, older_than_h: int, *, remove: bool) -> list[str]:
        """Remove hidden files of this age, which belong to no commit; return their names."""
        look = self._refresh() if remove else self._look()
        committed = set() if look is None else {_hidden_path(path) for path in look.last.added}
        hidden = [
            file
            for file in self.location.files()
            if fnmatch(file.path.rpartition("/")[2], hidden_name("*.parquet"))
            and file.path not in committed
        ]
        return remove_leftovers(self.location, hidden, older_than_h, remove=remove)

    def _check_selection(self, last: _Commit, selection: Selection) -> None:
        if last.description != selection.description:
            raise ConfigError(
                f"the table in {self.location} holds {last.description}; land"
                f" {selection.description} in another one"
            )

    def _files(self, look: _Look) -> list[str]:
        """Return the paths of the files of the table, relative to the directory."""
        return [file.path for file in self._found_files(look)]

    def _found_files(self, look: _Look) -> list[FoundFile]:
        """Return the files of the table: those that all see, once its last commit is carried
        out."""
        removed = set(look.last.removed)
        hidden = {_hidden_path(path): path for path in look.last.added}
        found: dict[str, FoundFile] = {}
        for file in self.location.files():
            if file.path.endswith(".parquet") and file.path not in removed:
                found[file.path] = file
            elif file.path in hidden:
                found.setdefault(hidden[file.path], file)
        return [file for _, file in sorted(found.items())]

    def _look(self) -> _Look | None:
        """Return the last commit, which is on disk; None without one. Nothing is written."""
        try:
            numbers = self._numbers()
            if not numbers:
                return None
            content = self._commit_path(numbers[-1]).read()
            self._commits.sync()
            return _Look(numbers, content, msgspec.json.decode(content, type=_Commit))
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error

    def _refresh(self) -> _Look | None:
        """Return the last commit, as a writer needs it: its files are renamed and removed."""
        look = self._look()
        if look is not None:
            try:
                self._apply(look.last)
            except OSError as error:
                raise self._unreadable(error) from error
        return look

    def _unreadable(self, error: Exception) -> TableError:
        return TableError(f"the table in {self.location} cannot be read: {error}")

    def _numbers(self) -> Sequence[int]:
        names = self._commits.names()
        return sorted(int(name[:-5]) for name in names if _COMMIT_NAME.fullmatch(name))

    def _append(self, look: _Look | None, commit_record: _Commit) -> bool:
        """Write the next commit and apply it; return False if another writer has its number.

        Args:
            look: the table as the commit supposes it to be; None: there is none.
            commit_record: the commit.

        Raises:
            TableCommitUnknown: the store does not tell whether it was written, or so many commits
                were made meanwhile that the table does not tell whether this is one of them.
        """
        version = 0 if look is None else look.version + 1
        doubt: object
        try:
            if not self._commit_path(version).create(msgspec.json.encode(commit_record)):
                return False
            if not self._is_overtaken(look):
                self._apply(commit_record)
                if look is not None:
                    self._remove_commits(n for n in look.numbers if n <= version - COMMITS_KEPT)
                return True
            doubt = "there were so many others meanwhile that the first of them are removed"
        except OSError as error:
            doubt = error
        raise TableCommitUnknown(
            f"it is not known whether commit {version} of the table in {self.location} was made"
            f" ({doubt}); run the job again: it looks at the table"
        )

    def _is_overtaken(self, look: _Look | None) -> bool:
        """Return whether commits that were made after a look are removed again by now.

        They are removed in their order, so none is while the last one that was seen is there.
        """
        if look is None:
            return max(self._numbers(), default=0) >= COMMITS_KEPT
        try:
            return self._commit_path(look.version).read() != look.content
        except FileNotFoundError:
            return True

    def _remove_commits(self, numbers: Iterable[int]) -> None:
        with suppress(OSError):  # the next commit removes them
            for number in numbers:
                self._commit_path(number).remove()

    def _apply(self, commit_record: _Commit) -> None:
        """Rename and remove the files of a commit, except those for which that is done."""
        if commit_record == self._applied:
            return
        for path in commit_record.removed:
            (self.location / path).remove()
        for path in commit_record.added:
            hidden = self.location / _hidden_path(path)
            hidden.move(self.location / path)  # unless that was done before, or by another job
        self._applied = commit_record

    def _commit_path(self, version: int) -> Location:
        return self._commits / f"{version:020}.json"


def _finder(look: _Look | None) -> FindNumber:
    return (lambda _: None) if look is None else look.last.landed.get


def _serialize(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize())


def _visible_path(path: str) -> str:
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}{name.removeprefix('.').removesuffix('.new')}"


def _hidden_path(path: str) -> str:
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}{hidden_name(name)}"


def _values(path: str) -> dict[str, str | None]:
    """Return the values of the partition columns, which are in the directories of a path."""
    pairs = (part.partition("=") for part in path.split("/")[:-1])
    return {
        name: None if value == NULL_PARTITION else urllib.parse.unquote(value)
        for name, _, value in pairs
    }


@lru_cache(maxsize=100_000)
def _rows(file: Location) -> int:
    """Return the number of rows of a file (files never change)."""
    with file.open_input() as content:
        return int(pq.read_metadata(content).num_rows)


@lru_cache(maxsize=100_000)
def _offsets(file: Location) -> tuple[str, str, int, int]:
    """Return smallest and largest epoch, smallest and largest offset of a file (files never
    change)."""
    rows = read_rows(file, ["epoch", "offset"])
    epochs, offsets = (pc.min_max(rows.column(name)).as_py() for name in ("epoch", "offset"))
    return epochs["min"], epochs["max"], offsets["min"], offsets["max"]


def _overlaps(file: Location, span: Span) -> bool:
    low, high, first, last = _offsets(file)
    is_one_epoch = low == high
    return low <= span.epoch <= high and not (
        is_one_epoch and (first >= span.end or last < span.start)
    )


@lru_cache(maxsize=100_000)
def _received_at(file: Location) -> Any:
    rows = read_rows(file, ["received_at"])
    return pc.max(rows.column("received_at")).as_py()
