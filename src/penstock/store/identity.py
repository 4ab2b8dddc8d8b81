"""The identity of the log: its epoch, how far it reaches, and whether that is as far as was
acknowledged.

A log has an *epoch*: its incarnation. (epoch, offset) names one message for ever, so whatever may
make offsets mean other messages than before starts a new epoch: a new store, one that lost
messages, one that was restored. The *lineage* keeps the former epochs, each with the offset up to
which the log is still the same as it was in that epoch.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from penstock.errors import StoreBroken, StoreDamaged, StoreError, StoreFormatError
from penstock.store.chunk import decode_key, summary_of
from penstock.store.database import (
    FORMAT,
    FORMAT_KEY,
    FORMATS_READ,
    STORE_DIRECTORY,
    Database,
    check,
    has_database,
    open_for_reading,
)
from penstock.store.diagnosis import (
    broken_store,
    damage_as_broken,
    lacks_current,
    unfinished_repair,
)
from penstock.store.watermark import Committed, read_watermark

COMMITS: Final = b"commits"
EPOCH: Final = b"epoch"
LINEAGE: Final = b"lineage"
CREATED_AT: Final = b"created_at_us"
CLOCK: Final = b"clock"
"""The key of the steady clock's state (``engine.batch.steady_clock``); older stores have none."""
GIVEN_UP: Final = b"given_up"
LOG_BYTES_APPENDED: Final = b"log_bytes_appended"
LOG_BYTES_REMOVED: Final = b"log_bytes_removed"

decode_lineage: Final = msgspec.msgpack.Decoder(list[tuple[str, int]]).decode
decode_given_up: Final = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode
"""Offsets that repairs have given up, each from the first up to and without the second."""


def new_epoch() -> str:
    """Return a new name for an incarnation of the log: sortable by time, never given twice."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss: messages that were acknowledged, and are not in the store any more.

    Attributes:
        end: offset after the last message that is there.
        committed_end: offset after the last one that was committed.
        commits: number of commits that are missing; 0 where the watermark does not know.
    """

    end: int
    committed_end: int
    commits: int

    @property
    def messages(self) -> int:
        """Return how many messages are missing."""
        return max(0, self.committed_end - self.end)

    def __str__(self) -> str:
        if not self.messages:
            changes = "change" if self.commits == 1 else f"{self.commits} changes"
            return f"the last acknowledged {changes} of sessions or retained messages"
        if self.messages == 1:
            return f"the acknowledged message with offset {self.end}"
        return (
            f"{self.messages} acknowledged messages, those with the offsets"
            f" {self.end} to {self.committed_end - 1}"
        )


def read_epoch(database: Database) -> str | None:
    """Return the epoch of the log in ``database``; None where nothing was written to it yet.

    Raises:
        StoreFormatError: it is of a format that this version does not read.
    """
    meta = database.families["meta"]
    kept: bytes | None = meta.get(FORMAT_KEY)
    if kept is None:
        return None
    refuse_format(kept)
    named: bytes | None = meta.get(EPOCH)
    if named is None:
        raise StoreFormatError(
            "the store has a format but no epoch, so parts of it are missing: restore a backup"
        )
    return named.decode()


def refuse_format(version: bytes) -> None:
    """Refuse a store of a format that this version does not know, of a newer Penstock.

    Raises:
        StoreFormatError: this version cannot read ``version``, the format of the store.
    """
    if version not in FORMATS_READ:
        raise StoreFormatError(
            f"the store has format {version.decode(errors='replace')}, this version of "
            f"Penstock reads formats {FORMATS_READ[0].decode()} to {FORMAT.decode()}: use the"
            " version that wrote it"
        )


def read_lineage(database: Database) -> list[tuple[str, int]]:
    """Return former epochs, oldest first, each with the offset up to which it is the same log."""
    value: bytes | None = database.families["meta"].get(LINEAGE)
    return [] if value is None else decode_lineage(value)


def begin_epoch(database: Database) -> str:
    """Start a new epoch at the log's present end, synced; return its name."""
    epoch = new_epoch()
    meta = database.handles["meta"]
    batch = database.new_batch()
    former = read_epoch(database)
    if former is None:
        now_us = int(datetime.now(UTC).timestamp() * 1_000_000)
        batch.put(CREATED_AT, str(now_us).encode(), meta)
        batch.put(FORMAT_KEY, FORMAT, meta)
    else:
        lineage = [*read_lineage(database), (former, find_end(database))]
        batch.put(LINEAGE, msgspec.msgpack.encode(lineage), meta)
    batch.put(EPOCH, epoch.encode(), meta)
    database.write(batch)
    return epoch


