"""Keeps birth certificates of Sparkplug B beside the table that needs them.

A birth tells the names and types of all data that follow, for as long as its node is connected:
weeks, while the log may keep a day. So a job copies births to its table's directory before it lands
the messages behind them:

    log ──births up to its end──▶ _births/*.arrow, then births.json ──▶ tasks that decode messages

The births below an offset are a function of the log, and a message needs those before its own
offset only. So it does not matter when the directory was brought up to date, as long as it reaches
far enough; `LoggedBirths.end` tells how far. It has the last birth of each topic before the log
began, and all later ones: for each message that the log still has, those that were before it.

What the log lost before it was looked at is a gap: a birth may have been in it. A log that was put
back from an older copy, or begun anew, has another history: births from the offset on at which the
two part are forgotten, and those of the present log read (`StreamClient.check_position`).

Two jobs may bring one directory up to date: they take turns, by a lock.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import EpochMismatch, OffsetOutOfRange, StoreError, StoreUnavailable
from penstock.store.mark import parse_mark
from penstock.store.ranges import Ranges, join_ranges, subtract_ranges
from penstock.store.watermark import sync_directory
from penstock.stream.client import StreamClient, StreamOffsets
from penstock.stream.requests import COUNT_MAX
from penstock.stream.rows import STREAM_SCHEMA
from penstock.telemetry.logs import Sentence, get_logger

DIRECTORY_NAME: Final = "_births"
"""The directory in a table's directory; readers of tables ignore names that begin with _."""

FILES_MAX: Final = 16
"""Most files of births; one more merges them all, and removes what the log does not need."""

UNUSED_FILE_S_MAX: Final = 3600
"""Age in seconds at which a merged file is removed: tasks of an earlier batch may still read it."""

_INDEX: Final = "births.json"
_LOCK: Final = "lock"
_LAYOUT: Final = 1
_ATTEMPTS_MAX: Final = 5
_SCHEMA: Final = pa.schema([STREAM_SCHEMA.field(name) for name in ("offset", "topic", "payload")])

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LoggedBirths:
    """Births of a stream.

    Attributes:
        epoch: the epoch of the log.
        end: the offset before which all births are known, except those in gaps.
        gaps: ranges of offsets whose births are unknown.
        tables: the births, with the columns offset, topic and payload.
        lineage: former epochs of the log, each with the offset up to which it is the same.
    """

    epoch: str
    end: int
    gaps: Ranges = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    lineage: tuple[tuple[str, int], ...] = ()

    def fit(self, epoch: str, last: int) -> bool:
        """Return whether messages of an epoch, up to the offset `last`, are of this log."""
        return epoch == self.epoch or last < dict(self.lineage).get(epoch, 0)


class _File(msgspec.Struct, frozen=True):
    """A file of births, of which those before offset `below` count."""

    name: str
    below: int = COUNT_MAX


class _Index(msgspec.Struct):
    """The contents of the directory; a file that is not named here does not count."""

    layout: int
    epoch: str
    stream: str
    filters: list[str]
    end: int = 0
    mark: str = ""
    gaps: Ranges = []
    files: list[_File] = []
    lineage: tuple[tuple[str, int], ...] = ()


