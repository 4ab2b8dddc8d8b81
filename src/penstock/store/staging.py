"""The staging area: rows from outside, on disk before the broker publishes them.

::

    DATA_DIR/staged/SINK/BATCH/RUN-PARTITION-UNIQUE.arrow   rows of a task, synced
                               UNIQUE.proposal              the files that are to be the batch
                               decided                      the proposal that was chosen

    staged ─▶ proposed ── decide: renamed, synced ──▶ decided ─▶ published ─▶ forgotten
      ╰──────────┴── abandoned, or older than the time limit ─▶ removed

1. What has its name is whole and synced, and so are the names of the directories above it.
2. Of all proposals for a batch at most one is ever decided; from then on exactly its files, in its
   order, are the batch, whatever else is staged, and they stay until the batch is published.
3. What is not decided means nothing: it may be removed at any time, and a proposal of what is not
   there any more is refused.

The stream service stages and proposes, the broker decides, publishes and removes; decisions and
removals are the broker's alone while the batch is not done, and one at a time.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, final

import msgspec
import pyarrow as pa

from penstock.engine.publishing.sink_positions import BATCH_MAX, ROWS_MAX, Row
from penstock.errors import StoreError, StoreFailed
from penstock.store.faults import with_remedy
from penstock.store.watermark import sync_directory
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

STAGED_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("qos", pa.int8(), nullable=False),
        pa.field("retain", pa.bool_(), nullable=False),
        pa.field("properties", pa.binary(), nullable=True),  # raw MQTT 5 property bytes
    ]
)
"""The columns of a staged file: rows that were checked, as the log will have them."""

STAGED_DIRECTORY: Final = "staged"
DECIDED: Final = "decided"

_PROPOSAL: Final = ".proposal"
_ROWS: Final = ".arrow"
_UNFINISHED: Final = ".new"
_ATTEMPTS_MAX: Final = 100
"""Attempts to make a directory that is removed meanwhile."""
NAME_RULE: Final = "1 to 128 letters, digits and . _ - that start with a letter or digit"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_OWNED: Final = re.compile(rf"(?:[A-Za-z0-9][A-Za-z0-9_.-]{{0,63}}~)?{_NAME.pattern}")


class StagedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of rows: its name, and how many rows and bytes it has."""

    name: str
    rows: int
    size_bytes: int


class RowSet(msgspec.Struct, frozen=True):
    """The rows of one batch: its sink, and its files in their order."""

    sink: str
    batch: int
    client_id: str
    files: tuple[StagedFile, ...]

    @property
    def rows(self) -> int:
        """Return how many there are."""
        return sum(file.rows for file in self.files)


_decode_set = msgspec.json.Decoder(RowSet).decode