def created_at_us(database: Database) -> int:
    """Return when the store was created, µs since the Unix epoch; 0 where that was not recorded."""
    value: bytes | None = database.families["meta"].get(CREATED_AT)
    return 0 if value is None else int(value)


def counter(database: Database, key: bytes) -> int:
    """Return a number kept in the column family ``meta``; 0 until it is written."""
    value: bytes | None = database.families["meta"].get(key)
    return 0 if value is None else decode_key(value)


def find_begin(database: Database) -> int:
    """Return the offset of the first message in the log; 0 for an empty one."""
    chunks = database.families["log"].iter()
    chunks.seek_to_first()
    if not chunks.valid():
        check(chunks)
        return 0
    return decode_key(chunks.key())


def find_end(database: Database) -> int:
    """Return the offset after the last message in the log; 0 for an empty one."""
    chunks = database.families["log"].iter()
    chunks.seek_to_last()
    if not chunks.valid():
        check(chunks)
        return 0
    try:
        return decode_key(chunks.key()) + summary_of(chunks.value()).rows
    except StoreFormatError as error:
        raise broken_store(database.data_dir, f"the end of the log: {error}") from error


def is_comparable(claimed: Committed, epoch: str) -> bool:
    """Return whether the watermark is of the log with this ``epoch``, as far as either is known."""
    return not epoch or claimed.epoch in ("", epoch)


def find_loss(database: Database, claimed: Committed | None) -> Loss | None:
    """Return the loss, messages or commits that the watermark ``claimed`` has and ``database``
    lacks; None if there is none."""
    if claimed is None:
        return None
    if not is_comparable(claimed, read_epoch(database) or ""):
        return None  # another log, with offsets of its own
    loss = Loss(
        find_end(database), claimed.end, max(0, claimed.commits - counter(database, COMMITS))
    )
    return loss if loss.messages or loss.commits else None


def refuse_losses(data_dir: Path) -> None:
    """Refuse a store that holds less than was acknowledged, and leave it as it is.

    To be called before the database is opened for writing: that turns the readable part of a
    damaged write-ahead log into tables and removes the rest, which the operator may want to save.
    Only records that could never be read are mended (``open_for_reading``).

    Raises:
        StoreDamaged: something is missing.
    """
    refuse_broken_files(data_dir)
    claimed = read_watermark(data_dir)  # before the database: it may be running ahead
    if not has_database(data_dir):
        if claimed is not None and (claimed.end or claimed.commits):
            raise damage_error(data_dir, Loss(0, claimed.end, claimed.commits))
        return
    try:
        database = open_for_reading(data_dir)
    except StoreBroken:
        raise
    except StoreError:
        return  # opening it for writing will tell why
    try:
        with damage_as_broken(data_dir):
            loss = find_loss(database, claimed)
            find_begin(database)
    finally:
        database.close()
    if loss is not None:
        raise damage_error(data_dir, loss)


def refuse_broken_files(data_dir: Path) -> None:
    """Refuse a database that must not even be opened for writing.

    Raises:
        StoreBroken: a file without which nothing can be found is missing.
        StoreError: a repair was interrupted while it put its files in place.
    """
    if unfinished_repair(data_dir) is not None:
        raise StoreError(
            f"the repair of the store in {data_dir} was interrupted: run 'penstock store repair"
            f" --data-dir {data_dir}' again"
        )
    if lacks_current(data_dir / STORE_DIRECTORY):
        raise broken_store(data_dir, "its file CURRENT is missing")


def is_unverified(database: Database, claimed: Committed | None) -> bool:
    """Return whether ``database`` has commits, and no watermark of its log says how many there
    should be."""
    if claimed is not None and claimed.end + claimed.commits > 0:
        known = {"", read_epoch(database), *(epoch for epoch, _ in read_lineage(database))}
        return claimed.epoch not in known
    return counter(database, COMMITS) > 0


def damage_error(data_dir: Path, loss: Loss) -> StoreDamaged:
    """Return the error for a ``loss``."""
    return StoreDamaged(
        f"the store in {data_dir} has lost {loss}, by damage to its files or because older ones"
        " were put in their place: move it away and restore a backup, or run"
        f" 'penstock store repair --data-dir {data_dir}' to go on without them in a new epoch"
    )