class BirthStore:
    """The births that messages of one selection need. Pickled for tasks, which only `load`.

    Args:
        directory: the directory, which need not exist; None to `preview` without one.
        stream: the name of the stream.
        filters: topic filters of the births.
    """

    def __init__(self, directory: Path | None, stream: str, filters: Sequence[str]) -> None:
        self._directory = directory
        self._stream = stream
        self._filters = sorted(filters)

    def load(self) -> LoggedBirths:
        """Return the births that the directory has.

        Raises:
            StoreError: it has none of this stream and these filters.
        """
        index = self._read_index()
        if index is None:
            raise StoreError(f"the births of Sparkplug nodes are missing in {self._directory}")
        return self._births(index)

    def update(self, client: StreamClient) -> None:
        """Copy births from the log up to its present end.

        Raises:
            PenstockError: the log cannot be read.
        """
        assert self._directory is not None, "a store without a directory only previews"
        if not self._directory.exists():
            self._directory.mkdir(parents=True, exist_ok=True)
            sync_directory(self._directory.parent)
        with _locked(self._directory / _LOCK):
            for attempt in range(1, _ATTEMPTS_MAX + 1):
                index, log, missing = self._plan(client, self._checked_index(client))
                hidden: Ranges = []
                try:
                    read = self._read(client, log, missing, hidden)
                    index.files += _write(self._directory, read)
                    index.gaps = join_ranges([*index.gaps, *hidden])
                    break
                except OffsetOutOfRange:  # retention was faster
                    if attempt == _ATTEMPTS_MAX:
                        raise
            if len(index.files) > FILES_MAX:
                index.files = self._merge(self._directory, index, log.earliest)
            _write_index(self._directory, index)

    def preview(self, client: StreamClient) -> LoggedBirths:
        """Return what the directory would have after an `update`, without changing it.

        Raises:
            PenstockError: the log cannot be read.
        """
        index, log, missing = self._plan(client, self._read_index())
        hidden: Ranges = []
        read = pa.Table.from_batches(self._read(client, log, missing, hidden), _SCHEMA)
        index.gaps = join_ranges([*index.gaps, *hidden])
        births = self._births(index)
        births.tables.append(read)
        return births

    def _checked_index(self, client: StreamClient) -> _Index | None:
        """Return the index of births in the history of the present log; None if there are none.

        Raises:
            EpochMismatch: the log has another history, and does not know where they part.
        """
        index = self._read_index()
        if index is None:
            return None
        mark = parse_mark(index.mark)
        try:
            found = client.check_position(self._stream, index.epoch, index.end, mark)
        except EpochMismatch:
            if client.offsets(self._stream).epoch == index.epoch:
                raise
            return None
        return index if found.parts_at is None else _cut(index, found.parts_at)

    def _plan(
        self, client: StreamClient, index: _Index | None
    ) -> tuple[_Index, StreamOffsets, Ranges]:
        """Return the index after an update without new births, the log, and what to read of it."""
        log = client.offsets(self._stream)
        if index is not None and index.epoch != log.epoch:
            index = _cut(index, dict(log.lineage).get(index.epoch, 0))
        index = index or _Index(_LAYOUT, log.epoch, self._stream, self._filters)
        index.epoch, index.lineage = log.epoch, log.lineage
        if index.end < log.earliest:
            index.gaps = join_ranges([*index.gaps, (index.end, log.earliest)])
            index.end = log.earliest
        missing = subtract_ranges(index.end, log.latest, log.given_up)
        lost = [one for one in log.given_up if index.end < one[1] and one[0] < log.latest]
        index.gaps = join_ranges([*index.gaps, *lost])
        if index.end <= log.latest:
            index.end, index.mark = log.latest, str(log.mark)
        return index, log, missing

    def _births(self, index: _Index) -> LoggedBirths:
        tables = [self._read_file(one) for one in index.files]
        return LoggedBirths(index.epoch, index.end, index.gaps, tables, index.lineage)

    def _read_file(self, file: _File) -> pa.Table:
        """Return the births in a file, of which only those that are used are read from disk."""
        assert self._directory is not None, "the directory has the file"
        path = self._directory / file.name
        births = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        if file.below == COUNT_MAX:
            return births
        return births.filter(pc.less(births.column("offset"), file.below))

    def _read(
        self, client: StreamClient, log: StreamOffsets, missing: Ranges, hidden: Ranges
    ) -> Iterator[pa.RecordBatch]:
        """Yield the births in ranges of the log; add what a damaged block hides to ``hidden``."""
        names = _SCHEMA.names

        def skip(begin: int, end: int, failure: StoreUnavailable) -> None:
            logger.warning("births of Sparkplug nodes may be missing: %s", Sentence(failure))
            hidden.append((begin, end))

        for start, end in missing if self._filters else ():
            for batch in client.read(
                self._stream,
                log.epoch,
                start,
                end,
                topic_filters=self._filters,
                columns=names,
                on_damage=skip,
            ):
                yield batch.cast(_SCHEMA)

    def _read_index(self) -> _Index | None:
        """Return the index; None if there is none, or it is of another selection or damaged."""
        if self._directory is None:
            return None
        try:
            index = msgspec.json.decode((self._directory / _INDEX).read_bytes(), type=_Index)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError:
            index = None
        if index is None or not all((self._directory / one.name).exists() for one in index.files):
            self._warn_of_damage()
            return None
        found = index.layout, index.stream, index.filters
        return index if found == (_LAYOUT, self._stream, self._filters) else None

    def _warn_of_damage(self) -> None:
        logger.warning(
            "the births in %s are damaged, and are read from the log again: data of nodes that were"
            " born before it begins become dead letters until they are born again",
            self._directory,
        )

    def _merge(self, directory: Path, index: _Index, begin: int) -> list[_File]:
        """Merge all files into one, without births that no message from ``begin`` on needs."""
        births = pa.concat_tables(self._births(index).tables)
        offsets = births.column("offset")
        is_late = pc.greater_equal(offsets, begin)
        earlier = births.filter(pc.invert(is_late))
        last = earlier.group_by("topic").aggregate([("offset", "max")]).column("offset_max")
        wanted = pc.or_(is_late, pc.is_in(offsets, last.combine_chunks()))
        files = _write(directory, iter(births.filter(wanted).to_batches()))
        names = {one.name for one in (*files, *index.files)}
        for path in directory.glob("*.arrow"):
            is_old = time.time() - path.stat().st_mtime > UNUSED_FILE_S_MAX
            if is_old and path.name not in names:
                path.unlink()
        return files


def _cut(index: _Index, end: int) -> _Index:
    """Return the index without births, and gaps, from an offset on."""
    if index.end <= end:
        return index
    gaps = [(first, min(last, end)) for first, last in index.gaps if first < end]
    files = [_File(one.name, min(one.below, end)) for one in index.files] if end else []
    return _Index(index.layout, index.epoch, index.stream, index.filters, end, "", gaps, files)


def _write(directory: Path, batches: Iterator[pa.RecordBatch]) -> list[_File]:
    """Write births to a new file and return it; return [] without births."""
    first = next(batches, None)
    if first is None:
        return []
    path = directory / f"{uuid.uuid4().hex}.arrow"
    try:
        with path.open("wb") as file:
            with pa.ipc.new_file(file, _SCHEMA) as writer:
                for batch in chain([first], batches):
                    writer.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink()
        raise
    return [_File(path.name)]


def _write_index(directory: Path, index: _Index) -> None:
    path = directory / _INDEX
    text = msgspec.json.encode(index)
    with suppress(FileNotFoundError):
        if path.read_bytes() == text:
            return
    unfinished = path.with_suffix(".new")
    with unfinished.open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync_directory(directory)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