@final
class Staging:
    """The staging area below ``data_dir``."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._top = data_dir / STAGED_DIRECTORY

    # -- staging -----------------------------------------------------------------------

    def stage(self, sink: str, batch: int, run: str, partition: int, rows: pa.Table) -> StagedFile:
        """Write rows of ``STAGED_SCHEMA``; they are on disk when this returns.

        Args:
            sink: the sink that publishes them.
            batch: its number.
            run: the attempt at this batch, see ``abandon``.
            partition: number of the part of the batch that the rows belong to.
            rows: at least one.

        Raises:
            StoreFailed: they could not be written.
        """
        sink_of_file = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink_of_file, STAGED_SCHEMA) as writer:
            writer.write_table(rows)
        data = sink_of_file.getvalue()
        name = f"{_checked(run)}-{partition:05d}-{uuid.uuid4().hex}{_ROWS}"
        self._write(self._batch_directory(sink, batch), name, data)
        return StagedFile(name, rows.num_rows, data.size)

    def propose(self, row_set: RowSet) -> str:
        """Write a proposal with the files of a batch; return its name.

        Raises:
            StoreFailed: it could not be written.
        """
        name = uuid.uuid4().hex + _PROPOSAL
        self._write(
            self._batch_directory(row_set.sink, row_set.batch), name, msgspec.json.encode(row_set)
        )
        return name

    def size_bytes(self) -> int:
        """Return how many bytes all staged files occupy."""
        return sum(size for _, size, _ in self._files())

    # -- deciding ----------------------------------------------------------------------

    def decide(self, sink: str, batch: int, proposal: str) -> RowSet:
        """Let a proposal be the batch, for good; if one was decided before, return that one.

        Raises:
            StoreError: the proposal, or a file it names, is not there.
            StoreFailed: the decision could not be written.
        """
        directory = self._batch_directory(sink, batch)
        decided = directory / DECIDED
        try:
            if not decided.exists():
                self._check(directory, proposal)
                (directory / _checked(proposal)).rename(decided)
            sync_directory(directory)  # also one that was renamed and perhaps not synced
            return _decode_set(decided.read_bytes())
        except (OSError, msgspec.MsgspecError) as error:
            raise self._failed(error) from error

    def is_decided(self, sink: str, batch: int) -> bool:
        """Return whether a batch is decided, and not forgotten yet."""
        return (self._batch_directory(sink, batch) / DECIDED).exists()

    def decided(self) -> list[RowSet]:
        """Return all batches that are decided and not forgotten; log one that cannot be read."""
        found: list[RowSet] = []
        for path in sorted(directory / DECIDED for directory in self._batch_directories()):
            if not path.exists():
                continue
            try:
                sync_directory(path.parent)  # the decision may have been renamed and not synced
                found.append(_decode_set(path.read_bytes()))
            except (OSError, msgspec.MsgspecError) as error:
                logger.error("%s cannot be read, and its rows are not published: %s", path, error)
        return found

    def _check(self, directory: Path, proposal: str) -> None:
        try:
            proposed = _decode_set((directory / _checked(proposal)).read_bytes())
        except FileNotFoundError:
            raise StoreError(f"there is no proposal {proposal} in {directory}") from None
        if proposed.rows > ROWS_MAX:
            raise StoreError(f"a batch may have {ROWS_MAX} rows, and this one has {proposed.rows}")
        for file in proposed.files:
            try:
                size_bytes = (directory / _checked(file.name)).stat().st_size
            except FileNotFoundError:
                raise StoreError(
                    f"staged rows of batch {proposed.batch} of {proposed.sink} are not here any"
                    " more: removed after stream.staged_expiry_s, given up, or staged at a machine"
                    " of the cluster that is the primary no longer; run the batch again"
                ) from None
            if size_bytes != file.size_bytes:
                raise StoreError(
                    f"{directory / file.name} has {size_bytes} bytes, not what was staged"
                )

    # -- publishing --------------------------------------------------------------------

    def read(self, row_set: RowSet, file: StagedFile, first: int, count: int) -> list[Row]:
        """Return up to ``count`` rows of one file of a batch, from number ``first`` of the file on.

        Making objects of a column holds up all threads: ``count`` bounds that.

        Raises:
            StoreFailed: it cannot be read.
        """
        path = self._batch_directory(row_set.sink, row_set.batch) / file.name
        try:
            with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
                table = reader.read_all()
                if table.num_rows != file.rows:
                    raise StoreFailed(f"{path} has {table.num_rows} rows, not {file.rows}")
                columns = [column.to_pylist() for column in table.slice(first, count).columns]
        except (OSError, pa.ArrowException) as error:
            raise StoreFailed(f"{path} cannot be read: {error}") from error
        topics, payloads, qos, retain, properties = columns
        return list(zip(topics, payloads, qos, retain, [p or b"" for p in properties], strict=True))

    def pieces(self, row_set: RowSet, file: StagedFile, size_bytes: int) -> Iterator[bytes]:
        """Yield the bytes of a file of a batch, in pieces of ``size_bytes``.

        Raises:
            StoreFailed: it cannot be read.
        """
        path = self._batch_directory(row_set.sink, row_set.batch) / file.name
        try:
            with path.open("rb") as source:
                while piece := source.read(size_bytes):
                    yield piece
        except OSError as error:
            raise StoreFailed(f"{path} cannot be read: {error}") from error

    def restore(self, row_set: RowSet, files: Iterable[tuple[str, Iterable[bytes]]]) -> None:
        """Write the files of a batch that was decided elsewhere, and the decision.

        Raises:
            StoreFailed: they could not be written.
        """
        place = self._batch_directory(row_set.sink, row_set.batch)
        for name, pieces in files:
            self._write(place, _checked(name), b"".join(pieces))
        self._write(place, DECIDED, msgspec.json.encode(row_set))

    def forget(self, sink: str, batch: int) -> None:
        """Remove all staged files of a published batch, as far as the disk lets them be removed."""
        directory = self._batch_directory(sink, batch)
        shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            directory.parent.rmdir()  # of the last batch

    def abandon(self, sink: str, batch: int, run: str) -> None:
        """Remove the files that one attempt staged for a batch, unless the batch is decided.

        Args:
            sink: the sink with the batch.
            batch: its number.
            run: the attempt; attempts named ``RUN-…`` are parts of it, and removed too.
        """
        if self.is_decided(sink, batch):
            return
        directory = self._batch_directory(sink, batch)
        for path in _entries(directory):
            if path.name.startswith(f"{_checked(run)}-"):
                with contextlib.suppress(OSError):
                    path.unlink()
        _remove_empty(directory)

    def sweep(self, before_s: float) -> int:
        """Remove undecided files that were staged before a time; return their number.

        Args:
            before_s: seconds since the Unix epoch.
        """
        removed = 0
        for path, _, modified_s in list(self._files()):
            if modified_s < before_s and not (path.parent / DECIDED).exists():
                with contextlib.suppress(OSError):
                    path.unlink()
                    removed += 1
        for directory in list(self._batch_directories()):
            _remove_empty(directory)
        return removed

    # -- inside ------------------------------------------------------------------------

    def _batch_directory(self, sink: str, batch: int) -> Path:
        if not 0 <= batch <= BATCH_MAX:
            raise StoreError(f"a batch has a number from 0 to {BATCH_MAX}, not {batch}")
        return self._top / _checked(sink) / str(batch)

    def _files(self) -> Iterator[tuple[Path, int, float]]:
        """Yield path, size in bytes and time of change of each file."""
        for directory in self._batch_directories():
            for path in _entries(directory):
                with contextlib.suppress(OSError):  # it has just gone
                    found = path.stat()
                    yield path, found.st_size, found.st_mtime

    def _batch_directories(self) -> Iterator[Path]:
        """Yield the directory of each batch. Others remove them meanwhile, on which `Path.glob`
        fails."""
        for sink in _entries(self._top):
            yield from _entries(sink)

    def _write(self, directory: Path, name: str, data: bytes | pa.Buffer) -> None:
        """Write a file whole, synced, and its name too.

        The broker may remove the directory meanwhile, because the batch is done or nothing was in
        it: then it is made once more. If that is while it is made, `Path.mkdir` says that it is in
        the way.
        """
        unfinished = directory / (name + _UNFINISHED)
        for attempt in range(_ATTEMPTS_MAX):
            try:
                directory.mkdir(parents=True, exist_ok=True)
                with unfinished.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.rename(directory / name)
                for path in (directory, directory.parent, self._top, self._data_dir):
                    sync_directory(path)  # also what another writer has just made
                return
            except (FileNotFoundError, FileExistsError) as error:
                if attempt == _ATTEMPTS_MAX - 1:
                    raise self._failed(error) from error
            except OSError as error:
                raise self._failed(error) from error

    def _failed(self, error: Exception) -> StoreFailed:
        why = with_remedy(error, self._data_dir)
        return StoreFailed(f"the staging area {self._top} cannot be used: {why}")


def is_name(name: str) -> bool:
    """Return whether a sink may have this name, which is the name of a directory, too."""
    return _NAME.fullmatch(name) is not None


def owned(owner: str, sink: str) -> str:
    """Return the name under which a sink of `owner` is stored; sinks of different owners never
    share it."""
    return f"{owner}~{sink}" if owner else sink


def without_owner(sink: str) -> str:
    """Return the name that an `owned` sink had before it had an owner; empty where it has none."""
    return sink.partition("~")[2]


def _checked(name: str) -> str:
    if _OWNED.fullmatch(name) is None:
        raise StoreError(f"a name must be {NAME_RULE}, not {name!r}")
    return name


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _remove_empty(directory: Path) -> None:
    for path in (directory, directory.parent):
        with contextlib.suppress(OSError):
            path.rmdir()
