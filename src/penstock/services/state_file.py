"""A state file: a small file in the data directory with records of the present log, all of one
kind.

A write replaces the whole file: a reader finds the last content or the one before. Records have
an offset, which means nothing in another log, and its mark (`penstock.store.mark`). Where the file
and the log were not put back together, a record whose history parts from the log's goes back to
where they part; records of another log are dropped.

In a cluster the content is a value in the store, which is replicated through the log, so that the
next primary has it.

A damaged file prevents the start, as damaged files of the store do: without its records the broker
would silently break its promises to readers and publishers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar, cast, final

import msgspec

from penstock.errors import StoreCorrupt, StoreError, StoreUnavailable
from penstock.services.histories import judge_text
from penstock.store.history import parted_in_words
from penstock.store.port import Store
from penstock.store.rocks import RocksStore
from penstock.store.watermark import sync_directory
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

Record = TypeVar("Record", bound=msgspec.Struct)


class _Place(Protocol):
    """The part of a record that this module knows."""

    offset: int
    mark: str


class _Content(msgspec.Struct, Generic[Record]):
    epoch: str
    records: list[Record]


class StateStorage(Protocol):
    """The storage of a state file's content; errors and log lines name it by its ``str``."""

    def read(self) -> bytes | None:
        """Return the content; None if nothing was written yet.

        Raises:
            StoreError: the content cannot be read.
        """

    def write(self, content: bytes) -> None:
        """Replace the content; return when it is durable. The call blocks.

        Raises:
            StoreUnavailable: the content cannot be written.
        """


@final
class FileStorage:
    """Storage in a file; the first write creates it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def read(self) -> bytes | None:
        """Return the content; None if there is no file.

        Raises:
            StoreError: the file cannot be read.
        """
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self._path} cannot be read: {error.strerror}") from error

    def write(self, content: bytes) -> None:
        """Replace the file and sync it.

        Raises:
            StoreUnavailable: the file cannot be written.
        """
        unfinished = self._path.with_name(self._path.name + ".new")
        try:
            with unfinished.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self._path)
            sync_directory(self._path.parent)
        except OSError as error:
            raise StoreUnavailable(f"{self._path} cannot be written: {error.strerror}") from error


@final
class DatabaseStorage:
    """Storage as a value in the store of a member of a cluster."""

    def __init__(self, store: RocksStore, name: str) -> None:
        self._store = store
        self._name = name

    def __str__(self) -> str:
        return f"{self._name} in the store"

    def read(self) -> bytes | None:
        """Return the value; None if the store has none of this name."""
        return self._store.read_state(self._name)

    def write(self, content: bytes) -> None:
        """Replace the value; return when the cluster's log has it."""
        self._store.write_state(self._name, content)


def storage_of(data_dir: Path, name: str, store: Store) -> StateStorage:
    """Return the storage for the state file ``name``: the store in a cluster, else a file."""
    if isinstance(store, RocksStore) and store.acknowledged_when == "quorum":
        return DatabaseStorage(store, name)
    return FileStorage(data_dir / name)


@final
class StateFile(Generic[Record]):
    """One state file.

    Args:
        storage: the storage of the file's content.
        kind: the type of its records.
        store: the store with the log.
        loss_consequence: the consequence of its loss, a clause for the error of a damaged file.
    """

    def __init__(
        self, storage: StateStorage, kind: type[Record], store: Store, loss_consequence: str
    ) -> None:
        self._storage = storage
        self._kind = kind
        self._store = store
        self._loss_consequence = loss_consequence
        self._one_at_a_time = asyncio.Lock()
        self.has_changed = False
        """True while a change has not been written, and may be lost."""

    def read(self) -> list[Record]:
        """Return the records; none if there is no file, or it belongs to another log.

        Raises:
            StoreCorrupt: the file is damaged.
            StoreError: the file cannot be read.
        """
        content = self._storage.read()
        if content is None:
            return []
        try:
            found = msgspec.json.decode(
                content,
                type=_Content[self._kind],  # type: ignore[name-defined]
            )
        except msgspec.MsgspecError as error:
            raise StoreCorrupt(
                f"{self._storage} is damaged ({error}): {self._loss_consequence}; replace it by"
                " a copy, or remove it to start without"
            ) from error
        kept = [record for record in found.records if self._is_of_this_log(found.epoch, record)]
        forgotten = len(found.records) - len(kept)
        if forgotten:
            logger.warning(
                "%s is of the log's epoch %s, which is %s now: %d of its entries are forgotten",
                self._storage,
                found.epoch,
                self._store.epoch,
                forgotten,
            )
        return kept

    def _is_of_this_log(self, epoch: str, record: Record) -> bool:
        """Return whether a record is of this log; move it back to where its history parts from the
        log's."""
        place = cast(_Place, record)
        verdict = judge_text(self._store, epoch, place.offset, place.mark)
        if verdict.parts_at is not None:
            logger.warning(
                "%s: %s; it goes back there",
                self._storage,
                parted_in_words(epoch, place.offset, verdict),
            )
            place.offset, place.mark = verdict.parts_at, ""
            self.has_changed = True
        return verdict.is_same or verdict.parts_at is not None

    def _write(self, content: _Content[Record]) -> None:
        for record in content.records:
            place = cast(_Place, record)
            place.mark = str(self._store.mark_at(place.offset))
        self._storage.write(msgspec.json.encode(content))

    async def write(self, records: Callable[[], list[Record]]) -> None:
        """Replace the content of the file by the result of ``records``; return when it is synced.

        Raises:
            StoreUnavailable: the file cannot be written.
        """
        loop = asyncio.get_running_loop()
        async with self._one_at_a_time:
            content = _Content(
                self._store.epoch, [msgspec.structs.replace(record) for record in records()]
            )
            self.has_changed = False
            try:
                await loop.run_in_executor(None, self._write, content)
            except StoreError:
                self.has_changed = True
                raise
