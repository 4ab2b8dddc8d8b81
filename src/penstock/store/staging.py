"""The staging area: rows that Spark or another program wrote to disk for the broker to publish.

::

    DATA_DIR/staged/SINK/BATCH/RUN-PARTITION-UNIQUE.arrow   rows of a task, synced
                               UNIQUE.proposal              a list of files to become the batch
                               decided                      the proposal that became the batch

    staged ─▶ proposed ── decide: renamed, synced ──▶ decided ─▶ published ─▶ removed
      ╰──────────┴── discarded, or older than the time limit ─▶ removed

1. A file gets its final name only once it is complete and synced; so are the names of the
   directories above it.
2. Of all proposals for a batch at most one is ever decided. From then on the batch consists of
   exactly its files, in its order, and they stay until the batch is published.
3. Undecided files and proposals may be removed at any time. A proposal that names a removed file is
   refused.

The stream service stages and proposes; the broker decides, publishes and removes. While a batch is
not published, only the broker decides and removes, one step at a time.
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

from penstock.engine.values.sink_batches import BATCH_MAX, ROWS_MAX, Row
from penstock.errors import StoreError, StoreUnavailable
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
"""The columns of a staged file; its rows were validated before they were staged."""

STAGED_DIRECTORY: Final = "staged"
DECIDED: Final = "decided"

_PROPOSAL: Final = ".proposal"
_ROWS: Final = ".arrow"
_UNFINISHED: Final = ".new"
_ATTEMPTS_MAX: Final = 100
"""Attempts to create a directory that another process removes meanwhile."""
NAME_RULE: Final = "1 to 128 letters, digits and . _ - that start with a letter or digit"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_OWNED: Final = re.compile(rf"(?:[A-Za-z0-9][A-Za-z0-9_.-]{{0,63}}~)?{_NAME.pattern}")


class StagedFile(msgspec.Struct, frozen=True, array_like=True):
    """A staged file: its name, and how many rows and bytes it has."""

    name: str
    rows: int
    size_bytes: int


class StagedBatch(msgspec.Struct, frozen=True):
    """The rows of a batch: the sink, the batch's number, the client that publishes them, the
    files in the order of publishing, and the batch's plan (``engine.publishing.sink_positions``).
    """

    sink: str
    batch: int
    client_id: str
    files: tuple[StagedFile, ...]
    plan: str = ""

    @property
    def rows(self) -> int:
        """Return the number of rows in all files."""
        return sum(file.rows for file in self.files)


_decode_batch = msgspec.json.Decoder(StagedBatch).decode


@final
class Staging:
    """The staging area in ``data_dir``."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._top = data_dir / STAGED_DIRECTORY

    # -- staging -----------------------------------------------------------------------

    def stage(self, sink: str, batch: int, run: str, partition: int, rows: pa.Table) -> StagedFile:
        """Write rows to a new staged file, with a sync; return the file.

        Args:
            sink: name of the sink that publishes the rows.
            batch: number of the batch, 0 to ``BATCH_MAX``.
            run: name of the attempt at this batch, see ``discard_attempt``.
            partition: number of the batch's partition that the rows belong to.
            rows: one row or more, with the columns of ``STAGED_SCHEMA``.

        Raises:
            StoreError: a name or number is not allowed.
            StoreUnavailable: the rows could not be written.
        """
        sink_of_file = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink_of_file, STAGED_SCHEMA) as writer:
            writer.write_table(rows)
        data = sink_of_file.getvalue()
        name = f"{_validated_name(run)}-{partition:05d}-{uuid.uuid4().hex}{_ROWS}"
        self._write(self._batch_directory(sink, batch), name, data)
        return StagedFile(name, rows.num_rows, data.size)

    def propose(self, staged_batch: StagedBatch) -> str:
        """Write a proposal that ``staged_batch`` becomes the batch; return the proposal's name.

        Raises:
            StoreError: a name or number in ``staged_batch`` is not allowed.
            StoreUnavailable: the proposal could not be written.
        """
        name = uuid.uuid4().hex + _PROPOSAL
        self._write(
            self._batch_directory(staged_batch.sink, staged_batch.batch),
            name,
            msgspec.json.encode(staged_batch),
        )
        return name

    def size_bytes(self) -> int:
        """Return the size of all staged files in bytes."""
        return sum(size for _, size, _ in self._files())

    # -- deciding ----------------------------------------------------------------------

    def decide(self, sink: str, batch: int, proposal: str) -> StagedBatch:
        """Make a proposal the batch for good, with a sync; return the decided batch.

        If the batch was decided before, that decision stays and is returned.

        Args:
            sink: name of the sink.
            batch: number of the batch.
            proposal: name of the proposal.

        Raises:
            StoreError: the proposal does not exist, has too many rows, or names a file that does
                not exist or has another size.
            StoreUnavailable: the decision could not be written.
        """
        directory = self._batch_directory(sink, batch)
        decided = directory / DECIDED
        try:
            if not decided.exists():
                self._check(directory, proposal)
                (directory / _validated_name(proposal)).rename(decided)
            sync_directory(directory)  # an earlier decision may be renamed and not synced
            return _decode_batch(decided.read_bytes())
        except (OSError, msgspec.MsgspecError) as error:
            raise self._failed(error) from error

    def is_decided(self, sink: str, batch: int) -> bool:
        """Return whether a batch is decided and not removed yet."""
        return (self._batch_directory(sink, batch) / DECIDED).exists()

    def decided_batches(self) -> list[StagedBatch]:
        """Return all decided batches; log an error for each decision that cannot be read."""
        found: list[StagedBatch] = []
        for path in sorted(directory / DECIDED for directory in self._batch_directories()):
            if not path.exists():
                continue
            try:
                sync_directory(path.parent)  # the decision may have been renamed and not synced
                found.append(_decode_batch(path.read_bytes()))
            except (OSError, msgspec.MsgspecError) as error:
                logger.error("%s cannot be read, and its rows are not published: %s", path, error)
        return found

    def _check(self, directory: Path, proposal: str) -> None:
        try:
            proposed = _decode_batch((directory / _validated_name(proposal)).read_bytes())
        except FileNotFoundError:
            raise StoreError(f"there is no proposal {proposal} in {directory}") from None
        if proposed.rows > ROWS_MAX:
            raise StoreError(f"a batch may have {ROWS_MAX} rows, and this one has {proposed.rows}")
        for file in proposed.files:
            try:
                size_bytes = (directory / _validated_name(file.name)).stat().st_size
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

    def read(
        self, staged_batch: StagedBatch, file: StagedFile, first: int, count: int
    ) -> list[Row]:
        """Return rows of one file of a batch.

        Args:
            staged_batch: the batch.
            file: the file.
            first: number of the first row to return, from 0.
            count: greatest number of rows to return. It bounds the time for which other threads
                wait, because converting a column to Python objects holds the interpreter's lock.

        Raises:
            StoreUnavailable: the file cannot be read.
        """
        path = self._batch_directory(staged_batch.sink, staged_batch.batch) / file.name
        try:
            with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
                table = reader.read_all()
                if table.num_rows != file.rows:
                    raise StoreUnavailable(f"{path} has {table.num_rows} rows, not {file.rows}")
                columns = [column.to_pylist() for column in table.slice(first, count).columns]
        except (OSError, pa.ArrowException) as error:
            raise StoreUnavailable(f"{path} cannot be read: {error}") from error
        topics, payloads, qos, retain, properties = columns
        return list(zip(topics, payloads, qos, retain, [p or b"" for p in properties], strict=True))

    def read_in_pieces(
        self, staged_batch: StagedBatch, file: StagedFile, size_bytes: int
    ) -> Iterator[bytes]:
        """Yield the bytes of a file of a batch, in pieces of ``size_bytes``.

        Raises:
            StoreUnavailable: the file cannot be read.
        """
        path = self._batch_directory(staged_batch.sink, staged_batch.batch) / file.name
        try:
            with path.open("rb") as source:
                while piece := source.read(size_bytes):
                    yield piece
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be read: {error}") from error

    def restore(
        self, staged_batch: StagedBatch, files: Iterable[tuple[str, Iterable[bytes]]]
    ) -> None:
        """Write the files of a batch that another cluster member decided, and the decision.

        Args:
            staged_batch: the decided batch.
            files: name and bytes of each file, the bytes in pieces.

        Raises:
            StoreError: a name is not allowed.
            StoreUnavailable: a file could not be written.
        """
        place = self._batch_directory(staged_batch.sink, staged_batch.batch)
        for name, pieces in files:
            self._write(place, _validated_name(name), b"".join(pieces))
        self._write(place, DECIDED, msgspec.json.encode(staged_batch))

    def remove_batch(self, sink: str, batch: int) -> None:
        """Remove all staged files of a published batch; ignore errors of the disk."""
        directory = self._batch_directory(sink, batch)
        shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            directory.parent.rmdir()  # succeeds after the sink's last batch

    def discard_attempt(self, sink: str, batch: int, run: str) -> None:
        """Remove the files that one attempt staged for a batch, unless the batch is decided.

        Args:
            sink: name of the sink.
            batch: number of the batch.
            run: name of the attempt; files of attempts named ``RUN-…`` are removed too.
        """
        if self.is_decided(sink, batch):
            return
        directory = self._batch_directory(sink, batch)
        for path in _entries(directory):
            if path.name.startswith(f"{_validated_name(run)}-"):
                with contextlib.suppress(OSError):
                    path.unlink()
        _remove_empty(directory)

    def remove_expired(self, before_s: float) -> int:
        """Remove undecided files that were staged before a time; return the number removed.

        Args:
            before_s: the time, seconds since the Unix epoch.
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
        return self._top / _validated_name(sink) / str(batch)

    def _files(self) -> Iterator[tuple[Path, int, float]]:
        """Yield path, size in bytes and time of modification (Unix, seconds) of each file."""
        for directory in self._batch_directories():
            for path in _entries(directory):
                with contextlib.suppress(OSError):  # removed meanwhile
                    found = path.stat()
                    yield path, found.st_size, found.st_mtime

    def _batch_directories(self) -> Iterator[Path]:
        """Yield the directory of each batch.

        Directories may be removed meanwhile, on which `Path.glob` would fail.
        """
        for sink in _entries(self._top):
            yield from _entries(sink)

    def _write(self, directory: Path, name: str, data: bytes | pa.Buffer) -> None:
        """Write a file under a temporary name, sync it, rename it, and sync the directories.

        The broker may remove the directory meanwhile, because the batch is published or the
        directory is empty; then it is created again. If the removal coincides with the creation,
        `Path.mkdir` raises `FileExistsError`.
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
                    sync_directory(path)  # another writer may have just created them
                return
            except (FileNotFoundError, FileExistsError) as error:
                if attempt == _ATTEMPTS_MAX - 1:
                    raise self._failed(error) from error
            except OSError as error:
                raise self._failed(error) from error

    def _failed(self, error: Exception) -> StoreUnavailable:
        why = with_remedy(error, self._data_dir)
        return StoreUnavailable(f"the staging area {self._top} cannot be used: {why}")


def is_sink_name(name: str) -> bool:
    """Return whether a sink may have this name (``NAME_RULE``); it names a directory, too."""
    return _NAME.fullmatch(name) is not None


def owned_sink_name(owner: str, sink: str) -> str:
    """Return the name under which a sink of `owner` is stored: `OWNER~SINK`, so that sinks of
    different owners never share a name; `sink` itself where `owner` is empty."""
    return f"{owner}~{sink}" if owner else sink


def sink_name_without_owner(sink: str) -> str:
    """Return `SINK` for a stored name `OWNER~SINK`; empty for a name without an owner."""
    return sink.partition("~")[2]


def _validated_name(name: str) -> str:
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
