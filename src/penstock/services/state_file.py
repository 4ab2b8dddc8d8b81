"""A state file: a small file in the data directory with records of the present log, one kind a
file.

It is replaced whole: a reader finds the content that was written last, or the one before. Records
have offsets, which mean nothing in another log: records of another epoch are dropped.

A file that is damaged refuses a start, as the store's own do: without its records a broker would
break what it promised by them, without a word.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar, final

import msgspec

from penstock.errors import StoreBroken, StoreError, StoreFailed
from penstock.store.watermark import sync_directory
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

Record = TypeVar("Record", bound=msgspec.Struct)


class _Content(msgspec.Struct, Generic[Record]):
    epoch: str
    records: list[Record]


@final
class StateFile(Generic[Record]):
    """One state file.

    Args:
        path: its path; the file is made when it is first written.
        kind: the type of its records.
        epoch: the epoch of the log.
        without: the consequence of its loss, as the rest of a sentence.
    """

    def __init__(self, path: Path, kind: type[Record], epoch: str, without: str) -> None:
        self._path = path
        self._kind = kind
        self._epoch = epoch
        self._without = without
        self._one_at_a_time = asyncio.Lock()
        self.has_changed = False
        """True while a change is not written yet, and may be lost."""

    def read(self) -> list[Record]:
        """Return the records; none where there is no file, or it belongs to another log.

        Raises:
            StoreBroken: it is damaged.
            StoreError: it cannot be read.
        """
        try:
            found = msgspec.json.decode(
                self._path.read_bytes(),
                type=_Content[self._kind],  # type: ignore[name-defined]
            )
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"{self._path} cannot be read: {error.strerror}") from error
        except msgspec.MsgspecError as error:
            raise StoreBroken(
                f"{self._path} is damaged ({error}): {self._without}; put a copy of it in its"
                " place, or remove it to start without"
            ) from error
        if found.epoch != self._epoch:
            if found.records:
                logger.warning(
                    "%s is of the log's epoch %s, which is %s now: its %d entries are forgotten",
                    self._path,
                    found.epoch,
                    self._epoch,
                    len(found.records),
                )
            return []
        return list(found.records)

    async def write(self, records: Callable[[], list[Record]]) -> None:
        """Replace the file by what ``records`` gives, and return when that is synced.

        Raises:
            StoreFailed: it could not be written.
        """
        loop = asyncio.get_running_loop()
        async with self._one_at_a_time:
            content = msgspec.json.encode(_Content(self._epoch, records()))
            self.has_changed = False
            try:
                await loop.run_in_executor(None, self._replace, content)
            except OSError as error:
                self.has_changed = True
                raise StoreFailed(f"{self._path} cannot be written: {error.strerror}") from error

    def _replace(self, content: bytes) -> None:
        unfinished = self._path.with_name(self._path.name + ".new")
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._path)
        sync_directory(self._path.parent)
